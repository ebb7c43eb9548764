"""The home agent and its bindings: RFC 6275."""

import struct
import time

from tester import packets
from tester.case import A, H, R, SILENCE, case, expect, unfit
from tester.packets import K, L, ip

PARAMETER_PROBLEM, TOO_BIG = 4, 2


@case("22", "RFC 6275 9.5.4, 10.3.1", "without A a home registration is answered all the same (TAHI HA_2_1_2)")
def without_a(mobile):
    mobile.register(flags=H | R)


@case("23", "RFC 6275 9.5.4", "the answer has a type 2 Routing header if there was a Home Address option (TAHI HA_2_1_1)")
def routing_header(mobile):
    found = mobile.register()
    expect(found.packet.routed_to == mobile.home, "no type 2 Routing header with the home address")
    expect(found.packet.source == mobile.target.home_agent, "not from the home agent's address")


@case("24", "RFC 6275 9.5.4", "the answer goes to where the Binding Update came from, not to the alternate care-of address")
def answer_to_source(mobile):
    other = mobile.care_of_address(1)
    found = mobile.register(options=[packets.option(packets.ALTERNATE, other)], proof=other)
    expect(found.packet.destination == mobile.care_of, f"to {packets.text(found.packet.destination)}")


@case("25", "RFC 6275 9.5.1", "sequence numbers: copied; one that is not greater gets 135 and the last accepted one")
def sequence(mobile):
    last = mobile.number_ahead(15)
    found = mobile.register(sequence=last)
    expect(found.sequence == last, f"sequence {found.sequence}")
    for old in (last - 1, last):
        found = mobile.register(135, sequence=old)
        expect(found.sequence == last, f"refused with sequence {found.sequence}, the last was {last}")
    mobile.register(sequence=last + 1)


@case("25b", "RFC 6275 9.5.1", "32768 more than the last one, such as 32783 after 15, is not greater modulo 2^16: 135; 32767 more is")
def half_way(mobile):
    last = mobile.number_ahead(15)
    mobile.register(sequence=last)
    mobile.register(135, sequence=(last + 32768) & 0xFFFF)
    mobile.register(sequence=(last + 32767) & 0xFFFF)


@case("26", "RFC 6275 6.2.5", "an alternate care-of address is the one that is bound")
def alternate(mobile):
    other = mobile.care_of_address(1)
    mobile.register(options=[packets.option(packets.ALTERNATE, other)], proof=other)
    mobile.arrives(mobile.home, care_of=other)


@case("27", "RFC 6275 6.1.7, 6.2.5", "an alternate care-of address that is multicast, link-local or none: silence")
def bad_alternate(mobile):
    mobile.works()
    for address in ("ff02::1", "fe80::1", "::", "::1"):
        mobile.update(options=[packets.option(packets.ALTERNATE, ip(address))], proof=ip(address))
    mobile.no_answer()
    mobile.does_not_arrive(mobile.home)
    # The option stays valid.
    mobile.works(options=[packets.option(packets.ALTERNATE, mobile.care_of)])


@case("28", "RFC 6275 9.2", "a wrong checksum: silence (TAHI HA_1_1_3)")
def bad_checksum(mobile):
    mobile.works()
    mobile.update(checksum=False)
    mobile.no_answer()
    mobile.does_not_arrive(mobile.home)
    mobile.works()


@case("29", "RFC 6275 9.2", "an unknown MH Type: Binding Error 2 (TAHI HA_1_1_1, HA_1_1_5)")
def unknown_type(mobile):
    mobile.update(raw=lambda header: header[:2] + b"\xff" + header[3:], signed=False)
    heard = mobile.wait(lambda heard: heard.packet.mh == packets.ERROR, "a Binding Error")
    expect(heard.packet.payload[6] == 2, f"status {heard.packet.payload[6]}")
    expect(heard.packet.payload[8:24] == mobile.home, "not with the home address of the Home Address option")


@case("30", "RFC 6275 9.2", "a payload behind the Mobility Header: Parameter Problem at Payload Proto, what is bound stays "
      "(TAHI HA_1_1_2, HA_1_1_6)")
def piggyback(mobile):
    mobile.register()
    mobile.update(raw=lambda header: bytes([packets.UDP]) + header[1:], care_of=mobile.care_of_address(1))
    heard = mobile.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == PARAMETER_PROBLEM,
                        "a Parameter Problem")
    pointer = struct.unpack(">I", heard.packet.icmp[2][:4])[0]
    expect(heard.packet.icmp[1] == 0 and pointer == 40 + 24, f"code {heard.packet.icmp[1]}, pointer {pointer}")
    mobile.arrives(mobile.home)


@case("31", "RFC 6275 9.2", "a Header Len that is too small: Parameter Problem at Header Len (TAHI HA_1_1_4, HA_1_1_7)")
def short_header(mobile):
    mobile.update(raw=lambda header: header[:1] + b"\0" + header[2:8], signed=False)
    heard = mobile.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == PARAMETER_PROBLEM,
                        "a Parameter Problem")
    pointer = struct.unpack(">I", heard.packet.icmp[2][:4])[0]
    expect(heard.packet.icmp[1] == 0 and pointer == 40 + 24 + 1, f"code {heard.packet.icmp[1]}, pointer {pointer}")


@case("32", "RFC 6275 6.2.1", "an unknown mobility option is skipped")
def unknown_option(mobile):
    mobile.register(options=[packets.option(200, bytes(6))])


@case("32b", "RFC 6275 6.1.7", "reserved bits are ignored (TAHI HA_2_1_14)")
def reserved(mobile):
    mobile.register(flags=A | H | R | 0x000F)


@case("33", "RFC 6275 6.2.1", "an option that runs past the end: no answer that accepts it, and the agent lives on", nodes=[(1, False)])
def overlong(mobile):
    # The node has no key: it is the option that is refused, and not the missing authentication.
    mobile.update(prefixes=[], options=[packets.option(200, bytes(8)) + b"\xc8\x40"])
    found = mobile.acknowledgement(patience=SILENCE)
    expect(found is None or found.status >= 128, "accepted")
    mobile.register()


@case("34", "RFC 6275 10.3.1", "a lifetime is never longer than what was asked for, and never without end")
def lifetimes(mobile):
    found = mobile.register(lifetime=40)
    expect(0 < found.lifetime <= 40, f"{found.lifetime} s for 40 s")
    found = mobile.register(lifetime=0xFFFF * 4)
    expect(0 < found.lifetime < 0xFFFF * 4, f"{found.lifetime} s for the longest")


@case("34b", "RFC 6275 10.3.1", "a shorter lifetime replaces a longer one, and ends (TAHI HA_2_1_3, HA_2_1_4)")
def shorter(mobile):
    mobile.register(lifetime=60)
    mobile.arrives(mobile.home)
    found = mobile.register(lifetime=4)
    expect(0 < found.lifetime <= 4, f"{found.lifetime} s for 4 s")
    mobile.silence(lambda heard: False, "", 5.0)
    mobile.does_not_arrive(mobile.home)


unfit("35", "RFC 6275 10.3.1", "a home prefix that is deprecated within the lifetime: status 1",
      "the home prefix comes from the configuration and is never deprecated")


@case("36", "RFC 6275 9.5.1", "a bound home registration comes without H: status 139 (or 140 with R)")
def without_home(mobile):
    mobile.register(flags=A | H, prefixes=[])
    sequence = mobile.update(flags=A, prefixes=[])
    found = mobile.acknowledgement(sequence, patience=2 * SILENCE)
    # RFC 6275 9.5.1 also allows silence: a Binding Update without H needs a return routability procedure.
    expect(found is None or found.status == 139, f"status {found and found.status}")
    mobile.arrives(mobile.home)


@case("37", "RFC 6275 10.3.2", "de-registration where nothing is bound: status 133")
def goodbye_nothing(mobile):
    mobile.register(133, lifetime=0, prefixes=[])


@case("38", "RFC 6275 10.3.2", "an older Binding Update that arrives after the de-registration: 135, not bound again")
def late(mobile):
    first = mobile.number_ahead(100)
    mobile.register(sequence=first)
    mobile.arrives(mobile.home)
    mobile.deregister(sequence=first + 2)
    mobile.register(135, sequence=first + 1)
    mobile.does_not_arrive(mobile.home)


@case("39", "RFC 6275 10.3.1", "the home address is tested for duplicates before the first answer, not at a refresh (TAHI "
      "BU_DAD)", link=True)
def duplicate_test(mobile):
    found = mobile.register()
    tests = [heard for heard in mobile.inbox.all if heard.wire is mobile.target.home and heard.packet and
             heard.packet.icmp and heard.packet.icmp[0] == 135 and not any(heard.packet.source)]
    expect(tests, "no Neighbor Solicitation from :: for the home address")
    expect(all(heard.when < found.heard.when for heard in tests), "the answer came before the test")
    mobile.register()
    mobile.silence(lambda heard: heard.wire is mobile.target.home and heard.packet.icmp and
                   heard.packet.icmp[0] == 135 and not any(heard.packet.source), "tested again at a refresh", SILENCE)


@case("39b", "RFC 6275 10.3.1", "somebody on the home link has the home address: status 134, and nobody defends it", link=True)
def duplicate_found(mobile):
    home = mobile.target.home
    mobile.update()
    mobile.wait(lambda heard: heard.wire is home and heard.packet.icmp and heard.packet.icmp[0] == 135,
                "the test for duplicates")
    home.advertise(mobile.home, flags=0x20)
    found = mobile.acknowledgement()
    expect(found is not None and found.status == 134, f"status {found and found.status}")
    expect(mobile.solicit(mobile.home) is None, "the home agent defends the address of somebody else")


@case("40", "RFC 6275 10.4.1", "with L the link-local address is defended as well", link=True)
def link_local(mobile):
    address = packets.ip("fe80::")[:8] + mobile.home[8:]
    mobile.target.home.watch(address, mobile.inbox)
    mobile.register(flags=A | H | R | L)
    expect(mobile.solicit(mobile.home) is not None, "the home address is not defended")
    expect(mobile.solicit(address) is not None, "the link-local address is not defended")


@case("41", "RFC 6275 10.4.2", "a packet to the link-local address of a node that is away: Destination Unreachable code 3, or "
      "nothing; never into the tunnel (TAHI PingCNtoMN_LL)", link=True)
def link_local_traffic(mobile):
    address = packets.ip("fe80::")[:8] + mobile.home[8:]
    home = mobile.target.home
    mobile.register(flags=A | H | R | L)
    answer = mobile.solicit(address)
    expect(answer is not None, "the link-local address is not defended")
    source = packets.ip(f"fe80::a5:{mobile.number:x}")
    home.own(source)
    home.watch(source, mobile.inbox)
    packet = packets.echo(source, address, 1)
    home.send(packet, answer.source_mac)
    mobile.silence(lambda heard: mobile.same(heard.packet.inner, packet), "into the tunnel")


@case("42", "RFC 6275 6.2.4, 10.3.2", "Refresh Advice is shorter than the lifetime, and not in the answer to a goodbye")
def advice(mobile):
    found = mobile.register()
    for data in found.packet.all(packets.REFRESH_ADVICE):
        expect(0 < 4 * struct.unpack(">H", data)[0] < found.lifetime, "Refresh Advice not shorter than the lifetime")
    found = mobile.deregister()
    expect(found.lifetime == 0, f"lifetime {found.lifetime} in the answer to a goodbye")
    expect(not found.packet.all(packets.REFRESH_ADVICE), "Refresh Advice in the answer to a goodbye")


@case("43", "RFC 6275 5.1, RFC 4285 5.1.1", "an unauthenticated Binding Update: not bound, no ICMPv6, no Binding Error (TAHI "
      "HA_2_2_3)")
def unauthorised(mobile):
    mobile.works()
    mobile.update(signed=False)
    mobile.silence(lambda heard: heard.packet.mh == packets.ERROR or heard.packet.icmp and heard.packet.icmp[0] < 128 or
                   heard.packet.mh == packets.ACKNOWLEDGEMENT and heard.packet.payload[6] < 128, "an answer")
    mobile.does_not_arrive(mobile.home)
    mobile.works()


@case("44", "RFC 2473 8.2, RFC 6275 10.4", "Packet Too Big from the tunnel's path reaches the sender of the inner packet, less "
      "the header")
def packet_too_big(mobile):
    mobile.register()
    mobile.arrives(mobile.home)
    for attempt in range(4):
        packet = mobile.ping_in(mobile.home, size=1380)
        until = time.monotonic() + 2.0
        outer = None
        while outer is None and (heard := mobile.inbox.next(until)) is not None:
            found = heard.packet
            if mobile.same(found.inner, packet):
                outer = found
            elif found.icmp and found.icmp[0] == TOO_BIG and found.destination == mobile.correspondent:
                size = struct.unpack(">I", found.icmp[2][:4])[0]
                expect(1280 <= size <= 1400 - 40, f"Packet Too Big with {size}, the path carries 1400")
                return
        if outer is not None:
            router = ip(f"{mobile.target.foreign_prefix}e:{mobile.number:x}")
            body = struct.pack(">I", 1400) + outer.octets[:1200]
            message = packets.icmpv6(router, mobile.target.home_agent, TOO_BIG, 0, body)
            mobile.emit(packets.ipv6(router, mobile.target.home_agent, packets.ICMPV6, message))
    raise AssertionError("no Packet Too Big for the correspondent")


@case("45", "RFC 6275 10.4.5, 10.4.6", "Home Test Init goes out of the tunnel from the home address, and from no other; the Home "
      "Test goes in")
def home_test(mobile):
    mobile.register()

    def init(source, care_of=None):
        header = packets.with_checksum(packets.mobility(1, bytes(10)), source, mobile.correspondent)
        inner = packets.ipv6(source, mobile.correspondent, packets.MOBILITY, header)
        mobile.tunnel(inner, care_of)
        return lambda heard: mobile.same(heard.packet, inner)
    mobile.wait(init(mobile.home), "the Home Test Init out of the tunnel")
    mobile.silence(init(ip("2001:db8:dead::1")), "a Home Test Init from another address came out of the tunnel")
    mobile.silence(init(mobile.home, mobile.care_of_address(1)), "a Home Test Init came out of another tunnel")
    header = packets.with_checksum(packets.mobility(3, bytes(18)), mobile.correspondent, mobile.home)
    answer = packets.ipv6(mobile.correspondent, mobile.home, packets.MOBILITY, header)
    mobile.wire.send(answer, mobile.target.gateway)
    mobile.wait(lambda heard: mobile.same(heard.packet.inner, answer), "the Home Test through the tunnel")


@case("T1", "RFC 6275 6.1.7", "Home Address option with a multicast or link-local address: no Binding Acknowledgement, nothing is bound (TAHI "
      "HA_2_2_9, HA_2_2_13)")
def bad_home(mobile):
    mobile.works()
    for address in ("ff0e::1", "fe80::1234"):
        mobile.update(home=ip(address))
    mobile.silence(lambda heard: heard.packet.mh == packets.ACKNOWLEDGEMENT, "a Binding Acknowledgement")
    mobile.does_not_arrive(mobile.home)
    mobile.works()


@case("T2", "RFC 6275 9.3.1", "a Home Address option without a binding: Binding Error 1")
def unbound(mobile):
    echo = packets.icmpv6(mobile.home, mobile.target.home_agent, 128, 0, b"\0\7\0\1")
    packet = packets.home_address_option(mobile.home, packets.ICMPV6) + echo
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, packets.DESTINATION, packet))
    heard = mobile.wait(lambda heard: heard.packet.mh == packets.ERROR, "a Binding Error")
    expect(heard.packet.payload[6] == 1, f"status {heard.packet.payload[6]}")
    expect(heard.packet.payload[8:24] == mobile.home, "not with the home address")


@case("T10", "RFC 6275 9.3.1, 9.3.2", "a node pings the home agent from its home address: answered by a type 2 Routing header "
      "(TAHI PingMNtoHA)")
def ping_from_home(mobile):
    mobile.register()
    echo = packets.icmpv6(mobile.home, mobile.target.home_agent, 128, 0, b"\0\7\0\1")
    packet = packets.home_address_option(mobile.home, packets.ICMPV6) + echo
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, packets.DESTINATION, packet))
    heard = mobile.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == 129, "an Echo Reply")
    expect(heard.packet.routed_to == mobile.home, "no type 2 Routing header with the home address")


@case("T3", "RFC 6275 10.4.1", "the home address is defended while it is bound, and not after (TAHI HA_4_4_1, BU_ND)", link=True)
def defended(mobile):
    mobile.register()
    expect(mobile.solicit(mobile.home) is not None, "nobody answers for the home address")
    mobile.deregister()
    expect(mobile.solicit(mobile.home) is None, "still defended after the de-registration")


@case("T4", "RFC 6275 10.4.1", "neighbours are told at once: a Neighbor Advertisement to all nodes with O, without S (TAHI BU_NA)",
      link=True)
def advertised(mobile):
    mobile.register()
    if not any(heard.wire is mobile.target.home and heard.packet.icmp and heard.packet.icmp[0] == 136
               for heard in mobile.inbox.all if heard.packet):
        mobile.wait(lambda heard: heard.wire is mobile.target.home and heard.packet.icmp and
                    heard.packet.icmp[0] == 136, "a Neighbor Advertisement")
    told = [heard.packet for heard in mobile.inbox.all if heard.wire is mobile.target.home and heard.packet and
            heard.packet.icmp and heard.packet.icmp[0] == 136]
    expect(all(one.destination == ip("ff02::1") and one.hop_limit == 255 for one in told), "not to all nodes")
    expect(all(one.icmp[2][0] & 0x60 == 0x20 for one in told), "flags not O without S")


@case("T5", "RFC 6275 10.3.2", "de-registration from the home address itself, at home (TAHI DeReg_LT0_HOME)", link=True)
def goodbye_at_home(mobile):
    mobile.register()
    mobile.arrives(mobile.home)
    home = mobile.target.home
    home.own(mobile.home)
    sequence = mobile.node.sequence = mobile.node.sequence + 1
    header = packets.mobility(packets.UPDATE, struct.pack(">HHH", sequence, A | H | R, 0))
    header = packets.authenticated(header, mobile.node.spi, mobile.node.key, mobile.home, mobile.home)
    header = packets.with_checksum(header, mobile.home, mobile.target.home_agent)
    agent = home.mac_of(mobile.target.home_agent, ip("fe80::a5:ffff")) or b"\xff" * 6
    home.send(packets.ipv6(mobile.home, mobile.target.home_agent, packets.MOBILITY, header), agent)
    heard = mobile.wait(lambda heard: heard.packet.mh == packets.ACKNOWLEDGEMENT, "a Binding Acknowledgement")
    expect(heard.packet.payload[6] == 0 and heard.packet.payload[10:12] == b"\0\0", "not de-registered")
    expect(heard.wire is home and heard.packet.routed_to is None, "not straight to the home address on the home link")
    mobile.does_not_arrive(mobile.home)


@case("T6", "RFC 6275 10.4.5", "a simple reverse tunnel (TAHI RevTun_Simple)")
def reverse(mobile):
    mobile.register(flags=A | H, prefixes=[])
    mobile.leaves(mobile.home)


@case("T7", "RFC 6275 9.5.1", "H together with Nonce Indices, authentic: silence, nothing is bound (TAHI HA_2_2_7)")
def nonces(mobile):
    mobile.works()
    # Authentic, so that nothing but the option is a reason for silence.
    mobile.update(options=[packets.option(packets.NONCE_INDICES, b"\0\1\0\2")])
    mobile.no_answer()
    mobile.does_not_arrive(mobile.home)
    mobile.works()


@case("T8", "RFC 6275 10.3.1", "K is cleared in the answer, for no security association was established dynamically, and harms "
      "nothing (TAHI HA_2_1_10, HA_2_1_11)")
def key_management(mobile):
    # The tester authenticates with a key that both sides were given.
    for flags in (A | H | R | K, A | H | R):
        found = mobile.register(flags=flags)
        expect(not found.flags & 0x80, f"flags {found.flags:#04x}")
        mobile.arrives(mobile.home)


@case("T9", "RFC 6275 10.4.3", "the hop limit falls by one on the way into the tunnel, and a packet with 1 goes no further")
def hop_limit(mobile):
    mobile.register()
    mobile.arrives(mobile.home)
    packet = mobile.ping_in(mobile.home, hop_limit=9)
    heard = mobile.wait(lambda heard: mobile.same(heard.packet.inner, packet), "the packet")
    expect(heard.packet.inner.hop_limit == 8, f"hop limit {heard.packet.inner.hop_limit} after 9")
    packet = mobile.ping_in(mobile.home, hop_limit=1)
    mobile.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == 3 and packet[8:40] in heard.packet.icmp[2],
                "Time Exceeded")
