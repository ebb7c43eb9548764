"""Beside the test purposes: what TS 102 871-2 leaves out. Broken and hostile packets, frames of other
implementations, the rules of V1.4.1 where the test purposes have those of V1.2.1, and the upper tester itself.
"""

import math
import random

from tester import gn, upper
from tester.bed import STATION_LAT, STATION_LON, STATION_MAC
from tester.case import Node, case

# Kilobytes that a station may grow under mutated packets.
GROWTH = 8_000
# Memory limit of a station whose location table is full of fabricated stations.
TABLE = 40_000
MUTATIONS = 100_000
FABRICATED = 40_000
# Frames between two moments at which the station has certainly taken them all: its socket holds more.
BATCH = 50


def goldens(t, node):
    """A good packet of each type, from a node."""
    return [
        node.beacon(), node.shb(b"payload"), node.tsb(b"payload"), node.guc(t.spv(), b"payload"),
        node.guc(t.spv(t.a), b"payload"), node.gbc(t.area1, b"payload"), node.gac(t.area2, b"payload"),
        node.gbc(gn.Area(t.d.lat, t.d.lon, 500, 100, 45, 1), b"payload"),
        node.gac(gn.Area(t.d.lat, t.d.lon, 500, 100, 45, 2), b"payload"),
        node.ls_request(t.station), node.ls_request(t.a.addr), node.ls_reply(t.spv()), node.ls_reply(t.spv(t.a)),
    ]


def with_octet(packet, at, value):
    return packet[:at] + bytes([value]) + packet[at + 1:]


def broken(t, node):
    """Packets that the standard has discarded, each of them."""
    known = set(gn.NAMES)
    for packet in goldens(t, node):
        yield from (packet[:length] for length in range(len(packet)))
        yield from (with_octet(packet, 0, version << 4 | 1) for version in (0, 2, 15))
        # NH of the Basic Header: secured without an envelope, and what is not defined.
        yield from (with_octet(packet, 0, 0x10 | nh) for nh in range(2, 16))
        yield from (with_octet(packet, 5, octet) for octet in range(256) if octet not in known)
        yield with_octet(packet, 3, packet[10] + 1)
        yield with_octet(packet, 3, 255)
        # PL: more than there is.
        yield packet[:8] + (len(packet) + 1).to_bytes(2, "big") + packet[10:]
        yield packet[:8] + b"\xff\xff" + packet[10:]
    far = (900_000_001, -900_000_001, 2**31 - 1, -2**31)
    for lat in far:
        so = node.position(lat=lat)
        yield from (node.beacon(so=so), node.shb(b"x", so=so), node.tsb(b"x", so=so))
        yield node.gbc(gn.Area(lat, STATION_LON, 100), b"x")
        yield node.guc(gn.Position(t.a.addr, 0, lat, 0), b"x")
    for lon in (1_800_000_001, -1_800_000_001, 2**31 - 1, -2**31):
        so = node.position(lon=lon)
        yield from (node.beacon(so=so), node.shb(b"x", so=so), node.tsb(b"x", so=so))
        yield node.gac(gn.Area(STATION_LAT, lon, 100), b"x")


def drops(counters):
    return {name: count for name, count in counters.items() if name.startswith("geonet.dropped.")}


@case("OWN_BROKEN_PACKETS", "each broken packet is discarded and counted, and nothing is learnt from it",
      "10.3.3, 10.3.5, 9", seconds=4)
def _(t):
    before = t.bed.counters()
    node = Node("N", 1)
    sent = 0
    for packet in broken(t, node):
        t.send(node, packet)
        sent += 1
        if sent % BATCH == 0:
            t.settle()
    # No station has a group address, nor this one's.
    for mac in (b"\xff" * 6, bytes(6), bytes.fromhex("0180c2000000")):
        t.bed.send(mac, gn.BROADCAST, node.beacon())
        sent += 1
    t.settle()
    t.poll()
    after = t.bed.counters()
    counted = sum(drops(after).values()) - sum(drops(before).values())
    t.same(counted, sent, "packets that were counted as dropped")
    t.same(t.bed.locations(), [], "the location table")
    t.same(t.bed.upper.events, [], "what came to the upper layer")
    t.same([frame for frame in t.frames if frame.packet.so.mid != t.mid], [], "what was sent on")
    reasons = [name for name in drops(after) if after[name] > before.get(name, 0)]
    t.true(len(reasons) >= 7, f"few reasons: {reasons}")


@case("OWN_MUTATIONS", "100,000 mutated packets: alive, no growth, and the neighbours are still known",
      "10.3", seconds=30)
def _(t):
    numbers = random.Random(8947)
    t.beacons(t.b, t.d)
    nodes = [Node(letter, numbers.uniform(-9, 9), numbers.uniform(-9, 9)) for letter in "GHIJ"]
    began = t.bed.counters()
    memory = 0
    for number in range(MUTATIONS):
        node = nodes[number % len(nodes)]
        if number % 500 == 0:
            t.beacons(t.b, t.d, settle=False)
            packets = [packet for node in nodes for packet in goldens(t, node)]
        packet = bytearray(numbers.choice(packets))
        for _ in range(numbers.choice((1, 1, 1, 2, 4, 16))):
            at = numbers.randrange(len(packet))
            # Not the MID of the source: that would be a new station each time, which is another case.
            if 12 <= at < 24:
                at = numbers.randrange(12)
            flipped = packet[at] ^ 1 << numbers.randrange(8)
            packet[at] = numbers.choice((0, 1, 0x7F, 0x80, 0xFF, numbers.randrange(256), flipped))
        kind = numbers.randrange(10)
        if kind == 0:
            packet = packet[:numbers.randrange(len(packet) + 1)]
        elif kind == 1:
            packet += numbers.randbytes(numbers.randrange(1, 1400 - len(packet)))
        elif kind == 2:
            at = numbers.randrange(12, len(packet) + 1)
            packet = packet[:at] + numbers.choice(packets)[at:]
        t.send(node, bytes(packet), to=numbers.choice((gn.BROADCAST, gn.BROADCAST, STATION_MAC)))
        if number % BATCH == BATCH - 1:
            t.bed.upper.ask(upper.change_position(0, 0))
            t.bed.upper.poll()
            t.bed.upper.events.clear()
            t.bed.receive()
        if number == MUTATIONS // 3:
            memory = t.bed.memory()
    t.beacons(t.b, t.d)
    t.true(t.bed.alive(), "the station has ended")
    growth = t.bed.memory() - memory
    t.true(growth < GROWTH, f"the station grew by {growth} kB")
    ended = t.bed.counters()
    received = ended["geonet.received"] - began["geonet.received"]
    t.true(received > MUTATIONS * 0.95, f"{received} packets were received")
    t.wait(0.3)
    # Forwarded packets contain the marks of the mutations.
    t.frames.clear()
    t.faults.clear()
    t.ask(upper.guc(t.b.addr, b"still there"))
    t.same(t.expect(t.own(gn.GUC, b"still there"), "the GUC").to, t.b.mac, "next hop")


@case("OWN_FLOOD", "a flood of fabricated stations does not push out the neighbours", "8.1", seconds=15)
def _(t):
    t.beacons(t.b, t.d)
    memory = t.bed.memory()
    for number in range(FABRICATED):
        mac = bytes.fromhex("06ad") + number.to_bytes(4, "big")
        lat, lon = STATION_LAT + number % 100, STATION_LON + number // 100
        so = gn.Position(gn.address(mac), gn.now(), lat, lon)
        t.bed.send(mac, gn.BROADCAST, gn.packet(gn.BEACON, so.long()))
        if number % 1000 == 0:
            t.beacons(t.b, t.d, settle=False)
        if number % BATCH == BATCH - 1:
            t.bed.upper.ask(upper.change_position(0, 0))
            t.bed.receive()
    t.settle()
    growth = t.bed.memory() - memory
    t.true(growth < TABLE, f"the station grew by {growth} kB")
    for node in (t.b, t.d):
        t.ask(upper.guc(node.addr, node.mac))
        t.same(t.expect(t.own(gn.GUC, node.mac), "the GUC").to, node.mac, "next hop")
    t.same(t.matching(t.own(gn.LS_REQUEST)), [], "LS requests")


@case("OWN_ECHO", "own packets that come back are discarded, and are no address conflict", "10.2.1.5, annex A")
def _(t):
    t.beacons(t.b)
    t.ask(upper.tsb(b"echo", hops=5))
    t.ask(upper.to_area(upper.GBC, t.area1, b"echo"))
    t.ask(upper.shb(b"echo"))
    for kind in (gn.TSB, gn.GBC, gn.SHB):
        frame = t.expect(t.own(kind, b"echo"), "the packet")
        for node in (t.b, t.d):
            t.send(node, with_octet(frame.packet.octets, 3, max(1, frame.packet.hops - 1)))
        t.bed.send(STATION_MAC, gn.BROADCAST, frame.packet.octets)
    t.not_delivered(b"echo")
    t.same(len(t.matching(lambda frame: frame.packet.payload == b"echo")), 3, "packets, with what was sent on")
    t.ask(upper.shb(b"after"))
    t.expect(t.own(gn.SHB, b"after"), "an SHB from the same address")


@case("OWN_WRAP", "a timestamp after the wrap is newer than one before it", "annex C.2")
def _(t):
    before = t.b.position(tst=2**32 - 10)
    after = t.b.position(tst=5, lat=t.b.lat + 100)
    for position in (before, after, before):
        t.send(t.b, t.b.beacon(so=position))
    t.settle()
    t.ask(upper.guc(t.b.addr, b"x"))
    sent = t.expect(t.own(gn.GUC), "the GUC").packet
    t.same((sent.de.tst, sent.de.place), (5, after.place), "DE PV")


@case("OWN_UNKNOWN_SENDER", "V1.4.1: outside of the area, a GBC from a sender that is not known goes to the next hop",
      "annexes D, E.2")
def _(t):
    t.d.pai = False
    for known in (False, True):
        t.begin()
        t.beacons(*((t.b, t.d) if known else (t.b,)))
        packet = t.c.gbc(t.area2, b"x", scf=True, hops=8)
        t.send(t.d, packet)
        t.same(t.expect(t.forwarded(packet), "the GBC").to, t.b.mac, "next hop")


@case("OWN_NO_PROGRESS", "contention: a station that is farther from the destination than the sender keeps quiet",
      "annex E.3",
      profile="unicast-cbf")
def _(t):
    t.beacons(t.b, t.c)
    packet = t.b.guc(t.spv(t.a), b"x", scf=True, hops=8)
    t.send(t.b, packet)
    t.none(t.forwarded(packet), "the GUC")


def inside(lat, lon, area):
    """F(x, y) of the area at a place (EN 302 931 clause 5): above 0 inside, below outside."""
    phi = math.radians((lat + area.lat) / 2e7)
    metres_north = 111_132.95 - 559.82 * math.cos(2 * phi) + 1.175 * math.cos(4 * phi)
    metres_east = 111_412.84 * math.cos(phi) - 93.5 * math.cos(3 * phi)
    north, east = (lat - area.lat) / 1e7 * metres_north, (lon - area.lon) / 1e7 * metres_east
    azimuth = math.radians(area.angle)
    x = north * math.cos(azimuth) + east * math.sin(azimuth)
    y = east * math.cos(azimuth) - north * math.sin(azimuth)
    if area.shape == 0:
        return 1 - (x / area.a) ** 2 - (y / area.a) ** 2
    if area.shape == 1:
        return min(1 - (x / area.a) ** 2, 1 - (y / area.b) ** 2)
    return 1 - (x / area.a) ** 2 - (y / area.b) ** 2


@case("OWN_AREAS", "circles, rectangles and ellipses at any angle, in all quarters of the globe",
      "annex B.3, EN 302 931 5",
      seconds=3)
def _(t):
    numbers = random.Random(302931)
    for lat, lon in ((STATION_LAT, STATION_LON), (-338_700_000, 1_512_000_000), (-334_500_000, -706_600_000),
                     (640_000_000, -519_000_000)):
        t.begin()
        t.ask(upper.change_position(lat - STATION_LAT, lon - STATION_LON))
        within, without = set(), set()
        for number in range(120):
            shape = number % 3
            area = gn.Area(lat + numbers.randrange(-90_000, 90_000), lon + numbers.randrange(-90_000, 90_000),
                           numbers.randrange(50, 1500), numbers.randrange(50, 1500) if shape else 0,
                           numbers.randrange(360) if shape else 0, shape)
            value = inside(lat, lon, area)
            if abs(value) > 0.03:
                payload = b"area %d" % number
                (within if value > 0 else without).add(payload)
                t.send(t.b, t.b.gbc(area, payload, hops=1))
        t.settle()
        t.true(len(within) > 20 and len(without) > 20, "areas of both kinds")
        t.wait(0.1)
        delivered = {payload for _, payload in t.bed.upper.events}
        t.same(delivered ^ within, set(), f"areas at {lat} {lon} that are judged otherwise")


# SHBs of vanetza v26.02's socktap, as two of its stations sent them over a veth: a CAM and a hello on BTP-B, and a
# CAM in the envelope of TS 103 097, which is not in this version.
VANETZA_CAM = bytes.fromhex(
    "11001a0120500080002d01008000020000000002"
    "30c91b941d11629806d08c38800000000000000007d10000020200000002"
    "1ebd005a56c9730e434bc703e83e8001b7743e0000012000003fe1ed0403ffe3fff400")
VANETZA_HELLO = bytes.fromhex(
    "11001a0120500080000701008000020000000001"
    "30c91b941d113b8806d06527800000000000000000" "2a0000c0ffee")
VANETZA_SECURED = bytes.fromhex(
    "12001a0103810040038051" + "20500080002d0100800002000000000230c983f51d11629806d08c388000000000000000"
    "07d10000020200000002871d005a56c9730e434bc703e83e8001b7743e0000012000003fe1ed0403ffe3fff400"
    "400124000290fe9337caa0828080" + "00" * 64)


@case("OWN_TRAFFIC_CLASS", "the traffic class goes as it was asked for, and others' as it came", "9.7.5")
def _(t):
    t.beacons(t.b)
    # Channel offload and TC ID 5.
    t.ask(upper.shb(b"mine")[:1] + b"\x45" + upper.shb(b"mine")[2:])
    t.same(t.expect(t.own(gn.SHB, b"mine"), "the SHB").packet.tc, 0x45, "traffic class")
    packet = with_octet(t.b.tsb(b"theirs", hops=5), 6, 0x46)
    t.send(t.b, packet)
    t.same(t.expect(t.forwarded(packet), "the TSB").packet.tc, 0x46, "traffic class")


@case("OWN_VANETZA", "packets that vanetza sent are understood; secured ones are discarded and counted", "9")
def _(t):
    mac = bytes.fromhex("020000000001")
    before = drops(t.bed.counters())
    for packet in (VANETZA_CAM, VANETZA_HELLO, VANETZA_SECURED):
        t.bed.send(mac, gn.BROADCAST, packet)
    t.delivered(VANETZA_CAM[44:], upper.BTP_EVENT)
    t.delivered(b"\xc0\xff\xee", upper.BTP_EVENT)
    t.settle()
    after = drops(t.bed.counters())
    t.same(after["geonet.dropped.secured"] - before.get("geonet.dropped.secured", 0), 1, "secured packets")
    t.same(len(t.bed.locations()), 2, "stations in the location table")


@case("OWN_UPPER_TESTER", "the upper tester refuses what cannot be done, and answers no rubbish",
      "TR 103 099 annex C")
def _(t):
    big = gn.Area(t.d.lat, t.d.lon, 2000)
    for refused in (
        bytes([upper.CHANGE_PSEUDONYM]), upper.shb(bytes(gn.MAX_SDU + 1)), upper.tsb(b"x", hops=0),
        upper.guc(t.b.addr, b"x", lifetime=0), upper.guc(t.station, b"x"), upper.to_area(upper.GBC, big),
        upper.to_area(upper.GAC, gn.Area(2**31 - 1, 0, 100)), upper.change_position(2**31 - 1, 0),
    ):
        t.same(t.bed.upper.ask(refused), False, f"the answer to {refused[:16].hex()}")
    numbers = random.Random(103099)
    for number in range(2000):
        # No message begins with these.
        first = numbers.choice((0x01, 0x06, 0x10, 0x41, 0x55, 0x80, 0xFF))
        t.bed.udp.send(bytes([first]) + numbers.randbytes(numbers.randrange(40)))
        if number % BATCH == 0:
            t.ask(upper.change_position(0, 0))
    for number in (upper.GUC, upper.GBC, upper.GAC, upper.SHB, upper.TSB, upper.BTP_A, upper.BTP_B):
        # Cut off; the next answer would otherwise be that of another message.
        t.bed.udp.send(bytes([number, 0]))
    t.ask(upper.shb(b"after", scf=False))
    t.expect(t.own(gn.SHB, b"after"), "an SHB")
    t.same(len(t.matching(t.own(gn.SHB))), 1, "SHBs")


@case("OWN_RESET", "the initial state: nobody is known, nothing waits, the address is the first one",
      "TR 103 099 annex C")
def _(t):
    t.beacons(t.b)
    t.ask(upper.guc(t.a.addr, b"waits"))
    t.expect(gn.LS_REQUEST, "the LS request")
    t.ask(upper.change_position(5000, 0))
    t.send(t.b, t.b.shb(b"conflict", so=t.b.position(addr=t.station)))
    t.settle()
    t.begin()
    t.frames.clear()
    t.same(t.bed.locations(), [], "the location table")
    t.ask(upper.guc(t.b.addr, b"x"))
    request = t.expect(gn.LS_REQUEST, "an LS request for B").packet
    # The GUC has the first sequence number.
    t.same((request.request[2:], request.sn), (t.b.mac, 1), "whom it seeks, SN")
    t.same((request.so.addr, request.so.place), (t.station, (STATION_LAT, STATION_LON)), "address and place")
    t.send(t.b, t.a.guc(t.spv(), b"A is here", hops=9))
    t.none(t.own(gn.GUC, b"waits"), "the packet of before")
