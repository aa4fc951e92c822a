#!/usr/bin/env bash
# Brings what the outside suites for HTTP/2 and gRPC need: their Python packages, in a virtual environment of their own.
#
#   suites/setup.sh FOLDER      prints the path of the environment's python3
#
# Versions are pinned, so that a suite judges the same way tomorrow.
set -euo pipefail
folder=$1
packages=(h2==4.4.1 hpack==4.2.0 hyperframe==6.1.0 grpcio==1.85.3 grpcio-health-checking==1.85.1)

if [ ! -x "$folder/bin/python3" ]; then
    python3 -m venv "$folder" >&2
fi
stamp="$folder/installed"
if [ "$(cat "$stamp" 2>/dev/null)" != "${packages[*]}" ]; then
    "$folder/bin/python3" -m pip install -q --disable-pip-version-check "${packages[@]}" >&2
    printf '%s' "${packages[*]}" >"$stamp"
fi
echo "$folder/bin/python3"
