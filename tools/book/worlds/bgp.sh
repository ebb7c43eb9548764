# The world `bus`, with a router of the provider beside the home agent: namespace `upstream`, 2001:db8:fe::1, which
# speaks BGP to 2001:db8:fe::2 at `home` (BIRD, where there is one). The commands `announced PREFIX` and `withdrawn
# PREFIX` wait until the provider's router has a route to it, or none; `home-agent` starts the home agent again when the
# page has killed it, whose process is in ~/home-agent.
. "$WORLDS/bus.sh"
ip netns add upstream
ip netns exec upstream $quiet
ip -n home link add to-upstream type veth peer name eth0 netns upstream
ip -n home link set to-upstream up
ip -n upstream link set lo up
ip -n upstream link set eth0 up
ip -n home addr add 2001:db8:fe::2/64 dev to-upstream
ip -n upstream addr add 2001:db8:fe::1/64 dev eth0
mkdir -p /etc/bird /run/bird /etc/frr /var/run/frr
# FRR wants its users, and root in the second group.
getent group frrvty >/dev/null || {
  echo 'frr:x:990:' >>/etc/group
  echo 'frrvty:x:991:root,frr' >>/etc/group
  echo 'frr:x:990:990::/nonexistent:/bin/false' >>/etc/passwd
}
programs=$(dirname "$(command -v carnet)")
cat >"$programs/announced" <<'END'
#!/bin/bash -eu
for _ in $(seq 300); do ip -n upstream -6 route show | grep -q "^$1 via" && exit 0; sleep 0.1; done
ip -n upstream -6 route show
exit 1
END
cat >"$programs/withdrawn" <<'END'
#!/bin/bash -eu
for _ in $(seq 300); do ip -n upstream -6 route show | grep -q "^$1 via" || exit 0; sleep 0.1; done
ip -n upstream -6 route show
exit 1
END
chmod +x "$programs/announced" "$programs/withdrawn"
cat >/etc/bird/upstream.conf <<'END'
router id 192.0.2.2;
protocol device { }
protocol kernel { ipv6 { export all; import none; }; }
protocol bgp home {
    local as 64501;
    neighbor 2001:db8:fe::2 as 64500;
    connect delay time 1;
    error wait time 1, 2;
    ipv6 { import all; export none; };
}
END
if command -v bird >/dev/null; then
  ip netns exec upstream bird -c /etc/bird/upstream.conf -s /run/bird/upstream.ctl
fi
cp /run/book/home.pid ~/home-agent
# Keeps its sockets and state for the next one.
ip netns exec home nsenter --target "$(cat /run/book/home.pid)" --mount sleep infinity &
echo $! >~/home-keeper
cat >"$programs/home-agent" <<'END2'
#!/bin/bash -eu
if [ -e "/proc/$(cat ~/home-agent)/exe" ]; then exit 0; fi
ip netns exec home nsenter --target "$(cat ~/home-keeper)" --mount sh -c '
  echo $$ >~/home-agent
  cp ~/home-agent /run/book/home.pid
  exec "$PROGRAM" run --config /etc/carnet/home.toml' >>~/home.log 2>&1 &
END2
chmod +x "$programs/home-agent"
