#!/bin/sh
# The Debian package in a clean Debian: installed, used, removed, and nothing left behind. As root; fetches 100 MB.
#
#   tools/test-deb.sh [PACKAGE]
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "test-deb: as root, please" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "test-deb: debootstrap is missing (apt-get install debootstrap)" >&2; exit 1; }

etcd=$(command -v etcd || echo out/tools/etcd)
[ -x "$etcd" ] || { echo "test-deb: etcd is missing (tools/setup.sh)" >&2; exit 1; }

package=${1:-$(tools/deb.sh | grep '/carnet_')}
symbols=$(dirname "$package")/carnet-dbgsym_${package##*/carnet_}
suite=${CARNET_DEBIAN:-bookworm}
base=out/debian-$suite
space=carnet-deb-$$
root=$(mktemp -d)
stop() {
  [ -z "${device:-}" ] || chmod "$device" /dev/net/tun
  for process in ${station:-} ${store:-}; do kill "$process" 2>/dev/null || true; done
  ip netns del "$space" 2>/dev/null || true
  umount "$root/proc" "$root/dev" 2>/dev/null || true
  rm -rf "$root"
}
trap stop EXIT

# Made once; every run has a copy.
if [ ! -e "$base.tar" ]; then
  debootstrap --variant=minbase --include=systemd,adduser,iproute2 "$suite" "$root" >/dev/null
  tar -C "$root" -cf "$base.part" .
  mv "$base.part" "$base.tar"
else
  tar -C "$root" -xf "$base.tar"
fi
# mktemp made it for root alone.
chmod 755 "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
# Lists all files except those of package managers.
look() {
  (cd "$root" && find . -path ./proc -prune -o -path ./dev -prune -o -path ./tmp -prune -o -path ./var/cache -prune -o \
    -path ./var/log -prune -o -path ./var/lib/dpkg -prune -o -path ./var/lib/apt -prune -o -path ./run/systemd -prune -o -print | sort)
  sort "$root/etc/passwd" "$root/etc/group"
}
say() { echo "test-deb: $*"; }

# adduser writes these anew, with the old ones beside them.
inside adduser --quiet --system --group --no-create-home --home /nonexistent nobody-else
inside deluser --quiet --system nobody-else 2>/dev/null
look >"$root/tmp/before"

cp "$package" "$root/tmp/carnet.deb"
cp "$symbols" "$root/tmp/carnet-dbgsym.deb"
inside apt-get install -y -qq /tmp/carnet.deb /tmp/carnet-dbgsym.deb >"$root/tmp/apt" 2>&1 || { cat "$root/tmp/apt" >&2; exit 1; }
say "installed: $(inside carnet --version)"
for unit in carnet@.service carnet-fleet@.service; do
  inside systemd-analyze verify --man=no "/usr/lib/systemd/system/$unit"
  inside systemd-analyze security --offline=true --threshold=30 --no-pager "/usr/lib/systemd/system/$unit" | tail -n 1
done
for program in carnet carnet-fleet; do
  build=$(readelf --notes "$root/usr/bin/$program" | sed -n 's/.*Build ID: //p')
  test -s "$root/usr/lib/debug/.build-id/$(printf %.2s "$build")/${build#??}.debug"
done
say "each program has its debug symbols"
for page in carnet carnet-run carnet-show carnet-fleet; do test -s "$root/usr/share/man/man1/$page.1.gz"; done
inside bash -n /usr/share/bash-completion/completions/carnet
inside bash -n /usr/share/bash-completion/completions/carnet-fleet
for example in "$root"/usr/share/doc/carnet/examples/*.toml; do
  name=$(basename "$example")
  install --mode 640 --group "$(stat -c %g "$root/etc/carnet")" "$example" "$root/etc/carnet/$name"
  key=$(sed -n 's/^private_key_file = "\([^"]*\)".*/\1/p' "$example")
  [ -z "$key" ] || inside carnet key --out "/etc/carnet/$key" >/dev/null
done
for example in "$root"/etc/carnet/*.toml; do
  name=/etc/carnet/$(basename "$example")
  case $name in
    */fleet.toml) inside carnet-fleet check "$name" ;;
    *) inside carnet check --config "$name" ;;
  esac
done
say "the examples are good"

# A station as the unit runs it: as the user carnet, with these capabilities and no others.
ip netns add "$space"
ip -n "$space" link set lo up
ip -n "$space" link add eth0 type veth peer name lan
ip -n "$space" link add wlan0 type veth peer name net
for link in eth0 lan wlan0 net; do ip -n "$space" link set "$link" up; done
capabilities=$(sed -n 's/^AmbientCapabilities=//p' packaging/systemd/carnet@.service | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
user=$(inside id -u carnet) group=$(inside id -g carnet)
install -d -m 750 -o "$user" -g "$group" "$root/run/carnet" "$root/run/carnet-fleet" "$root/var/lib/carnet"
chown "$user:$group" "$root/etc/carnet/bus-42.key"
# udev gives it this mode.
device=$(stat -c %a /dev/net/tun)
chmod 666 /dev/net/tun
# The ports of the services for hosts on board: DNS, DHCP, DHCPv6. The unit must have CAP_NET_BIND_SERVICE for them.
has_ports() {
  for port in 53 67 547; do
    nsenter --net="/run/netns/$space" ss -Hlun "sport = :$port" | grep -q . || return 1
  done
}
serve() { # CHECK PROGRAM ARGUMENT...: until it answers and CHECK holds, and ends as it should
  check=$1
  shift
  nsenter --net="/run/netns/$space" chroot "$root" setpriv --reuid "$user" --regid "$group" --clear-groups \
    --bounding-set "-all,$capabilities" --inh-caps "-all,$capabilities" --ambient-caps "-all,$capabilities" --no-new-privs \
    "$@" >"$root/tmp/log" 2>&1 &
  station=$!
  tries=0
  until inside carnet status >"$root/tmp/status" 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] && kill -0 "$station" 2>/dev/null || { cat "$root/tmp/log" "$root/tmp/status" >&2; exit 1; }
    sleep 0.1
  done
  cat "$root/tmp/status"
  tries=0
  until "$check"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "test-deb: $check fails" >&2; cat "$root/tmp/log" >&2; exit 1; }
    sleep 0.1
  done
  kill "$station"
  wait "$station" || { echo "test-deb: $1 ended with status $?" >&2; cat "$root/tmp/log" >&2; exit 1; }
  station=
}
sed -i 's|^prefixes = .*|&\nipv4_prefixes = ["10.42.7.0/24"]\ndns_forward = ["2001:db8:53::53"]|' "$root/etc/carnet/bus-42.toml"
serve has_ports carnet run --config /etc/carnet/bus-42.toml
say "a station has run as the user carnet, with DHCP and DNS on board"

# A member of a fleet likewise, with etcd in place of three machines.
nsenter --net="/run/netns/$space" "$etcd" --data-dir "$root/tmp/etcd" --log-level error &
store=$!
sed -i 's|^store = .*|store = ["http://127.0.0.1:2379"]|' "$root/etc/carnet/fleet.toml"
serve true carnet-fleet run --config /etc/carnet/fleet.toml
kill "$store"
wait "$store" || true
store=
chmod "$device" /dev/net/tun
device=
say "a member of a fleet has run as the user carnet"

rm "$root"/etc/carnet/*.toml
inside apt-get purge -y -qq carnet-dbgsym carnet >"$root/tmp/apt" 2>&1 || { cat "$root/tmp/apt" >&2; exit 1; }
look >"$root/tmp/after"
diff "$root/tmp/before" "$root/tmp/after" || { echo "test-deb: that is left behind" >&2; exit 1; }
say "removed, and nothing left"
