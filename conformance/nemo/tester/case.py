"""Cases, and what they are made of: a mobile router that the tester plays, its correspondent, and expectations.

All tolerances are here. What has to come is waited for generously; that something does not come is believed after
`SILENCE`.
"""

import struct
import threading
import time
import traceback

from . import packets
from .packets import A, H, R
from .wire import Inbox

# Seconds.
PATIENCE = 8.0
SILENCE = 0.7
# How much later than another a packet may look that was sent in time.
LATE = 0.1
# How long packets of a binding that has ended may be on their way.
IN_FLIGHT = 5.0
CASES = []


class Unsuitable(Exception):
    """The target lacks what a case needs: the reason."""


class Declared:
    """A case: id, clause, title, and what it needs."""

    def __init__(self, name, clause, title, run, needs):
        self.name, self.clause, self.title, self.run = name, clause, title, run
        self.target = needs.pop("target", "home-agent")
        # Of the home agent: a real home link or a virtual one; and a list of nodes as (number of prefixes, keyed).
        self.link = needs.pop("link", False)
        self.nodes = needs.pop("nodes", [(1, True)])
        # Of the mobile router: what its config has beyond the usual.
        self.config = needs.pop("config", "")
        assert not needs, needs


def case(name, clause, title, **needs):
    def declare(run):
        CASES.append(Declared(name, clause, title, run, needs))
        return run
    return declare


def unfit(name, clause, title, reason):
    """An item of the list that is not tested: the reason."""
    def run(*_):
        raise Unsuitable(reason)
    CASES.append(Declared(name, clause, title, run, {"nodes": [], "target": "none"}))


class Acknowledgement:
    """A Binding Acknowledgement, read."""

    def __init__(self, heard, mobile, care_of):
        packet = heard.packet
        self.packet, self.heard = packet, heard
        data = packet.payload
        self.status, self.flags, self.sequence, lifetime = struct.unpack(">BBHH", data[6:12])
        self.lifetime = 4 * lifetime
        self.router = bool(self.flags & 0x40)
        self.authentic = mobile.node.key is None or packet.is_authentic(
            mobile.node.spi, mobile.node.key, care_of, mobile.home)

    def identifiers(self):
        """Binding Identifier options as BID: status."""
        return {struct.unpack(">H", data[:2])[0]: data[2] for data in self.packet.all(packets.BINDING_IDENTIFIER)}


class Stream:
    """Packets of the correspondent to hosts in mobile networks, all the time while it is entered."""

    INTERVAL = 0.02

    def __init__(self, mobile, *destinations):
        self.mobile, self.destinations = mobile, destinations
        self.sent, self.stopped = [], threading.Event()
        self.thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()

    def _send(self):
        number = 0
        while not self.stopped.wait(self.INTERVAL):
            number += 1
            for destination in self.destinations:
                packet = packets.echo(self.mobile.correspondent, destination, number & 0xFFFF, b"stream" + struct.pack(">I", number))
                self.sent.append((time.monotonic(), destination, packet[40:]))
                self.mobile.wire.send(packet, self.mobile.target.gateway)

    def flow(self, destination):
        """Waits until packets arrive, and says when that was."""
        self.mobile.wait(lambda heard: heard.packet.inner and heard.packet.inner.destination == destination,
                         f"a packet of the stream to {packets.text(destination)}")
        return time.monotonic()

    def lost(self, destination, begin, end=None):
        """How many packets that were sent between two moments have not come through the tunnel. Ends the stream."""
        self.__exit__()
        while self.mobile.inbox.next(time.monotonic() + 0.5) is not None:
            pass
        inner = (heard.packet.inner for heard in self.mobile.inbox.all)
        came = {packet.octets[40:] for packet in inner if packet and packet.destination == destination}
        sent = [octets for when, to, octets in self.sent if to == destination and begin <= when <= (end or when)]
        expect(sent, "nothing was sent")
        return sum(octets not in came for octets in sent)


class Mobile:
    """A mobile router, or whoever pretends to be one."""

    def __init__(self, target, node, number):
        self.target, self.node, self.number = target, node, number
        self.wire = target.foreign
        self.home = node.home_address
        self.inbox = Inbox()
        self.correspondent = packets.ip(f"{target.foreign_prefix}c:{number:x}")
        self._own(self.correspondent)
        self.care_of = self.care_of_address(0)
        # Behind IPv4; the port is what a NAT has made of 4191.
        self.ipv4, self.port = bytes([192, 0, 2, 100 + number % 100]), 20000 + number
        self._own(self.ipv4)
        for wire in target.wires:
            wire.watch(self.home, self.inbox)
        for prefix in node.prefixes:
            target.foreign.watch(self.host(prefix), self.inbox)

    def care_of_address(self, which):
        """One of its care-of addresses, the tester's from now on."""
        address = packets.ip(f"{self.target.foreign_prefix}{1 + which:x}:{self.number:x}")
        self._own(address)
        return address

    def _own(self, address):
        if address not in self.wire.owned:
            self.wire.own(address)
            self.wire.watch(address, self.inbox)

    @staticmethod
    def host(prefix):
        """A host in a mobile network."""
        return packets.ip(prefix.split("/")[0] + "77")

    def emit(self, packet):
        """Sends a packet to the home agent's side of the foreign link."""
        self.wire.send(packet, self.target.gateway)

    def emit_ipv4(self, inner, udp):
        """Sends an IPv6 packet inside IPv4, with or without UDP."""
        payload = inner
        if udp:
            payload = struct.pack(">HHHH", self.port, packets.UDP_PORT, 8 + len(inner), 0) + inner
        agent = bytes([192, 0, 2, 1])
        self.emit(packets.ipv4(self.ipv4, agent, packets.UDP if udp else packets.IPV6, payload))

    def update(self, *, prefixes=None, options=(), flags=A | H | R, lifetime=60, sequence=None, care_of=None,
               signed=True, key=None, source=None, home_option=True, checksum=True, proof=None, home=None, raw=None):
        """Sends a Binding Update; returns its sequence number. `proof` is the care-of address that the MAC covers."""
        care_of = care_of or self.care_of
        source = source or care_of
        home = home or self.home
        if sequence is None:
            self.node.sequence = sequence = (self.node.sequence + 1) & 0xFFFF
        named = self.node.prefixes if prefixes is None else prefixes
        every = [packets.prefix_option(prefix) for prefix in named] + list(options)
        header = packets.mobility(
            packets.UPDATE, struct.pack(">HHH", sequence, flags, min(lifetime // 4, 0xFFFF)), every)
        if raw:
            header = raw(header)
        if signed and self.node.key is not None:
            header = packets.authenticated(header, self.node.spi, key or self.node.key, proof or care_of, home)
        upper = home if home_option else source
        header = packets.with_checksum(header, upper, self.target.home_agent)
        if not checksum:
            header = header[:4] + bytes([header[4] ^ 0x5A]) + header[5:]
        if home_option:
            header = packets.home_address_option(home) + header
        protocol = packets.DESTINATION if home_option else packets.MOBILITY
        self.emit(packets.ipv6(source, self.target.home_agent, protocol, header))
        return sequence

    def acknowledgement(self, sequence=None, care_of=None, patience=PATIENCE):
        """The next Binding Acknowledgement, with that number if one is given."""
        until = time.monotonic() + patience
        while (heard := self.inbox.next(until)) is not None:
            self.judge(heard)
            packet = heard.packet
            if packet.mh == packets.ACKNOWLEDGEMENT:
                found = Acknowledgement(heard, self, care_of or self.care_of)
                if sequence is None or found.sequence == sequence:
                    return found
        return None

    def register(self, status=0, **update):
        """A registration, and its answer, which has this status and is authentic."""
        for attempt in range(3):
            sequence = self.update(**update)
            found = self.acknowledgement(None if status == 135 else sequence,
                                         update.get("proof") or update.get("care_of"),
                                         PATIENCE if attempt == 2 else PATIENCE / 2)
            if found is not None:
                break
        expect(found is not None, f"no Binding Acknowledgement in {PATIENCE} s")
        expect(found.status == status, f"status {found.status}, expected {status}")
        if status == 0:
            self.node.sequence = found.sequence
        expect(found.authentic, "a Binding Acknowledgement without a right MN-HA authentication option")
        return found

    def number_ahead(self, by):
        """A sequence number so far behind the last one, with room before the numbers begin anew."""
        return self.node.sequence + by if self.node.sequence < 0xF000 else by

    def deregister(self, **update):
        return self.register(lifetime=0, prefixes=update.pop("prefixes", []), **update)

    def judge(self, heard):
        """Nothing malformed, and never an ICMPv6 Parameter Problem unless a case looks for it."""
        expect(heard.problem is None, f"malformed: {heard.problem}")

    def wait(self, wanted, what, patience=PATIENCE):
        """The next packet for which `wanted` is true."""
        until = time.monotonic() + patience
        seen = []
        while (heard := self.inbox.next(until)) is not None:
            self.judge(heard)
            if wanted(heard):
                return heard
            seen.append(repr(heard))
        raise AssertionError(f"{what} did not come in {patience} s; came: {'; '.join(seen[-6:]) or 'nothing'}")

    def silence(self, unwanted, what, seconds=SILENCE):
        """Nothing for which `unwanted` is true comes."""
        until = time.monotonic() + seconds
        while (heard := self.inbox.next(until)) is not None:
            self.judge(heard)
            expect(not unwanted(heard), f"{what}: {heard!r}")

    def no_answer(self, seconds=SILENCE):
        """No Mobility Header message and no ICMPv6 error comes back."""
        self.silence(lambda heard: heard.packet.mh is not None or heard.packet.icmp and heard.packet.icmp[0] < 128,
                     "an answer to what has to be ignored", seconds)

    number_of_echo = 0

    def ping_in(self, destination, source=None, size=6, hop_limit=64):
        """The correspondent sends an Echo Request to an address behind the home agent; returns its octets."""
        Mobile.number_of_echo = (Mobile.number_of_echo + 1) & 0xFFFF
        packet = packets.echo(source or self.correspondent, destination, Mobile.number_of_echo, bytes(size), hop_limit)
        self.wire.send(packet, self.target.gateway)
        return packet

    @staticmethod
    def same(inner, packet):
        """Whether a packet is another but for its hop limit."""
        return inner is not None and inner.octets[8:] == packet[8:] and inner.octets[4:7] == packet[4:7]

    def arrives(self, destination, care_of=None):
        """What the correspondent sends to an address comes through the tunnel to a care-of address."""
        care_of = care_of or self.care_of
        for attempt in range(3):
            packet = self.ping_in(destination)
            try:
                heard = self.wait(lambda heard: self.same(heard.packet.inner, packet),
                                  f"a packet for {packets.text(destination)}", PATIENCE / (4 if attempt < 2 else 1))
                outer = heard.packet
                expect(outer.source == self.target.home_agent and outer.destination == care_of,
                       f"in a tunnel {packets.text(outer.source)} > {packets.text(outer.destination)}")
                return heard
            except AssertionError:
                # The answer may be here before the way of packets has changed.
                if attempt == 2:
                    raise
                time.sleep(0.05)
        return None

    def does_not_arrive(self, destination):
        """It does not come through any tunnel."""
        packet = self.ping_in(destination)
        self.silence(lambda heard: self.same(heard.packet.inner, packet),
                     f"a packet for {packets.text(destination)} came through a tunnel")

    def tunnel(self, inner, care_of=None, destination=None):
        """Sends a packet into the reverse tunnel."""
        self.emit(packets.ipv6(care_of or self.care_of, destination or self.target.home_agent, packets.IPV6, inner))

    def leaves(self, source, care_of=None):
        """What comes out of the reverse tunnel from an address reaches the correspondent."""
        Mobile.number_of_echo = (Mobile.number_of_echo + 1) & 0xFFFF
        inner = packets.echo(source, self.correspondent, Mobile.number_of_echo)
        for attempt in range(3):
            self.tunnel(inner, care_of)
            try:
                return self.wait(lambda heard: self.same(heard.packet, inner), "a packet out of the tunnel",
                                 PATIENCE / (4 if attempt < 2 else 1))
            except AssertionError:
                if attempt == 2:
                    raise
        return None

    def does_not_leave(self, source, care_of=None, destination=None):
        Mobile.number_of_echo = (Mobile.number_of_echo + 1) & 0xFFFF
        inner = packets.echo(source, self.correspondent, Mobile.number_of_echo)
        self.tunnel(inner, care_of, destination)
        self.silence(lambda heard: self.same(heard.packet, inner), "a packet came out of the tunnel")

    def solicit(self, address):
        """Who answers on the home link for an address: the Neighbor Advertisement, or `None`."""
        asker = packets.ip(f"{self.target.home_prefix}a5:{self.number:x}")
        home = self.target.home
        if asker not in home.owned:
            home.own(asker)
            home.watch(asker, self.inbox)
        group = packets.ip("ff02::1:ff00:0")[:13] + address[13:]
        body = bytes(4) + address + b"\x01\x01" + home.mac
        message = packets.icmpv6(asker, group, 135, 0, body)
        home.send(packets.ipv6(asker, group, packets.ICMPV6, message, 255), b"\x33\x33" + group[12:])
        until = time.monotonic() + 2 * SILENCE
        while (heard := self.inbox.next(until)) is not None:
            self.judge(heard)
            icmp = heard.packet.icmp
            if heard.wire is home and icmp and icmp[0] == 136 and icmp[2][4:20] == address:
                if heard.packet.destination == asker:
                    return heard
        return None


def expect(condition, problem):
    if not condition:
        raise AssertionError(problem)


class Result:
    """What came of a case."""

    def __init__(self, declared, outcome, reason="", seconds=0.0):
        self.declared, self.outcome, self.reason, self.seconds = declared, outcome, reason, seconds
        self.attempts = 1

    def json(self):
        return {"id": self.declared.name, "clause": self.declared.clause, "title": self.declared.title,
                "outcome": self.outcome, "reason": self.reason, "attempts": self.attempts, "seconds": round(self.seconds, 3)}


def execute(declared, *arguments, attempts=1):
    """Runs a case; again, where it may be, if it fails: what has a bound on a time may have met a busy machine."""
    for attempt in range(1, attempts + 1):
        result = once(declared, *arguments)
        result.attempts = attempt
        if result.outcome != "FAIL":
            break
    return result


def once(declared, *arguments):
    began = time.monotonic()
    try:
        declared.run(*arguments)
        outcome, reason = "pass", ""
    except Unsuitable as unsuitable:
        outcome, reason = "skipped", str(unsuitable)
    except AssertionError as error:
        outcome, reason = "FAIL", str(error)
    except Exception:  # noqa: BLE001: a case that breaks is a failed case
        outcome, reason = "FAIL", "the case broke: " + traceback.format_exc(limit=3)
    return Result(declared, outcome, reason, time.monotonic() - began)


def together(works, at_a_time):
    """Runs functions in threads, so many at a time; their results in order."""
    results, gate = [None] * len(works), threading.Semaphore(at_a_time)

    def run(index, work):
        with gate:
            results[index] = work()

    threads = [threading.Thread(target=run, args=(index, work)) for index, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Target:
    """The home agent under test as the cases see it."""

    def __init__(self, foreign, home, home_agent, home_prefix, foreign_prefix, gateway):
        self.foreign, self.home, self.gateway = foreign, home, gateway
        self.home_agent = packets.ip(home_agent)
        self.home_prefix, self.foreign_prefix = home_prefix, foreign_prefix
        self.wires = [wire for wire in (foreign, home) if wire]



__all__ = ["A", "H", "LATE", "R", "SILENCE", "Mobile", "Target", "Unsuitable", "case", "execute", "expect", "together", "unfit"]
