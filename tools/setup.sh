#!/bin/sh
# Installs what `make demo`, `make bench` and `make test` need beside a Rust toolchain, from Debian's or Ubuntu's packages,
# and says what. Does nothing where everything is there already.
#
#   tools/setup.sh demo|test|test-kernel
set -eu

purpose=${1:?expected demo, test or test-kernel}
missing=

need() { # COMMAND PACKAGE
  PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

need cc gcc
# Builds the BPF programs; with `llvm-strip` they are smaller.
need clang clang
need llvm-strip llvm
need ip iproute2
need ping iputils-ping
need iperf3 iperf3
need radvd radvd
need unshare util-linux
need setpriv util-linux
need tcpdump tcpdump
need ethtool ethtool
need nft nftables
need tshark tshark
if [ "$purpose" = test ]; then
  need gpsd gpsd
  need gpsfake gpsd-clients
  need dbus-daemon dbus-daemon
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import scapy.all' 2>/dev/null || missing="$missing python3-scapy"
fi

if [ "$purpose" = test-kernel ]; then
  need qemu-system-x86_64 qemu-system-x86
  need iw iw
fi

if ! command -v cargo >/dev/null 2>&1; then
  echo "setup: cargo is missing. Install Rust 1.95 or newer, for instance from https://rustup.rs" >&2
  exit 1
fi
version=$(cargo --version | cut -d' ' -f2)
if [ "$(printf '%s\n' 1.95 "$version" | sort -V | head -n1)" != 1.95 ]; then
  echo "setup: found cargo $version, expected 1.95 or newer (rustup update)" >&2
  exit 1
fi

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: these packages are missing (Debian's names):$missing" >&2
  exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "setup: as root, please: apt-get install$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
