"""The Basic Transport Protocol (TS 102 870-2; EN 302 636-5-1)."""

from tester import gn, upper
from tester.case import case

# A port without a listener, so that no service parses the payload.
SOURCE, DESTINATION, INFO = 4711, 4000, 815


def generated(t, number, kind, other):
    t.ask(upper.btp(number, DESTINATION, other))
    sent = t.expect(t.own(gn.SHB), "the BTP packet").packet
    t.same(sent.next_header, kind, "NH")
    t.same(sent.payload, gn.btp_b(DESTINATION, other), "destination port, and what follows")


@case("PGA_BV_01", "own BTP-A packet: destination port, source port, payload", "5-1 7.2")
def _(t):
    generated(t, upper.BTP_A, gn.NH_BTP_A, SOURCE)


@case("PGB_BV_01", "own BTP-B packet: destination port, destination port info, payload", "5-1 7.3")
def _(t):
    generated(t, upper.BTP_B, gn.NH_BTP_B, INFO)


@case("PGB_BV_02", "own BTP-B packet without destination port info: it is 0", "5-1 7.3")
def _(t):
    generated(t, upper.BTP_B, gn.NH_BTP_B, 0)


@case("PP_BV_01", "the payload of a BTP-A packet goes to the upper layer", "5-1 8.3")
def _(t):
    t.send(t.b, t.b.shb(gn.btp_a(DESTINATION, SOURCE, b"by A"), next_header=gn.NH_BTP_A))
    t.delivered(b"by A", upper.BTP_EVENT)


@case("PP_BV_02", "the payload of a BTP-B packet goes to the upper layer", "5-1 8.3")
def _(t):
    t.send(t.b, t.b.shb(gn.btp_b(DESTINATION, INFO, b"by B"), next_header=gn.NH_BTP_B))
    t.delivered(b"by B", upper.BTP_EVENT)
