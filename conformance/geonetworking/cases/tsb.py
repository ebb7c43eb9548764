"""Topologically-scoped broadcast (PON_TSB)."""

from tester import gn, upper
from tester.case import case


@case("PON_TSB_BV_01", "own TSB is broadcast", "10.3.9.2")
def _(t):
    t.beacons(t.b, t.d)
    t.ask(upper.tsb(b"x", hops=4))
    frame = t.expect(t.own(gn.TSB), "the TSB")
    t.same((frame.to, frame.packet.hops), (gn.BROADCAST, 4), "to whom, RHL")


@case("PON_TSB_BV_02", "a TSB is broadcast on", "10.3.9.3")
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.tsb(b"x", hops=5)
    t.send(t.b, packet)
    t.same(t.expect(t.forwarded(packet), "the TSB").to, gn.BROADCAST, "to whom")


@case("PON_TSB_BO_03", "a TSB is broadcast on once", "10.3.9.3, annex A")
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.tsb(b"x", sn=3, hops=5)
    t.send(t.b, packet)
    t.expect(t.forwarded(packet), "the TSB")
    t.send(t.d, t.b.tsb(b"x", sn=3, hops=4))
    t.wait(0.5)
    t.same(len(t.matching(t.forwarded(packet))), 1, "copies")


@case("PON_TSB_BV_04", "a forwarder lowers RHL and keeps MHL", "10.3.9.3")
def _(t):
    t.beacons(t.d, t.b)
    packet = t.b.tsb(b"x", hops=5, max_hops=8)
    t.send(t.b, packet)
    sent = t.expect(t.forwarded(packet), "the TSB").packet
    t.same((sent.hops, sent.max_hops), (4, 8), "RHL and MHL")


@case("PON_TSB_BO_05", "a TSB with RHL 1 goes no further", "10.3.9.3")
def _(t):
    packet = t.b.tsb(b"last hop", hops=1)
    t.send(t.b, packet)
    t.delivered(b"last hop")
    t.none(t.forwarded(packet), "the TSB")


@case("PON_TSB_BV_06", "a TSB goes to the upper layer", "10.3.9.3")
def _(t):
    t.send(t.b, t.b.tsb(b"for all"))
    t.delivered(b"for all")


@case("PON_TSB_BO_07", "a TSB goes to the upper layer once", "10.3.9.3, annex A")
def _(t):
    t.send(t.b, t.b.tsb(b"once", sn=3, hops=5))
    t.delivered(b"once")
    t.send(t.d, t.b.tsb(b"once", sn=3, hops=4))
    t.not_delivered(b"once", times=1)
