"""The home agent and those who look for one: RFC 6275 10.5 and 10.6, RFC 3963 7."""

import struct
import time

from tester import packets
from tester.case import PATIENCE, SILENCE, case, expect
from tester.packets import ICMPV6, ip
from tester.wire import ALL_NODES, group_mac

# RFC 2526: the Mobile IPv6 Home-Agents anycast address.
ANYCAST = "fdff:ffff:ffff:fffe"
REQUEST, REPLY, SOLICITATION, ADVERTISEMENT = 144, 145, 146, 147
R_BIT = 0x8000


def ask(mobile, flags, number):
    """Sends a Home Agent Address Discovery Request; the R flag and the addresses of the reply."""
    prefix = mobile.target.home_prefix
    anycast = ip(f"{prefix.removesuffix('::')}:0:{ANYCAST}")
    identifier = mobile.number << 4 & 0xFFF0 | number
    body = struct.pack(">HH", identifier, flags)
    message = packets.icmpv6(mobile.care_of, anycast, REQUEST, 0, body)
    packet = packets.ipv6(mobile.care_of, anycast, ICMPV6, message)

    def is_reply(heard):
        icmp = heard.packet.icmp
        return icmp and icmp[0] == REPLY and icmp[2][:2] == body[:2] and heard.packet.destination == mobile.care_of

    for attempt in range(3):
        mobile.emit(packet)
        try:
            heard = mobile.wait(is_reply, "a Home Agent Address Discovery Reply", PATIENCE / (4 if attempt < 2 else 1))
            break
        except AssertionError:
            if attempt == 2:
                raise
    expect(heard.packet.source == mobile.target.home_agent, "the reply is not from the home agent's unicast address")
    expect(len(heard.packet.octets) <= 1280, "the reply does not fit the least MTU")
    body = heard.packet.icmp[2]
    expect(len(body) % 16 == 4, f"a reply of {len(body)} octets")
    return struct.unpack(">H", body[2:4])[0] & R_BIT, [body[at:at + 16] for at in range(4, len(body), 16)]


@case("16", "RFC 3963 7.2, RFC 6275 10.5.1", "discovery with R: agents of mobile routers, with R, from a unicast address (TAHI DHAAD_Simple)")
def for_routers(mobile):
    router, agents = ask(mobile, R_BIT, 1)
    expect(router, "R is not set")
    expect(mobile.target.home_agent in agents, "the home agent does not name itself")


@case("16b", "RFC 6275 10.5.1", "discovery without R: answered without R")
def for_nodes(mobile):
    router, agents = ask(mobile, 0, 1)
    expect(not router, "R is set although nobody asked for it")
    expect(mobile.target.home_agent in agents, "the home agent does not name itself")


def advertise(mobile, address, preference, lifetime, router=True, home_agent=True):
    """Another home agent on the home link tells of itself."""
    source = ip(f"fe80::a9:{mobile.number:x}")
    body = struct.pack(">BBHII", 0, 0x20 if home_agent else 0, 0, 0, 0)
    body += struct.pack(">BBBBIII", 3, 4, 64, 0xA0, 3600, 3600, 0) + address
    if home_agent:
        body += struct.pack(">BBHHH", 8, 1, R_BIT if router else 0, preference, lifetime)
    message = packets.icmpv6(source, ALL_NODES, 134, 0, body)
    mobile.target.home.send(packets.ipv6(source, ALL_NODES, ICMPV6, message, 255), group_mac(ALL_NODES))


def until(mobile, wanted, what, patience=PATIENCE):
    """Asks until the answer is what is wanted: a Router Advertisement takes its time."""
    end = time.monotonic() + patience
    number = 1
    while True:
        router, agents = ask(mobile, R_BIT, number)
        if wanted(router, agents):
            return
        expect(time.monotonic() < end, f"{what}: {[packets.text(agent) for agent in agents]}")
        number = number % 15 + 1
        time.sleep(0.2)


@case("16c", "RFC 6275 10.5.1, RFC 3963 7.2", "other home agents: by preference, only those with R, none that has stopped (TAHI DHAAD_Highest, DHAAD_Lowest, DHAAD_Delete)",
      link=True)
def others(mobile):
    own, other = mobile.target.home_agent, ip(f"{mobile.target.home_prefix}a9:{mobile.number:x}")
    advertise(mobile, other, 20, 1800)
    until(mobile, lambda _, agents: other in agents and agents.index(other) < agents.index(own),
          "the one of higher preference is not first")
    advertise(mobile, other, 0, 1800)
    until(mobile, lambda _, agents: other in agents and agents.index(own) < agents.index(other),
          "the one of lower preference is not last")
    advertise(mobile, other, 20, 1800, router=False)
    until(mobile, lambda _, agents: other not in agents, "one without R is listed for mobile routers")
    advertise(mobile, other, 20, 1800)
    until(mobile, lambda _, agents: other in agents, "one that has R again is missing")
    advertise(mobile, other, 20, 1800, home_agent=False)
    until(mobile, lambda _, agents: other not in agents, "one without H is listed")


# Requests of a flood, and by how many octets it may make the home agent grow: less than it would take to remember the
# address of each that asked.
FLOOD, GROWTH = 10_000, 128 << 10
# After this number of floods, buffers and bounded tables no longer grow.
FLOODS = 5


@case("16d", "RFC 6275 15.5", "a flood of 10,000 requests draws few replies and takes no memory, and the next one who asks is answered",
      alone=True)
def flood(mobile):
    anycast = ip(f"{mobile.target.home_prefix.removesuffix('::')}:0:{ANYCAST}")

    def send(source_of):
        for number in range(FLOOD):
            source = source_of(number)
            message = packets.icmpv6(source, anycast, REQUEST, 0, struct.pack(">HH", number, R_BIT))
            mobile.emit(packets.ipv6(source, anycast, ICMPV6, message))
        replies, end = 0, time.monotonic() + 2 * SILENCE
        while (heard := mobile.inbox.next(end)) is not None:
            mobile.judge(heard)
            replies += bool(heard.packet.icmp and heard.packet.icmp[0] == REPLY)
        # When this one is answered all before it have been read.
        ask(mobile, R_BIT, 1)
        return replies
    replies = send(lambda _: mobile.care_of)
    expect(replies <= FLOOD // 10, f"{replies} replies to {FLOOD} requests")
    grown = []
    while mobile.target.memory and (not grown or grown[-1] > GROWTH):
        expect(len(grown) < FLOODS, f"{grown} octets of memory for {FLOOD} requests each")
        before, first = mobile.target.memory(), 0x1000 + FLOOD * len(grown)
        # Each from a network where nobody was before, and which is no node's (RFC 9637: for documentation, too).
        send(lambda number, first=first: ip(f"3fff:0:{first + number:x}::1"))
        grown.append(mobile.target.memory() - before)
    return None if grown else "whether it takes memory is not measured: nobody can tell how much the home agent has"


@case("17", "RFC 3963 7.3, RFC 6275 7.1, 7.2, 7.4", "on the home link: H, its address with R, Home Agent Information with R",
      link=True)
def information(mobile):
    home, source = mobile.target.home, ip(f"fe80::a5:{mobile.number:x}")
    home.watch(ALL_NODES, mobile.inbox)
    message = packets.icmpv6(source, ip("ff02::2"), 133, 0, bytes(4))
    home.send(packets.ipv6(source, ip("ff02::2"), ICMPV6, message, 255), group_mac(ip("ff02::2")))

    def is_advertisement(heard):
        return heard.wire is home and heard.packet.icmp and heard.packet.icmp[0] == 134

    heard = mobile.wait(is_advertisement, "a Router Advertisement on the home link")
    body = heard.packet.icmp[2]
    expect(heard.packet.hop_limit == 255 and heard.packet.source[:2] == b"\xfe\x80", "not a Router Advertisement's header")
    expect(body[1] & 0x20, "H is not set")
    options, at = {}, 12
    while at < len(body):
        expect(body[at + 1] > 0, "an option of length 0")
        options[body[at]] = body[at:at + 8 * body[at + 1]]
        at += 8 * body[at + 1]
    expect(8 in options, "no Home Agent Information option")
    flags, _, lifetime = struct.unpack(">HHH", options[8][2:8])
    expect(flags & R_BIT, "R is not set in the Home Agent Information option")
    expect(lifetime > 0, "a home agent lifetime of 0")
    expect(3 in options and options[3][3] & 0x20, "no Prefix Information option with R")
    expect(options[3][16:32] == mobile.target.home_agent, "its prefix is not the home agent's whole address")


def solicit(mobile, home_option):
    """Sends a Mobile Prefix Solicitation; its identifier."""
    identifier = struct.pack(">H", 0x4000 | mobile.number & 0xFFF)
    source = mobile.home if home_option else mobile.care_of
    message = packets.icmpv6(source, mobile.target.home_agent, SOLICITATION, 0, identifier + bytes(2))
    if home_option:
        message = packets.home_address_option(mobile.home, ICMPV6) + message
    protocol = packets.DESTINATION if home_option else ICMPV6
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, protocol, message))
    return identifier


@case("T20", "RFC 6275 10.6.3, 6.8", "a Mobile Prefix Solicitation of a bound node is answered by a routing header (TAHI MPS_Simple)")
def prefix_discovery(mobile):
    mobile.register()
    identifier = solicit(mobile, True)
    heard = mobile.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == ADVERTISEMENT,
                        "a Mobile Prefix Advertisement")
    expect(heard.packet.routed_to == mobile.home, "no type 2 routing header with the home address")
    body = heard.packet.icmp[2]
    expect(body[:2] == identifier, "another identifier")
    expect(body[4:6] == b"\x03\x04" and body[6] == 64, "no Prefix Information option of the home prefix")


@case("T21", "RFC 6275 10.6.3", "without Home Address option, or without a binding: no answer (TAHI HA_8_1_9)")
def prefix_discovery_refused(mobile):
    solicit(mobile, True)
    unwanted = (lambda heard: heard.packet.icmp and heard.packet.icmp[0] == ADVERTISEMENT)
    mobile.silence(unwanted, "an answer to a node without a binding")
    mobile.register()
    solicit(mobile, True)
    mobile.wait(unwanted, "an answer to a node with both")
    solicit(mobile, False)
    mobile.silence(unwanted, "an answer without Home Address option")
