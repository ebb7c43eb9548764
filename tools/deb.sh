#!/bin/sh
# A Debian package of the programs: out/deb/carnet_VERSION_ARCHITECTURE.deb. With nothing but cargo and dpkg-deb.
#
#   tools/deb.sh [PROGRAM]
#
# takes that program, and the carnet-fleet beside it, instead of building them. CARNET_FEATURES: features of Cargo to build with
# beside the usual ones.
set -eu
cd "$(dirname "$0")/.."

version=$(cargo pkgid --package carnet | sed 's/.*[#@]//')
architecture=$(dpkg --print-architecture)
if [ $# -gt 0 ]; then
  program=$1
else
  cargo build --quiet --release --package carnet ${CARNET_FEATURES:+--features "$CARNET_FEATURES"}
  program=${CARGO_TARGET_DIR:-target}/release/carnet
fi
out=out/deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/carnet
umask 022

put() { # MODE FILE... DIRECTORY
  mode=$1; shift
  for last in "$@"; do :; done
  mkdir -p "$tree/$last"
  while [ $# -gt 1 ]; do install --mode "$mode" "$1" "$tree/$last/"; shift; done
}

put 755 "$program" "$(dirname "$program")/carnet-fleet" packaging/carnet-mqtt usr/bin
put 644 packaging/systemd/carnet@.service packaging/systemd/carnet-fleet@.service usr/lib/systemd/system
put 644 packaging/debian/copyright docs/*.md docs/openapi.json packaging/prometheus/* usr/share/doc/carnet
put 644 web/*.html web/*.css web/*.js web/*.svg usr/share/carnet/web
put 644 packaging/examples/*.toml usr/share/doc/carnet/examples
mkdir -m 750 -p "$tree/etc/carnet"

cargo run --quiet --release --package carnet --example manual -- "$work/manual"
for page in "$work"/manual/man/*; do gzip --best --no-name "$page"; done
put 644 "$work"/manual/man/* usr/share/man/man1
for name in carnet carnet-fleet; do
  mv "$work/manual/completions/$name.bash" "$work/manual/completions/$name"
  put 644 "$work/manual/completions/$name" usr/share/bash-completion/completions
  put 644 "$work/manual/completions/_$name" usr/share/zsh/vendor-completions
  put 644 "$work/manual/completions/$name.fish" usr/share/fish/vendor_completions.d
done
date=$(git log -1 --format=%aD)
printf 'carnet (%s) unstable; urgency=medium\n\n  * Built from %s.\n\n -- carnet <carnet@localhost>  %s\n' \
  "$version" "$(git rev-parse --short HEAD)" "$date" | gzip --best --no-name >"$work/changelog.gz"
put 644 "$work/changelog.gz" usr/share/doc/carnet

# What it is linked with, and the newest version of it that is asked for.
libc=$(objdump -T "$program" "$(dirname "$program")/carnet-fleet" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d_ -f2)
mkdir "$tree/DEBIAN"
size=$(du -sk "$tree" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@LIBC@/$libc/" \
  packaging/debian/control >"$tree/DEBIAN/control"
for script in postinst prerm postrm; do install --mode 755 "packaging/debian/$script" "$tree/DEBIAN/"; done
(cd "$tree" && find usr -type f -exec md5sum {} +) >"$tree/DEBIAN/md5sums"

mkdir -p "$out"
dpkg-deb --root-owner-group --build "$tree" "$out/carnet_${version}_$architecture.deb" >/dev/null
echo "$out/carnet_${version}_$architecture.deb"
