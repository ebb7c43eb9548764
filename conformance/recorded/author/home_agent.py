"""The home agent on a virtual home link: RFC 3963, RFC 6275, RFC 4285."""

import struct

from tester import packets
from tester.packets import A, H, K, R, ip

from author.story import (
    CARE_OF, CORRESPONDENT, HOME_AGENT, INSIDE_PREFIX, INSIDE_ROUTER, KEY, NODE, OTHER_CARE_OF, OTHER_PREFIX, OTHER_ROUTER,
    PREFIX, ROUTER, SECOND_PREFIX, SIGNING, SIGNING_PREFIX, accepted, case, host, refused)

ELSEWHERE = "2001:db8:dead::/64"
INSIDE, SECOND_INSIDE = host(PREFIX), host(SECOND_PREFIX)


# --- RFC 3963 --------------------------------------------------------------------------------------------


@case("rfc3963/01-explicit", ["RFC 3963 6.2", "RFC 3963 6.5", "RFC 3963 6.6"],
      "explicit mode: accepted with R, the prefix and the home address are in the tunnel", items=["01"])
def explicit(s):
    s.unreachable(INSIDE)
    s.registered(1)
    s.reaches(INSIDE).reaches(ROUTER)
    s.comes_out(INSIDE).comes_out(ROUTER)


@case("rfc3963/02-router-without-home", ["RFC 3963 6.2"], "R without H: status 140", items=["02"])
def router_without_home(s):
    s.update(1, flags=A | R, prefixes=[PREFIX]).says(refused(1, 140))
    s.unreachable(INSIDE)


@case("rfc3963/03-no-router", ["RFC 3963 6.2", "RFC 3963 6.6"], "R from a node that has no mobile network: refused", items=["03"])
def no_router(s):
    s.update(1, home=NODE).says(refused(1, 143, home=NODE))
    s.update(2, home=NODE, prefixes=[PREFIX]).says(refused(2, 142, home=NODE))
    s.unreachable(NODE)


@case("rfc3963/04-foreign-prefix", ["RFC 3963 6.2"], "somebody else's prefix: status 142 with R, and what was bound stays as it was",
      items=["04", "21b"])
def foreign_prefix(s):
    s.registered(1)
    s.update(2, source=OTHER_CARE_OF, prefixes=[ELSEWHERE]).says(refused(2, 142, care_of=OTHER_CARE_OF))
    s.reaches(INSIDE)


@case("rfc3963/05-one-bad-of-two", ["RFC 3963 6.2"],
      "one bad prefix of two: refused as a whole, with traffic running through what was bound before", items=["05"])
def one_bad(s):
    s.update(1, prefixes=[PREFIX, ELSEWHERE]).says(refused(1, 142))
    s.unreachable(INSIDE)
    s.registered(2)
    s.reaches(INSIDE).comes_out(INSIDE)
    s.update(3, source=OTHER_CARE_OF, prefixes=[SECOND_PREFIX, ELSEWHERE]).says(refused(3, 142, care_of=OTHER_CARE_OF))
    s.reaches(INSIDE).comes_out(INSIDE)
    s.unreachable(SECOND_INSIDE)


@case("rfc3963/06-implicit", ["RFC 3963 5.2", "RFC 3963 6.2"], "implicit mode: the home agent's own table names the prefixes",
      items=["06"])
def implicit(s):
    s.registered(1, prefixes=[])
    s.reaches(INSIDE).reaches(SECOND_INSIDE)


@case("rfc3963/07-implicit-without-a-table", ["RFC 3963 6.2"], "implicit mode without a table: status 143", items=["07"])
def implicit_nothing(s):
    s.update(1, home=NODE).says(refused(1, 143, home=NODE))


@case("rfc3963/08-mobile-node", ["RFC 3963 4.1", "RFC 6275 10.3.1"],
      "without R: bound as a mobile node, its home address alone is in the tunnel", items=["08"])
def mobile_node(s):
    s.registered(1, flags=A | H, prefixes=[])
    s.reaches(ROUTER).unreachable(INSIDE)
    s.comes_out(ROUTER).stays_in(INSIDE)


@case("rfc3963/09-type-change", ["RFC 3963 6.2"], "a bound router comes without R: status 139, bound as before", items=["09"])
def type_change(s):
    s.registered(1)
    s.update(2, source=OTHER_CARE_OF, flags=A | H).says(refused(2, 139, care_of=OTHER_CARE_OF, flags=0))
    s.reaches(INSIDE)


@case("rfc3963/10-other-flags-at-the-end", ["RFC 3963 6.2", "RFC 6275 10.3.2"],
      "de-registration with other flags: accepted whatever R says, with traffic running until then", items=["10"])
def other_flags(s):
    s.registered(1)
    s.reaches(INSIDE).comes_out(INSIDE)
    s.update(2, flags=A | H, lifetime=0).says(refused(2, 0, flags=0))
    s.unbound(INSIDE, ROUTER)


@case("rfc3963/11-a-prefix-dropped", ["RFC 3963 6.2"],
      "a refresh that leaves out one of two prefixes: that one ends, the other's traffic runs on", items=["11"])
def dropped(s):
    s.registered(1, prefixes=[PREFIX, SECOND_PREFIX])
    s.reaches(INSIDE).reaches(SECOND_INSIDE).comes_out(SECOND_INSIDE)
    s.registered(2, prefixes=[PREFIX])
    s.reaches(INSIDE).comes_out(INSIDE)
    s.unreachable(SECOND_INSIDE).stays_in(SECOND_INSIDE)


@case("rfc3963/12-prefixes-at-the-end", ["RFC 3963 6.7"], "de-registration that names prefixes: they are ignored, everything ends",
      items=["12"])
def prefixes_at_the_end(s):
    s.registered(1, prefixes=[PREFIX, SECOND_PREFIX])
    s.update(2, lifetime=0, prefixes=[PREFIX]).says(refused(2, 0))
    s.unbound(INSIDE, SECOND_INSIDE)


@case("rfc3963/13-implicit-end", ["RFC 3963 6.7"], "de-registration in implicit mode: the routes of the table end, too", items=["13"])
def implicit_end(s):
    s.registered(1, prefixes=[])
    s.update(2, lifetime=0).says(refused(2, 0))
    s.unbound(INSIDE, SECOND_INSIDE)


@case("rfc3963/14-home-address-inside", ["RFC 3963 3", "RFC 3963 6.2"], "a home address out of the mobile network: accepted",
      items=["14"])
def inside(s):
    s.registered(1, home=INSIDE_ROUTER, prefixes=[INSIDE_PREFIX])
    s.reaches(INSIDE_ROUTER).reaches(host(INSIDE_PREFIX, 9))


@case("rfc3963/14b-not-served", ["RFC 3963 6.2", "RFC 6275 10.3.1"],
      "a home address outside of everything that is served: status 132; an unknown one inside: silence", items=["14b"],
      tahi=["HA_2_2_1", "HA_2_2_2"])
def not_served(s):
    s.update(1, home="2001:db8:ffff::1", flags=A | H).says(refused(1, 132, home="2001:db8:ffff::1", flags=0))
    s.update(1, home="2001:db8:1::eeee", flags=A | H).says()


@case("rfc3963/18-wrong-outer-source", ["RFC 6275 10.4.5", "RFC 3963 9", "RFC 4443 3.1"], "out of the reverse tunnel from another outer source: "
      "dropped; Destination Unreachable and no Binding Error, which is for Home Address options (RFC 6275 9.3.3)", items=["18"])
def wrong_outer(s):
    s.registered(1)
    s.comes_out(INSIDE)
    s.tunnelled(INSIDE, CORRESPONDENT, OTHER_CARE_OF).says(f"{HOME_AGENT} > {OTHER_CARE_OF} ICMPv6 1/4")


@case("rfc3963/19-wrong-inner-source", ["RFC 3963 9"], "out of the reverse tunnel from somebody else's inner source: dropped",
      items=["19"])
def wrong_inner(s):
    s.registered(1)
    s.stays_in(host(SECOND_PREFIX)).stays_in(host(OTHER_PREFIX)).stays_in(CORRESPONDENT, ROUTER)


@case("rfc3963/20-prefix-theft", ["RFC 3963 6.1.2"], "a prefix of another router: status 142, its owner keeps its traffic", items=["20"])
def theft(s):
    s.registered(1)
    s.update(1, home=OTHER_ROUTER, source=OTHER_CARE_OF, prefixes=[PREFIX]).says(
        refused(1, 142, home=OTHER_ROUTER, care_of=OTHER_CARE_OF))
    s.reaches(INSIDE)


@case("rfc3963/21-expired", ["RFC 3963 6.5", "RFC 4443 3.1"], "after the binding has expired: no tunnel, no loop, an error instead",
      items=["21"], tahi=["HA_2_1_4"])
def expired(s):
    s.update(1, lifetime=8, prefixes=[PREFIX]).says(accepted(1, lifetime=8))
    s.reaches(INSIDE)
    s.after(9).says()
    s.unreachable(INSIDE).unreachable(ROUTER)


# --- RFC 6275 --------------------------------------------------------------------------------------------


@case("rfc6275/22-without-a", ["RFC 6275 9.5.4", "RFC 6275 10.3.1"], "without A a home registration is answered all the same",
      items=["22"], tahi=["HA_2_1_2"])
def without_a(s):
    s.registered(1, flags=H | R)


@case("rfc6275/23-routing-header", ["RFC 6275 9.5.4"], "the answer has a type 2 Routing header if there was a Home Address option; not at home",
      items=["23"], tahi=["HA_2_1_1"])
def routing_header(s):
    s.registered(1)
    s.update(2, lifetime=0, at_home=True).says(f"{HOME_AGENT} > {ROUTER} BA 0 R seq 2 life 0")


@case("rfc6275/24-answer-to-the-source", ["RFC 6275 9.5.4", "RFC 6275 6.2.5"],
      "the alternate care-of address is bound, the answer goes to where the Binding Update came from", items=["24", "26"])
def answer_to_source(s):
    s.update(1, care_of=OTHER_CARE_OF, prefixes=[PREFIX]).says(accepted(1))
    s.reaches(INSIDE, care_of=OTHER_CARE_OF)


@case("rfc6275/25-sequence", ["RFC 6275 9.5.1"], "sequence numbers: copied; one that is not greater gets 135 and the last accepted one",
      items=["25"], tahi=["SEQ"])
def sequence(s):
    s.registered(15)
    for old in (14, 15):
        s.update(old, prefixes=[PREFIX]).says(refused(15, 135))
    s.registered(16)
    s.registered(16 + 32767)


@case("rfc6275/25b-sequence-half-way", ["RFC 6275 9.5.1"], "32783 after 15 is not greater modulo 2^16: 135", items=["25b"], tahi=["SEQ"])
def half_way(s):
    s.registered(15)
    s.update(32783, prefixes=[PREFIX]).says(refused(15, 135))
    s.update(32784, prefixes=[PREFIX]).says(refused(15, 135))


@case("rfc6275/27-bad-alternate", ["RFC 6275 6.1.7", "RFC 6275 6.2.5"],
      "an alternate care-of address that is multicast, link-local, loopback or none: not bound", items=["27"])
def bad_alternate(s):
    for number, address in enumerate(("ff02::1", "fe80::1", "::", "::1"), 1):
        s.update(number, care_of=address, prefixes=[PREFIX]).says()
    s.unreachable(INSIDE)


@case("rfc6275/28-checksum", ["RFC 6275 9.2"], "a wrong checksum: silence, and not bound", items=["28"], tahi=["HA_1_1_3", "BU_InvalidChecksum"])
def checksum(s):
    s.update(1, prefixes=[PREFIX], checksum=False).says()
    s.unreachable(INSIDE)


@case("rfc6275/29-unknown-type", ["RFC 6275 9.2"], "an unknown MH Type: Binding Error 2, with a binding and without",
      items=["29"], tahi=["HA_1_1_1", "HA_1_1_5", "BE_UnknownType"])
def unknown_type(s):
    def unknown(header):
        return header[:2] + b"\xff" + header[3:]
    s.update(1, raw=unknown).says(f"{HOME_AGENT} > {CARE_OF} BE 2 for {ROUTER}")
    s.registered(1)
    s.after(2)
    s.update(2, raw=unknown).says(f"{HOME_AGENT} > {CARE_OF} BE 2 for {ROUTER}")
    s.reaches(INSIDE)


@case("rfc6275/30-piggyback", ["RFC 6275 9.2"], "a payload behind the Mobility Header: Parameter Problem at Payload Proto; what is bound stays",
      items=["30"], tahi=["HA_1_1_2", "HA_1_1_6", "BU_Piggyback"])
def piggyback(s):
    s.registered(1)
    s.update(2, source=OTHER_CARE_OF, raw=lambda header: bytes([packets.UDP]) + header[1:]).says(
        f"{HOME_AGENT} > {OTHER_CARE_OF} ICMPv6 4/0 at 64")
    s.reaches(INSIDE)


@case("rfc6275/31-short-header", ["RFC 6275 9.2"], "a Header Len that is too small: Parameter Problem at Header Len",
      items=["31"], tahi=["HA_1_1_4", "HA_1_1_7"])
def short_header(s):
    s.update(1, raw=lambda header: header[:1] + b"\0" + header[2:8]).says(f"{HOME_AGENT} > {CARE_OF} ICMPv6 4/0 at 65")


@case("rfc6275/32-unknown-option", ["RFC 6275 6.2.1", "RFC 6275 6.1.7"], "an unknown mobility option is skipped, reserved bits are ignored",
      items=["32", "32b"], tahi=["HA_2_1_14"])
def unknown_option(s):
    s.registered(1, options=[packets.option(200, bytes(6))])
    s.registered(2, flags=A | H | R | 0x000F)


@case("rfc6275/33-overlong-option", ["RFC 6275 6.2.1"], "an option that runs past the end: not accepted, and the agent lives on", items=["33"])
def overlong(s):
    s.update(1, options=[packets.option(200, bytes(8)) + b"\xc8\x40"]).says()
    s.unreachable(INSIDE)
    s.registered(2)


@case("rfc6275/34-lifetimes", ["RFC 6275 10.3.1"], "never longer than what was asked for, never without end; a shorter one replaces a longer one",
      items=["34", "34b"], tahi=["HA_2_1_3", "HA_2_1_4"])
def lifetimes(s):
    s.registered(1, lifetime=60)
    s.update(2, lifetime=0xFFFF * 4, prefixes=[PREFIX]).says(accepted(2, lifetime=600))
    s.update(3, lifetime=4, prefixes=[PREFIX]).says(accepted(3, lifetime=4))
    s.after(5).says()
    s.unreachable(INSIDE)


@case("rfc6275/36-without-h", ["RFC 6275 9.5.1"], "a bound home registration comes without H: status 139; bound as before", items=["36"])
def without_h(s):
    s.registered(1, home=NODE, flags=A | H)
    s.update(2, home=NODE, source=OTHER_CARE_OF, flags=A).says(refused(2, 139, home=NODE, care_of=OTHER_CARE_OF, flags=0))
    s.reaches(NODE)


@case("rfc6275/37-nothing-to-end", ["RFC 6275 10.3.2"], "de-registration where nothing is bound: status 133", items=["37"],
      tahi=["DeReg_NotHA4ThisMN"])
def nothing_to_end(s):
    s.update(1, lifetime=0).says(refused(1, 133))


@case("rfc6275/38-late-update", ["RFC 6275 10.3.2"], "an older Binding Update that arrives after the de-registration: 135, not bound again",
      items=["38"], tahi=["DeReg_LT0_FOREIGN"])
def late_update(s):
    s.registered(1)
    s.update(3, lifetime=0).says(refused(3, 0))
    s.update(2, prefixes=[PREFIX]).says(refused(3, 135))
    s.unbound(INSIDE)


@case("rfc6275/42-refresh-advice", ["RFC 6275 6.2.4", "RFC 6275 10.3.2"], "no Refresh Advice in the answer to a goodbye", items=["42"])
def refresh_advice(s):
    s.registered(1)
    s.update(2, lifetime=0).says(refused(2, 0))


@case("rfc6275/44-packet-too-big", ["RFC 2473 8.2", "RFC 6275 10.4"],
      "Packet Too Big from the tunnel's path reaches the sender of the inner packet, less the header", items=["44"])
def too_big(s):
    s.registered(1)
    inner = packets.echo(ip(CORRESPONDENT), ip(INSIDE), 1, b"c" * 1300, hop_limit=63)
    # The station proves errors by the flow label that it gave the outer packet: one that it did not send is not believed.
    outer = packets.ipv6(ip(HOME_AGENT), ip(CARE_OF), packets.IPV6, inner)
    message = packets.icmpv6(ip("2001:db8:5::1"), ip(HOME_AGENT), 2, 0, struct.pack(">I", 1300) + outer[:1100])
    s.packet(packets.ipv6(ip("2001:db8:5::1"), ip(HOME_AGENT), packets.ICMPV6, message)).says()
    s.echo(CORRESPONDENT, INSIDE, size=1452).says(f"{HOME_AGENT} > {CORRESPONDENT} ICMPv6 2/0 mtu 1460")


@case("rfc6275/45-home-test-init", ["RFC 6275 10.4.6", "RFC 6275 10.4.5"],
      "Home Test Init through the reverse tunnel: forwarded from the home address, dropped from another; Home Test comes back inside",
      items=["45"])
def home_test(s):
    s.registered(1, home=NODE, flags=A | H)

    def init(source, outer=CARE_OF):
        header = packets.with_checksum(packets.mobility(1, bytes(10)), ip(source), ip(CORRESPONDENT))
        inner = packets.ipv6(ip(source), ip(CORRESPONDENT), packets.MOBILITY, header)
        return s.packet(packets.ipv6(ip(outer), ip(HOME_AGENT), packets.IPV6, inner))
    init(NODE).says(f"{NODE} > {CORRESPONDENT} MH 1")
    init(host(OTHER_PREFIX)).says()
    init(NODE, outer=OTHER_CARE_OF).says(f"{HOME_AGENT} > {OTHER_CARE_OF} ICMPv6 1/4")
    answer = packets.with_checksum(packets.mobility(3, bytes(18)), ip(CORRESPONDENT), ip(NODE))
    s.packet(packets.ipv6(ip(CORRESPONDENT), ip(NODE), packets.MOBILITY, answer)).says(
        f"{HOME_AGENT} > {CARE_OF} [{CORRESPONDENT} > {NODE} MH 3]")


@case("rfc6275/t1-bad-home-address", ["RFC 6275 6.1.7"], "a Home Address option with a multicast or link-local address: no answer",
      items=["T1"], tahi=["HA_2_2_9", "HA_2_2_10", "HA_2_2_13"])
def bad_home_address(s):
    for address in ("ff02::1", "ff0e::1", "fe80::1"):
        s.update(1, home=address, flags=A | H).says()


def pinged(s, home, source=CARE_OF):
    """The home agent is pinged by a packet with a Home Address option."""
    echo = packets.icmpv6(ip(home), ip(HOME_AGENT), 128, 0, b"\0\7\0\1carnet")
    return s.packet(packets.ipv6(ip(source), ip(HOME_AGENT), packets.DESTINATION,
                                 packets.home_address_option(ip(home), packets.ICMPV6) + echo))


@case("rfc6275/t2-home-address-option", ["RFC 6275 9.3.1"], "a Home Address option without a binding: Binding Error 1", items=["T2"])
def no_binding(s):
    pinged(s, NODE).says(f"{HOME_AGENT} > {CARE_OF} BE 1 for {NODE}")
    s.registered(1, home=NODE, flags=A | H)
    s.after(2)
    pinged(s, NODE, OTHER_CARE_OF).says(f"{HOME_AGENT} > {OTHER_CARE_OF} BE 1 for {NODE}")


@case("rfc6275/t10-ping", ["RFC 6275 9.3.1", "RFC 6275 9.3.2"],
      "a node pings its home agent from its home address: answered by a type 2 Routing header", tahi=["PingMNtoHA"])
def ping(s):
    s.registered(1, home=NODE, flags=A | H)
    pinged(s, NODE).says(f"{HOME_AGENT} > {CARE_OF} to {NODE} echo reply")


@case("rfc6275/t6-reverse-tunnel", ["RFC 6275 10.4.5"], "a simple reverse tunnel", items=["T6"], tahi=["RevTun_Simple"])
def reverse_tunnel(s):
    s.registered(1, home=NODE, flags=A | H)
    s.comes_out(NODE)


@case("rfc6275/t7-nonce-indices", ["RFC 6275 9.5.1"], "H together with Nonce Indices: not bound", items=["T7"], tahi=["HA_2_2_7"])
def nonce_indices(s):
    s.update(1, options=[packets.option(4, bytes(4))], prefixes=[PREFIX]).says()
    s.unreachable(INSIDE)


@case("rfc6275/t8-key-management", ["RFC 6275 10.3.1"], "K is answered according to policy: never granted, and harms nothing",
      items=["T8"], tahi=["HA_2_1_10", "HA_2_1_11"])
def key_management(s):
    s.registered(1, flags=A | H | R | K)


@case("rfc6275/46-visiting", ["RFC 3963 1", "RFC 6275 10.4.5"],
      "a mobile node as a guest in a mobile network: its tunnel lies in the vehicle's, in both directions")
def visiting(s):
    s.registered(1)
    guest = host(PREFIX, 0x77)
    s.update(1, home=NODE, source=guest, flags=A | H).says(accepted(1, home=NODE, care_of=guest, flags=A | H))
    s.reaches(NODE, care_of=guest)
    # The kernel routes that into the tunnel device again.
    inner = packets.echo(ip(CORRESPONDENT), ip(NODE), 1)
    s.packet(packets.ipv6(ip(HOME_AGENT), ip(guest), packets.IPV6, inner)).says(
        f"{HOME_AGENT} > {CARE_OF} [{HOME_AGENT} > {guest} [{CORRESPONDENT} > {NODE} echo request]]")
    # The vehicle moves: nothing changes for its guest.
    s.registered(2, source=OTHER_CARE_OF)
    s.reaches(NODE, care_of=guest)
    s.packet(packets.ipv6(ip(HOME_AGENT), ip(guest), packets.IPV6, inner)).says(
        f"{HOME_AGENT} > {OTHER_CARE_OF} [{HOME_AGENT} > {guest} [{CORRESPONDENT} > {NODE} echo request]]")


@case("rfc6275/47-ring", ["RFC 6275 9.5.1", "RFC 4888 2.7"], "two routers behind each other: the second gets 174, the first stays bound")
def ring(s):
    s.registered(1, home=OTHER_ROUTER, source=host(PREFIX, 1), prefixes=[OTHER_PREFIX])
    s.update(1, source=host(OTHER_PREFIX, 1), prefixes=[PREFIX]).says(refused(1, 174, care_of=host(OTHER_PREFIX, 1)))


# --- RFC 4285 --------------------------------------------------------------------------------------------


@case("rfc4285/59-mac", ["RFC 4285 5.1", "RFC 4285 5.1.1", "RFC 6275 5.1"],
      "a wrong MAC: status 146 and nothing bound; without any: silence; the right one: bound", items=["43", "59", "59b"],
      tahi=["HA_2_2_3"])
def mac(s):
    s.update(1, home=SIGNING, prefixes=[SIGNING_PREFIX]).says()
    s.update(1, home=SIGNING, prefixes=[SIGNING_PREFIX], key=KEY[::-1]).says(refused(1, 146, home=SIGNING))
    s.unreachable(host(SIGNING_PREFIX))
    s.registered(1, home=SIGNING, prefixes=[SIGNING_PREFIX], key=KEY)
    s.reaches(host(SIGNING_PREFIX))


@case("rfc4285/59c-replay", ["RFC 6275 9.5.1", "RFC 4285 6"], "a recorded Binding Update sent again after the binding has ended: not bound",
      items=["59c"])
def replay(s):
    s.registered(1, home=SIGNING, prefixes=[SIGNING_PREFIX], key=KEY)
    s.update(2, home=SIGNING, lifetime=0, key=KEY).says(refused(2, 0, home=SIGNING))
    s.update(1, home=SIGNING, prefixes=[SIGNING_PREFIX], key=KEY).says(refused(2, 135, home=SIGNING))
    s.unbound(host(SIGNING_PREFIX))
