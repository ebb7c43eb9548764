"""The home agent, flow bindings (RFC 6089, RFC 6088) and IPv4 (RFC 5555)."""

import ipaddress

from tester import packets
from tester.flows import PORT, flow, update_over_ipv4
from tester.packets import binding_identifier, ip, option

from author.story import CARE_OF, CORRESPONDENT, HOME_AGENT, OTHER_CARE_OF, PREFIX, ROUTER, accepted, case, host

INSIDE = host(PREFIX)
AGENT4, NODE4 = "192.0.2.1", "192.0.2.100"


def bound(s, sequence, said, *flows):
    """Two bindings, and flows."""
    options = [binding_identifier(1, ip(CARE_OF), priority=10), binding_identifier(2, ip(OTHER_CARE_OF), priority=20)]
    s.update(sequence, prefixes=[PREFIX], options=[*options, *flows])
    return s.says(accepted(sequence, more=" bid 1=0 bid 2=0" + said))


def takes(s, port, care_of):
    """A datagram to this port comes to this care-of address."""
    message = packets.udp(ip(CORRESPONDENT), ip(INSIDE), (port, port), b"flow")
    s.packet(packets.ipv6(ip(CORRESPONDENT), ip(INSIDE), packets.UDP, message))
    return s.says(f"{HOME_AGENT} > {care_of} [{CORRESPONDENT} > {INSIDE} protocol 17]")


@case("rfc6089/57-refused", ["RFC 6089 5.2.2"], "flow bindings: an unknown BID has status 131, a malformed option 130, an unknown selector 133",
      items=["57"])
def refused(s):
    bound(s, 1, " flow 1=131", flow(1, bid=9))
    bound(s, 2, " flow 2=130", flow(2, sub=bytes([2, 60, 0, 1])))
    bound(s, 3, " flow 3=133", flow(3, bid=1, selector_format=77))


@case("rfc6089/57b-a-flow", ["RFC 6089 5.2", "RFC 6089 5.3"], "a flow goes to its binding, everything else to the best one; one that is left out has ended",
      items=["57b", "58"])
def a_flow(s):
    bound(s, 1, " flow 1=0", flow(1, bid=2))
    takes(s, PORT, OTHER_CARE_OF)
    takes(s, PORT + 1, CARE_OF)
    bound(s, 2, "")
    takes(s, PORT, CARE_OF)


def over_ipv4(s, sequence, claimed, remote):
    """A Binding Update inside IPv4 that names this IPv4 care-of address and came from `remote`."""
    header = update_over_ipv4(sequence, PREFIX, ipaddress.IPv4Address(claimed).packed)
    header = packets.with_checksum(header, ip(ROUTER), ip(HOME_AGENT))
    inner = packets.ipv6(ip(ROUTER), ip(HOME_AGENT), packets.MOBILITY, header)
    return s.put({"datagram": {"local": f"udp:{AGENT4}:4191", "remote": remote, "traffic_class": 0, "packet": inner.hex()}})


@case("rfc5555/60-behind-a-nat", ["RFC 5555 4.1", "RFC 5555 5.1.2"],
      "behind a NAT: NAT Detection in the answer, which goes back to address and port; packets in UDP", "ipv4.toml", ["60"])
def behind_nat(s):
    seen = f"udp:{NODE4}:20001"
    over_ipv4(s, 1, "10.1.2.3", seen).says(
        f"udp:{AGENT4}:4191 > {seen} inside: {HOME_AGENT} > {ROUTER} BA 0 R seq 1 life 60 nat 25")
    s.echo(CORRESPONDENT, INSIDE).says(f"udp:{AGENT4}:4191 > {seen} inside: {CORRESPONDENT} > {INSIDE} echo request")


@case("rfc5555/61-without-a-nat", ["RFC 5555 4.1"], "without a NAT: no NAT Detection, packets in protocol 41", "ipv4.toml", ["61"])
def without_nat(s):
    seen = f"udp:{NODE4}:4191"
    over_ipv4(s, 1, NODE4, seen).says(f"udp:{AGENT4}:4191 > {seen} inside: {HOME_AGENT} > {ROUTER} BA 0 R seq 1 life 60")
    s.echo(CORRESPONDENT, INSIDE).says(f"{AGENT4} > {NODE4} inside: {CORRESPONDENT} > {INSIDE} echo request")


@case("rfc5555/62-ipv4-home-address", ["RFC 5555 3.1.1", "RFC 5555 3.2.1", "RFC 5555 4.5"],
      "an IPv4 home address is refused by an IPv4 Address Acknowledgement: 132 for one to be given, 130 for another, 131 for none",
      "ipv4.toml", ["62"])
def ipv4_home(s):
    for sequence, (prefix_length, address, status) in enumerate(
            ((32, bytes(4), 132), (32, bytes([192, 0, 2, 9]), 130), (0, bytes(4), 131)), 1):
        wanted = option(packets.IPV4_HOME, bytes([prefix_length << 2, 0]) + address)
        s.update(sequence, prefixes=[PREFIX], options=[wanted]).says(accepted(sequence, more=f" ipv4 {status}"))
