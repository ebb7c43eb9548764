"""Contention-based forwarding inside of an area (PON_BCA; annex F.3)."""

from tester import gn
from tester.case import case

from .guc import CBF_MAX, METRES, progress


def contention(t, sender, packet, seconds):
    began = t.send(sender, packet)
    frame = t.expect(t.forwarded(packet), "the GBC")
    t.same((frame.to, frame.packet.hops), (gn.BROADCAST, 7), "to whom, RHL")
    t.after(began, frame, seconds, "seconds of contention")


@case("PON_BCA_BV_01", "a copy from another forwarder ends the contention", "annex F.3", timing=True)
def _(t):
    t.beacons(t.b, t.d, t.c)
    packet = t.c.gbc(t.area1, b"x", scf=True, hops=8)
    t.send(t.c, packet)
    t.send(t.d, packet)
    t.none(t.forwarded(packet), "the GBC")


@case("PON_BCA_BV_02", "the time of contention is that of the distance to the sender", "annex F.3", timing=True)
def _(t):
    t.beacons(t.b, t.d, t.c)
    contention(t, t.c, t.c.gbc(t.area1, b"x", scf=True, hops=8), progress(6 * METRES))


@case("PON_BCA_BV_03", "outside of the area, a GBC from outside goes to the neighbour nearest to it",
      "annexes D, E.2")
def _(t):
    t.beacons(t.b, t.d, t.c)
    packet = t.c.gbc(t.area2, b"x", scf=True, hops=8)
    t.send(t.c, packet)
    t.same(t.expect(t.forwarded(packet), "the GBC").to, t.b.mac, "next hop")


@case("PON_BCA_BO_04", "outside of the area, a GBC from inside is discarded", "annex D")
def _(t):
    t.beacons(t.b, t.d)
    packet = t.d.gbc(t.area2, b"x", scf=True, hops=8)
    t.send(t.d, packet)
    t.none(t.forwarded(packet), "the GBC")


@case("PON_BCA_BV_05", "the longest contention when the sender is not known", "annex F.3", timing=True)
def _(t):
    t.beacons(t.b)
    contention(t, t.d, t.c.gbc(t.area1, b"x", scf=True, hops=8), CBF_MAX)


def at_once(t):
    packet = t.c.gbc(t.area2, b"x", scf=True, hops=8)
    began = t.send(t.d, packet)
    frame = t.expect(t.forwarded(packet), "the GBC")
    t.same(frame.to, gn.BROADCAST, "to whom")
    t.after(began, frame, 0, "seconds until it went on")


@case("PON_BCA_BV_06", "V1.2.1: outside of the area, a GBC from a sender that is not known is broadcast at once",
      "V1.2.1 annex E", profile="cbf-1.2.1", timing=True)
def _(t):
    t.beacons(t.b)
    at_once(t)


@case("PON_BCA_BV_07", "V1.2.1: outside of the area, a GBC from a sender with PAI 0 is broadcast at once",
      "V1.2.1 annex E", profile="cbf-1.2.1", timing=True)
def _(t):
    t.d.pai = False
    t.beacons(t.b, t.d)
    at_once(t)


@case("PON_BCA_BV_08", "the longest contention when the sender's PAI is 0", "annex F.3", timing=True)
def _(t):
    t.d.pai = False
    t.beacons(t.b, t.d)
    contention(t, t.d, t.c.gbc(t.area1, b"x", scf=True, hops=8), CBF_MAX)
