#!/bin/sh
# The program's tests on a stock Debian kernel, in a virtual machine: for what the kernel of this machine may lack
# (ip6_tunnel, tc programs in a clsact qdisc as before Linux 6.6, Mobile IPv6 of its own).
#
#   tools/test-kernel.sh [PATH ...] [-- TEST ...]
#
# runs the tests (those that concern the data path, or those whose names contain one of TEST) once for each data
# path, and then scenarios of GeoNetworking over real 802.11 (mac80211_hwsim) for the path "radio". These are "kernel",
# "bpf", "tun", "radio" and "wireguard" unless others are named; CARNET_TEST_SCENARIOS names other scenarios. "eval" makes
# the evaluation of a paper (CARNET_TEST_PAPERS) there: of carnet on path "kernel", of a tunnel of ip6_tunnel without
# carnet, and of one of IPsec, each beside plain routing; results and reports are in out/evaluation-kernel
# (CARNET_TEST_OUT), and say that they are of an emulated machine. The path "wireguard" makes encrypted sessions with
# a device of the kernel's WireGuard, in both directions.
#
# The machine is emulated (it has no network, and sees this file system, whatever it writes there is gone with it), so
# this is about function: limits of time are longer and rates of packets lower by CARNET_TEST_SLOW. Kernel and busybox
# are Debian packages, downloaded once into target/test-kernel.
set -eu
cd "$(dirname "$0")/.."

# Nothing in these depends on the data path.
paths= tests='--skip geonet --skip replay --skip size --skip facilities:: --skip positions:: --skip radio::'
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; tests=$*; break ;;
    *) paths="$paths $1"; shift ;;
  esac
done
: "${paths:=kernel bpf tun radio wireguard}"
slow=${CARNET_TEST_SLOW:-4}
scenarios=${CARNET_TEST_SCENARIOS:-platoon turn-off}
papers=${CARNET_TEST_PAPERS:-nemo-basic-support}
limit=${CARNET_TEST_LIMIT:-6000} # seconds for the whole machine
here=$PWD
target=${CARGO_TARGET_DIR:-$here/target}
out=${CARNET_TEST_OUT:-$here/out/evaluation-kernel}
evaluations='carnet static-tunnel ipsec-tunnel'
cache=$target/test-kernel
work=$(mktemp -d)
share=$work/share # what the machine may write
mkdir "$share"
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

get() { # PACKAGE: downloads and unpacks it, once
  [ -e "$cache/$1.done" ] && return
  echo "test-kernel: downloading $1"
  (cd "$work" && apt-get download -q "$1" >/dev/null 2>&1) || {
    echo "test-kernel: cannot download Debian's package $1 (apt-get download $1)" >&2; exit 1; }
  dpkg-deb -x "$work/$1"_*.deb "$cache/root"
  rm -f "$work/$1"_*.deb
  touch "$cache/$1.done"
}

if [ -z "$(ls "$cache"/root/boot/vmlinuz-* 2>/dev/null)" ]; then
  package=$(apt-cache depends linux-image-amd64 2>/dev/null |
    sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)$/\1/p' | head -n 1)
  [ -n "$package" ] || { echo "test-kernel: no package linux-image-amd64 here: expected Debian" >&2; exit 1; }
  get "$package"
fi
get busybox-static
# For the tests of IPsec and WireGuard; installed in the machine alone.
for package in libstrongswan libstrongswan-standard-plugins strongswan-libcharon strongswan-charon strongswan-swanctl \
  wireguard-tools; do
  get "$package"
done
kernel=$(ls "$cache"/root/boot/vmlinuz-* | tail -n 1)
release=${kernel##*/vmlinuz-}
modules=lib/modules/$release

# Files with which the machine starts: busybox, modules, and a mount of this file system.
image=$cache/initramfs-$release
if [ ! -e "$image" ] || [ "$0" -nt "$image" ]; then
  tree=$work/initramfs
  mkdir -p "$tree/bin" "$tree/sbin" "$tree/$modules/kernel" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/host" \
    "$tree/rw" "$tree/root"
  cp "$cache/root/bin/busybox" "$tree/bin/busybox"
  for name in sh mount mkdir modprobe chroot; do ln -s busybox "$tree/bin/$name"; done
  ln -s ../bin/busybox "$tree/sbin/modprobe"
  (cd "$cache/root/$modules" && cp modules.* "$tree/$modules/" &&
    for part in drivers/virtio fs/9p fs/netfs fs/fscache fs/overlayfs net/9p net/ipv6 net/sched net/bridge net/802 \
      net/llc net/netfilter net/ipv4/netfilter net/wireless net/mac80211 net/rfkill \
      $(cd kernel && find drivers/net/wireless -name 'mac80211_hwsim.ko*') lib/libcrc32c.ko net/xfrm crypto arch/x86/crypto lib/crypto net/ipv4/udp_tunnel.ko \
      drivers/net/wireguard drivers/net/veth.ko drivers/net/tun.ko drivers/net/dummy.ko; do
      mkdir -p "$tree/$modules/kernel/${part%/*}"
      cp -r "kernel/$part" "$tree/$modules/kernel/${part%/*}/"
    done)
  "$cache/root/bin/busybox" depmod -b "$tree" "$release"
  cat >"$tree/init" <<'END'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# All of them here, with the parts of ESP's cipher: later the kernel finds no modprobe that it could ask.
for module in virtio_pci 9pnet_virtio 9p overlay tun veth dummy bridge ip6_tunnel sch_ingress cls_bpf \
  crc32c_generic nf_tables nf_conntrack nf_conntrack_netlink nft_ct nft_chain_nat nft_nat nft_masq nft_limit \
  nft_reject_inet nft_log nft_fib_inet nft_quota nft_hash nft_numgen nft_tproxy nft_socket sch_tbf esp6 xfrm_user ctr ghash-generic drbg gcm seqiv wireguard; do
  modprobe $module
done
modprobe mac80211_hwsim radios=0
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=1048576,cache=loose host /host
mount -t tmpfs tmpfs /rw
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/host,upperdir=/rw/upper,workdir=/rw/work overlay /root
mount -t tmpfs tmpfs /root/run
read -r script </proc/cmdline
script=${script##*carnet_script=}
for name in proc sys dev; do mount --move /$name /root/$name; done
cd /root
# Not only chroot: who is in one may make no user namespace.
mount --move . /
exec chroot . /bin/sh "${script%% *}"
END
  chmod +x "$tree/init"
  (cd "$tree" && find . | "$cache/root/bin/busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$image.new"
  mv "$image.new" "$image"
fi

# This machine makes the reports of an evaluation from the measurements in the emulated machine. One line as the lab
# has it for a scenario:
# experiments that were made, and those that were left out.
evaluated() { # EVALUATION
  if [ ! -s "$share/$1.json" ]; then
    echo "test-kernel: the evaluation of $1 left no results" >&2
    return 1
  fi
  mkdir -p "$out/$1"
  mv "$share/$1.json" "$out/$1/eval.json"
  "$target/release/carnet-lab" eval --render "$out/$1/eval.json"
  counts=$("${CARNET_PYTHON:-/usr/bin/python3}" - "$1" "$out/$1/eval.json" <<'END'
import json, sys

subject, place = sys.argv[1:]
with open(place) as file:
    found = json.load(file)
of = lambda one: (one["paper"], one["experiment"])
made, left = {of(one) for one in found["samples"]}, {of(one) for one in found["left_out"]}
# A static tunnel cannot move.
moves = {of(one) for one in found["experiments"] if one["parameters"]["kind"] == "handover"}
lost = left if subject == "carnet" else left - moves
for one in found["left_out"]:
    print(f"test-kernel: {subject}: {one['experiment']} left out: {one['why']}", file=sys.stderr)
if not found["machine"].get("emulated"):
    print("test-kernel: the results do not say where they are of", file=sys.stderr)
    lost = lost | {"emulated"}
print(len(made - left), len(lost))
END
  ) || return 1
  made=${counts% *} lost=${counts#* }
  word=PASS
  [ "$lost" -eq 0 ] && [ "$made" -gt 0 ] || word=FAIL
  echo "  $word: $made passed, $lost failed (evaluation of $1)" | tee -a "$work/log"
  [ $word = PASS ]
}

echo "test-kernel: building"
cargo build --release --quiet --bin carnet --bin carnet-lab
program=
for path in $paths; do
  case $path in radio | eval | wireguard) continue ;; esac
  program=$(cargo test --release --quiet --no-run --message-format=json --package carnet --test program |
    sed -n 's/.*"name":"program".*"executable":"\([^"]*\)".*/\1/p')
  [ -x "$program" ] || { echo "test-kernel: found no test binary" >&2; exit 1; }
  break
done
peer=
case " $paths " in *' wireguard '*)
  peer=$(cargo test --release --quiet --no-run --message-format=json --package carnet-wireguard --test stock_peer |
    sed -n 's/.*"name":"stock_peer".*"executable":"\([^"]*\)".*/\1/p')
  [ -x "$peer" ] || { echo "test-kernel: found no test binary of carnet-wireguard" >&2; exit 1; }
  ;;
esac

{
  echo "export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp CARNET_REQUIRE_ROOT=1 CARNET_TEST_SLOW=$slow"
  # The module makes a device ip6tnl0 in each new namespace, which the tests would take for one of their own.
  echo "echo 1 >/proc/sys/net/core/fb_tunnels_only_for_init_net"
  # Copies of its own, which may be built anew meanwhile.
  echo "for file in '$target/release/carnet' '$target/release/carnet-lab' $program $peer; do cp \"\$file\" /run/copy; cp /run/copy \"\$file\"; done"
  echo "cp -r '$cache/root/usr/lib/ipsec' /usr/lib/; cp '$cache/root/usr/sbin/swanctl' /usr/sbin/; cp '$cache/root/usr/bin/wg' /usr/bin/"
  echo "ip link set lo up; cd '$here/crates/carnet'; uname -sr"
  for path in $paths; do
    if [ "$path" = radio ]; then
      for scenario in $scenarios; do
        echo "echo; echo '=== scenario $scenario over 802.11'"
        echo "'$target/release/carnet-lab' run $scenario --scenarios '$here/scenarios' --radio hwsim --pcap --slow" \
          "--out /tmp/$scenario 2>&1 || { echo 'test result: FAILED'; tail -n 5 /tmp/$scenario/logs/*; }"
      done
      continue
    fi
    if [ "$path" = eval ]; then
      echo "mkdir /run/share && mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576 share /run/share; cd '$here'"
      for evaluation in $evaluations; do
        case $evaluation in
          carnet) subject='--path kernel' ;;
          *) subject="--mr eval/examples/$evaluation --ha eval/examples/$evaluation" ;;
        esac
        echo "echo; echo '=== evaluation of $evaluation'"
        # Where its output is no terminal it has a line for each experiment.
        echo "{ '$target/release/carnet-lab' eval --quick $papers $subject --scenarios '$here/scenarios'" \
          "--out /tmp/$evaluation 2>&1 || tail -n 5 /tmp/$evaluation/logs/*; } | cat"
        echo "cp /tmp/$evaluation/eval.json /run/share/$evaluation.json"
      done
      echo "cd '$here/crates/carnet'"
      continue
    fi
    if [ "$path" = wireguard ]; then
      echo "echo; echo '=== sessions with the kernel'"
      echo "CARNET_TEST_WIREGUARD=kernel '$peer' --nocapture --test-threads=1 2>&1"
      continue
    fi
    echo "echo; echo '=== dataplane.path = $path'"
    echo "CARNET_TEST_PATH=$path '$program' --nocapture --test-threads=1 $tests 2>&1"
  done
  # No program can be started any more then.
  echo "echo '=== end'; sleep 1; echo o >/proc/sysrq-trigger; while :; do :; done"
} >"$work/script"

status=0
# no_timer_check: where others have the processors, the kernel finds that its timer does not tick, and gives up.
timeout "$limit" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 2G -nodefaults -no-reboot \
  -display none -serial stdio -kernel "$kernel" -initrd "$image" \
  -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
  -device virtio-9p-pci,fsdev=host,mount_tag=host \
  -fsdev "local,id=share,path=$share,security_model=none" -device virtio-9p-pci,fsdev=share,mount_tag=share \
  -append "console=ttyS0 quiet loglevel=3 no_timer_check panic=-1 carnet_script=$work/script" </dev/null 2>&1 |
  sed -u 's|\r||g' | tee "$work/log"
for path in $paths; do
  if [ "$path" = eval ]; then
    for evaluation in $evaluations; do
      evaluated "$evaluation" || status=1
    done
    continue
  fi
  [ "$path" != radio ] && continue
  for scenario in $scenarios; do
    sed -n "/^=== scenario $scenario/,/^===/p" "$work/log" | grep -q '^  PASS: ' || {
      echo "test-kernel: scenario $scenario did not pass" >&2; status=1; }
  done
done
grep -q '^=== end' "$work/log" || { echo "test-kernel: the machine ended too early, or after $limit s" >&2; status=1; }
grep -Eq '^(test result: FAILED)' "$work/log" && status=1

passed=$(awk '/^test result:/ { n += $4 } /^  (PASS|FAIL): / { n += $2 } END { print n + 0 }' "$work/log")
failed=$(awk '/^test result:/ { n += $6 } /^  (PASS|FAIL): / { n += $4 } END { print n + 0 }' "$work/log")
skipped=$(grep -c 'SKIPPED: ' "$work/log" || true)
if [ "$skipped" -gt 0 ]; then
  echo
  echo "Skipped, and why:"
  grep -o 'SKIPPED: .*' "$work/log" | sort | uniq -c
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
