"""Single-hop broadcast (PON_SHB)."""

from tester import gn, upper
from tester.case import case


@case("PON_SHB_BV_01", "own SHB is broadcast", "10.3.10.2")
def _(t):
    t.beacons(t.d, t.b)
    t.ask(upper.shb(b"x"))
    t.same(t.expect(t.own(gn.SHB), "the SHB").to, gn.BROADCAST, "to whom")


@case("PON_SHB_BV_02", "an SHB goes to the upper layer, and no further", "10.3.10.3")
def _(t):
    t.send(t.b, t.b.shb(b"for all"))
    t.delivered(b"for all")
    t.none(gn.SHB, "the SHB", during=0.2)
