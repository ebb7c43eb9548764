#!/bin/sh
# An image for containers, of packaging/container/Containerfile: localhost/carnet:VERSION, by podman (or buildah, with
# BUILDER=buildah; further words of BUILDER go before the command, as in BUILDER='podman --root DIRECTORY').
#
#   tools/container.sh [PROGRAM]
#
# takes that program, and the carnet-fleet beside it, instead of building them by musl; should they be linked dynamically,
# their libraries go in with them.
set -eu
cd "$(dirname "$0")/.."

builder=${BUILDER:-podman}
version=$(cargo pkgid --package carnet | sed 's/.*[#@]//')
if [ $# -gt 0 ]; then
  program=$1
else
  target=$(uname -m)-unknown-linux-musl
  if ! ls "$(rustc --print sysroot)/lib/rustlib/$target" >/dev/null 2>&1; then
    echo "container: adding Rust's target $target" >&2
    rustup target add "$target"
  fi
  # The C in it (Ring, for carnet-fleet) wants no more of a C library than both have: the usual compiler does.
  here=$(echo "$target" | tr - _)
  env "CC_$here=${CC:-cc}" "CFLAGS_$here=-U_FORTIFY_SOURCE" \
    cargo build --quiet --release --target "$target" --package carnet
  program=${CARGO_TARGET_DIR:-target}/$target/release/carnet
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
umask 022
tree=$context/root
mkdir -p "$tree/usr/bin" "$tree/usr/share/carnet/web" "$tree/etc/carnet" "$tree/run/carnet" "$tree/var/lib/carnet"
fleet=$(dirname "$program")/carnet-fleet
install --mode 755 "$program" "$tree/usr/bin/carnet"
install --mode 755 "$fleet" "$tree/usr/bin/carnet-fleet"
install --mode 644 web/*.html web/*.css web/*.js web/*.svg "$tree/usr/share/carnet/web/"
# A static program has none.
for library in $(ldd "$program" "$fleet" 2>/dev/null | sed -n 's/^\t[^/]*\(\/[^ ]*\) .*/\1/p' | sort -u); do
  install -D --mode 755 "$library" "$tree$library"
done
# With the health check, for which the format of OCI has no place.
$builder build --quiet --format docker --build-arg "VERSION=$version" \
  --tag "localhost/carnet:$version" --file packaging/container/Containerfile "$context" >/dev/null
echo "localhost/carnet:$version"
