"""Cases, and what a case can do: play stations, ask the upper tester, expect frames and events.

The tolerances are here and nowhere else. A machine may be slow: waiting for something that has to come is
generous (`PATIENCE`), and a time that was measured may be late by `LATE`; it may never be early by more than
`EARLY`. That something does not come is believed after `ABSENCE`. A case with an upper bound on time
(`timing=True`) is tried three times before it counts as failed.
"""

import select
import time

from . import gn, upper
from .bed import PATIENCE, STATION_LAT, STATION_LON, STATION_MAC, Frame

ABSENCE = 0.5
EARLY = 0.004
LATE = 0.060
# Timers of seconds: carnet's clock and the tester's are the same, but who is scheduled when is not known.
LATE_SECONDS = 0.35
ATTEMPTS = 3

# 0.001 degree of latitude, the unit of the constellation of TS 102 871-3: 111 m.
UNIT = 10_000

CASES = []


class Miss(AssertionError):
    """The station did not do what it has to."""


class NotApplicable(Exception):
    """The case cannot be run here; its text says why."""


class Case:
    def __init__(self, name, title, clause, profile, seconds, timing, group, body):
        self.name, self.title, self.clause, self.profile = name, title, clause, profile
        self.seconds, self.timing, self.group, self.body = seconds, timing, group, body


def case(name, title, clause, profile="default", seconds=1.0, timing=False):
    """Declares a test purpose. `seconds`: how long it takes, about, so that long ones are begun first."""

    def declare(body):
        group = body.__module__.rsplit(".", 1)[-1]
        CASES.append(Case(name, title, clause, profile, seconds, timing, group, body))
        return body

    return declare


class Node:
    """A station that the tester plays. North and east of the station under test, in units of 0.001 degree."""

    def __init__(self, name, north, east=0.0, pai=True):
        self.name = name
        # An individual, locally administered address; it is the MID as well.
        self.mac = bytes.fromhex("babebabe00") + name.encode()[:1]
        self.addr = gn.address(self.mac, manual=True)
        self.lat, self.lon = STATION_LAT + int(north * UNIT), STATION_LON + int(east * UNIT)
        self.pai = pai
        self.sn = 0
        self.last = 0

    def position(self, **other):
        """Returns the node's present position vector; each is newer than the previous one."""
        self.last = max(gn.now(), self.last + 1)
        fields = {"addr": self.addr, "tst": self.last, "lat": self.lat, "lon": self.lon, "pai": self.pai}
        return gn.Position(**{**fields, **other})

    def next_sn(self):
        self.sn += 1
        return self.sn

    def _head(self, so, sn):
        so = so or self.position()
        sn = self.next_sn() if sn is None else sn
        return sn.to_bytes(2, "big") + bytes(2) + so.long()

    def beacon(self, so=None, **fields):
        return gn.packet(gn.BEACON, (so or self.position()).long(), **fields)

    def shb(self, payload=b"", so=None, **fields):
        return gn.packet(gn.SHB, (so or self.position()).long() + bytes(4), payload, **fields)

    def tsb(self, payload=b"", so=None, sn=None, **fields):
        return gn.packet(gn.TSB, self._head(so, sn), payload, **fields)

    def guc(self, to, payload=b"", so=None, sn=None, **fields):
        return gn.packet(gn.GUC, self._head(so, sn) + to.short(), payload, **fields)

    def gbc(self, area, payload=b"", so=None, sn=None, **fields):
        return gn.packet(gn.GBC | area.shape, self._head(so, sn) + area.octets() + bytes(2), payload, **fields)

    def gac(self, area, payload=b"", so=None, sn=None, **fields):
        return gn.packet(gn.GAC | area.shape, self._head(so, sn) + area.octets() + bytes(2), payload, **fields)

    def ls_request(self, addr, so=None, sn=None, **fields):
        return gn.packet(gn.LS_REQUEST, self._head(so, sn) + addr, **fields)

    def ls_reply(self, to, so=None, sn=None, **fields):
        return gn.packet(gn.LS_REPLY, self._head(so, sn) + to.short(), **fields)


class Tester:
    """The station under test, as a case sees it. Nodes A to F stand as in TS 102 871-3, annex B, and so do
    the areas."""

    def __init__(self, bed):
        self.bed = bed
        self.frames = []
        self.out = []
        self.faults = []
        self.a, self.b, self.c = Node("A", 10), Node("B", 2), Node("C", -6)
        self.d, self.e, self.f = Node("D", 1), Node("E", -1), Node("F", 2, -3)
        self.station = gn.address(STATION_MAC)
        # 5 and 1.5 times the distance of B and D.
        self.area1 = gn.Area(self.d.lat, self.d.lon, 556)
        self.area2 = gn.Area(self.b.lat, self.b.lon, 167)

    def begin(self):
        """The initial state, and nothing of what was before in the tester's ears."""
        if not self.bed.upper.ask(upper.initialize()):
            raise Miss("the station refused to go into its initial state")
        self.bed.upper.poll()
        self.bed.upper.events.clear()
        self.bed.receive()
        self.bed.came_out()

    # The tester acts.

    def send(self, node, packet, to=gn.BROADCAST):
        """Sends a packet with the MAC address of a node; says when."""
        return self.bed.send(node.mac, to, packet)

    def beacons(self, *nodes, settle=True):
        """Nodes become neighbours."""
        for node in nodes:
            self.send(node, node.beacon())
        if settle:
            self.settle()

    def settle(self):
        """Until the station has taken what was sent: it answers the upper tester in its turn, which may come
        before or after that of the frames."""
        time.sleep(0.01)
        for _ in range(4):
            self.bed.upper.ask(upper.change_position(0, 0))

    def ask(self, message):
        """A trigger, which the station has to accept."""
        if not self.bed.upper.ask(message):
            raise Miss(f"the station refused upper tester message {message[0]:#04x}")

    def put(self, interface, to, packet):
        """The host puts an IPv6 packet into a virtual interface."""
        self.bed.put(interface, to, packet)

    def inside(self, *command, check=True):
        """Runs a program where the station is."""
        return self.bed.inside(*command, check=check)

    def spv(self, node=None):
        """Where the station under test is, or a node, as the destination of a packet."""
        if node:
            return node.position()
        return gn.Position(self.station, gn.now(), STATION_LAT, STATION_LON)

    # The tester listens.

    def poll(self, wait=0.0):
        """Takes the frames that came, after waiting for one."""
        select.select([self.bed.link, self.bed.udp], [], [], wait)
        self.bed.upper.poll()
        for when, octets in self.bed.receive():
            try:
                frame = Frame(when, octets)
            except ValueError as error:
                self.faults.append(f"{error}: {octets.hex()}")
                continue
            self.faults += [f"{fault}: {frame!r}" for fault in frame.packet.faults]
            if frame.source != STATION_MAC:
                self.faults.append(f"a frame from {frame.source.hex(':')}")
            self.frames.append(frame)
        self.out += self.bed.came_out()
        if not self.bed.alive():
            raise Miss(f"the station has ended:\n{self.bed.tail()}")

    def wait(self, seconds):
        """Listens for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.poll(min(left, 0.05))

    def matching(self, wanted):
        """The frames so far that are wanted: a header type, or a function of the frame."""
        test = wanted if callable(wanted) else lambda frame: frame.packet.type == wanted
        return [frame for frame in self.frames if test(frame)]

    def expect(self, wanted, what, count=1, within=PATIENCE / 4):
        """Waits for the frame that has to come; for the last one of `count`."""
        until = time.monotonic() + within
        while True:
            found = self.matching(wanted)
            if len(found) >= count:
                return found[count - 1]
            left = until - time.monotonic()
            if left <= 0:
                heard = ", ".join(map(repr, self.frames[-8:])) or "nothing"
                raise Miss(f"{what} did not come; heard: {heard}")
            self.poll(min(left, 0.05))

    def none(self, wanted, what, during=ABSENCE):
        """Nothing of the kind has come and comes for a while."""
        self.wait(during)
        self.poll()
        for frame in self.matching(wanted):
            raise Miss(f"{what} came: {frame!r}")

    def forwarded(self, packet):
        """Returns a filter for copies of a packet that the tester sent."""
        sent = gn.Packet(packet)
        return lambda frame: (frame.packet.type, frame.packet.so.mid, frame.packet.sn) == (
            sent.type, sent.so.mid, sent.sn)

    def own(self, kind, payload=None):
        """Returns a filter for packets of the station itself."""
        return lambda frame: frame.packet.type == kind and frame.packet.so.mid == self.mid and (
            payload is None or frame.packet.payload == payload)

    @property
    def mid(self):
        return STATION_MAC

    def delivered(self, payload, number=upper.GN_EVENT, within=PATIENCE / 4):
        """The payload comes to the upper layer."""
        until = time.monotonic() + within
        while (number, payload) not in self.bed.upper.events:
            if time.monotonic() > until:
                raise Miss(f"the payload {payload!r} did not come to the upper layer")
            self.poll(0.05)

    def out_of(self, packet, what, within=PATIENCE / 4):
        """The packet comes out of an interface of the host; the frame."""
        until = time.monotonic() + within
        while True:
            for frame in self.out:
                if frame.packet == packet:
                    return frame
            if time.monotonic() > until:
                raise Miss(f"{what} did not come out of an interface; out came: {self.out[-8:]}")
            self.poll(0.02)

    def not_delivered(self, payload, times=0, during=ABSENCE):
        """The payload does not come to the upper layer, or not oftener than this."""
        self.wait(during)
        count = self.bed.upper.events.count((upper.GN_EVENT, payload))
        if count > times:
            raise Miss(f"the payload {payload!r} came to the upper layer {count} times")

    # The tester judges.

    @staticmethod
    def same(found, expected, what):
        if found != expected:
            raise Miss(f"{what}: {found!r}, expected {expected!r}")

    @staticmethod
    def true(found, what):
        if not found:
            raise Miss(what)

    @staticmethod
    def between(found, low, high, what):
        if not low <= found <= high:
            raise Miss(f"{what}: {found:.4f}, expected {low:.4f} to {high:.4f}")

    def after(self, began, frame, seconds, what, late=LATE):
        """A frame came so long after a moment."""
        self.between(frame.when - began, seconds - EARLY, seconds + late, what)


def execute(declared, bed):
    """Runs a case; says what it is worth: a result for the table."""
    began = time.monotonic()
    attempts = ATTEMPTS if declared.timing else 1
    outcome, reason, heard = "failed", "", []
    for attempt in range(attempts):
        tester = Tester(bed)
        try:
            tester.begin()
            declared.body(tester)
            # A station that hangs does nothing wrong, and nothing else.
            tester.settle()
            tester.poll()
            if tester.faults:
                raise Miss("; ".join(tester.faults[:3]))
            outcome, reason = "passed", ""
        except NotApplicable as why:
            outcome, reason = "not applicable", str(why)
        except AssertionError as miss:
            outcome, reason = "failed", str(miss) or "an assertion"
        except Exception as error:  # a mistake of the tester is a failure, not the end of the run
            outcome, reason = "failed", f"{type(error).__name__}: {error}"
        heard += [frame.octets for frame in tester.frames]
        if outcome != "failed" or not bed.alive():
            break
    return {
        "id": declared.name, "title": declared.title, "clause": declared.clause, "group": declared.group,
        "profile": declared.profile, "outcome": outcome, "reason": reason, "attempts": attempt + 1,
        "seconds": round(time.monotonic() - began, 3),
    }, heard
