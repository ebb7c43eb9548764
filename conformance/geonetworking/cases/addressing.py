"""Addresses (PON_GNA): the automatic one, and duplicate address detection."""

from tester import gn, upper
from tester.case import case


@case("PON_GNA_BV_01", "the automatic address is made of the link-layer address", "10.2.1.2", seconds=2)
def _(t):
    sent = t.expect(gn.BEACON, "a beacon", within=8).packet
    t.same(sent.so.addr, t.station, "GN address: M 0, station type, MID")


@case("PON_GNA_BV_02", "a station that hears its own address takes another", "10.2.1.5")
def _(t):
    t.ask(upper.shb(b"mine", scf=False))
    old = t.expect(t.own(gn.SHB, b"mine"), "the SHB").packet.so.addr
    t.send(t.b, t.b.shb(b"mine, too", so=t.b.position(addr=old)))
    t.settle()
    t.ask(upper.shb(b"whose", scf=False))
    new = t.expect(lambda frame: frame.packet.type == gn.SHB and frame.packet.payload == b"whose", "the second SHB")
    t.true(new.packet.so.mid != old[2:], "the address is the old one")
    t.same(new.packet.so.addr[:2], old[:2], "M and station type")
    t.faults = [fault for fault in t.faults if not fault.startswith("a frame from")]
