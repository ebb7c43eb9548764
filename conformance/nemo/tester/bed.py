"""Test beds: the program as a home agent or a mobile router, and the tester at the other ends of its cables.

Every address at the tester's end is the tester's own doing: IPv6 is off on its interfaces, so that its kernel answers
nothing.
"""

import os
import subprocess

import testbed
from testbed import PATIENCE, enter, run

from . import packets
from .wire import Wire

HOME_AGENT = "2001:db8:1::1"
# Another home agent of the same home prefix, which the config of the first names where a case is about both.
OTHER_AGENT = "2001:db8:1::2"
HOME_PREFIX = "2001:db8:1::/64"
FOREIGN = "2001:db8:f0::"
# The data path that the station takes; as in the tests of the program.
PATH = os.environ.get("CARNET_TEST_PATH", "tun")


class Cables:
    """Counts interfaces at the tester's end, over all stations and links."""

    laid = 0

    @classmethod
    def next(cls):
        """Name and link-layer address of the next one."""
        cls.laid += 1
        return f"wire{cls.laid}", bytes.fromhex("020000bb") + cls.laid.to_bytes(2, "big")


class SharedLink:
    """A link with stations on it, and the tester: a bridge."""

    def __init__(self, name, capture=None):
        with testbed.Station.making:
            self.bridge, mac = Cables.next()
            here, _ = Cables.next()
        self.ports = [f"{here}p"]
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "link", "add", here, "address", mac.hex(":"), "type", "veth", "peer", "name", self.ports[0])
        for interface in (self.bridge, here, self.ports[0]):
            run("sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")
        run("ip", "link", "set", self.ports[0], "master", self.bridge, "up")
        for interface in (self.bridge, here):
            run("ip", "link", "set", interface, "up")
        self.wire = Wire(name, here, mac, capture)

    def take(self, port):
        """Another port."""
        run("ip", "link", "set", port, "master", self.bridge, "up")

    def close(self):
        self.wire.close()
        for interface in (self.bridge, self.ports[0]):
            run("ip", "link", "del", interface, check=False)


class Station(testbed.Station):
    """The program with a config, and cables to the tester: `interfaces` as name: addresses. `shared` names those that are
    on a shared link."""

    def __init__(self, program, config, interfaces, forwarding=True, capture=None, shared=None):
        self.interfaces, self.forwarding, self.capture, self.wires = interfaces, forwarding, capture, {}
        self.shared, self.orders = shared or {}, []
        super().__init__(program, f"[dataplane]\npath = '{PATH}'\n{config}")

    def lay_cables(self):
        for name, addresses in self.interfaces.items():
            self._lay_cable(name, addresses)
        if self.forwarding:
            self.inside("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")

    def _lay_cable(self, name, addresses):
        here, mac = Cables.next()
        run("ip", "link", "add", here, "type", "veth", "peer", "name", name, "netns", str(self.pid))
        run("sysctl", "-qw", f"net.ipv6.conf.{here}.disable_ipv6=1")
        run("ip", "link", "set", here, "address", mac.hex(":"), "up")
        for address in addresses:
            self.inside("ip", "addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        self.inside("ip", "link", "set", name, "up")
        if name in self.shared:
            self.shared[name].take(here)
        else:
            self.wires[name] = Wire(name, here, mac, self.capture)

    def order(self, *arguments):
        """Runs a command of the operator without waiting for its end."""
        self.orders.append(subprocess.Popen([self.program, *arguments, "--socket", self.api], stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))

    def memory(self):
        """Octets of memory that are resident."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def cut_cables(self):
        for order in self.orders:
            order.kill()
            order.wait()
        for wire in self.wires.values():
            wire.close()


class Node:
    """Config of a mobile router at the home agent, and its last sequence number."""

    def __init__(self, home_address, prefixes, spi=None, key=None, routers=True, has_ipv4_home=False):
        self.home_address, self.prefixes, self.spi, self.key = packets.ip(home_address), prefixes, spi, key
        self.routers, self.sequence = routers, 0
        # RFC 5555: the IPv4 prefix of a mobile router, the IPv4 home address of a mobile node; `home_agent` selects them.
        self.ipv4_prefix, self.ipv4_home, self.has_ipv4_home = None, None, has_ipv4_home


def home_agent(program, nodes, on_link, capture=None, address=HOME_AGENT, preference=10, peer=None, home_link=None):
    """The program as a home agent of these nodes, with a real home link or a virtual one. `peer` is the address of another
    home agent that its config names, `home_link` the link that it shares with others."""
    config = f"[home_agent]\naddress = '{address}'\nhome_prefix = '{HOME_PREFIX}'\n"
    config += f"ipv4_address = '192.0.2.1'\ndhaad = true\npreference = {preference}\n"
    # No RFC has the test of care-of addresses; the nodes that the tester plays answer no Echo Requests.
    config += "care_of_test = 'off'\n"
    if on_link:
        config += "home_link = 'h0'\n"
    if peer:
        config += f"[[home_agent.peer]]\naddress = '{peer}'\n"
    for number, node in enumerate(nodes):
        own = ", per_agent = false" if peer else ""
        auth = "'none'" if node.key is None else f"{{ spi = {node.spi}, key = '{node.key.hex()}'{own} }}"
        prefixes = ", ".join(f"'{prefix}'" for prefix in node.prefixes)
        config += f"[[home_agent.mobile_router]]\nhome_address = '{packets.text(node.home_address)}'\n"
        config += f"prefixes = [{prefixes}]\nauth = {auth}\n"
        if node.prefixes:
            # RFC 5555: each mobile router also has an IPv4 prefix.
            node.ipv4_prefix = bytes([10, 64 + number // 256, number % 256, 0])
            config += f"ipv4_prefixes = ['{packets.text(node.ipv4_prefix)}/24']\n"
        if node.has_ipv4_home:
            node.ipv4_home = bytes([10, 128 + number // 256, number % 256, 7])
            config += f"ipv4_prefixes = ['{packets.text(node.ipv4_home)}/32']\n"
    interfaces = {"f0": [f"{FOREIGN}1/64", "192.0.2.1/24"]}
    if on_link:
        interfaces["h0"] = [f"{address}fe/64"]
    return Station(program, config, interfaces, capture=capture, shared={"h0": home_link} if home_link else None)


__all__ = ["FOREIGN", "HOME_AGENT", "OTHER_AGENT", "PATIENCE", "Node", "SharedLink", "Station", "enter", "home_agent"]
