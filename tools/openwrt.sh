#!/bin/sh
# The program as the feed for OpenWrt builds it (packaging/openwrt/carnet/Makefile), linked statically; its path goes to
# stdout. Without an argument it is for this machine's processor, so that it runs here.
#
#   tools/openwrt.sh [mipsel]
#
# mipsel: for routers with a little-endian MIPS processor without floating point, such as MT7621. Rust has no compiled
# library for it, so the build compiles the library as well (component rust-src). The compiler for C and the linker are
# those of Zig (package ziglang of PyPI, in out/tools/zig).
set -eu
cd "$(dirname "$0")/.."

profile="--quiet --profile openwrt --package carnet --no-default-features"
flags=$(sed -n 's/^CARGO_RUSTFLAGS+=//p' packaging/openwrt/carnet/Makefile)
folder=${CARGO_TARGET_DIR:-target}
case ${1:-} in
  "")
    target=$(uname -m)-unknown-linux-musl
    if ! ls "$(rustc --print sysroot)/lib/rustlib/$target" >/dev/null 2>&1; then
      echo "openwrt: adding Rust's target $target" >&2
      rustup target add "$target"
    fi
    export RUSTFLAGS="$flags"
    # shellcheck disable=SC2086
    cargo build $profile --target "$target"
    ;;
  mipsel)
    target=mipsel-unknown-linux-musl
    if ! ls "$(rustc --print sysroot)/lib/rustlib/src/rust/library" >/dev/null 2>&1; then
      echo "openwrt: adding Rust's component rust-src" >&2
      rustup component add rust-src
    fi
    zig=$PWD/out/tools/zig
    if ! [ -x "$zig/bin/python" ]; then
      echo "openwrt: installing ziglang into out/tools/zig" >&2
      mkdir -p out/tools
      python3 -m venv "$zig" >&2
      "$zig/bin/pip" install --quiet ziglang==0.17.1 >&2
    fi
    # Zig brings the objects with which a program begins and ends, and does not know the option for packed relocations.
    cat >"$zig/cc" <<END
#!/bin/sh
for word; do
  shift
  case \$word in
    *crt1.o | *crti.o | *crtn.o | *crtbegin*.o | *crtend*.o | -lgcc* | -nostartfiles | *pack-relative-relocs) ;;
    *) set -- "\$@" "\$word" ;;
  esac
done
exec "$zig/bin/python" -m ziglang cc -target mipsel-linux-musleabi "\$@"
END
    chmod +x "$zig/cc"
    export CC_mipsel_unknown_linux_musl="$zig/cc" CARGO_TARGET_MIPSEL_UNKNOWN_LINUX_MUSL_LINKER="$zig/cc"
    # As in the feed: without position-independent code, which MIPS makes a sixth larger.
    export RUSTFLAGS="-Ctarget-feature=+crt-static -Crelocation-model=static -Clinker-flavor=gcc $flags"
    # The option to compile the library is not stable.
    # shellcheck disable=SC2086
    RUSTC_BOOTSTRAP=1 cargo build -Zbuild-std=std,panic_abort $profile --target "$target"
    # Notes for debuggers, which the linker leaves.
    root=$(rustc --print sysroot)
    host=$(rustc -vV | sed -n 's/^host: //p')
    LD_LIBRARY_PATH=$root/lib "$root/lib/rustlib/$host/bin/rust-objcopy" -R .pdr "$folder/$target/openwrt/carnet"
    ;;
  *)
    echo "openwrt: expected no argument or mipsel, found $1" >&2
    exit 2
    ;;
esac
echo "$folder/$target/openwrt/carnet"
