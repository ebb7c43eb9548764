"""Advanced forwarding inside of an area (PON_BAA; annex F.4)."""

import math

from tester import gn
from tester.bed import STATION_MAC
from tester.case import Node, case

from .cbf import at_once, contention
from .guc import CBF_MAX, METRES, progress

# MAX_COUNTER
COPIES = 3


@case("PON_BAA_BV_01", "as many copies as MAX_COUNTER end the contention",
      "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b, t.f)
    packet = t.b.gbc(t.area1, b"x", scf=True, hops=8)
    for _ in range(COPIES):
        t.send(t.f, packet)
    t.none(t.forwarded(packet), "the GBC")


@case("PON_BAA_BV_02", "a second copy from beyond, in the sector, ends the contention",
      "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b, t.e)
    packet = t.b.gbc(t.area1, b"x", scf=True, hops=8)
    t.send(t.b, packet)
    t.send(t.e, packet)
    t.none(t.forwarded(packet), "the GBC")


def goes_on(t, other, metres):
    """A second copy from `other` does not end the contention but gives it another time."""
    packet = t.b.gbc(t.area1, b"x", scf=True, hops=8)
    t.send(t.b, packet)
    began = t.send(other, packet)
    frame = t.expect(t.forwarded(packet), "the GBC")
    t.same((frame.to, frame.packet.hops), (gn.BROADCAST, 7), "to whom, RHL")
    t.after(began, frame, progress(metres), "seconds of contention")


@case("PON_BAA_BV_03", "a second copy from another direction does not", "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b, t.f)
    east = 3 * 111.3 * math.cos(math.radians(48.84))
    goes_on(t, t.f, math.hypot(2 * METRES, east) - 2)


@case("PON_BAA_BV_04", "a GBC to this station's MAC address goes to the neighbour nearest to the area's centre",
      "annex F.4", profile="advanced")
def _(t):
    # In the constellation of the suite B is exactly as far from the centre of AREA1 as the station, which is
    # no progress (E.2); here it stands a little nearer.
    t.b = Node("B", 1.5)
    t.beacons(t.b, t.e)
    packet = t.a.gbc(t.area1, b"x", scf=True, hops=8)
    t.send(t.e, packet, to=STATION_MAC)
    frame = t.expect(lambda f: t.forwarded(packet)(f) and f.to != gn.BROADCAST, "the GBC")
    t.same((frame.to, frame.packet.hops), (t.b.mac, 7), "next hop, RHL")


@case("PON_BAA_BV_05", "and it is broadcast after the longest contention, should that have failed",
      "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b, t.e)
    packet = t.a.gbc(t.area1, b"x", scf=True, hops=8)
    began = t.send(t.e, packet, to=STATION_MAC)
    frame = t.expect(lambda f: t.forwarded(packet)(f) and f.to == gn.BROADCAST, "the broadcast")
    t.after(began, frame, CBF_MAX, "seconds of contention")


@case("PON_BAA_BV_06", "the time of contention is that of the distance to the sender",
      "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b, t.e)
    contention(t, t.e, t.e.gbc(t.area1, b"x", scf=True, hops=8), progress(METRES))


@case("PON_BAA_BV_07", "outside of the area, a GBC from outside goes to the neighbour nearest to it",
      "annexes D, E.2", profile="advanced")
def _(t):
    t.beacons(t.b, t.c, t.d)
    packet = t.c.gbc(t.area2, b"x", scf=True, hops=8)
    t.send(t.c, packet)
    t.same(t.expect(t.forwarded(packet), "the GBC").to, t.b.mac, "next hop")


@case("PON_BAA_BO_08", "outside of the area, a GBC from inside is discarded", "annex D", profile="advanced")
def _(t):
    t.beacons(t.b, t.c, t.d)
    packet = t.d.gbc(t.area2, b"x", scf=True, hops=8)
    t.send(t.d, packet)
    t.none(t.forwarded(packet), "the GBC")


@case("PON_BAA_BV_09", "the longest contention when the sender is not known",
      "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b)
    contention(t, t.e, t.a.gbc(t.area1, b"x", scf=True, hops=8), CBF_MAX)


@case("PON_BAA_BV_10", "V1.2.1: outside of the area, a GBC from a sender that is not known is broadcast at once",
      "V1.2.1 annex E", profile="advanced-1.2.1", timing=True)
def _(t):
    t.beacons(t.b, t.c)
    at_once(t)


@case("PON_BAA_BV_11", "a second copy from nearer than this station does not end the contention",
      "annex F.4", profile="advanced", timing=True)
def _(t):
    t.beacons(t.b, t.d)
    goes_on(t, t.d, METRES)
