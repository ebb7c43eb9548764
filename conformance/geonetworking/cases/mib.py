"""Parameters with other values than the standard's: the station goes by them (annex H)."""

from tester import gn, upper
from tester.case import EARLY, LATE_SECONDS, case

from .guc import METRES

PROFILE = "other-values"


@case("OWN_MIB_HEADERS", "itsGnIsMobile, itsGnDefaultHopLimit", "annex H", profile=PROFILE)
def _(t):
    t.beacons(t.b)
    t.ask(upper.to_area(upper.GBC, t.area1, b"x", lifetime=2000))
    sent = t.expect(t.own(gn.GBC), "the GBC").packet
    t.same((sent.flags, sent.hops, sent.max_hops), (0x80, 5, 5), "flags, RHL, MHL")


@case("OWN_MIB_LIMITS", "itsGnMaxSduSize, itsGnMaxPacketLifetime, itsGnMaxGeoAreaSize", "annex H", profile=PROFILE)
def _(t):
    t.ask(upper.shb(bytes(100), scf=False))
    big = gn.Area(t.d.lat, t.d.lon, 600)
    for refused in (upper.shb(bytes(101)), upper.tsb(b"x", lifetime=5050), upper.to_area(upper.GBC, big, lifetime=1000)):
        t.same(t.bed.upper.ask(refused), False, f"the answer to {refused[:8].hex()}")


@case("OWN_MIB_BEACONS", "itsGnBeaconServiceRetransmitTimer, itsGnBeaconServiceMaxJitter", "annex H", profile=PROFILE, seconds=3,
      timing=True)
def _(t):
    t.expect(gn.BEACON, "five beacons", count=5)
    times = [frame.when for frame in t.matching(gn.BEACON)]
    for before, after in zip(times, times[1:]):
        t.between(after - before, 0.5 - EARLY, 0.6 + LATE_SECONDS, "seconds between beacons")


@case("OWN_MIB_LOCATION_SERVICE", "itsGnLocationServiceMaxRetrans, ...RetransmitTimer, ...PacketBufferSize", "annex H",
      profile=PROFILE, seconds=2)
def _(t):
    t.beacons(t.b)
    for payload in (b"1", b"2", b"3", b"4", b"5", b"6"):
        t.ask(upper.guc(t.a.addr, payload, lifetime=4000))
    t.expect(t.own(gn.LS_REQUEST), "three LS requests", count=3)
    t.send(t.b, t.a.ls_reply(t.spv(), hops=9))
    t.expect(t.own(gn.GUC), "GUCs", count=4)
    t.wait(0.8)
    # 61 octets each.
    t.same([frame.packet.payload for frame in t.matching(gn.GUC)], [b"3", b"4", b"5", b"6"], "what was kept")
    t.same(len(t.matching(t.own(gn.LS_REQUEST))), 3, "LS requests")


@case("OWN_MIB_LOCATION_TABLE", "itsGnLifetimeLocTE, itsGnDPLLength", "annex H", profile=PROFILE, seconds=4)
def _(t):
    t.beacons(t.b)
    # Of a list of two, the third pushes the first out, and it is new again.
    for sn in (1, 2, 3, 1):
        t.send(t.b, t.b.tsb(b"%d" % sn, sn=sn, hops=1, max_hops=5))
        t.settle()
    t.same([payload for _, payload in t.bed.upper.events], [b"1", b"2", b"3", b"1"], "what was delivered")
    t.wait(2.3)
    t.ask(upper.guc(t.b.addr, b"x", lifetime=2000))
    t.expect(t.own(gn.LS_REQUEST), "the LS request")


@case("OWN_MIB_CONTENTION", "itsGnCbfMinTime, itsGnCbfMaxTime, itsGnDefaultMaxCommunicationRange", "annexes F.3, H",
      profile=PROFILE, timing=True)
def _(t):
    t.beacons(t.b, t.c)
    packet = t.c.gbc(t.area1, b"x", scf=True, hops=4, max_hops=5)
    began = t.send(t.c, packet)
    # AREA1 is smaller than 1 square kilometre.
    frame = t.expect(t.forwarded(packet), "the GBC")
    t.after(began, frame, 0.3 + (0.01 - 0.3) / 2000 * 6 * METRES, "seconds of contention")
