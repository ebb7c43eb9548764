#!/bin/sh
# Makes Debian packages with nothing but cargo, binutils and dpkg-deb, and prints their paths: the programs, with the names of
# their functions for backtraces, in out/deb/carnet_VERSION_ARCHITECTURE.deb, and their full symbols in
# out/deb/carnet-dbgsym_VERSION_ARCHITECTURE.deb. A backtrace takes files and lines from there.
#
#   tools/deb.sh [PROGRAM]
# takes that program, and the carnet-fleet beside it, instead of building them (profile `deb`). CARNET_FEATURES: features of Cargo to build with
# beside the usual ones.
set -eu
cd "$(dirname "$0")/.."

version=$(cargo pkgid --package carnet | sed 's/.*[#@]//')
architecture=$(dpkg --print-architecture)
if [ $# -gt 0 ]; then
  program=$1
else
  cargo build --quiet --profile deb --package carnet ${CARNET_FEATURES:+--features "$CARNET_FEATURES"}
  program=${CARGO_TARGET_DIR:-target}/deb/carnet
fi
out=out/deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/carnet
umask 022

# The programs, and their debug information by build ID, where debuggers and backtraces look for it.
symbols=$work/carnet-dbgsym
mkdir -p "$work/bin" "$symbols/DEBIAN" "$symbols/usr/share/doc"
for file in "$program" "$(dirname "$program")/carnet-fleet"; do
  build=$(readelf --notes "$file" | sed -n 's/.*Build ID: //p')
  [ -n "$build" ] || { echo "deb: $file has no build ID" >&2; exit 1; }
  folder=$symbols/usr/lib/debug/.build-id/$(printf %.2s "$build")
  mkdir -p "$folder"
  objcopy --only-keep-debug --compress-debug-sections "$file" "$folder/${build#??}.debug"
  chmod 644 "$folder/${build#??}.debug"
  objcopy --strip-debug "$file" "$work/bin/$(basename "$file")"
done

put() { # MODE FILE... DIRECTORY
  mode=$1; shift
  for last in "$@"; do :; done
  mkdir -p "$tree/$last"
  while [ $# -gt 1 ]; do install --mode "$mode" "$1" "$tree/$last/"; shift; done
}

put 755 "$work/bin/carnet" "$work/bin/carnet-fleet" packaging/carnet-mqtt usr/bin
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

# Shared libraries of the program, with the newest required version of each.
libc=$(objdump -T "$program" "$(dirname "$program")/carnet-fleet" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d_ -f2)
mkdir "$tree/DEBIAN"
size=$(du -sk "$tree" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@LIBC@/$libc/" \
  packaging/debian/control >"$tree/DEBIAN/control"
for script in postinst prerm postrm; do install --mode 755 "packaging/debian/$script" "$tree/DEBIAN/"; done
(cd "$tree" && find usr -type f -exec md5sum {} +) >"$tree/DEBIAN/md5sums"

ln -s carnet "$symbols/usr/share/doc/carnet-dbgsym"
size=$(du -sk "$symbols" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" \
  packaging/debian/control-dbgsym >"$symbols/DEBIAN/control"
(cd "$symbols" && find usr -type f -exec md5sum {} +) >"$symbols/DEBIAN/md5sums"

mkdir -p "$out"
for package in carnet carnet-dbgsym; do
  dpkg-deb --root-owner-group --build "$work/$package" "$out/${package}_${version}_$architecture.deb" >/dev/null
  echo "$out/${package}_${version}_$architecture.deb"
done
