"""GeoBroadcast (PON_GBC): source, forwarder and receiver."""

import time

from tester import gn, upper
from tester.case import LATE, case


@case("PON_GBC_BV_01", "own GBC inside of its area is broadcast", "10.3.11.2, annex D")
def _(t):
    t.beacons(t.d, t.b)
    t.ask(upper.to_area(upper.GBC, t.area1, b"x"))
    frame = t.expect(t.own(gn.GBC), "the GBC")
    t.same((frame.to, frame.packet.area), (gn.BROADCAST, t.area1), "to whom, area")


def towards_area(t):
    t.beacons(t.d, t.b)
    t.ask(upper.to_area(upper.GBC, t.area2, b"x"))
    t.same(t.expect(t.own(gn.GBC), "the GBC").to, t.b.mac, "next hop")


@case("PON_GBC_BV_02", "own GBC outside of its area goes to the neighbour nearest to it",
      "10.3.11.2, annexes D, E.2", profile="simple")
def _(t):
    towards_area(t)


@case("PON_GBC_BV_03", "a GBC inside of its area is broadcast on at once",
      "10.3.11.3, annex F.2", profile="simple", timing=True)
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.gbc(t.area1, b"x", scf=True, hops=8)
    began = t.send(t.b, packet)
    frame = t.expect(t.forwarded(packet), "the GBC")
    t.same(frame.to, gn.BROADCAST, "to whom")
    t.after(began, frame, 0, "seconds until it went on")


def duplicate(t, area, first, second):
    packet = t.c.gbc(area, b"x", sn=9, scf=True, hops=8)
    t.send(first, packet)
    t.expect(t.forwarded(packet), "the GBC")
    t.send(second, t.c.gbc(area, b"x", sn=9, scf=True, hops=6))
    t.wait(0.5)
    t.same(len(t.matching(t.forwarded(packet))), 1, "copies")


@case("PON_GBC_BO_04", "a GBC inside of its area is broadcast on once", "annex A, F.2", profile="simple")
def _(t):
    t.beacons(t.d, t.b)
    duplicate(t, t.area1, t.b, t.d)


@case("PON_GBC_BV_05", "a GBC outside of its area goes to the neighbour nearest to it", "10.3.11.3, annexes D, E.2")
def _(t):
    t.beacons(t.b, t.d, t.c)
    packet = t.c.gbc(t.area2, b"x", scf=True, hops=8)
    t.send(t.c, packet)
    t.same(t.expect(t.forwarded(packet), "the GBC").to, t.b.mac, "next hop")


@case("PON_GBC_BO_06", "a GBC outside of its area is forwarded once", "annex A", profile="simple")
def _(t):
    t.beacons(t.b, t.d, t.c)
    duplicate(t, t.area2, t.c, t.d)


@case("PON_GBC_BV_07", "a forwarder lowers RHL and keeps MHL", "10.3.11.3")
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.gbc(t.area1, b"x", scf=True, hops=5, max_hops=7)
    t.send(t.b, packet)
    sent = t.expect(t.forwarded(packet), "the GBC").packet
    t.same((sent.hops, sent.max_hops), (4, 7), "RHL and MHL")


@case("PON_GBC_BV_08", "a GBC with RHL 1 goes no further", "10.3.11.3")
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.gbc(t.area1, b"last hop", scf=True, hops=1)
    t.send(t.b, packet)
    t.delivered(b"last hop")
    t.none(t.forwarded(packet), "the GBC")


@case("PON_GBC_BV_09", "a GBC inside of its area goes to the upper layer", "10.3.11.3")
def _(t):
    t.beacons(t.b)
    t.send(t.b, t.b.gbc(t.area1, b"here", scf=True))
    t.delivered(b"here")


@case("PON_GBC_BO_10", "a GBC goes to the upper layer once", "10.3.11.3, annex A", profile="simple")
def _(t):
    t.beacons(t.d, t.b)
    t.send(t.b, t.b.gbc(t.area1, b"once", sn=9, scf=True, hops=8))
    t.delivered(b"once")
    t.send(t.d, t.b.gbc(t.area1, b"once", sn=9, scf=True, hops=7))
    t.not_delivered(b"once", times=1)


@case("PON_GBC_BV_11", "a GBC outside of its area does not go to the upper layer", "10.3.11.3")
def _(t):
    t.beacons(t.b)
    t.send(t.b, t.b.gbc(t.area2, b"elsewhere", scf=True))
    t.not_delivered(b"elsewhere")


@case("PON_GBC_BV_12", "with contention, too, an own GBC is broadcast at once", "10.3.11.2, annex F.3", timing=True)
def _(t):
    t.beacons(t.d, t.b)
    t.ask(upper.to_area(upper.GBC, t.area1, b"warm"))
    t.expect(t.own(gn.GBC, b"warm"), "a GBC")
    began = time.time()
    t.ask(upper.to_area(upper.GBC, t.area1, b"x"))
    frame = t.expect(t.own(gn.GBC, b"x"), "the GBC")
    t.same(frame.to, gn.BROADCAST, "to whom")
    t.after(began, frame, 0, "seconds until it went out", late=LATE)


@case("PON_GBC_BO_19", "a GBC into an area larger than itsGnMaxGeoAreaSize goes no further", "10.3.11.3, annex B.3")
def _(t):
    t.beacons(t.b, t.d, t.c)
    around = gn.Area(t.d.lat, t.d.lon, 2000)
    north = gn.Area(t.d.lat + 500_000, t.d.lon, 4000, 1000, 90, 1)
    for area in (around, north):
        packet = t.c.gbc(area, b"x", scf=True, hops=8)
        t.send(t.c, packet)
        t.none(t.forwarded(packet), f"a GBC into {area!r}", during=0.4)


def broadcast_at_once(t, area):
    packet = t.c.gbc(area, b"x", scf=True, hops=8)
    began = t.send(t.d, packet)
    frame = t.expect(t.forwarded(packet), "the GBC")
    t.same((frame.to, frame.packet.hops), (gn.BROADCAST, 7), "to whom, RHL")
    t.after(began, frame, 0, "seconds until it went on")


@case("PON_GBC_BV_20", "V1.2.1: outside of the area, a GBC from a sender that is not known is broadcast at once",
      "V1.2.1 annex E", profile="simple-1.2.1", timing=True)
def _(t):
    t.beacons(t.b)
    broadcast_at_once(t, t.area2)


@case("PON_GBC_BV_21", "V1.2.1: outside of the area, a GBC from a sender with PAI 0 is broadcast at once",
      "V1.2.1 annex E", profile="simple-1.2.1", timing=True)
def _(t):
    t.d.pai = False
    t.beacons(t.b, t.d)
    broadcast_at_once(t, t.area2)
