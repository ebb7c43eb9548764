"""Cases, and what they are made of: a mobile router that the tester plays, its correspondent, and expectations.

All tolerances are here. What has to come is waited for generously; that something does not come is believed after
`SILENCE`.
"""

import contextlib
import os
import struct
import threading
import time
import traceback

from . import packets
from .packets import A, H, R
from .wire import Inbox

# Set where it is known that nothing, or little, will come (`run --silent`, `--yes-man`): how patient one has to be then.
SILENCE_IS_KNOWN = "CARNET_CONFORMANCE_SILENT"
# Seconds.
PATIENCE = float(os.environ.get(SILENCE_IS_KNOWN, 8.0))
SILENCE = 0.7
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
        # Of the home agent: a real home link or a virtual one; and a list of nodes as (number of prefixes, keyed). In place
        # of the number: "inside" for a home address in the prefix, "ipv4" for an IPv4 home address and no prefix.
        self.link = needs.pop("link", False)
        self.nodes = needs.pop("nodes", [(1, True)])
        # A home agent of its own: what its operator wants, or what it is measured by, would concern other cases.
        self.alone = needs.pop("alone", False)
        # Home agents of its own that the case makes.
        self.agents = needs.pop("agents", False)
        # Requirement on times that a busy machine may miss; the tester may repeat the case for this reason.
        self.timing = needs.pop("timing", None)
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


class Notice:
    """A message that the home agent has sent unasked: Home Agent Switch (RFC 5142), Binding Revocation (RFC 5846)."""

    def __init__(self, heard, mobile):
        packet = heard.packet
        self.packet, self.when, self.data = packet, heard.when, packet.payload[6:]
        self.authentic = mobile.node.key is None or packet.is_authentic(
            mobile.node.spi, mobile.node.key, packet.destination, mobile.home)


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
    """A mobile router, or an attacker that pretends to be one."""

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
               signed=True, key=None, source=None, home_option=True, checksum=True, proof=None, home=None,
               signed_home=None, raw=None, tamper=None):
        """Sends a Binding Update; returns its sequence number. `proof` and `signed_home` are the addresses that the MAC
        covers; `raw` changes the header before there is a MAC, `tamper` after it."""
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
            header = packets.authenticated(header, self.node.spi, key or self.node.key, proof or care_of,
                                           signed_home or home)
        if tamper:
            header = tamper(header)
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
        """The next Binding Acknowledgement, with that number, or one of several, if any is given."""
        numbers = sequence if isinstance(sequence, list) else [sequence]
        until = time.monotonic() + patience
        while (heard := self.inbox.next(until)) is not None:
            self.judge(heard)
            packet = heard.packet
            if packet.mh == packets.ACKNOWLEDGEMENT:
                found = Acknowledgement(heard, self, care_of or self.care_of)
                if sequence is None or found.sequence in numbers:
                    return found
        return None

    def register(self, status=0, **update):
        """A registration, and its answer, which has this status and is authentic. If none comes, once more; the answer that
        counts is the first one, for what it was about is done then."""
        numbers = []
        for attempt in range(3):
            numbers.append(self.update(**update))
            found = self.acknowledgement(None if status == 135 else numbers,
                                         update.get("proof") or update.get("care_of"),
                                         PATIENCE if attempt == 2 else PATIENCE / 2)
            if found is not None:
                break
        expect(found is not None, f"no Binding Acknowledgement in {PATIENCE} s")
        expect(found.status == status, f"status {found.status}, expected {status}")
        if status == 0 and update.get("sequence") is not None:
            self.node.sequence = found.sequence
        expect(found.authentic, "a Binding Acknowledgement without a right MN-HA authentication option")
        return found

    def number_ahead(self, by):
        """A sequence number so far behind the last one, with room before the numbers begin anew."""
        return self.node.sequence + by if self.node.sequence < 0xF000 else by

    def deregister(self, **update):
        return self.register(lifetime=0, prefixes=update.pop("prefixes", []), **update)

    def works(self, **update):
        """A good Binding Update is accepted, has its effect, and the goodbye, too: what shows that a silence before or
        after it is no deafness. Leaves nothing bound."""
        self.register(**update)
        self.arrives(self.home)
        self.deregister()

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
        """No Mobility Header message and no ICMPv6 error comes back. What the correspondent is told is about other
        packets."""
        self.silence(lambda heard: heard.packet.mh is not None or heard.packet.icmp and heard.packet.icmp[0] < 128 and
                     heard.packet.destination != self.correspondent, "an answer to what has to be ignored", seconds)

    def notice(self, kind, what, patience=PATIENCE):
        """The next message of a type that the home agent sends unasked, to a registered care-of address, signed."""
        found = Notice(self.wait(lambda heard: heard.packet.mh == kind, what, patience), self)
        expect(found.packet.source == self.target.home_agent, "not from the home agent's address")
        expect(found.packet.routed_to == self.home, "no type 2 Routing header with the home address")
        expect(found.authentic, "no right MN-HA authentication option")
        return found

    def answer_revocation(self, sequence, status=0, flags=0, key=None, care_of=None):
        """Sends a Binding Revocation Acknowledgement."""
        care_of = care_of or self.care_of
        header = packets.revocation(packets.REVOKED, status, sequence, flags)
        if self.node.key is not None:
            header = packets.authenticated(header, self.node.spi, key or self.node.key, care_of, self.home)
        header = packets.with_checksum(header, self.home, self.target.home_agent)
        header = packets.home_address_option(self.home) + header
        self.emit(packets.ipv6(care_of, self.target.home_agent, packets.DESTINATION, header))

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
        """Checks that a packet of the correspondent to an address leaves the tunnel at a care-of address."""
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
        """Checks that the packet leaves no tunnel."""
        packet = self.ping_in(destination)
        self.silence(lambda heard: self.same(heard.packet.inner, packet),
                     f"a packet for {packets.text(destination)} came through a tunnel")

    def ceases_to_arrive(self, destination, patience=PATIENCE):
        """From some moment on it does not: the answer to a goodbye may be here a moment before the way has changed."""
        until = time.monotonic() + patience
        while True:
            try:
                return self.does_not_arrive(destination)
            except AssertionError:
                if time.monotonic() > until:
                    raise

    def tunnel(self, inner, care_of=None, destination=None):
        """Sends a packet into the reverse tunnel."""
        self.emit(packets.ipv6(care_of or self.care_of, destination or self.target.home_agent, packets.IPV6, inner))

    def leaves(self, source, care_of=None):
        """Checks that a packet from an address through the reverse tunnel reaches the correspondent."""
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
        """Who answers first on the home link for an address: the Neighbor Advertisement, or `None`."""
        return next(self.answers(address), None)

    def answers(self, address):
        """Asks on the home link for an address, and waits for all who answer: their Neighbor Advertisements."""
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
                    yield heard


def expect(condition, problem):
    if not condition:
        raise AssertionError(problem)


class Result:
    """The result of a case."""

    def __init__(self, declared, outcome, reason="", seconds=0.0):
        self.declared, self.outcome, self.reason, self.seconds = declared, outcome, reason, seconds
        # How often it was tried, and what the stations of a failed case said last.
        self.attempts, self.said = 1, ""

    def json(self):
        return {"id": self.declared.name, "clause": self.declared.clause, "title": self.declared.title,
                "outcome": self.outcome, "reason": self.reason, "attempts": self.attempts, "seconds": round(self.seconds, 3)}


@contextlib.contextmanager
def stations(those, close):
    """A case on stations of its own: they live to its end, and what they said goes with its failure."""
    try:
        yield
        for station in those:
            expect(station.alive(), "THE STATION ENDED")
    except Exception as error:
        for station in those:
            error.add_note(station.tail())
        raise
    finally:
        close()


def execute(declared, *arguments, run=None):
    """Runs a case, or `run` in its place; up to three times if it is declared to have bounds on times that a busy machine
    may fail, and once if not."""
    for attempt in range(1, (3 if declared.timing else 1) + 1):
        result = once(declared, run or declared.run, *arguments)
        result.attempts = attempt
        if result.outcome != "FAIL":
            break
    return result


# How the reason of a failure begins that is the tester's own.
BROKE = "the case broke: "


def once(declared, run, *arguments):
    began = time.monotonic()
    said = ""
    try:
        # A case returns the remark for its row: a part that the case could not test.
        outcome, reason = "pass", run(*arguments) or ""
    except Unsuitable as unsuitable:
        outcome, reason = "skipped", str(unsuitable)
    except AssertionError as error:
        outcome, reason, said = "FAIL", str(error), "".join(getattr(error, "__notes__", []))
    except Exception as error:  # noqa: BLE001: a case that breaks is a failed case
        outcome, reason, said = "FAIL", f"{BROKE}{traceback.format_exc(limit=3)}", "".join(getattr(error, "__notes__", []))
    result = Result(declared, outcome, reason, time.monotonic() - began)
    result.said = said
    return result


def together(works, at_a_time):
    """Runs functions in a limited number of threads; returns their results in order."""
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

    def __init__(self, foreign, home, home_agent, home_prefix, foreign_prefix, gateway, operator=None, other=None,
                 memory=None):
        self.foreign, self.home, self.gateway, self.operator = foreign, home, gateway, operator
        # How many octets of memory it has, if that can be told.
        self.memory = memory
        # Another home agent that it knows.
        self.other = packets.ip(other) if other else None
        self.home_agent = packets.ip(home_agent)
        self.home_prefix, self.foreign_prefix = home_prefix, foreign_prefix
        self.wires = [wire for wire in (foreign, home) if wire]

    def order(self, what, **about):
        """Its operator wants something: "drain", with a limit of time `within` in seconds and the address of the `other`
        home agent; "revoke", with `home_address` and perhaps `bid`."""
        if self.operator is None:
            raise Unsuitable("nobody can give it orders")
        self.operator(what, **about)


__all__ = ["A", "BROKE", "H", "R", "SILENCE", "SILENCE_IS_KNOWN", "Mobile", "Target", "Unsuitable", "case", "execute", "expect", "stations",
           "together", "unfit"]
