"""The world in which a network manager runs beside carnet: network namespaces, access routers, a home agent, a host on board.

    host --eth0-- bus --wlan0--(bridge)-- ar1, ar3      ar1 and ar3 are two access networks; one of them has the bridge
                      --wwan0------------ ar2           a second access network, like a modem's
    ar1, ar2, ar3, home -- core                         core answers the host's pings

Each access router runs radvd, NAT for IPv4, and dnsmasq where the root has it. The managers run in the namespace `bus` with a
root file system of their own; carnet runs there with the root of this machine.
"""

import pathlib
import re
import signal
import subprocess
import tempfile
import time

# The access networks: third group of their IPv6 prefix, third octet of their IPv4 prefix.
ACCESS = {"ar1": 1, "ar2": 2, "ar3": 3}
TARGET = "2001:db8:c::1"
KEY = "8c1f6b64a7d24f0f9e52c7c3fd0a4e11"
PING_INTERVAL = 0.05

RADVD = """interface lan {{
    AdvSendAdvert {advertise};
    MinRtrAdvInterval 3;
    MaxRtrAdvInterval {interval};
    AdvDefaultLifetime {lifetime};
    prefix 2001:db8:f{number}::/64 {{ }};
}};
"""

NAT = """table ip nat {
    chain out {
        type nat hook postrouting priority srcnat
        oifname "core" masquerade
    }
}
"""

HOME = """[station]
name = "home"
socket = "{work}/home.sock"
state_dir = "{work}/home-state"

[home_agent]
address = "2001:db8:1::1"
home_prefix = "2001:db8:1::/64"
ipv4_address = "192.0.2.2"

[[home_agent.mobile_router]]
home_address = "2001:db8:1::1234"
prefixes = ["2001:db8:a::/64"]
auth = {{ spi = 300, key = "{key}" }}
"""

BUS = """[station]
name = "bus"
socket = "{work}/bus.sock"
state_dir = "{work}/bus-state"

[mobile_router]
home_address = "2001:db8:1::1234"
home_prefix = "2001:db8:1::/64"
home_agent = "2001:db8:1::1"
home_agent_ipv4 = "192.0.2.2"
prefixes = ["2001:db8:a::/64"]
lan = ["eth0"]
auth = {{ spi = 300, key = "{key}" }}
"""

UPLINK = """
[[mobile_router.uplink]]
interface = "{name}"
bid = {bid}
priority = {priority}
"""


class World:
    """The namespaces and every process in them; `end` removes all of it."""

    def __init__(self, program, tag):
        self.program, self.tag = str(program), tag
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="carnet-managers-"))
        self.names = ["host", "bus", "air", "core", "home", *ACCESS]
        self.processes = {}
        self.pings = None
        # Interface index of the next veth.
        self.next_index = 100

    # Namespaces

    def space(self, name):
        return f"{self.tag}-{name}"

    def ip(self, name, words, check=True):
        subprocess.run(["ip", "-n", self.space(name), *words.split()], check=check, capture_output=not check)

    def run(self, name, *command, check=True, **more):
        return subprocess.run(["nsenter", f"--net=/run/netns/{self.space(name)}", *map(str, command)], check=check, text=True,
                              capture_output=True, **more)

    def sysctl(self, name, **values):
        for key, value in values.items():
            self.run(name, "sysctl", "-qw", f"{key.replace('__', '.')}={value}")

    def link(self, here, device, there, other):
        # If both ends had the same index, the kernel could hold back a change of their carrier for a second
        # (linkwatch_urgent_event), and the bridge would drop all frames until then.
        first = self.next_index
        self.next_index += 2
        self.ip(here, f"link add {device} index {first} type veth "
                      f"peer name {other} index {first + 1} netns {self.space(there)}")
        for name, end in ((here, device), (there, other)):
            self.ip(name, f"link set {end} up")

    def build(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", self.space(name)], check=True)
            self.ip(name, "link set lo up")
            if name != "bus":
                self.sysctl(name, net__ipv6__conf__all__accept_dad=0, net__ipv6__conf__default__accept_dad=0)
        for name in ("core", "ar1", "ar2", "ar3"):
            self.sysctl(name, net__ipv6__conf__all__forwarding=1, net__ipv4__ip_forward=1)
        self.link("host", "eth0", "bus", "eth0")
        self.ip("air", "link add air type bridge")
        self.ip("air", "link set air up")
        for port, (node, device) in {"bus": ("bus", "wlan0"), "ar1": ("ar1", "lan"), "ar3": ("ar3", "lan")}.items():
            self.link("air", port, node, device)
            self.ip("air", f"link set {port} master air")
        self.ip("air", "link set ar3 down")
        self.link("bus", "wwan0", "ar2", "lan")
        for device in ("wlan0", "wwan0"):
            self.ip("bus", f"link set {device} down")
        self.ip("core", f"addr add {TARGET}/128 dev lo")
        for node, number in {**ACCESS, "home": 9}.items():
            self.link("core", f"to-{node}", node, "core")
            self.ip("core", f"addr add 2001:db8:c{number}::1/64 dev to-{node}")
            self.ip(node, f"addr add 2001:db8:c{number}::2/64 dev core")
            self.ip(node, f"route add default via 2001:db8:c{number}::1")
            if node == "home":
                self.ip("core", "addr add 192.0.2.1/30 dev to-home")
                self.ip("home", "addr add 192.0.2.2/30 dev core")
                self.ip("home", "route add default via 192.0.2.1")
                for prefix in ("2001:db8:1::/64", "2001:db8:a::/64"):
                    self.ip("core", f"route add {prefix} via 2001:db8:c{number}::2")
                continue
            self.ip("core", f"addr add 192.0.2.{number * 4 + 1}/30 dev to-{node}")
            self.ip(node, f"addr add 192.0.2.{number * 4 + 2}/30 dev core")
            self.ip(node, f"route add default via 192.0.2.{number * 4 + 1}")
            self.ip(node, f"addr add 2001:db8:f{number}::1/64 dev lan")
            self.ip(node, f"addr add 10.{number}.0.1/24 dev lan")
            self.ip("core", f"route add 2001:db8:f{number}::/64 via 2001:db8:c{number}::2")
            self.run(node, "nft", "-f", "-", input=NAT)
            self.advertise(node)

    # Processes

    def start(self, key, name, *command):
        log = open(self.work / f"{key}.log", "a")
        words = ["nsenter", f"--net=/run/netns/{self.space(name)}", *map(str, command)]
        self.processes[key] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, key, how=signal.SIGTERM, patience=10):
        process = self.processes.pop(key, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def advertise(self, node, lifetime=1800, interval=10, advertise="on"):
        """Runs radvd of `node` with these values, in the place of the one before."""
        self.stop(f"radvd-{node}", signal.SIGKILL)
        config = self.work / f"radvd-{node}.conf"
        config.write_text(RADVD.format(number=ACCESS[node], lifetime=lifetime, interval=interval, advertise=advertise))
        config.chmod(0o644)
        pid = self.work / f"radvd-{node}.pid"
        pid.unlink(missing_ok=True)
        self.start(f"radvd-{node}", node, "radvd", "-n", "-m", "stderr", "-C", config, "-p", pid)

    def serve_dhcp(self, dnsmasq):
        for node, number in ACCESS.items():
            self.start(f"dhcp-{node}", node, dnsmasq, "--keep-in-foreground", "--port=0", "--interface=lan", "--no-resolv", "--no-hosts",
                       "--conf-file=/dev/null", "--pid-file=", f"--dhcp-leasefile={self.work}/leases-{node}", "--user=root",
                       "--dhcp-authoritative", f"--dhcp-range=10.{number}.0.50,10.{number}.0.99,255.255.255.0,1h")

    def start_home(self):
        path = self.work / "home.toml"
        path.write_text(HOME.format(work=self.work, key=KEY))
        path.chmod(0o600)
        self.start("home", "home", self.program, "run", "--config", path)

    def start_bus(self, uplinks):
        path = self.work / "bus.toml"
        text = BUS.format(work=self.work, key=KEY)
        for at, name in enumerate(uplinks, 1):
            text += UPLINK.format(name=name, bid=at, priority=10 * at)
        path.write_text(text)
        path.chmod(0o600)
        self.start("bus", "bus", self.program, "run", "--config", path)

    def ask(self, *command, name="bus"):
        done = subprocess.run([self.program, *command, "--socket", f"{self.work}/{name}.sock"], capture_output=True, text=True)
        return done.stdout

    def end(self):
        for key in list(self.processes):
            self.stop(key)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True)

    # Outages of a host on board

    def start_pings(self):
        self.ip("host", "addr replace 2001:db8:a::77/64 dev eth0 nodad")
        self.ip("host", "route replace default via 2001:db8:a::1", check=False)
        log = open(self.work / "pings", "w")
        words = ["nsenter", f"--net=/run/netns/{self.space('host')}", "ping", "-i", str(PING_INTERVAL), "-D", "-O", TARGET]
        self.pings = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes["pings"] = self.pings

    def answers(self):
        """When answers came, in seconds since the epoch."""
        text = (self.work / "pings").read_text(errors="replace")
        return [float(found[1]) for found in re.finditer(r"^\[(\d+\.\d+)\] \d+ bytes from .* time=", text, re.M)]

    def outage(self, begin, end):
        """The longest time without an answer between two times, and whether there was none at its end."""
        inside = [at for at in self.answers() if begin - 1 <= at <= end]
        before = [at for at in inside if at <= begin][-1:] or [begin]
        marks = before + [at for at in inside if at > begin] + [end]
        gaps = [later - sooner for sooner, later in zip(marks, marks[1:])]
        return max(gaps), gaps[-1] > 2

    def wait_for_answers(self, patience):
        """Until the host has had answers for a second, or the patience ends; whether it has."""
        until = time.time() + patience
        while time.time() < until:
            now = time.time()
            if len([at for at in self.answers()[-40:] if at > now - 1]) >= 10:
                return True
            time.sleep(0.2)
        return False

    # Events

    def carrier(self, up):
        self.ip("air", f"link set bus {'up' if up else 'down'}")

    def roam(self, old, new, without_carrier):
        """Moves wlan0 to another access network, without carrier for this number of seconds."""
        if without_carrier:
            self.carrier(False)
        self.ip("air", f"link set {old} down")
        self.ip("air", f"link set {new} up")
        if without_carrier:
            time.sleep(without_carrier)
            self.carrier(True)
