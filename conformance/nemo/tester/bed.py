"""Test beds: the program as a home agent or a mobile router, and the tester at the other ends of its cables.

Every address at the tester's end is the tester's own doing: IPv6 is off on its interfaces, so that its kernel answers
nothing.
"""

import os

import testbed
from testbed import PATIENCE, enter, run

from . import packets
from .wire import Wire

HOME_AGENT = "2001:db8:1::1"
HOME_PREFIX = "2001:db8:1::/64"
FOREIGN = "2001:db8:f0::"
# The data path that the station takes; as in the tests of the program.
PATH = os.environ.get("CARNET_TEST_PATH", "tun")


class Station(testbed.Station):
    """The program with a config, and cables to the tester: `interfaces` as name: addresses."""

    cables = 0

    def __init__(self, program, config, interfaces, forwarding=True, capture=None):
        self.interfaces, self.forwarding, self.capture, self.wires = interfaces, forwarding, capture, {}
        super().__init__(program, f"[dataplane]\npath = '{PATH}'\n{config}")

    def lay_cables(self):
        for name, addresses in self.interfaces.items():
            self._lay_cable(name, addresses)
        if self.forwarding:
            self.inside("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")

    def _lay_cable(self, name, addresses):
        Station.cables += 1
        here = f"wire{Station.cables}"
        mac = bytes.fromhex("020000bb") + Station.cables.to_bytes(2, "big")
        run("ip", "link", "add", here, "type", "veth", "peer", "name", name, "netns", str(self.pid))
        run("sysctl", "-qw", f"net.ipv6.conf.{here}.disable_ipv6=1")
        run("ip", "link", "set", here, "address", mac.hex(":"), "up")
        for address in addresses:
            self.inside("ip", "addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        self.inside("ip", "link", "set", name, "up")
        self.wires[name] = Wire(name, here, mac, self.capture)

    def cut_cables(self):
        for wire in self.wires.values():
            wire.close()


class Node:
    """What a mobile router is configured with at the home agent, and the last sequence number that it used."""

    def __init__(self, home_address, prefixes, spi=None, key=None, routers=True):
        self.home_address, self.prefixes, self.spi, self.key = packets.ip(home_address), prefixes, spi, key
        self.routers, self.sequence = routers, 0


def home_agent(program, nodes, on_link, capture=None):
    """The program as a home agent of these nodes, with a real home link or a virtual one."""
    config = f"[home_agent]\naddress = '{HOME_AGENT}'\nhome_prefix = '{HOME_PREFIX}'\n"
    config += "ipv4_address = '192.0.2.1'\ndhaad = true\npreference = 10\n"
    if on_link:
        config += "home_link = 'h0'\n"
    for node in nodes:
        auth = "'none'" if node.key is None else f"{{ spi = {node.spi}, key = '{node.key.hex()}' }}"
        prefixes = ", ".join(f"'{prefix}'" for prefix in node.prefixes)
        config += f"[[home_agent.mobile_router]]\nhome_address = '{packets.text(node.home_address)}'\n"
        config += f"prefixes = [{prefixes}]\nauth = {auth}\n"
    interfaces = {"f0": [f"{FOREIGN}1/64", "192.0.2.1/24"]}
    if on_link:
        interfaces["h0"] = ["2001:db8:1::fe/64"]
    return Station(program, config, interfaces, capture=capture)


__all__ = ["FOREIGN", "HOME_AGENT", "PATIENCE", "Node", "Station", "enter", "home_agent"]
