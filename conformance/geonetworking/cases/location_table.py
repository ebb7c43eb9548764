"""The location table (PON_LOT), the local position vector (PON_LPV) and sequence numbers (PON_SQN)."""

from tester import gn, upper
from tester.bed import STATION_LAT, STATION_LON
from tester.case import case


def addressed(t, node, told, payload=b"to you"):
    """A GUC to the node goes out without a search, to the position that was told."""
    t.ask(upper.guc(node.addr, payload))
    sent = t.expect(t.own(gn.GUC, payload), "the GUC").packet
    t.same((sent.de.mid, sent.de.place, sent.de.tst), (told.mid, told.place, told.tst), "DE PV")
    t.none(t.own(gn.LS_REQUEST), "an LS request", during=0.2)


@case("PON_LOT_BV_01", "a beacon makes an entry", "10.3.6.3, 10.3.8.2, 10.3.10.3")
def _(t):
    told = t.b.position()
    t.send(t.b, t.b.beacon(so=told))
    t.settle()
    addressed(t, t.b, told)


@case("PON_LOT_BV_02", "an LS reply makes an entry", "10.3.7.1.2, 10.3.7.1.4, 10.3.8.2")
def _(t):
    t.beacons(t.b)
    t.ask(upper.guc(t.a.addr, b"first"))
    t.expect(gn.LS_REQUEST, "the LS request")
    told = t.a.position()
    t.send(t.b, t.a.ls_reply(t.spv(), so=told, max_hops=10, hops=9))
    sent = t.expect(t.own(gn.GUC, b"first"), "the GUC that waited").packet
    t.same((sent.de.place, sent.de.tst), (told.place, told.tst), "DE PV")
    t.frames.clear()
    addressed(t, t.a, told, b"second")


# Each kind of packet, made by a node with this position vector, for the station under test or through it.
MESSAGES = [
    ("beacon", lambda t, node, so: node.beacon(so=so)),
    ("GUC", lambda t, node, so: node.guc(t.spv(), b"m", so=so)),
    ("GAC", lambda t, node, so: node.gac(t.area1, b"m", so=so)),
    ("GBC", lambda t, node, so: node.gbc(t.area1, b"m", so=so)),
    ("TSB", lambda t, node, so: node.tsb(b"m", so=so)),
    ("SHB", lambda t, node, so: node.shb(b"m", so=so)),
    ("LS request", lambda t, node, so: node.ls_request(t.c.addr, so=so)),
    ("LS reply", lambda t, node, so: node.ls_reply(t.spv(), so=so)),
]


def insertion(number, name, make):
    @case(f"PON_LOT_BV_03_{number:02}", f"the extended header of a {name} makes an entry", "10.3.6 to 10.3.12")
    def _(t):
        # B is a neighbour on the way to A, which is heard for the first time.
        t.beacons(t.b)
        told = t.a.position()
        t.send(t.a, make(t, t.a, told))
        t.settle()
        addressed(t, t.a, told)


for index, (kind, maker) in enumerate(MESSAGES):
    insertion(index + 1, kind, maker)


@case("PON_LOT_BV_04", "an entry is forgotten after itsGnLifetimeLocTE (20 s)", "8.1.3, 10.3.7.1.2", seconds=21)
def _(t):
    t.beacons(t.b)
    t.wait(18)
    t.ask(upper.guc(t.b.addr, b"known"))
    t.expect(t.own(gn.GUC, b"known"), "the GUC after 18 s")
    t.same(t.matching(gn.LS_REQUEST), [], "LS requests after 18 s")
    t.wait(2.5)
    t.ask(upper.guc(t.b.addr, b"forgotten"))
    sent = t.expect(gn.LS_REQUEST, "the LS request").packet
    t.same(sent.request[2:], t.b.mac, "whom it seeks")


def no_update(number, name, make):
    @case(f"PON_LOT_BV_05_{number:02}", f"an older position in a {name} changes nothing", "annex C.2")
    def _(t):
        told = t.b.position()
        t.send(t.b, t.b.beacon(so=told))
        older = gn.Position(t.b.addr, told.tst - 1000, told.lat + 500, told.lon + 500)
        t.send(t.b, make(t, t.b, older))
        t.settle()
        addressed(t, t.b, told)
        # And a newer one does.
        newer = gn.Position(t.b.addr, told.tst + 1, told.lat + 300, told.lon)
        t.send(t.b, make(t, t.b, newer))
        t.settle()
        addressed(t, t.b, newer, b"there")


for index, (kind, maker) in enumerate(MESSAGES[1:]):
    no_update(index + 1, kind, maker)


@case("PON_LPV_BV_01", "after a move, beacons tell the new position", "8.2, 10.2.2", seconds=4)
def _(t):
    t.ask(upper.change_position(1234, -567))
    t.frames.clear()
    there = (STATION_LAT + 1234, STATION_LON - 567)
    sent = t.expect(gn.BEACON, "a beacon", within=8).packet
    t.same(sent.so.place, there, "position")
    # The place goes on being told although the positioning says otherwise.
    t.wait(1.2)
    t.ask(upper.shb(b"x", scf=False))
    t.same(t.expect(t.own(gn.SHB), "the SHB").packet.so.place, there, "position later")


@case("PON_SQN_BV_01", "the first sequence number is 0", "8.3")
def _(t):
    t.beacons(t.b)
    t.ask(upper.to_area(upper.GBC, t.area1, b"x"))
    t.same(t.expect(t.own(gn.GBC), "the GBC").packet.sn, 0, "SN")


@case("PON_SQN_BV_02", "each packet has the next sequence number", "8.3")
def _(t):
    t.beacons(t.b)
    for _ in range(5):
        t.ask(upper.to_area(upper.GBC, t.area1, b"x"))
    t.expect(t.own(gn.GBC), "five GBCs", count=5)
    numbers = [frame.packet.sn for frame in t.matching(gn.GBC)]
    t.same(numbers, list(range(numbers[0], numbers[0] + 5)), "SNs")
