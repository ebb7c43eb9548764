#!/bin/sh
# The program as the feed for OpenWrt builds it (packaging/openwrt/carnet/Makefile), but for this machine's processor and
# linked statically, so that it runs here; its path goes to stdout.
#
#   tools/openwrt.sh
set -eu
cd "$(dirname "$0")/.."

target=$(uname -m)-unknown-linux-musl
if ! ls "$(rustc --print sysroot)/lib/rustlib/$target" >/dev/null 2>&1; then
  echo "openwrt: adding Rust's target $target" >&2
  rustup target add "$target"
fi
RUSTFLAGS=$(sed -n 's/^CARGO_RUSTFLAGS+=//p' packaging/openwrt/carnet/Makefile)
export RUSTFLAGS
cargo build --quiet --profile openwrt --target "$target" --package carnet --no-default-features
echo "${CARGO_TARGET_DIR:-target}/$target/openwrt/carnet"
