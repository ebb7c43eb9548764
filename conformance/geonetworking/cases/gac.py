"""GeoAnycast (PON_GAC)."""

from tester import gn, upper
from tester.case import case


@case("PON_GAC_BV_01", "own GAC inside of its area is broadcast", "10.3.12.2")
def _(t):
    t.beacons(t.d, t.b)
    t.ask(upper.to_area(upper.GAC, t.area1, b"x"))
    frame = t.expect(t.own(gn.GAC), "the GAC")
    t.same((frame.to, frame.packet.area), (gn.BROADCAST, t.area1), "to whom, area")


@case("PON_GAC_BV_02", "own GAC outside of its area goes to the neighbour nearest to it", "10.3.12.2, annex E.2")
def _(t):
    t.beacons(t.d, t.b)
    t.ask(upper.to_area(upper.GAC, t.area2, b"x"))
    frame = t.expect(t.own(gn.GAC), "the GAC")
    t.same((frame.to, frame.packet.area), (t.b.mac, t.area2), "next hop, area")


@case("PON_GAC_BV_03", "a GAC inside of its area goes no further", "10.3.12.3")
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.gac(t.area1, b"arrived", scf=True, hops=8)
    t.send(t.b, packet)
    t.delivered(b"arrived")
    t.none(t.forwarded(packet), "the GAC")


@case("PON_GAC_BV_04", "a GAC outside of its area goes to the neighbour nearest to it", "10.3.12.3, annex E.2")
def _(t):
    t.beacons(t.b, t.d)
    packet = t.c.gac(t.area2, b"x", scf=True, hops=8)
    t.send(t.c, packet)
    t.same(t.expect(t.forwarded(packet), "the GAC").to, t.b.mac, "next hop")


@case("PON_GAC_BO_05", "a GAC is forwarded once", "10.3.12.3, annex A")
def _(t):
    t.beacons(t.b, t.d)
    packet = t.c.gac(t.area2, b"x", sn=4, scf=True, hops=8)
    t.send(t.c, packet)
    t.expect(t.forwarded(packet), "the GAC")
    t.send(t.d, t.c.gac(t.area2, b"x", sn=4, scf=True, hops=7))
    t.wait(0.5)
    t.same(len(t.matching(t.forwarded(packet))), 1, "copies")


@case("PON_GAC_BV_06", "a forwarder lowers RHL and keeps MHL", "10.3.12.3")
def _(t):
    t.beacons(t.b)
    packet = t.c.gac(t.area2, b"x", scf=True, hops=5, max_hops=7)
    t.send(t.c, packet)
    frame = t.expect(t.forwarded(packet), "the GAC")
    t.same((frame.to, frame.packet.hops, frame.packet.max_hops, frame.packet.area), (t.b.mac, 4, 7, t.area2),
           "next hop, RHL, MHL, area")


@case("PON_GAC_BO_07", "a GAC with RHL 1 goes no further", "10.3.12.3")
def _(t):
    t.beacons(t.b)
    packet = t.c.gac(t.area2, b"x", scf=True, hops=1)
    t.send(t.c, packet)
    t.none(t.forwarded(packet), "the GAC")


@case("PON_GAC_BV_08", "a GAC inside of its area goes to the upper layer", "10.3.12.3")
def _(t):
    t.send(t.b, t.b.gac(t.area1, b"here", scf=True))
    t.delivered(b"here")


@case("PON_GAC_BO_09", "a GAC goes to the upper layer once", "10.3.12.3, annex A")
def _(t):
    t.beacons(t.d, t.b)
    t.send(t.d, t.c.gac(t.area1, b"once", sn=4, scf=True, hops=8))
    t.delivered(b"once")
    t.send(t.b, t.c.gac(t.area1, b"once", sn=4, scf=True, hops=7))
    t.not_delivered(b"once", times=1)


@case("PON_GAC_BV_10", "a GAC outside of its area does not go to the upper layer", "10.3.12.3")
def _(t):
    t.send(t.b, t.b.gac(t.area2, b"elsewhere", scf=True))
    t.not_delivered(b"elsewhere")


@case("PON_GAC_BO_11", "a GAC into an area larger than itsGnMaxGeoAreaSize goes no further", "10.3.12.3, annex B.3")
def _(t):
    t.beacons(t.b, t.d)
    packet = t.c.gac(gn.Area(t.d.lat + 500_000, t.d.lon, 2000), b"x", scf=True, hops=8)
    t.send(t.c, packet)
    t.none(t.forwarded(packet), "the GAC")


@case("PON_GAC_BV_13", "contention: own GAC outside of its area is broadcast at once",
      "annex E.3", profile="unicast-cbf")
def _(t):
    t.beacons(t.d, t.b)
    t.ask(upper.to_area(upper.GAC, t.area2, b"x"))
    t.same(t.expect(t.own(gn.GAC), "the GAC").to, gn.BROADCAST, "to whom")
