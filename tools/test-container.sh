#!/bin/sh
# The image for containers: built, run by podman as docs/operating.md says, used by a mobile router, restarted, removed. As
# root; in network namespaces and with a storage of podman's that are its own.
#
#   tools/test-container.sh [PROGRAM]
#
# puts that program into the image instead of one that it builds by musl.
set -eu
cd "$(dirname "$0")/.."
program=${1:-}
[ "$(id -u)" = 0 ] || { echo "test-container: as root, please" >&2; exit 1; }
command -v podman >/dev/null || { echo "test-container: podman is missing (tools/setup.sh container)" >&2; exit 1; }

mark=cc$$
home=$mark-home
bus=$mark-bus
container=carnet-$mark
work=$(mktemp -d)
router=
podman() { command podman --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"; }
stop() {
  status=$?
  [ $status = 0 ] || { podman logs "$container" 2>&1; cat "$work"/*.log; } >&2 || true
  [ -z "$router" ] || kill "$router" 2>/dev/null || true
  podman rm --force --time 2 "$container" >/dev/null 2>&1 || true
  ip netns del "$home" 2>/dev/null || true
  ip netns del "$bus" 2>/dev/null || true
  umount --recursive "$work/storage" 2>/dev/null || true
  rm -rf "$work"
  exit $status
}
trap stop EXIT
trap 'exit 1' INT TERM
passed=0
held() { passed=$((passed + 1)); echo "test-container: $*"; }
fail() { echo "FAULT: $*"; exit 1; }
# Prints the entries and settings of a station in a network namespace.
look() {
  for what in link address 'route show table all' '-6 route show table all' 'rule' '-6 rule'; do
    # shellcheck disable=SC2086
    ip -n "$1" $what | sed 's/ \(valid_lft\|expires\) .*//' | grep -v '^ff00::\|^fe80::\|^multicast'
  done
  ip netns exec "$1" sysctl --all --pattern 'forwarding|accept_ra|proxy_ndp' 2>/dev/null
}
until_holds() { # SECONDS WHAT COMMAND...
  left=$(($1 * 10)); what=$2; shift 2
  until "$@" >"$work/last.log" 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || fail "$what: not in time: $(tail -n 3 "$work/last.log")"
    sleep 0.1
  done
}
says() { # TEXT COMMAND...
  text=$1; shift
  "$@" 2>&1 | tee "$work/said.log" | grep -q -e "$text"
}

image=$(BUILDER="podman --root $work/storage --runroot $work/runroot --storage-driver vfs --cgroup-manager cgroupfs --runtime runc" \
  tools/container.sh ${program:+"$program"})
held "built: $image, $(podman image inspect --format '{{.Size}}' "$image") octets"

# A home agent's network and a bus's, with one link between them.
for space in "$home" "$bus"; do
  ip netns add "$space"
  ip -n "$space" link set lo up
done
ip -n "$home" link add eth0 type veth peer name wlan0 netns "$bus"
ip -n "$home" address add 2001:db8:f1::1/64 dev eth0 nodad
ip -n "$bus" address add 2001:db8:f1::2/64 dev wlan0 nodad
ip -n "$home" link set eth0 up
ip -n "$bus" link set wlan0 up
ip -n "$bus" link add eth0 type veth peer name host
ip -n "$bus" link set eth0 up
ip -n "$bus" link set host up
ip -n "$bus" route add default via 2001:db8:f1::1 dev wlan0
until_holds 10 "addresses" sh -c "! ip -n $home address show tentative | grep -q inet6"
look "$home" >"$work/before"

mkdir "$work/etc" "$work/run" "$work/state"
own=${program:-${CARGO_TARGET_DIR:-target}/$(uname -m)-unknown-linux-musl/release/carnet}
home_key=$("$own" key --out "$work/etc/home.key") bus_key=$("$own" key --out "$work/bus-42.key")
sed "s|public_key = \"[^\"]*\"|public_key = \"$bus_key\"|" packaging/examples/home.toml >"$work/etc/carnet.toml"
# As docs/operating.md has it, but for the places.
rights="--cap-drop all --cap-add net_admin,net_raw,net_bind_service,bpf,perfmon --security-opt no-new-privileges --security-opt unmask=/proc/sys"
rights="$rights --security-opt seccomp=packaging/container/seccomp.json"
places="--volume $work/etc:/etc/carnet:ro --volume $work/state:/var/lib/carnet --volume $work/run:/run/carnet"
rights="$rights --read-only --device /dev/net/tun"
for right in net_admin net_raw net_bind_service bpf perfmon; do
  grep -q "^CapabilityBoundingSet=.*CAP_$(echo $right | tr a-z A-Z)" packaging/systemd/carnet@.service ||
    fail "the service goes without $right"
done
for word in $rights; do
  grep -q -e "$word" docs/operating.md || fail "docs/operating.md does not run it with $word"
done
# Fewer than podman asks for: the machine may be a container itself.
limits="--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"

# shellcheck disable=SC2086
podman run --rm $limits --network none $rights $places "$image" check --config /etc/carnet/carnet.toml 2>"$work/check.log" ||
  fail "the example is refused: $(cat "$work/check.log")"
echo 'address = 1' >"$work/etc/bad.toml"
# shellcheck disable=SC2086
says '^/etc/carnet/bad.toml:1:' podman run --rm $limits --network none $rights $places "$image" check --config /etc/carnet/bad.toml ||
  fail "a bad config is taken: $(cat "$work/said.log")"
rm "$work/etc/bad.toml"
held "the example is good, and a bad config refused"

# shellcheck disable=SC2086
podman run --detach $limits --name "$container" --network "ns:/run/netns/$home" $rights $places "$image" >/dev/null
until_holds 20 "carnet status" podman exec "$container" carnet status
podman exec "$container" carnet status
until_holds 10 "the health check" podman healthcheck run "$container"
held "it runs, answers and is healthy"
process=$(podman inspect --format '{{.State.Pid}}' "$container")
# Encrypted tunnels take the TUN device: the rights to load BPF programs go.
grep -q '^CapEff:.*0000000000003000$' "/proc/$process/status" || fail "other rights than these: $(grep Cap "/proc/$process/status")"
held "it keeps the two capabilities that a home agent with encrypted tunnels needs, and no other"

# A mobile router registers, and a packet of its network comes back from the home agent.
# With the first of the example's uplinks, and a place of its own for its socket.
awk '/^\[\[mobile_router.uplink/ && uplinks++ { exit } 1' packaging/examples/bus-42.toml |
  sed "s|^state_dir = .*|socket = \"$work/bus.sock\"|; s|^home_agent_key = .*|home_agent_key = \"$home_key\"|" >"$work/bus.toml"
ip netns exec "$bus" "$own" run --config "$work/bus.toml" >"$work/bus.log" 2>&1 &
router=$!
registered() { says 2001:db8:f1::2 podman exec "$container" carnet show bindings; }
until_holds 20 "a registration" registered
until_holds 20 "an answer through the tunnel" ip netns exec "$bus" ping -c 1 -W 1 -I 2001:db8:a::1 2001:db8:1::1
held "a mobile router is registered, and has an answer through its tunnel"
# Prints the data path once no other path is being loaded: until then packets take the slow path.
path_of() {
  until_holds 60 "a data path" loaded "$@" >&2
  "$@" status --json | grep -o '"dataplane": *"[a-z]*"'
}
loaded() { "$@" status --json >"$work/status.json" && ! grep -q '"dataplane_loading": *"' "$work/status.json"; }
inside=$(path_of podman exec "$container" carnet) outside=$(path_of env "CARNET_SOCKET=$work/bus.sock" "$own")
[ "$inside" = "$outside" ] || fail "another data path inside ($inside) than outside ($outside)"
held "it has the data path that it has without a container: $inside"

# Killed with no time for anything, and started again.
podman kill --signal KILL "$container" >/dev/null
until_holds 10 "its end" says exited podman inspect --format '{{.State.Status}}' "$container"
podman start "$container" >/dev/null
until_holds 20 "carnet status again" podman exec "$container" carnet status
says 2001:db8:a::/64 podman exec "$container" carnet show bindings || fail "the binding is forgotten: $(cat "$work/said.log")"
held "killed and started again it still has the binding"

kill "$router"
wait "$router" || fail "the mobile router ended with status $?"
router=
podman stop --time 10 "$container" >/dev/null
status=$(podman inspect --format '{{.State.ExitCode}}' "$container")
[ "$status" = 0 ] || fail "it ended with status $status"
look "$home" >"$work/after"
diff "$work/before" "$work/after" || fail "that is left behind in the network"
[ ! -e "$work/run/home.sock" ] || fail "the socket is left behind"
podman rm "$container" >/dev/null
podman rmi "$image" >/dev/null
held "stopped with status 0, and nothing left in the network"
echo "container: $passed passed, 0 failed"
