"""The other side of a mobile router: an access router, a home agent, a host on board, all played by the tester."""

import struct
import time

from . import bed, packets
from .case import PATIENCE, SILENCE, case, expect, stations
from .packets import ip
from .wire import ALL_NODES, Inbox

ROUTER = ip("fe80::1")
HOST = ip("2001:db8:a::77")
HOME_ADDRESS = ip("2001:db8:1::1234")
HOME_AGENT, OTHER_AGENT = ip(bed.HOME_AGENT), ip(bed.OTHER_AGENT)
# RFC 2526: the Mobile IPv6 Home-Agents anycast address of the home prefix.
ANYCAST = ip("2001:db8:1:0:fdff:ffff:ffff:fffe")
FAR = ip("2001:db8:c::1")
PREFIX = "2001:db8:a::/64"
KEY = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
SPI = 300
CONFIG = """[mobile_router]
home_address = '2001:db8:1::1234'
home_prefix = '2001:db8:1::/64'
home_agent = {1}
prefixes = ['2001:db8:a::/64']
lan = ['i0']
lifetime = '40s'
auth = {{ spi = 300, key = '000102030405060708090a0b0c0d0e0f'{2} }}
{0}
[[mobile_router.uplink]]
interface = 'w0'
"""
# A mobile node: a machine with a home address and no mobile network.
NODE_CONFIG = """[mobile_node]
home_address = '2001:db8:1::1234'
home_prefix = '2001:db8:1::/64'
home_agent = {1}
lifetime = '40s'
auth = {{ spi = 300, key = '000102030405060708090a0b0c0d0e0f'{2} }}
{0}
[[mobile_node.uplink]]
interface = 'w0'
"""


class Update:
    """A Binding Update, read."""

    def __init__(self, heard, key):
        self.key = key
        self.heard, self.when, self.packet = heard, heard.when, heard.packet
        self.sequence, self.flags, lifetime = struct.unpack(">HHH", heard.packet.payload[6:12])
        self.lifetime = 4 * lifetime
        self.home_address = heard.packet.home_address or heard.packet.source
        self.source = heard.packet.source
        found = heard.packet.all(packets.ALTERNATE)
        self.care_of = found[0] if found else self.source

    def prefixes(self):
        return [(data[1], data[2:18]) for data in self.packet.all(packets.PREFIX)]

    def is_authentic(self):
        return self.packet.is_authentic(SPI, self.key, self.care_of, self.home_address)


class Agent:
    """A mobile router under test and everything around it."""

    def __init__(self, program, config="", capture=None, home_agent=f"'{bed.HOME_AGENT}'",
                 per_agent=False, node=False):
        self.per_agent = per_agent
        config = (NODE_CONFIG if node else CONFIG).format(config, home_agent, ", per_agent = true" if per_agent else "")
        self.station = bed.Station(program, config, {"w0": [], "i0": []}, False, capture)
        self.uplink, self.lan = self.station.wires["w0"], self.station.wires["i0"]
        self.inbox = Inbox()
        self.uplink.own(ROUTER)
        self.uplink.routers.add(ROUTER)
        self.lan.own(HOST)
        for address in (HOME_AGENT, OTHER_AGENT, ANYCAST, FAR, HOME_ADDRESS, ROUTER, ALL_NODES):
            self.uplink.watch(address, self.inbox)
        for address in (HOST, FAR, ALL_NODES):
            self.lan.watch(address, self.inbox)
        self.mac = None

    def close(self):
        return self.station.close()

    def key_of(self, home_agent):
        """The key that the router has in common with a home agent."""
        return packets.key_for(KEY, home_agent) if self.per_agent else KEY

    def advertise(self, prefix="2001:db8:f0::", lifetime=1800):
        """A Router Advertisement on the uplink, for stateless addresses of a /64."""
        option = struct.pack(">BBBBIII", 3, 4, 64, 0xC0, 7200, 3600, 0) + ip(prefix)
        body = struct.pack(">BBHII", 64, 0, lifetime, 0, 0) + option + b"\1\1" + self.uplink.mac
        message = packets.icmpv6(ROUTER, ALL_NODES, 134, 0, body)
        self.uplink.send(packets.ipv6(ROUTER, ALL_NODES, packets.ICMPV6, message, 255), b"\x33\x33\0\0\0\1")

    def next(self, until):
        heard = self.inbox.next(until)
        if heard is not None:
            expect(heard.problem is None, f"malformed: {heard.problem}")
        return heard

    def update(self, patience=PATIENCE, wanted=lambda update: True, advertise=False):
        """The next Binding Update; `None` when there is none."""
        until = time.monotonic() + patience
        again = time.monotonic()
        while time.monotonic() < until:
            if advertise and time.monotonic() >= again:
                self.advertise()
                again = time.monotonic() + 1.0
            heard = self.next(min(until, time.monotonic() + 0.2))
            if heard is not None and heard.packet.mh == packets.UPDATE:
                update = Update(heard, self.key_of(heard.packet.destination))
                self.mac = heard.source_mac
                if wanted(update):
                    return update
        return None

    def first(self):
        """The Binding Update by which the station begins after it has found the access network: the last one, should it
        have sent more while the tester had no time."""
        found = self.update(3 * PATIENCE, advertise=True)
        expect(found is not None, "no Binding Update")
        return self.newer() or found

    def newer(self):
        """The last Binding Update of those that are here already; `None` when there is none."""
        found = self.inbox.take(lambda heard: heard.packet and heard.packet.mh == packets.UPDATE)
        return Update(found[-1], self.key_of(found[-1].packet.destination)) if found else None

    def acknowledge(self, update, status=0, router=True, sequence=None, lifetime=None, key=None, signed=True, options=()):
        """Answers a Binding Update, as the home agent that it is for."""
        agent = update.packet.destination
        lifetime = min(update.lifetime, 40) if lifetime is None else lifetime
        data = struct.pack(">BBHH", status, 0x40 if router else 0, update.sequence if sequence is None else sequence,
                           lifetime // 4)
        header = packets.mobility(packets.ACKNOWLEDGEMENT, data, list(options))
        if signed:
            header = packets.authenticated(header, SPI, key or self.key_of(agent), update.care_of, update.home_address)
        header = packets.with_checksum(header, agent, update.home_address)
        protocol = packets.MOBILITY
        if update.packet.home_address is not None:
            header, protocol = packets.routing_2(update.home_address) + header, packets.ROUTING
        self.uplink.send(packets.ipv6(agent, update.source, protocol, header), self.mac)

    def notice(self, update, header, key=None, signed=True, home=HOME_ADDRESS):
        """Sends what the home agent says unasked: a Mobility Header without checksum, to which the tester adds the
        authentication, if it is to be signed."""
        if signed:
            header = packets.authenticated(header, SPI, key or self.key_of(HOME_AGENT), update.care_of, HOME_ADDRESS)
        header = packets.routing_2(home) + packets.with_checksum(header, HOME_AGENT, home)
        self.uplink.send(packets.ipv6(HOME_AGENT, update.source, packets.ROUTING, header), self.mac)

    def leaves_by(self, agent, number=1):
        """A packet of a host on board goes into the tunnel to this home agent."""
        inner = packets.echo(HOST, FAR, number)
        mac = self.board_mac()
        for attempt in range(3):
            self.lan.send(inner, mac)
            try:
                heard = self.wait(lambda heard: heard.packet.inner and heard.packet.inner.octets[8:] == inner[8:],
                                  "the packet in the tunnel", 3.0)
                break
            except AssertionError:
                if attempt == 2:
                    raise
        expect(heard.packet.destination == agent, f"{heard!r}")
        return heard.packet

    def register(self):
        """A registration from the start; the Binding Update that was accepted."""
        newer = self.first()
        while newer is not None:
            update = newer
            self.acknowledge(update)
            # It goes by the tunnel now: the interface of the mobile network has its address. Or it had already sent again.
            time.sleep(0.3)
            newer = self.newer()
        return update

    def wait(self, wanted, what, patience=PATIENCE):
        until = time.monotonic() + patience
        while (heard := self.next(until)) is not None:
            if wanted(heard):
                return heard
        raise AssertionError(f"{what} did not come in {patience} s")

    def silence(self, unwanted, what, seconds=SILENCE):
        until = time.monotonic() + seconds
        while (heard := self.next(until)) is not None:
            expect(not unwanted(heard), f"{what}: {heard!r}")

    def board_mac(self):
        """The link-layer address of the router on board."""
        mac = self.lan.mac_of(ip("2001:db8:a::1"), HOST, PATIENCE)
        expect(mac is not None, "nobody answers on board for 2001:db8:a::1")
        return mac


def router(name, clause, title, config="", timing=None, **more):
    """A case with a mobile router of its own."""
    def declare(run):
        def whole(program, capture):
            agent = Agent(program, config, capture, **more)
            with stations([agent.station], agent.close):
                run(agent)
        return case(name, clause, title, target="mobile-router", timing=timing)(whole)
    return declare
