# The two stations of packaging/examples in service: the page's shell is on board of bus-42, whose uplinks wlan0 and
# wwan0 have addresses and default routes; `home` is its home agent, `host` a host on board, `depot` (2001:db8:c::2) one
# that it talks to. The bus does GeoNetworking as well, with a car nearby (namespace `car`, station car-7).
quiet="sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0"
$quiet
for node in home net host depot car; do
  ip netns add $node
  ip netns exec $node $quiet
  ip -n $node link set lo up
done
ip link add wlan0 type veth peer name wifi netns net
ip link add wwan0 type veth peer name cell netns net
ip link add eth0 type veth peer name eth0 netns host
ip link add wlan1 type veth peer name wlan1 netns car
ip -n net link add to-home type veth peer name eth0 netns home
ip -n net link add to-depot type veth peer name eth0 netns depot
for link in wlan0 wwan0 eth0 wlan1; do ip link set $link up; done
for link in wifi cell to-home to-depot; do ip -n net link set $link up; done
for node in home host depot; do ip -n $node link set eth0 up; done
ip -n car link set wlan1 up
ip netns exec net sysctl -qw net.ipv6.conf.all.forwarding=1
ip -n net addr add 2001:db8:f1::1/64 dev wifi
ip -n net addr add 2001:db8:f2::1/64 dev cell
ip -n net addr add 2001:db8:ff::1/64 dev to-home
ip -n net addr add 2001:db8:c::1/64 dev to-depot
ip -n net route add 2001:db8:1::/64 via 2001:db8:ff::2
ip -n net route add 2001:db8:a::/64 via 2001:db8:ff::2
ip -n home addr add 2001:db8:ff::2/64 dev eth0
ip -n home route add default via 2001:db8:ff::1
ip -n depot addr add 2001:db8:c::2/64 dev eth0
ip -n depot route add default via 2001:db8:c::1
ip addr add 2001:db8:f1::2/64 dev wlan0
ip addr add 2001:db8:f2::2/64 dev wwan0
ip route add default via 2001:db8:f1::1 dev wlan0 metric 10
ip route add default via 2001:db8:f2::1 dev wwan0 metric 20

cp "$TOP"/packaging/examples/bus-42.toml "$TOP"/packaging/examples/home.toml /etc/carnet
# `own-keys FILE`: the public keys of this world take the place of those in the config of an example, whose private keys
# nobody has.
for name in home bus-42; do "$PROGRAM" key --out /etc/carnet/$name.key >~/$name.public; done
cat >"$(dirname "$(command -v carnet)")/own-keys" <<'END'
#!/bin/sh -eu
sed -i "s|^home_agent_key = \"[^\"]*\"|home_agent_key = \"$(cat ~/home.public)\"|; s|public_key = \"[^\"]*\"|public_key = \"$(cat ~/bus-42.public)\"|" "$1"
END
chmod +x "$(dirname "$(command -v carnet)")/own-keys"
own-keys /etc/carnet/bus-42.toml
own-keys /etc/carnet/home.toml
if [ -n "${shared:-}" ]; then
  auth='auth = { spi = 300, key = "000102030405060708090a0b0c0d0e0f" }'
  sed -i "s|^auth = .*|$auth|; s|^home_agent_key = .*|$auth|; /^private_key_file/d" /etc/carnet/bus-42.toml /etc/carnet/home.toml
fi
cat >>/etc/carnet/bus-42.toml <<'END'

[geonet]
interface = "wlan1"
station_type = "bus"
position = "fixed:48.8375,2.1008"
ipv6_interface = "gn0"

[[geonet.area]]
name = "crossing"
shape = "circle"
center = [48.8375, 2.1008]
radius = "300m"

[facilities]
END
cat >/etc/carnet/car-7.toml <<'END'
[station]
name = "car-7"

[geonet]
interface = "wlan1"
station_type = "passenger_car"
position = "fixed:48.8376,2.1009"
ipv6_interface = "gn0"

[facilities]
END
# Each node its own sockets and state: tools/book/test enters by these processes.
mkdir -p /run/book
for node in home:home car:car-7; do
  ip netns exec "${node%:*}" unshare --mount sh -c "mount -t tmpfs none /run/carnet; mount -t tmpfs none /var/lib/carnet
    echo \$\$ >/run/book/${node%:*}.pid
    exec $PROGRAM run --config /etc/carnet/${node#*:}.toml" >"$HOME/${node%:*}.log" 2>&1 &
done
# `station NAME`: the station of /etc/carnet/NAME.toml takes the place of the one that runs here.
cat >"$(dirname "$(command -v carnet)")/station" <<'END'
#!/bin/bash -eu
if [ -e ~/stations ]; then
  kill $(cat ~/stations) || true
  rm ~/stations
fi
# Also one that the page has ended.
while ip link show carnet0 >/dev/null 2>&1 || [ -n "$(ls /run/carnet/*.sock 2>/dev/null)" ]; do sleep 0.02; done
own-keys "/etc/carnet/$1.toml"
carnet run --config "/etc/carnet/$1.toml"
for _ in $(seq 200); do
  ! grep -q '^\[mobile_router' "/etc/carnet/$1.toml" || carnet status | grep -q '^mobile router  *registered' || { sleep 0.05; continue; }
  ! grep -q '^\[geonet' "/etc/carnet/$1.toml" || carnet show neighbours | grep -q : || { sleep 0.05; continue; }
  exit 0
done
carnet status
exit 1
END
chmod +x "$(dirname "$(command -v carnet)")/station"
# `systemctl reload carnet@NAME`, as if it were a unit: returns when the config has been read.
cat >"$(dirname "$(command -v carnet)")/systemctl" <<'END'
#!/bin/bash -eu
[ "$1" = reload ] || { echo "there is no systemd here" >&2; exit 1; }
for process in /proc/[0-9]*; do
  [[ "$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" == */carnet\ run\ --config\ /etc/carnet/${2#carnet@}.toml\  ]] || continue
  log=$(readlink "$process/fd/2")
  before=$(grep -c "applied the changed config" "$log" || true)
  kill -HUP "${process#/proc/}"
  for _ in $(seq 200); do
    [ "$(grep -c "applied the changed config" "$log" || true)" = "$before" ] || exit 0
    sleep 0.05
  done
  cat "$log"
done
exit 1
END
chmod +x "$(dirname "$(command -v carnet)")/systemctl"
sed -n '/^\[geonet\]/,$!{/^\[station\]/,/^$/!d}; p' /etc/carnet/bus-42.toml >/etc/carnet/bus-42-radio.toml
sed 's|^name = "bus-42"|&\nhttp = "[2001:db8:f0::5]:8440"\nhttp_tokens = "/etc/carnet/tokens"|' /etc/carnet/bus-42.toml >/etc/carnet/bus-42-http.toml
ip addr add 2001:db8:f0::5/64 dev lo
install --mode 600 /dev/null /etc/carnet/tokens
echo "read only-so-that-there-is-one" >>/etc/carnet/tokens
[ -n "${off:-}" ] || station bus-42
