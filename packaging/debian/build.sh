#!/usr/bin/env bash
# Makes mizan_VERSION_ARCH.deb from a built binary: program, manual pages, completions, unit and an example.
#
#   packaging/debian/build.sh BINARY FOLDER      prints the path of the package
#
#   DEB_COMPRESSION   xz by default; none is quick
#
# Needs dpkg-deb, which every Debian and Ubuntu has, and binutils, which come with the C compiler. The unit is installed and not started: there is no
# configuration yet.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
binary=$1
folder=$2

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 0755 "$stage"

install -Dm0755 "$binary" "$stage/usr/bin/mizan"
if command -v strip >/dev/null; then strip "$stage/usr/bin/mizan"; fi
install -Dm0644 "$root/packaging/systemd/mizan.service" "$stage/lib/systemd/system/mizan.service"
for file in README.md CHANGELOG.md docs/configuration.md docs/metrics.md docs/access-log.md; do
    install -Dm0644 "$root/$file" "$stage/usr/share/doc/mizan/$(basename "$file")"
done
cat "$root/LICENSE-MIT" "$root/LICENSE-APACHE" > "$stage/usr/share/doc/mizan/copyright"
for file in "$root"/examples/*.toml; do
    install -Dm0644 "$file" "$stage/usr/share/doc/mizan/examples/$(basename "$file")"
done
mkdir -p "$stage/etc/mizan" "$stage/usr/share/man/man1" "$stage/usr/share/bash-completion/completions" \
    "$stage/usr/share/zsh/vendor-completions" "$stage/usr/share/fish/vendor_completions.d" "$stage/DEBIAN"
"$binary" generate man "$stage/usr/share/man/man1"
gzip -9n "$stage"/usr/share/man/man1/*.1
"$binary" generate bash > "$stage/usr/share/bash-completion/completions/mizan"
"$binary" generate zsh > "$stage/usr/share/zsh/vendor-completions/_mizan"
"$binary" generate fish > "$stage/usr/share/fish/vendor_completions.d/mizan.fish"
chmod -R u=rwX,go=rX "$stage"

# The newest C library symbol that the program uses says which one it needs.
libc=$(objdump -T "$stage/usr/bin/mizan" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
size=$(du -sk --exclude=DEBIAN "$stage" | cut -f1)
cat > "$stage/DEBIAN/control" <<CONTROL
Package: mizan
Version: $version
Architecture: $architecture
Maintainer: The Mizan developers <mizan@users.noreply.github.com>
Installed-Size: $size
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
Section: net
Priority: optional
Homepage: https://github.com/mizan-proxy/mizan
Description: load balancer and reverse proxy
 Takes a request, picks the backend that will answer it best, and sees to it
 that a backend which dies, hangs or lies costs nobody a request.
CONTROL
cat > "$stage/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = configure ] && [ ! -e /etc/mizan/mizan.toml ]; then
    echo "mizan: write /etc/mizan/mizan.toml (examples: /usr/share/doc/mizan/examples), then: systemctl enable --now mizan"
fi
POSTINST
cat > "$stage/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now mizan || true; fi
PRERM
cat > "$stage/DEBIAN/postrm" <<'POSTRM'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
POSTRM
chmod 0755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm" "$stage/DEBIAN/postrm"

mkdir -p "$folder"
package="$folder/mizan_${version}_${architecture}.deb"
dpkg-deb -Z"${DEB_COMPRESSION:-xz}" --build --root-owner-group "$stage" "$package" >/dev/null
echo "$package"
