"""Formatting and data validity (FDV): what the station's own packets look like."""

from tester import gn, upper
from tester.case import LATE_SECONDS, case
from tester.bed import STATION_LAT, STATION_LON

# The first beacon after the initial state comes within a jitter, the next ones within 3.75 s.
BEACON_PATIENCE = 8.0


def beacon(t):
    return t.expect(gn.BEACON, "a beacon", within=BEACON_PATIENCE).packet


def is_station(t, position):
    """The position vector is that of the station under test."""
    t.same(position.mid, t.mid, "MID of the source")
    t.same(position.place, (STATION_LAT, STATION_LON), "position of the source")


@case("FDV_BAH_BV_01", "Basic Header of an own packet: version 1, RHL of the default", "9.6.2, 10.3.2, annex H")
def _(t):
    t.beacons(t.b)
    t.ask(upper.to_area(upper.GBC, t.area1, b"x"))
    sent = t.expect(t.own(gn.GBC), "the GBC").packet
    t.same(sent.version, 1, "version")
    t.same(sent.hops, 10, "RHL")


@case("FDV_BAH_BI_02", "a packet of another version is discarded", "10.3.3")
def _(t):
    t.send(t.b, t.b.shb(b"version 1"))
    t.delivered(b"version 1")
    for version in (0, 2, 15):
        t.send(t.b, t.b.shb(b"version %d" % version, version=version))
    for version in (0, 2, 15):
        t.not_delivered(b"version %d" % version, during=0.2)


@case("FDV_COH_BV_01", "Common Header of a beacon: HT 1, HST 0, PL 0", "9.7.2, 9.7.4, 9.8.6", seconds=2)
def _(t):
    sent = beacon(t)
    t.same(sent.type, 0x10, "HT and HST")
    t.same(sent.length, 0, "PL")


@case("FDV_COH_BV_02", "Common Header of an SHB: HT 5, HST 0, MHL 1, PL of the payload",
      "9.7.2, 9.7.4, 9.8.4, 10.3.4")
def _(t):
    payload = bytes(range(77))
    t.ask(upper.shb(payload, scf=False))
    sent = t.expect(t.own(gn.SHB), "the SHB").packet
    t.same((sent.type, sent.max_hops, sent.length), (0x50, 1, 77), "HT and HST, MHL, PL")
    t.same(sent.payload, payload, "payload")


@case("FDV_COH_BV_03", "Common Header of a GBC: itsGnIsMobile in the flags, MHL of the default",
      "9.7.2, 10.3.4, annex H")
def _(t):
    t.beacons(t.b)
    t.ask(upper.to_area(upper.GBC, t.area1, b"x"))
    sent = t.expect(t.own(gn.GBC), "the GBC").packet
    # A station with a fixed position is not mobile.
    t.same((sent.flags, sent.max_hops), (0x00, 10), "flags and MHL")


@case("FDV_COH_BO_04", "a TSB with RHL > MHL is discarded", "10.3.5")
def _(t):
    t.beacons(t.d, t.b)
    bad = t.b.tsb(b"too far", hops=6, max_hops=5)
    t.send(t.b, bad)
    t.none(t.forwarded(bad), "the TSB")
    t.not_delivered(b"too far", during=0)


@case("FDV_BEA_BV_01", "a beacon: HT 1, HST 0, NH 0, LPV of the station", "9.7.2, 9.8.6, 10.3.6", seconds=2)
def _(t):
    sent = beacon(t)
    t.same((sent.type, sent.next_header, sent.hops, sent.max_hops), (0x10, 0, 1, 1), "HT, NH, RHL, MHL")
    is_station(t, sent.so)


@case("FDV_BEA_BV_02", "the GN address in a beacon: station type, reserved bits of the former country code 0",
      "6.3, 9.8.6.2", seconds=2)
def _(t):
    t.same(beacon(t).so.addr, t.station, "GN address")


@case("FDV_BEA_BV_03", "the position in a beacon is that of the station", "9.5.2, 9.8.6.2", seconds=2)
def _(t):
    sent = beacon(t)
    is_station(t, sent.so)
    t.same((sent.so.pai, sent.so.speed), (True, 0), "PAI and speed of a station that does not move")


@case("FDV_BEA_BV_04", "the timestamp in a beacon is that of the position", "9.5.2, 9.8.6.2", seconds=2)
def _(t):
    # The position is taken once a second (itsGnMinUpdateFrequencyEPV).
    frame = t.expect(gn.BEACON, "a beacon", within=BEACON_PATIENCE)
    age = (gn.now() - frame.packet.so.tst) / 1000
    t.between(age, -0.1, 1.0 + LATE_SECONDS + 1, "age of the position in seconds")


@case("FDV_GUC_BV_01", "GUC: HT 2, HST 0, SO PV of the station, DE PV of the destination", "9.7.2, 9.8.2, 10.3.8.2")
def _(t):
    told = t.b.position()
    t.send(t.b, t.b.beacon(so=told))
    t.settle()
    t.ask(upper.guc(t.b.addr, b"x"))
    sent = t.expect(gn.GUC, "the GUC").packet
    is_station(t, sent.so)
    t.same((sent.de.addr, sent.de.tst, sent.de.place), (told.addr, told.tst, told.place), "DE PV")


def to_area(t, number, kind):
    t.beacons(t.b)
    t.ask(upper.to_area(number, t.area1, b"x"))
    sent = t.expect(t.own(kind), "the packet").packet
    is_station(t, sent.so)
    t.same(sent.area, t.area1, "area")


@case("FDV_GBC_BV_01", "GBC: HT 4, SO PV of the station", "9.7.2, 9.8.5, 10.3.11.2")
def _(t):
    to_area(t, upper.GBC, gn.GBC)


@case("FDV_GAC_BV_01", "GAC: HT 3, SO PV of the station", "9.7.2, 9.8.5, 10.3.12.2")
def _(t):
    to_area(t, upper.GAC, gn.GAC)


@case("FDV_SHB_BV_01", "SHB: HT 5, HST 0, MHL 1, LPV of the station", "9.7.2, 9.8.4, 10.3.10.2")
def _(t):
    t.beacons(t.b)
    t.ask(upper.shb(b"x"))
    frame = t.expect(t.own(gn.SHB), "the SHB")
    t.same((frame.packet.max_hops, frame.packet.hops), (1, 1), "MHL and RHL")
    is_station(t, frame.packet.so)


@case("FDV_TSB_BV_01", "TSB: HT 5, HST 1, SO PV of the station", "9.7.2, 9.8.3, 10.3.9.2")
def _(t):
    t.beacons(t.b)
    t.ask(upper.tsb(b"x", hops=5))
    sent = t.expect(t.own(gn.TSB), "the TSB").packet
    t.same((sent.max_hops, sent.hops), (5, 5), "MHL and RHL")
    is_station(t, sent.so)
