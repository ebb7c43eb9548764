"""Beacons (PON_BEA)."""

from tester import gn, upper
from tester.case import EARLY, LATE_SECONDS, case

# itsGnBeaconServiceRetransmitTimer, itsGnBeaconServiceMaxJitter
INTERVAL, JITTER = 3.0, 0.75


@case("PON_BEA_TI_01", "beacons come every 3 s to 3.75 s", "10.3.6.2", seconds=12, timing=True)
def _(t):
    t.expect(gn.BEACON, "four beacons", count=4, within=20)
    times = [frame.when for frame in t.matching(gn.BEACON)]
    for before, after in zip(times, times[1:]):
        t.between(after - before, INTERVAL - EARLY, INTERVAL + JITTER + LATE_SECONDS, "seconds between beacons")


@case("PON_BEA_TI_02", "an SHB takes the place of a beacon", "10.3.10.2", seconds=8, timing=True)
def _(t):
    t.beacons(t.b)
    t.expect(gn.BEACON, "a beacon", within=8)
    t.wait(1.5)
    t.ask(upper.shb(b"x"))
    shb = t.expect(t.own(gn.SHB), "the SHB")
    t.frames.clear()
    after = t.expect(gn.BEACON, "the next beacon", within=8)
    t.between(after.when - shb.when, INTERVAL - EARLY, INTERVAL + JITTER + LATE_SECONDS, "seconds after the SHB")
