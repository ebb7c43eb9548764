"""Flow bindings (RFC 6089, RFC 6088), authentication (RFC 4285) and IPv4 (RFC 5555)."""

import struct

from tester import packets
from tester.case import SILENCE, case, expect
from tester.flows import PORT, flow, update_over_ipv4
from tester.packets import FLOW, binding_identifier, option


def bind(mobile, *flows, status=0, **more):
    one, other = mobile.care_of_address(1), mobile.care_of_address(2)
    options = [binding_identifier(1, one, priority=10), binding_identifier(2, other, priority=20), *flows]
    return mobile.register(status, options=options, proof=one, **more)


def states(found):
    return {struct.unpack(">H", data[:2])[0]: data[5] for data in found.packet.all(FLOW)}


def came_by(mobile, port):
    """Through which care-of address a datagram of the correspondent comes."""
    message = packets.udp(mobile.correspondent, mobile.home, (port, port), b"flow")
    packet = packets.ipv6(mobile.correspondent, mobile.home, packets.UDP, message)
    for attempt in range(3):
        mobile.wire.send(packet, mobile.target.gateway)
        try:
            heard = mobile.wait(lambda heard: mobile.same(heard.packet.inner, packet), "the datagram", 2.0)
            return heard.packet.destination
        except AssertionError:
            if attempt == 2:
                raise
    return None


@case("57", "RFC 6089 5.2.2", "flow bindings: an unknown BID has status 131, a malformed option 130, an unknown selector 133")
def refused(mobile):
    found = bind(mobile, flow(1, bid=9))
    expect(states(found).get(1) == 131, f"flows {states(found)} for an unknown BID")
    found = bind(mobile, flow(2, sub=bytes([2, 60, 0, 1])))
    expect(states(found).get(2) == 130, f"flows {states(found)} for a malformed option")
    found = bind(mobile, flow(3, bid=1, selector_format=77))
    expect(states(found).get(3) == 133, f"flows {states(found)} for an unknown selector")


@case("57b", "RFC 6089 5.2, 5.3", "a flow goes to its binding, everything else to the best one")
def flows(mobile):
    found = bind(mobile, flow(1, bid=2))
    expect(states(found).get(1) == 0, f"flows {states(found)}")
    expect(came_by(mobile, PORT) == mobile.care_of_address(2), "the flow does not take its binding")
    expect(came_by(mobile, PORT + 1) == mobile.care_of_address(1), "the rest does not take the best binding")


@case("58", "RFC 6089 5.2", "a flow that the next Binding Update leaves out has ended")
def forgotten(mobile):
    bind(mobile, flow(1, bid=2))
    bind(mobile)
    expect(came_by(mobile, PORT) == mobile.care_of_address(1), "the flow is still bound")


@case("59", "RFC 4285 5.1.1", "a wrong MAC: status 146 (or silence), and nothing bound; without any: silence")
def wrong_key(mobile):
    mobile.works()
    # First, for on a busy machine the other one's answer, and errors about what does not arrive, come late.
    mobile.update(signed=False)
    mobile.no_answer()
    sequence = mobile.update(key=b"\x55" * 16)
    found = mobile.acknowledgement(sequence, patience=2 * SILENCE)
    expect(found is None or found.status == 146, f"status {found and found.status}")
    mobile.does_not_arrive(mobile.home)
    mobile.works()


def flipped(octets, at):
    """With one bit of an octet changed, another one in each."""
    return octets[:at] + bytes([octets[at] ^ 1 << at % 8]) + octets[at + 1:]


@case("59b", "RFC 4285 5.1", "one changed bit in any octet that is under the MAC, or is the MAC: not bound")
def tampered(mobile):
    other = mobile.care_of_address(1)
    mobile.register()
    sent = []
    mobile.register(tamper=lambda header: sent.append(header) or header)
    # Behind the MAC, of 12 octets, is nothing but padding.
    end = sent[-1].index(bytes([packets.AUTHENTICATION, 17, 1]) + struct.pack(">I", mobile.node.spi)) + 19
    accepted = (lambda heard: heard.packet.mh == packets.ACKNOWLEDGEMENT and heard.packet.payload[6] < 128)
    # Octets 4 and 5 are the checksum, which the MAC takes as zero.
    for at in (at for at in range(end) if at not in (4, 5)):
        mobile.update(care_of=other, tamper=lambda header, at=at: flipped(header, at))
        mobile.silence(accepted, f"bound although octet {at} was changed", 0.02)
    # Both addresses are under the MAC although they are outside of the header.
    for at in range(16):
        mobile.update(care_of=other, proof=flipped(other, at))
        mobile.update(care_of=other, home=flipped(mobile.home, at), signed_home=mobile.home)
        mobile.silence(accepted, f"bound although octet {at} of an address was changed", 0.02)
    mobile.silence(accepted, "bound although something was changed")
    mobile.arrives(mobile.home)
    mobile.register(care_of=other)
    mobile.arrives(mobile.home, care_of=other)


@case("59c", "RFC 6275 9.5.1", "a recorded Binding Update sent again: not bound again")
def replayed(mobile):
    recorded = mobile.number_ahead(7)
    mobile.register(sequence=recorded)
    mobile.register(sequence=recorded + 1, care_of=mobile.care_of_address(1))
    mobile.register(135, sequence=recorded)
    mobile.arrives(mobile.home, care_of=mobile.care_of_address(1))


def over_ipv4(mobile, claimed, udp=True):
    """A Binding Update over IPv4 that claims this IPv4 care-of address."""
    mobile.node.sequence = sequence = mobile.node.sequence + 1
    mapped = bytes(10) + b"\xff\xff" + claimed
    header = update_over_ipv4(sequence, mobile.node.prefixes[0], claimed)
    header = packets.authenticated(header, mobile.node.spi, mobile.node.key, mapped, mobile.home)
    source = mobile.home
    header = packets.with_checksum(header, source, mobile.target.home_agent)
    inner = packets.ipv6(source, mobile.target.home_agent, packets.MOBILITY, header)
    mobile.emit_ipv4(inner, udp)
    return mapped


def answer(mobile):
    heard = mobile.wait(lambda heard: heard.packet.inside is not None and heard.packet.inside.mh ==
                        packets.ACKNOWLEDGEMENT, "a Binding Acknowledgement over IPv4")
    expect(heard.packet.inside.payload[6] == 0, f"status {heard.packet.inside.payload[6]}")
    return heard.packet


@case("60", "RFC 5555 4.1, 5.1.2", "behind a NAT: NAT Detection in the answer, which comes back to address and port; packets in "
      "UDP", link="ipv4")
def behind_nat(mobile):
    over_ipv4(mobile, bytes([10, 1, 2, 3]))
    found = answer(mobile)
    expect(found.ports == (packets.UDP_PORT, mobile.port), f"ports {found.ports}")
    expect(found.inside.all(packets.NAT_DETECTION), "no NAT Detection option")
    packet = mobile.ping_in(mobile.home)
    heard = mobile.wait(lambda heard: mobile.same(heard.packet.inside, packet), "a packet in UDP")
    expect(heard.packet.ports == (packets.UDP_PORT, mobile.port), f"ports {heard.packet.ports}")


@case("61", "RFC 5555 4.1", "without a NAT: no NAT Detection, packets in protocol 41", link="ipv4")
def without_nat(mobile):
    over_ipv4(mobile, mobile.ipv4)
    found = answer(mobile)
    expect(not any(data for data in found.inside.all(packets.NAT_DETECTION)), "a NAT Detection option")
    packet = mobile.ping_in(mobile.home)
    heard = mobile.wait(lambda heard: mobile.same(heard.packet.inside, packet), "a packet in protocol 41")
    expect(heard.packet.ports is None, "in UDP")


@case("62", "RFC 5555 3.1.1, 3.2.1", "an IPv4 home address is acknowledged, given or refused", link="ipv4")
def ipv4_home(mobile):
    found = mobile.register(options=[option(packets.IPV4_HOME, b"\0\0" + bytes(4))])
    came = found.packet.all(packets.IPV4_ACK)
    expect(came, "no IPv4 Address Acknowledgement option")

