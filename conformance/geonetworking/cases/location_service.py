"""The Location Service (PON_LOS, CAP_LOS)."""

from tester import gn, upper
from tester.case import EARLY, LATE_SECONDS, case

# itsGnLocationServiceRetransmitTimer, itsGnLocationServiceMaxRetrans, itsGnLocationServicePacketBufferSize
RETRANSMIT = 1.0
RETRANSMISSIONS = 10
BUFFER = 1024


def seek(t, *requests):
    """GUCs to A, of which nothing is known; B is a neighbour that would take them on. Returns the LS request."""
    t.beacons(t.b)
    for request in requests or [upper.guc(t.a.addr, b"waits")]:
        t.ask(request)
    request = t.expect(gn.LS_REQUEST, "the LS request")
    t.same(t.matching(gn.GUC), [], "GUCs before A is found")
    return request


def reply(t):
    """A's answer, as B passes it on."""
    return t.send(t.b, t.a.ls_reply(t.spv(), hops=9))


@case("PON_LOS_BV_01", "a GUC to a station that is not known starts the Location Service", "10.3.7.1.2, 10.3.8.2")
def _(t):
    sent = seek(t).packet
    t.same((sent.type, sent.next_header, sent.request[2:]), (0x60, 0, t.a.mac), "HT and HST, NH, request")
    t.same((sent.hops, sent.max_hops), (10, 10), "RHL and MHL")


@case("PON_LOS_BV_02", "no second LS request while one is under way", "10.3.7.1.2")
def _(t):
    seek(t)
    t.ask(upper.guc(t.a.addr, b"second"))
    t.wait(0.6)
    t.same(len(t.matching(gn.LS_REQUEST)), 1, "LS requests before the retransmission")


@case("PON_LOS_BV_03", "a packet waits in the LS buffer, and its lifetime shrinks", "8.4, 10.3.7.1.4", seconds=3)
def _(t):
    seek(t, upper.guc(t.a.addr, b"waits", lifetime=10_000))
    t.wait(2.2)
    reply(t)
    sent = t.expect(t.own(gn.GUC, b"waits"), "the GUC that waited").packet
    # 10 s less 2.2 s, in whole seconds.
    t.between(sent.lifetime / 1000, 6, 8, "lifetime in seconds")


@case("PON_LOS_BV_04", "the LS buffer is a FIFO", "8.4")
def _(t):
    payloads = [b"PL1", b"PL2", b"PL3"]
    seek(t, *(upper.guc(t.a.addr, payload) for payload in payloads))
    reply(t)
    t.expect(t.own(gn.GUC), "three GUCs", count=3)
    t.same([frame.packet.payload for frame in t.matching(gn.GUC)], payloads, "order")


@case("PON_LOS_BV_05", "packets leave the LS buffer when their lifetime ends", "8.4", seconds=3)
def _(t):
    seek(t, *(upper.guc(t.a.addr, payload, lifetime=1000) for payload in (b"PL1", b"PL2")))
    t.wait(1.6)
    reply(t)
    t.none(gn.GUC, "a GUC that is too old")


@case("PON_LOS_TI_06", "the LS request is repeated after itsGnLocationServiceRetransmitTimer (1 s)",
      "10.3.7.1.3", seconds=2, timing=True)
def _(t):
    first = seek(t)
    second = t.expect(gn.LS_REQUEST, "the second LS request", count=2)
    t.between(second.when - first.when, RETRANSMIT - EARLY, RETRANSMIT + LATE_SECONDS, "seconds between them")


@case("PON_LOS_BV_07", "itsGnLocationServiceMaxRetrans (10) repetitions, no more", "10.3.7.1.3", seconds=13)
def _(t):
    seek(t, upper.guc(t.a.addr, b"waits", lifetime=60_000))
    t.expect(gn.LS_REQUEST, "ten repetitions", count=1 + RETRANSMISSIONS, within=20)
    t.wait(2.2)
    t.same(len(t.matching(gn.LS_REQUEST)), 1 + RETRANSMISSIONS, "LS requests")
    numbers = [frame.packet.sn for frame in t.matching(gn.LS_REQUEST)]
    t.same(len(set(numbers)), len(numbers), "different sequence numbers")


@case("PON_LOS_BV_08", "an LS request for this station is answered", "10.3.7.3")
def _(t):
    t.beacons(t.b)
    asker = t.b.position()
    t.send(t.b, t.b.ls_request(t.station, so=asker))
    sent = t.expect(gn.LS_REPLY, "the LS reply").packet
    t.same((sent.next_header, sent.so.mid), (0, t.mid), "NH and source")
    t.same((sent.de.addr, sent.de.tst, sent.de.place), (asker.addr, asker.tst, asker.place), "DE PV")


@case("PON_LOS_BO_09", "an LS request that was answered is not answered again", "10.3.7.3")
def _(t):
    t.beacons(t.b, t.d)
    request = t.b.ls_request(t.station, sn=77, hops=10)
    t.send(t.b, request)
    t.expect(gn.LS_REPLY, "the LS reply")
    t.send(t.d, request)
    t.wait(0.5)
    t.same(len(t.matching(gn.LS_REPLY)), 1, "LS replies")


@case("PON_LOS_BV_10", "an LS request for another station is broadcast on, RHL less 1", "10.3.7.2")
def _(t):
    t.beacons(t.b, t.c)
    request = t.c.ls_request(t.a.addr, hops=7)
    t.send(t.c, request)
    frame = t.expect(t.forwarded(request), "the LS request")
    t.same((frame.to, frame.packet.hops, frame.packet.max_hops), (gn.BROADCAST, 6, 10), "to whom, RHL, MHL")


@case("PON_LOS_BV_11", "an LS reply for another station is forwarded, RHL less 1", "10.3.7.2")
def _(t):
    t.beacons(t.b, t.c)
    answer = t.c.ls_reply(t.spv(t.b), hops=7)
    t.send(t.c, answer)
    frame = t.expect(t.forwarded(answer), "the LS reply")
    t.same((frame.to, frame.packet.hops), (t.b.mac, 6), "to whom, RHL")


@case("PON_LOS_BV_12", "a GUC from the station that is sought flushes the LS buffer", "10.3.8.4")
def _(t):
    seek(t)
    t.send(t.b, t.a.guc(t.spv(), b"here I am", hops=9))
    t.expect(t.own(gn.GUC, b"waits"), "the GUC that waited")


@case("PON_LOS_BV_13", "each packet in the LS buffer has its own lifetime", "8.4", seconds=3)
def _(t):
    seek(t, upper.guc(t.a.addr, b"PL1"), upper.guc(t.a.addr, b"PL2", lifetime=1000))
    t.wait(1.6)
    reply(t)
    t.expect(t.own(gn.GUC, b"PL1"), "the GUC with the longer lifetime")
    t.none(t.own(gn.GUC, b"PL2"), "the GUC with the shorter lifetime")


@case("PON_LOS_BV_14", "when the Location Service fails, what waited is discarded", "10.3.7.1.3", seconds=14)
def _(t):
    seek(t, upper.guc(t.a.addr, b"waits", lifetime=60_000))
    t.expect(gn.LS_REQUEST, "ten repetitions", count=1 + RETRANSMISSIONS, within=20)
    t.wait(RETRANSMIT + 0.5)
    t.send(t.b, t.a.guc(t.spv(), b"late", hops=9))
    t.delivered(b"late")
    t.none(gn.GUC, "the GUC that waited")


@case("PON_LOS_BV_15", "a GUC from the station that is sought to another one flushes the LS buffer, too", "10.3.8.3")
def _(t):
    seek(t)
    t.send(t.a, t.a.guc(t.spv(t.b), b"to B", hops=9))
    t.expect(t.own(gn.GUC, b"waits"), "the GUC that waited")


def ended_by(t, packet):
    t.expect(gn.LS_REQUEST, "a repetition", count=2)
    t.send(t.b, packet)
    t.expect(t.own(gn.GUC, b"waits"), "the GUC that waited")
    asked = len(t.matching(gn.LS_REQUEST))
    t.wait(2.3)
    t.same(len(t.matching(gn.LS_REQUEST)), asked, "LS requests after A was heard")


@case("PON_LOS_BV_16", "a GUC from the station that is sought ends the repetitions", "10.3.8.4", seconds=4)
def _(t):
    seek(t)
    ended_by(t, t.a.guc(t.spv(), b"here I am", hops=9))


@case("PON_LOS_BV_17", "so does a GUC from it to another station", "10.3.8.3", seconds=4)
def _(t):
    seek(t)
    ended_by(t, t.a.guc(t.spv(t.b), b"to B", hops=9))


@case("CAP_LOS_BV_01", "a full LS buffer (1024 octets) drops the oldest packets", "8.4")
def _(t):
    payloads = [bytes([number]) * 200 for number in range(8)]
    seek(t, *(upper.guc(t.a.addr, payload) for payload in payloads))
    reply(t)
    t.expect(t.own(gn.GUC), "GUCs", count=3)
    t.wait(0.3)
    kept = [frame.packet for frame in t.matching(gn.GUC)]
    t.same([packet.payload for packet in kept], payloads[-len(kept):], "the newest, in their order")
    size = len(kept[0].octets)
    t.true(len(kept) * size <= BUFFER < (len(kept) + 1) * size, f"{len(kept)} packets of {size} octets")
