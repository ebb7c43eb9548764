"""Unsolicited messages of a home agent: Home Agent Switch (RFC 5142), Binding Revocation (RFC 5846)."""

import struct
import time

from tester import packets
from tester.agent import ANYCAST, FAR, HOME_ADDRESS, HOME_AGENT, HOST, KEY, OTHER_AGENT, SPI, router
from tester.case import IN_FLIGHT, PATIENCE, SILENCE, Stream, case, expect
from tester.packets import (BINDING_IDENTIFIER, G_FLAG, HOME_AGENT_SWITCH, INDICATION, MESSAGE_ID, P_FLAG, REVOCATION,
                            REVOKED, UPDATE, V_FLAG, binding_identifier, ip, option)

PROXY_NOT_SUPPORTED, IPV4_HOME_ADDRESS_REQUIRED = 135, 129
# Of a node that stays although it was asked to leave: seconds, enough to be asked and refused in.
LIFETIME = 12
# Administrative reason (RFC 5846 5.1).
ADMINISTRATIVE = 1


# --- the home agent ----------------------------------------------------------------------------------------


def drain(mobile, within=None):
    mobile.target.order("drain", within=within, other=mobile.target.other)


def asked_to_leave(mobile, patience=PATIENCE):
    return mobile.notice(HOME_AGENT_SWITCH, "a Home Agent Switch message", patience)


@case("66", "RFC 5142 4, 5.1, 6.1", "Home Agent Switch: signed, to the care-of address, names the other home agent; until the goodbye "
      "packets arrive, and after it nobody is asked again", alone=True)
def switch(mobile):
    mobile.register()
    drain(mobile)
    found = asked_to_leave(mobile)
    expect(found.packet.destination == mobile.care_of, "not to the care-of address")
    count, reserved = found.data[0], found.data[1]
    named = [found.data[2 + 16 * n:18 + 16 * n] for n in range(count)]
    expect(reserved == 0, "a reserved field that is not zero")
    expect(mobile.target.home_agent not in named, "it names itself")
    expect(mobile.target.other in named, f"it names {[packets.text(one) for one in named]}")
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))
    mobile.deregister()
    mobile.silence(lambda heard: heard.packet.mh == HOME_AGENT_SWITCH, "asked again after the goodbye", 6.0)


@case("66b", "RFC 5142 5.2, 8", "who does not answer is asked again after 5 s, and then after twice the time", alone=True,
      timing="how far apart two messages of the station come")
def switch_again(mobile):
    mobile.register()
    drain(mobile)
    times = [asked_to_leave(mobile).when, asked_to_leave(mobile).when, asked_to_leave(mobile, 2 * PATIENCE).when]
    first, second = times[1] - times[0], times[2] - times[1]
    expect(4.5 <= first <= 7.0 and 9.0 <= second <= 12.0, f"again after {first:.1f} and {second:.1f} s")


@case("66c", "RFC 5142 5.3", "who stays is refused with 129 in the end, and is served until his lifetime ends, and no longer", alone=True,
      timing="asked and refused within a lifetime, and packets that arrive until its end")
def stays(mobile):
    inside = mobile.host(mobile.node.prefixes[0])
    asked = time.monotonic()
    found = mobile.register(lifetime=LIFETIME)
    drain(mobile, within=2)
    asked_to_leave(mobile)
    until = time.monotonic() + 3 * PATIENCE
    # A router that asks earlier may get less time.
    time.sleep(2 + SILENCE)
    while found.status == 0 and time.monotonic() < until:
        # The lifetime begins between the question and the answer.
        earliest, latest = asked + found.lifetime, time.monotonic() + found.lifetime
        time.sleep(SILENCE)
        asked = time.monotonic()
        found = mobile.acknowledgement(mobile.update(lifetime=LIFETIME))
        expect(found is not None, "no Binding Acknowledgement")
    expect(found.status == 129, f"status {found.status}")
    with Stream(mobile, inside) as stream:
        begin = stream.flow(inside)
        time.sleep(max(0.0, latest + IN_FLIGHT - time.monotonic()))
        ended = time.monotonic()
        time.sleep(2 * SILENCE)
        lost = stream.lost(inside, begin, earliest - SILENCE)
        expect(lost == 0, f"{lost} packets were lost before the lifetime ended")
        after = sum(when > ended for when, _, _ in stream.sent)
        expect(stream.lost(inside, ended) == after, "packets came through the tunnel after the lifetime")


def revoke(mobile, bid=None):
    mobile.target.order("revoke", home_address=mobile.home, bid=bid)


class Indication:
    """A Binding Revocation Indication, read."""

    def __init__(self, mobile, patience=PATIENCE):
        found = mobile.notice(REVOCATION, "a Binding Revocation Indication", patience)
        self.when, self.packet = found.when, found.packet
        kind, self.trigger, self.sequence, self.flags = struct.unpack(">BBHH", found.data[:6])
        expect(kind == INDICATION, f"a Binding Revocation message of type {kind}")
        expect(not self.flags & (P_FLAG | G_FLAG), f"flags {self.flags:#06x}: P and G are Proxy Mobile IPv6's")

    def identifiers(self):
        return [struct.unpack(">H", data[:2])[0] for data in self.packet.all(BINDING_IDENTIFIER)]


@case("68", "RFC 5846 5.1, 6.1, 7", "revocation: signed, to the care-of address, with a trigger below 128; when it is acknowledged the "
      "binding ends")
def revoked(mobile):
    inside = mobile.host(mobile.node.prefixes[0])
    mobile.register()
    mobile.arrives(inside)
    revoke(mobile)
    found = Indication(mobile)
    expect(found.packet.destination == mobile.care_of, "not to the care-of address")
    expect(found.trigger < 128, f"trigger {found.trigger}, which goes with G")
    expect(not found.identifiers(), "it names bindings although all are meant")
    mobile.answer_revocation(found.sequence)
    mobile.ceases_to_arrive(inside)
    mobile.silence(lambda heard: heard.packet.mh == REVOCATION, "asked again after the answer", 2.5)


@case("68b", "RFC 5846 6.3, 11", "an unanswered indication comes again, the same, after a second or more; then the binding ends all the same",
      alone=True, timing="how far apart two messages of the station come")
def revoked_silently(mobile):
    mobile.register()
    revoke(mobile)
    first, second = Indication(mobile), Indication(mobile)
    expect(second.sequence == first.sequence, "another sequence number")
    expect(second.when - first.when >= 0.9, f"again after {second.when - first.when:.2f} s")
    # BRI_MAXRETRIES and the waits between are in any case less than this.
    mobile.ceases_to_arrive(mobile.home, 2 * PATIENCE)


@case("68c", "RFC 5846 6.2, 6.2.2", "acknowledgements with another sequence number or a wrong MAC end nothing", alone=True)
def wrong_answers(mobile):
    mobile.register()
    revoke(mobile)
    found = Indication(mobile)
    mobile.answer_revocation((found.sequence + 1) & 0xFFFF)
    mobile.answer_revocation(found.sequence, key=b"\x55" * 16)
    mobile.arrives(mobile.home)
    expect(Indication(mobile).sequence == found.sequence, "another sequence number")
    mobile.answer_revocation(found.sequence)
    mobile.ceases_to_arrive(mobile.home)


@case("68d", "RFC 5846 7", "one of two bindings is revoked: its identifier is named, the other lives")
def revoked_in_part(mobile):
    # Indications go to either care-of address.
    for bid in (1, 2):
        care_of = mobile.care_of_address(bid)
        mobile.register(care_of=care_of, options=[binding_identifier(bid, care_of)])
    revoke(mobile, bid=2)
    found = Indication(mobile)
    expect(found.identifiers() == [2], f"identifiers {found.identifiers()}")
    mobile.answer_revocation(found.sequence, care_of=found.packet.destination)
    time.sleep(SILENCE)
    mobile.leaves(mobile.home, care_of=mobile.care_of_address(1))
    mobile.arrives(mobile.home, care_of=mobile.care_of_address(1))


# --- the mobile router -------------------------------------------------------------------------------------


def stamp():
    """A Message-ID option (RFC 4285 6): the time of sending, as an NTP timestamp."""
    now = time.time() + 2208988800
    return option(MESSAGE_ID, struct.pack(">II", int(now), int(now % 1 * 2 ** 32)))


def switch_to(*addresses):
    return packets.mobility(HOME_AGENT_SWITCH, bytes([len(addresses), 0]) + b"".join(addresses), [stamp()])


def to(agent, lifetime=True):
    """A Binding Update for this home agent, or a goodbye."""
    return lambda update: update.packet.destination == agent and bool(update.lifetime) == lifetime


@router("67", "RFC 5142 6.1, 6.2", "told to leave for another home agent: registers there, de-registers here, and takes the other tunnel",
        per_agent=True)
def leaves(agent):
    update = agent.register()
    agent.notice(update, switch_to(OTHER_AGENT))
    there, goodbye, until = None, None, time.monotonic() + 2 * PATIENCE
    while (there is None or goodbye is None) and time.monotonic() < until:
        found = agent.update(until - time.monotonic())
        if found is None:
            break
        expect(found.is_authentic(), "a Binding Update without a right MN-HA authentication option")
        there = found if to(OTHER_AGENT)(found) else there
        goodbye = found if to(HOME_AGENT, False)(found) else goodbye
        agent.acknowledge(found)
    expect(there is not None, "no Binding Update to the other home agent")
    expect(goodbye is not None, "no goodbye to the home agent that is to be left")
    agent.leaves_by(OTHER_AGENT)


@router("67b", "RFC 5142 4, 6.1, RFC 6275 11.4.1", "told to leave without saying where to: home agent discovery, and registration with who answers",
        home_agent="['2001:db8:1::1', 'discover']", per_agent=True)
def looks_around(agent):
    update = agent.register()
    agent.notice(update, switch_to())
    heard = agent.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == 144, "a Home Agent Address Discovery Request")
    expect(heard.packet.destination == ANYCAST, f"to {packets.text(heard.packet.destination)}")
    identifier, flags = struct.unpack(">HH", heard.packet.icmp[2][:4])
    expect(flags & 0x8000, "R is not set")
    body = struct.pack(">HH", identifier, 0x8000) + OTHER_AGENT
    reply = packets.icmpv6(OTHER_AGENT, heard.packet.source, 145, 0, body)
    agent.uplink.send(packets.ipv6(OTHER_AGENT, heard.packet.source, packets.ICMPV6, reply), agent.mac)
    found = agent.update(PATIENCE, to(OTHER_AGENT))
    expect(found is not None, "no Binding Update to the home agent that was found")


@router("67c", "RFC 5142 6.1, RFC 4285 5.1.1", "told to leave by somebody without the key: nothing happens")
def stays_where_it_is(agent):
    update = agent.register()
    agent.notice(update, switch_to(OTHER_AGENT), key=b"\x55" * 16)
    agent.notice(update, switch_to(OTHER_AGENT), signed=False)
    agent.silence(lambda heard: heard.packet.mh == UPDATE, "a Binding Update", 3.0)
    agent.leaves_by(HOME_AGENT)


def indication(sequence, flags=0, time_option=None):
    return packets.revocation(INDICATION, ADMINISTRATIVE, sequence, flags, [time_option or stamp()])


def is_answer(heard):
    return heard.packet.mh == REVOCATION and heard.packet.payload[6] == REVOKED


def answered(agent, update, sequence):
    """The Binding Revocation Acknowledgement: status and flags."""
    heard = agent.wait(is_answer, "a Binding Revocation Acknowledgement")
    packet = heard.packet
    expect(packet.destination == HOME_AGENT, "not to where the indication came from")
    expect((packet.home_address or packet.source) == HOME_ADDRESS, "not of the home address")
    expect(packet.is_authentic(SPI, KEY, update.care_of, HOME_ADDRESS),
           "no right MN-HA authentication option")
    _, status, number, flags = struct.unpack(">BBHH", packet.payload[6:12])
    expect(number == sequence, f"sequence number {number}, asked was with {sequence}")
    return status, flags


@router("69", "RFC 5846 6.1, 6.1.2, 10", "revocation is acknowledged with its sequence number; nothing goes into the tunnel any more, and there is no "
        "storm of Binding Updates")
def gives_up(agent):
    update = agent.register()
    agent.leaves_by(HOME_AGENT)
    agent.notice(update, indication(0xBEEF))
    status, flags = answered(agent, update, 0xBEEF)
    expect((status, flags) == (0, 0), f"status {status}, flags {flags:#06x}")
    time.sleep(SILENCE)
    inner = packets.echo(HOST, FAR, 9)
    agent.lan.send(inner, agent.lan.mac_of(ip("2001:db8:a::1"), HOST) or b"\xff" * 6)
    updates = []

    def unwanted(heard):
        updates.extend([heard] if heard.packet.mh == UPDATE else [])
        return heard.packet.inner is not None and heard.packet.inner.octets[8:] == inner[8:]
    agent.silence(unwanted, "a packet in a tunnel that was revoked", 4.0)
    expect(len(updates) <= 1, f"{len(updates)} Binding Updates in 4 s")


@router("69b", "RFC 5846 6.1, 10", "P is refused with 135, V without an IPv4 home address with 129, with the same flags; the binding lives")
def refuses(agent):
    update = agent.register()
    for sequence, flag, wanted in ((1, P_FLAG, PROXY_NOT_SUPPORTED), (2, V_FLAG, IPV4_HOME_ADDRESS_REQUIRED)):
        agent.notice(update, indication(sequence, flag))
        status, flags = answered(agent, update, sequence)
        expect((status, flags) == (wanted, flag), f"status {status}, flags {flags:#06x} for flag {flag:#06x}")
    agent.leaves_by(HOME_AGENT)


@router("69c", "RFC 5846 6.2, 10, RFC 4285 5.1.1, 6", "a wrong MAC, none, another home address, a recording: no answer, and nothing ends")
def is_not_fooled(agent):
    update = agent.register()
    agent.notice(update, indication(1), key=b"\x55" * 16)
    agent.notice(update, indication(2), signed=False)
    agent.notice(update, indication(3), home=ip("2001:db8:1::4321"))
    agent.silence(is_answer, "an answer", 2.0)
    recorded = indication(4, P_FLAG)
    agent.notice(update, recorded)
    answered(agent, update, 4)
    agent.notice(update, recorded)
    agent.silence(is_answer, "an answer to a recording", 2.0)
    agent.leaves_by(HOME_AGENT)
