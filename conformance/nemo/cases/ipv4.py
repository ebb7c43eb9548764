"""IPv4 mobile network prefixes and IPv4 home addresses (RFC 5555): both ends."""

import struct

from tester import packets
from tester.agent import HOME_ADDRESS, HOME_AGENT, router
from tester.case import A, H, Unsuitable, case, expect
from tester.packets import IPV4_ACK, IPV4_HOME, IPV4_IN_IP, option

# A mobile router's prefix, a host of it, and a host elsewhere.
CONFIG = "ipv4_prefixes = ['10.42.7.0/24']"
HOST4, FAR4 = bytes([10, 42, 7, 77]), bytes([198, 51, 100, 80])
# The IPv4 home address of a mobile node.
NODE4 = bytes([10, 42, 7, 7])
NODE_CONFIG = "ipv4_home_address = '10.42.7.7'"
# What RFC 5555 3.2.1 names as refusals, and a number without a meaning.
REFUSALS = (128, 129, 130, 131, 132, 133, 200, 255)
SEVERAL = f"ipv4_prefixes = {[f'10.42.{number}.0/24' for number in range(1 + len(REFUSALS))]}"


def home(prefix, length, wants_prefix=True):
    """An IPv4 Home Address option (RFC 5555 3.1.1)."""
    return option(IPV4_HOME, bytes([length << 2 | (2 if wants_prefix else 0), 0]) + prefix)


def acknowledged(packet):
    """Status, prefix length and address of each IPv4 Address Acknowledgement option (RFC 5555 3.2.1)."""
    return [(data[0], data[1] >> 2, data[2:6]) for data in packet.all(IPV4_ACK)]


def datagram(source, destination, size=40):
    """An IPv4 packet with UDP inside."""
    return packets.ipv4(source, destination, packets.UDP, struct.pack(">HHHH", 4000, 4001, 8 + size, 0) + bytes(size))


def is_same(octets, packet):
    """Whether an IPv4 packet is another but for TTL and checksum."""
    return octets[:8] == packet[:8] and octets[9] == packet[9] and octets[12:len(packet)] == packet[12:]


def in_tunnel(heard, packet):
    return heard.packet.protocol == IPV4_IN_IP and is_same(heard.packet.payload, packet)


# The home agent


def prefix_of(mobile):
    """The IPv4 prefix of the mobile router, which another home agent may not know."""
    if mobile.node.ipv4_prefix is None:
        raise Unsuitable("the parameters name no IPv4 prefix")
    return mobile.node.ipv4_prefix


def arrives(mobile, packet):
    """An IPv4 packet of the correspondent leaves the tunnel at the care-of address."""
    for attempt in range(3):
        mobile.wire.send(packet, mobile.target.gateway)
        try:
            heard = mobile.wait(lambda heard: in_tunnel(heard, packet), "the IPv4 packet in the tunnel", 3.0)
            break
        except AssertionError:
            if attempt == 2:
                raise
    expect(heard.packet.destination == mobile.care_of, f"{heard!r}")


@case("62b", "RFC 5555 4.5, 3.2.1", "an IPv4 prefix of the router: status 0 and its length; packets in both directions, IPv4 in IPv6")
def prefix(mobile):
    own = prefix_of(mobile)
    found = mobile.register(options=[home(own, 24)])
    expect(acknowledged(found.packet) == [(0, 24, own)], f"answers {acknowledged(found.packet)}")
    host = own[:3] + bytes([77])
    packet = datagram(mobile.ipv4, host)
    arrives(mobile, packet)
    back = datagram(host, mobile.ipv4)
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, IPV4_IN_IP, back))
    mobile.wait(lambda heard: is_same(heard.packet.octets, back), "the IPv4 packet out of the tunnel")
    # The source of another network does not come out.
    other = datagram(bytes([10, 255, 255, 77]), mobile.ipv4)
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, IPV4_IN_IP, other))
    mobile.silence(lambda heard: is_same(heard.packet.octets, other), "a packet with a foreign source")
    # It ends with the binding.
    mobile.deregister()
    mobile.wire.send(packet, mobile.target.gateway)
    mobile.silence(lambda heard: in_tunnel(heard, packet), "an IPv4 packet after the end of the binding")


@case("62c", "RFC 5555 4.5, 3.2.1", "an IPv4 prefix of another router is refused with 133, length 0; IPv6 is registered")
def foreign_prefix(mobile):
    other = bytes([10, 255, 255, 0])
    found = mobile.register(options=[home(other, 24)])
    expect(acknowledged(found.packet) == [(133, 0, other)], f"answers {acknowledged(found.packet)}")
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))


@case("62d", "RFC 5555 3.1.1, 3.2.1", "statuses 130, 131 and 132, each in its own option, beside an accepted prefix")
def statuses(mobile):
    own = prefix_of(mobile)
    found = mobile.register(options=[
        home(bytes([10, 255, 255, 9]), 32, False), home(bytes([224, 0, 0, 1]), 32, False), home(own, 0), home(bytes(4), 32, False),
        home(own, 24)])
    came = [status for status, _, _ in acknowledged(found.packet)]
    expect(came == [130, 131, 131, 132, 0], f"statuses {came}")


@case("62e", "RFC 5555 3.2.1, 4.5", "a prefix that the router leaves out of its next update is not forwarded any more")
def left_out(mobile):
    own = prefix_of(mobile)
    mobile.register(options=[home(own, 24)])
    mobile.register()
    packet = datagram(mobile.ipv4, own[:3] + bytes([77]))
    mobile.wire.send(packet, mobile.target.gateway)
    mobile.silence(lambda heard: in_tunnel(heard, packet), "an IPv4 packet of a prefix that is not registered")
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))


@case("62k", "RFC 5555 3.1.1, 3.2.1, 4.5", "without R, an IPv4 home address: status 0 and 32 bits; packets in both directions, IPv4 in IPv6",
      nodes=[("ipv4", True)])
def home_address(mobile):
    own = mobile.node.ipv4_home
    found = mobile.register(flags=A | H, options=[home(own, 32, False)])
    expect(not found.router, "R is set in the answer to a mobile node")
    expect(acknowledged(found.packet) == [(0, 32, own)], f"answers {acknowledged(found.packet)}")
    packet = datagram(mobile.ipv4, own)
    arrives(mobile, packet)
    back = datagram(own, mobile.ipv4)
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, IPV4_IN_IP, back))
    mobile.wait(lambda heard: is_same(heard.packet.octets, back), "the IPv4 packet out of the tunnel")
    # Another address is not the node's, even one beside its own.
    other = datagram(own[:3] + bytes([8]), mobile.ipv4)
    mobile.emit(packets.ipv6(mobile.care_of, mobile.target.home_agent, IPV4_IN_IP, other))
    mobile.silence(lambda heard: is_same(heard.packet.octets, other), "a packet with a foreign source")
    # RFC 5555 4.5: the address goes with its binding.
    mobile.deregister(flags=A | H)
    mobile.wire.send(packet, mobile.target.gateway)
    mobile.silence(lambda heard: in_tunnel(heard, packet), "an IPv4 packet after the end of the binding")


@case("62l", "RFC 5555 3.1.1, 3.2.1, 4.5", "without R: an IPv4 home address that is not the node's is refused with 130; IPv6 is registered",
      nodes=[("ipv4", True)])
def foreign_home_address(mobile):
    other = mobile.node.ipv4_home[:3] + bytes([8])
    found = mobile.register(flags=A | H, options=[home(other, 32, False)])
    expect(acknowledged(found.packet) == [(130, 0, other)], f"answers {acknowledged(found.packet)}")
    packet = datagram(mobile.ipv4, other)
    mobile.wire.send(packet, mobile.target.gateway)
    mobile.silence(lambda heard: in_tunnel(heard, packet), "an IPv4 packet for an address that was refused")
    mobile.arrives(mobile.home)


@case("62m", "RFC 5555 3.2.1, 4.5, RFC 3963 4.1",
      "without R: a prefix of its own is refused with 129, another with 133, addresses with 131 and 132; an address beside them with 0")
def prefix_without_router(mobile):
    own = prefix_of(mobile)
    host = own[:3] + bytes([9])
    found = mobile.register(flags=A | H, prefixes=[], options=[
        home(own, 24), home(host, 32), home(bytes([10, 255, 255, 0]), 24), home(bytes([224, 0, 0, 1]), 32, False),
        home(bytes(4), 32, False), home(host, 32, False)])
    came = acknowledged(found.packet)
    expect([status for status, _, _ in came] == [129, 129, 133, 131, 132, 0], f"answers {came}")
    expect([length for _, length, _ in came] == [0, 0, 0, 0, 0, 32], f"answers {came}")
    arrives(mobile, datagram(mobile.ipv4, host))
    beyond = datagram(mobile.ipv4, own[:3] + bytes([77]))
    mobile.wire.send(beyond, mobile.target.gateway)
    mobile.silence(lambda heard: in_tunnel(heard, beyond), "a packet for a prefix that was refused")
    mobile.arrives(mobile.home)


# The mobile router


def sends_on_board(agent, packet, arrives):
    """A host on board sends an IPv4 packet, which goes into the tunnel or does not."""
    mac = agent.board_mac()
    if not arrives:
        agent.lan.send(packet, mac)
        agent.silence(lambda heard: in_tunnel(heard, packet), "an IPv4 packet in the tunnel")
        return None
    for attempt in range(3):
        agent.lan.send(packet, mac)
        try:
            return agent.wait(lambda heard: in_tunnel(heard, packet), "the IPv4 packet in the tunnel", 3.0)
        except AssertionError:
            if attempt == 2:
                raise
    return None


def register(agent, *options):
    """A registration whose acknowledgements have these options."""
    update = agent.first()
    while update is not None:
        agent.acknowledge(update, options=options)
        update = agent.update(1.0)


def accepted(status=0, length=24):
    return option(IPV4_ACK, bytes([status, length << 2]) + bytes([10, 42, 7, 0]))


@router("62f", "RFC 5555 3.1.1, 4.4.2", "the Binding Update: an IPv4 Home Address option with P, the length and the prefix", CONFIG)
def router_option(agent):
    update = agent.first()
    found = update.packet.all(IPV4_HOME)
    expect(found == [bytes([24 << 2 | 2, 0, 10, 42, 7, 0])], f"options {[data.hex() for data in found]}")
    expect(update.prefixes(), "no Mobile Network Prefix option beside it")
    expect(update.is_authentic(), "no right MN-HA authentication option")


@router("62g", "RFC 5555 4.4.3, RFC 2473 3", "an accepted IPv4 prefix: packets in both directions, IPv4 in IPv6, with their DSCP", CONFIG)
def router_tunnel(agent):
    agent.lan.own(HOST4)
    for address in (HOST4, FAR4):
        agent.lan.watch(address, agent.inbox)
    register(agent, accepted())
    packet = datagram(HOST4, FAR4)
    packet = packets.ipv4_with_class(packet, 0xB8)
    heard = sends_on_board(agent, packet, True)
    expect(heard.packet.destination == HOME_AGENT, f"{heard!r}")
    expect(heard.packet.traffic_class == 0xB8, f"traffic class {heard.packet.traffic_class:#x}")
    back = datagram(FAR4, HOST4)
    agent.uplink.send(packets.ipv6(HOME_AGENT, heard.packet.source, IPV4_IN_IP, back), agent.mac)
    agent.wait(lambda heard: is_same(heard.packet.octets, back), "the IPv4 packet on board")
    # RFC 3963 9: from outside comes no source of the mobile network, and nothing for another network.
    for source, destination in ((bytes([10, 42, 7, 9]), HOST4), (FAR4, bytes([10, 42, 8, 77]))):
        forged = datagram(source, destination)
        agent.uplink.send(packets.ipv6(HOME_AGENT, heard.packet.source, IPV4_IN_IP, forged), agent.mac)
        agent.silence(lambda heard, forged=forged: is_same(heard.packet.octets, forged), "a packet with foreign addresses")


@router("62h", "RFC 5555 4.4.2", "no IPv4 Address Acknowledgement: no IPv4 in the tunnel, IPv6 goes on", CONFIG)
def router_unsupported(agent):
    agent.register()
    sends_on_board(agent, datagram(HOST4, FAR4), False)
    agent.leaves_by(HOME_AGENT)


@router("62i", "RFC 5555 4.4.2, 3.2.1", "a refused IPv4 prefix: no IPv4 in the tunnel, IPv6 goes on; the next update asks again", CONFIG)
def router_refused(agent):
    update = agent.first()
    agent.acknowledge(update, lifetime=8, options=[accepted(133, 0)])
    refresh = agent.update(10.0)
    expect(refresh is not None and refresh.packet.all(IPV4_HOME), "no IPv4 Home Address option in the refresh")
    agent.acknowledge(refresh, options=[accepted(133, 0)])
    sends_on_board(agent, datagram(HOST4, FAR4), False)
    agent.leaves_by(HOME_AGENT)


@router("62j", "RFC 3963 5.2, RFC 5555 4.4.2", "implicit mode: no IPv4 Home Address option, but an answer counts",
        CONFIG + "\nregistration = 'implicit'")
def router_implicit(agent):
    expect(not agent.first().packet.all(IPV4_HOME), "an IPv4 Home Address option")
    register(agent, accepted())
    sends_on_board(agent, datagram(HOST4, FAR4), True)


def refresh(agent, update):
    """Asks for a Binding Update (RFC 6275 11.7.4); returns it."""
    header = packets.with_checksum(packets.mobility(packets.REFRESH_REQUEST, b"\0\0"), HOME_AGENT, HOME_ADDRESS)
    header = packets.routing_2(HOME_ADDRESS) + header
    for attempt in range(3):
        agent.uplink.send(packets.ipv6(HOME_AGENT, update.source, packets.ROUTING, header), agent.mac)
        found = agent.update(3.0)
        if found is not None:
            return found
    raise AssertionError("no Binding Update after a Binding Refresh Request")


def answer(agent, update, *options):
    """Acknowledges a Binding Update with these options; returns the last one that the router has sent, for it may have
    sent another one meanwhile."""
    while update is not None:
        agent.acknowledge(update, options=options)
        last, update = update, agent.update(1.0)
    return last


@router("62n", "RFC 5555 3.2.1, 4.4.2", "every status that refuses, and numbers without a meaning, each for a prefix of its own: no IPv4 in "
        "the tunnel, IPv6 goes on; a status below 128 brings it back", SEVERAL)
def router_statuses(agent):
    def answers(statuses):
        return [option(IPV4_ACK, bytes([status, (24 if status < 128 else 0) << 2]) + bytes([10, 42, number, 0]))
                for number, status in enumerate(statuses)]

    def sends(number, arrives):
        sends_on_board(agent, datagram(bytes([10, 42, number, 77]), FAR4), arrives)

    update = answer(agent, agent.first(), *answers((0, *REFUSALS)))
    expect(len(update.packet.all(IPV4_HOME)) == 1 + len(REFUSALS), "not one IPv4 Home Address option for each prefix")
    sends(0, True)
    for number in range(1, 1 + len(REFUSALS)):
        sends(number, False)
    agent.leaves_by(HOME_AGENT)
    # RFC 5555 3.2.1: "Values from 0 to 127 indicate success."
    update = answer(agent, refresh(agent, update), *answers((128, *[5] * len(REFUSALS))))
    expect(len(update.packet.all(IPV4_HOME)) == 1 + len(REFUSALS), "a refused prefix is missing in the next update")
    sends(0, False)
    for number in range(1, 1 + len(REFUSALS)):
        sends(number, True)
    agent.leaves_by(HOME_AGENT, 2)


def sends_itself(agent, arrives):
    """A program of the mobile node sends an IPv4 packet, which goes into the tunnel or does not; returns what was heard."""
    def mine(heard):
        return heard.packet.protocol == IPV4_IN_IP and heard.packet.payload[16:20] == FAR4

    for attempt in range(3):
        agent.station.inside("ping", "-c", "1", "-W", "1", packets.text(FAR4), check=False)
        if not arrives:
            agent.silence(mine, "an IPv4 packet in the tunnel")
            return None
        try:
            return agent.wait(mine, "the IPv4 packet in the tunnel", 3.0)
        except AssertionError:
            if attempt == 2:
                raise
    return None


@router("62o", "RFC 5555 3.1.1, 3.2.1, 4.4.2", "a mobile node: an option without P of 32 bits; after status 0 its programs send from the "
        "address by the tunnel, after one that refuses they do not", NODE_CONFIG, node=True)
def node_home_address(agent):
    update = agent.first()
    expect(not update.flags & packets.R, "R is set by a mobile node")
    found = update.packet.all(IPV4_HOME)
    expect(found == [bytes([32 << 2, 0]) + NODE4], f"options {[data.hex() for data in found]}")

    def acknowledge(update, status):
        while update is not None:
            agent.acknowledge(update, router=False, options=[option(IPV4_ACK, bytes([status, 0 if status else 32 << 2]) + NODE4)])
            last, update = update, agent.update(1.0)
        return last

    update = acknowledge(update, 0)
    heard = sends_itself(agent, True)
    expect(heard.packet.payload[12:16] == NODE4, f"from {packets.text(heard.packet.payload[12:16])}")
    expect(heard.packet.destination == HOME_AGENT, f"{heard!r}")
    update = acknowledge(refresh(agent, update), 130)
    sends_itself(agent, False)
    acknowledge(refresh(agent, update), 0)
    sends_itself(agent, True)
