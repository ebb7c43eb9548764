"""The forwarding packet buffers (PON_FPB, CAP_FPB)."""

import time

from tester import gn, upper
from tester.case import case, Node

# itsGnUcForwardingPacketBufferSize and itsGnBcForwardingPacketBufferSize: kilobytes of 1000 or 1024 octets.
UNICAST = (256_000, 262_144)
BROADCAST = (1_024_000, 1_048_576)


def knows_a(t):
    """The station knows where A is, and C, which is farther from it, is the only neighbour."""
    t.beacons(t.c, settle=False)
    t.send(t.c, t.a.tsb(b"from A", hops=1, max_hops=10))
    t.settle()


@case("PON_FPB_BV_01", "own GUC without a next hop waits for one", "8.5, 10.3.8.2, annex E.2")
def _(t):
    knows_a(t)
    t.ask(upper.guc(t.a.addr, b"waits"))
    t.none(gn.GUC, "the GUC without a next hop")
    t.beacons(t.b)
    t.same(t.expect(t.own(gn.GUC, b"waits"), "the GUC").to, t.b.mac, "next hop")


def buffered(t, *lifetimes, node=None):
    """GUCs from C to A for which there is no next hop."""
    t.beacons(t.c)
    packets = [t.c.guc(t.spv(t.a), b"%d" % index, scf=True, hops=8, lifetime=lifetime)
               for index, lifetime in enumerate(lifetimes)]
    for packet in packets:
        t.send(t.c, packet)
    t.none(gn.GUC, "a GUC without a next hop", during=0.3)
    return packets


@case("PON_FPB_BV_02", "a GUC of others without a next hop waits for one", "8.5, 10.3.8.3, annex E.2")
def _(t):
    (packet,) = buffered(t, 60_000)
    t.beacons(t.b)
    frame = t.expect(t.forwarded(packet), "the GUC")
    t.same((frame.to, frame.packet.hops), (t.b.mac, 7), "next hop and RHL")


@case("PON_FPB_BV_03", "the UC forwarding buffer is a FIFO", "8.5")
def _(t):
    packets = buffered(t, 60_000, 60_000, 60_000)
    t.beacons(t.b)
    t.expect(gn.GUC, "three GUCs", count=3)
    t.same([frame.packet.sn for frame in t.matching(gn.GUC)],
           [gn.Packet(packet).sn for packet in packets], "order")


@case("PON_FPB_BV_04", "packets leave the UC forwarding buffer when their lifetime ends", "8.5", seconds=3)
def _(t):
    buffered(t, 1000)
    t.wait(1.3)
    t.beacons(t.b)
    t.none(gn.GUC, "a GUC that is too old")


def broadcasts(t, *lifetimes):
    """Own GBCs while no neighbour exists."""
    for index, lifetime in enumerate(lifetimes):
        t.ask(upper.to_area(upper.GBC, t.area1, b"%d" % index, lifetime=lifetime))
    t.none(gn.GBC, "a GBC that nobody hears")


@case("PON_FPB_BV_06", "own GBC that nobody would hear waits for a neighbour", "8.5, 10.3.11.2")
def _(t):
    broadcasts(t, 10_000)
    t.beacons(t.b)
    t.same(t.expect(t.own(gn.GBC), "the GBC").to, gn.BROADCAST, "to whom")


@case("PON_FPB_BV_07", "the BC forwarding buffer is a FIFO", "8.5")
def _(t):
    broadcasts(t, 10_000, 10_000, 10_000)
    t.beacons(t.d)
    t.expect(t.own(gn.GBC), "three GBCs", count=3)
    t.same([frame.packet.payload for frame in t.matching(gn.GBC)], [b"0", b"1", b"2"], "order")


@case("PON_FPB_BV_08", "packets leave the BC forwarding buffer when their lifetime ends", "8.5", seconds=3)
def _(t):
    broadcasts(t, 1000, 1000)
    t.wait(1.1)
    t.beacons(t.b)
    t.none(gn.GBC, "a GBC that is too old")


@case("PON_FPB_BV_09", "the lifetime of a packet shrinks in the UC forwarding buffer", "8.5", seconds=3)
def _(t):
    knows_a(t)
    t.ask(upper.guc(t.a.addr, b"waits", lifetime=10_000))
    t.wait(2.2)
    t.beacons(t.b)
    sent = t.expect(t.own(gn.GUC, b"waits"), "the GUC").packet
    t.between(sent.lifetime / 1000, 6, 8, "lifetime in seconds")


@case("PON_FPB_BV_10", "the lifetime of a packet shrinks in the BC forwarding buffer", "8.5", seconds=3)
def _(t):
    t.ask(upper.to_area(upper.GBC, t.area1, b"waits", lifetime=10_000))
    t.wait(2.2)
    t.beacons(t.d)
    sent = t.expect(t.own(gn.GBC), "the GBC").packet
    t.between(sent.lifetime / 1000, 6, 8, "lifetime in seconds")


OWN = [
    ("GUC", gn.GUC, lambda t: upper.guc(t.a.addr, b"now", scf=False)),
    ("GAC", gn.GAC, lambda t: upper.to_area(upper.GAC, t.area2, b"now", scf=False)),
    ("GBC", gn.GBC, lambda t: upper.to_area(upper.GBC, t.area2, b"now", scf=False)),
    ("TSB", gn.TSB, lambda t: upper.tsb(b"now", scf=False)),
    ("SHB", gn.SHB, lambda t: upper.shb(b"now", scf=False)),
]


def at_once(number, name, kind, make):
    @case(f"PON_FPB_BV_11_{number:02}", f"without SCF, an own {name} without a next hop is broadcast at once",
          "annex E.2, 10.3.8 to 10.3.12")
    def _(t):
        knows_a(t)
        t.ask(make(t))
        frame = t.expect(t.own(kind, b"now"), f"the {name}")
        t.same((frame.to, frame.packet.scf), (gn.BROADCAST, False), "to whom, SCF")


for index, (label, header, maker) in enumerate(OWN):
    at_once(index + 1, label, header, maker)

OTHERS = [
    ("GUC", lambda t: t.c.guc(t.spv(t.a), b"x", hops=8)),
    ("GAC", lambda t: t.c.gac(t.area2, b"x", hops=8)),
    ("GBC", lambda t: t.c.gbc(t.area2, b"x", hops=8)),
    ("TSB", lambda t: t.c.tsb(b"x", hops=8)),
]


def on_at_once(number, name, make):
    @case(f"PON_FPB_BV_12_{number:02}", f"without SCF, a {name} of others without a next hop is broadcast at once",
          "annex E.2, 10.3.8 to 10.3.12")
    def _(t):
        t.beacons(t.c)
        packet = make(t)
        t.send(t.c, packet)
        frame = t.expect(t.forwarded(packet), f"the {name}")
        t.same((frame.to, frame.packet.hops), (gn.BROADCAST, 7), "to whom, RHL")


for index, (label, maker) in enumerate(OTHERS):
    on_at_once(index + 1, label, maker)


def overflow(t, make, sizes, senders):
    """More packets than the buffer holds, from senders that each keep to itsGnMaxPacketDataRate (100 kB/s);
    then B comes."""
    t.beacons(senders[0])
    size = len(make(senders[0], 0))
    count = sizes[1] // size + 10
    sent = []
    for number in range(count):
        sender = senders[number % len(senders)]
        packet = make(sender, number)
        sent.append(packet)
        t.send(sender, packet)
        if number % 8 == 7:
            time.sleep(0.012)
    t.settle()
    t.poll()
    kind = gn.Packet(sent[0]).type
    t.same(t.matching(kind), [], "sent before B came")
    t.beacons(t.b)
    least, most = sizes[0] // size, sizes[1] // size
    t.expect(kind, f"{least} packets", count=least, within=10)
    t.wait(0.5)
    kept = [frame.packet.payload[:2] for frame in t.matching(kind)]
    t.between(len(kept), least, most, "packets that were kept")
    expected = [gn.Packet(packet).payload[:2] for packet in sent][-len(kept):]
    t.same(kept == expected, True, "the newest were kept, in their order")


@case("CAP_FPB_BV_01", "a full UC forwarding buffer (256 kB) drops the oldest packets", "8.5", seconds=3)
def _(t):
    senders = [Node(letter, -6 - index) for index, letter in enumerate("CGHI")]
    to = t.spv(t.a)
    overflow(t, lambda node, number: node.guc(to, number.to_bytes(2, "big") + bytes(1298), scf=True, hops=8),
             UNICAST, senders)


@case("CAP_FPB_BV_02", "a full BC forwarding buffer (1024 kB) drops the oldest packets", "8.5", seconds=6)
def _(t):
    senders = [Node(letter, -6 - index / 10) for index, letter in enumerate("CGHIJKLMNOPQRSTU")]
    overflow(t, lambda node, number: node.gbc(t.area2, number.to_bytes(2, "big") + bytes(1298), scf=True, hops=8),
             BROADCAST, senders)
