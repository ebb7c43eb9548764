"""The mobile router: RFC 3963 5, RFC 6275 11."""

import os
import signal
import struct
import time

from tester import packets
from tester.agent import FAR, HOME_ADDRESS, HOME_AGENT, HOST, router
from tester.case import PATIENCE, A, H, R, expect
from tester.packets import ip
from tester.wire import group_mac

ALL_ROUTERS = ip("ff02::2")


def is_update(heard):
    return heard.packet.mh == packets.UPDATE


def solicit(wire, source):
    """A host on a link solicits routers."""
    message = packets.icmpv6(source, ALL_ROUTERS, 133, 0, bytes(4))
    wire.send(packets.ipv6(source, ALL_ROUTERS, packets.ICMPV6, message, 255), group_mac(ALL_ROUTERS))


def asked_on_board(agent, wanted):
    """What a host on board hears that asks for routers; `None` when nothing of the kind comes."""
    solicit(agent.lan, ip("fe80::77"))
    # RFC 4861 10 has 3.5 s at most between a question and its answer.
    until = time.monotonic() + 4.0
    while (heard := agent.next(until)) is not None:
        if wanted(heard):
            return heard
    return None


@router("63", "RFC 6275 11.8", "lost Binding Updates come again after 1.5 s, then after twice the time, each with a new number",
        timing="how far apart two messages of the station come")
def retransmission(agent):
    updates = [agent.first()]
    while len(updates) < 4:
        found = agent.update(20.0)
        expect(found is not None, f"no further Binding Update after {len(updates)}")
        updates.append(found)
    gaps = [later.when - earlier.when for earlier, later in zip(updates, updates[1:])]
    expect(1.2 <= gaps[0] <= 2.5, f"the first retransmission after {gaps[0]:.2f} s")
    for earlier, later in zip(gaps, gaps[1:]):
        expect(1.5 * earlier <= later <= 2.6 * earlier, f"waits of {', '.join(f'{gap:.2f} s' for gap in gaps)}")
    numbers = [update.sequence for update in updates]
    expect(all((b - a) % 65536 in range(1, 32768) for a, b in zip(numbers, numbers[1:])), f"numbers {numbers}")


@router("63b", "RFC 3963 5.1, 5.2, RFC 6275 6.1.7", "the Binding Update: A, H, R, Home Address option, the prefix, a right MAC")
def contents(agent):
    update = agent.first()
    expect(update.flags & (A | H | R) == A | H | R, f"flags {update.flags:#06x}")
    expect(update.packet.home_address == HOME_ADDRESS, "no Home Address option with the home address")
    expect(update.prefixes() == [(64, ip("2001:db8:a::"))], f"prefixes {update.prefixes()}")
    expect(update.is_authentic(), "no right MN-HA authentication option")
    expect(update.care_of[:8] == ip("2001:db8:f0::")[:8], f"care-of address {packets.text(update.care_of)}")


@router("63c", "RFC 3963 5.2", "implicit mode: no prefix in the Binding Update", "registration = 'implicit'")
def implicit(agent):
    expect(not agent.first().prefixes(), "a Mobile Network Prefix option")


@router("64a", "RFC 6275 11.7.3", "status 135: again at once, with a number behind the one that the agent told",
        timing="before a retransmission would be due")
def out_of_window(agent):
    update = agent.first()
    last = (update.sequence + 5000) & 0xFFFF
    agent.acknowledge(update, 135, sequence=last)
    found = agent.update()
    expect(found is not None, "no further Binding Update")
    expect((found.sequence - last) % 65536 in range(1, 32768), f"number {found.sequence} after {last}")
    # The first retransmission would be due after 1.5 s.
    expect(found.when - update.when < 1.4, f"again after {found.when - update.when:.2f} s")


@router("64b", "RFC 3963 5.4", "status 140: no storm of Binding Updates")
def not_supported(agent):
    update = agent.first()
    agent.acknowledge(update, 140)
    until, count = time.monotonic() + 6.0, 0
    while (found := agent.update(until - time.monotonic())) is not None and time.monotonic() < until:
        count += 1
        agent.acknowledge(found, 140)
    expect(count <= 3, f"{count} Binding Updates in 6 s after a refusal")


@router("64c", "RFC 3963 5.4.2", "status 142: the prefix is not advertised on board")
def unauthorised(agent):
    def advertised(heard):
        icmp = heard.packet.icmp
        if heard.wire is not agent.lan or not icmp or icmp[0] != 134:
            return False
        options, lived = icmp[2][12:], False
        while options:
            if options[0] == 3 and options[16:32] == ip("2001:db8:a::"):
                lived = struct.unpack(">I", options[8:12])[0] > 0
            options = options[8 * options[1]:]
        return lived or struct.unpack(">H", icmp[2][2:4])[0] > 0

    # What is accepted is advertised, to who asks at the latest.
    agent.acknowledge(agent.first(), lifetime=8)
    expect(any(asked_on_board(agent, advertised) for _ in range(3)), "the prefix is not advertised on board although it was accepted")
    refresh = agent.update(3 * PATIENCE)
    expect(refresh is not None, "no refresh")
    agent.acknowledge(refresh, 142)
    # When the router has read that is not known here.
    until = time.monotonic() + 3 * PATIENCE
    while asked_on_board(agent, advertised) is not None:
        expect(time.monotonic() < until, "the prefix, or the router, is still advertised")


@router("64d", "RFC 3963 5.4.1", "an answer without R: the router leaves this agent")
def no_router_flag(agent):
    agent.acknowledge(agent.first(), router=False)
    found = agent.update(6.0, lambda update: update.lifetime == 0)
    expect(found is not None, "no de-registration")


@router("64e", "RFC 6275 11.7.3, RFC 4285 5.1.1", "answers with another number, a wrong MAC or none are ignored")
def ignored(agent):
    update = agent.first()
    agent.acknowledge(update, sequence=(update.sequence + 1) & 0xFFFF)
    agent.acknowledge(update, key=b"\x55" * 16)
    agent.acknowledge(update, signed=False)
    found = agent.update(6.0)
    expect(found is not None, "no retransmission: one of them was believed")
    agent.acknowledge(agent.newer() or found)
    agent.silence(is_update, "a Binding Update after a good answer", 3.0)


@router("64f", "RFC 3963 5.6", "no Router Advertisement on the visited link, not even when asked")
def silent_abroad(agent):
    agent.register()
    source = ip("fe80::99")
    agent.uplink.own(source)

    def advertised_on(wire):
        return lambda heard: heard.wire is wire and heard.packet.icmp and heard.packet.icmp[0] == 134
    solicit(agent.uplink, source)
    agent.silence(advertised_on(agent.uplink), "a Router Advertisement on the visited link", 4.0)
    # Control: the router answers a correct request.
    expect(any(asked_on_board(agent, advertised_on(agent.lan)) for _ in range(3)), "no Router Advertisement on board")


@router("64g", "RFC 3963 5.5, 9", "packets of the mobile network go into the tunnel, those from other sources nowhere")
def ingress_filtering(agent):
    update = agent.register()
    outer = agent.leaves_by(HOME_AGENT)
    expect(outer.source == update.care_of, f"{outer!r}")
    mac = agent.board_mac()
    bad = packets.echo(ip("2001:db8:dead::1"), FAR, 2)
    agent.lan.send(bad, mac)
    agent.silence(lambda heard: heard.wire is agent.uplink and bad[8:40] in
                  (heard.packet.octets[8:40], heard.packet.inner and heard.packet.inner.octets[8:40]),
                  "a packet with a source that is not in the prefix left the vehicle")


@router("64h", "RFC 3963 5.1, 5.3", "each refresh names the prefixes, the goodbye none", timing="a refresh within the lifetime")
def refresh(agent):
    update = agent.first()
    agent.acknowledge(update, lifetime=8)
    found = agent.update(3 * PATIENCE)
    expect(found is not None and found.when - update.when < 8.0, "no refresh within the lifetime")
    expect(found.prefixes() == update.prefixes(), f"prefixes {found.prefixes()} in a refresh")
    agent.acknowledge(found)
    os.kill(agent.station.pid, signal.SIGTERM)
    found = agent.update(PATIENCE, lambda update: update.lifetime == 0)
    expect(found is not None, "no de-registration at the end")
    expect(not found.prefixes(), "a de-registration with prefixes")
    agent.station.alive = lambda: True


@router("64i", "RFC 3963 5.5, 9", "out of the tunnel only from the home agent, and only for the mobile network")
def decapsulation(agent):
    update = agent.register()
    agent.board_mac()
    inner = packets.echo(FAR, HOST, 3)

    def come(source, inner):
        agent.uplink.send(packets.ipv6(source, update.care_of, packets.IPV6, inner), agent.mac)
        return lambda heard: inner[8:] in (heard.packet.octets[8:], heard.packet.inner and heard.packet.inner.octets[8:])

    def comes_on_board(number):
        for attempt in range(3):
            arrived = come(HOME_AGENT, packets.echo(FAR, HOST, number))
            try:
                heard = agent.wait(arrived, "the packet on board", PATIENCE / (4 if attempt < 2 else 1))
                expect(heard.wire is agent.lan, f"not on board: {heard!r}")
                return
            except AssertionError:
                if attempt == 2:
                    raise
    comes_on_board(3)
    arrived = come(ip("2001:db8:bad::1"), packets.echo(FAR, HOST, 4))
    agent.silence(arrived, "a packet from a tunnel of nobody's")
    # The router forwards the packet neither on board, nor into the tunnel, nor to the other uplink.
    for elsewhere in ("2001:db8:b::77", "2001:db8:f0::77", "2001:db8:1::99"):
        agent.uplink.own(ip(elsewhere))
        for wire in (agent.uplink, agent.lan):
            wire.watch(ip(elsewhere), agent.inbox)
        arrived = come(HOME_AGENT, packets.echo(FAR, ip(elsewhere), 5))
        agent.silence(arrived, f"a packet for {elsewhere} out of the tunnel")
    comes_on_board(6)


@router("64j", "RFC 6275 11.7.4", "a Binding Refresh Request is answered with a Binding Update")
def refresh_request(agent):
    update = agent.register()
    header = packets.with_checksum(packets.mobility(packets.REFRESH_REQUEST, b"\0\0"), HOME_AGENT, HOME_ADDRESS)
    header = packets.routing_2(HOME_ADDRESS) + header
    agent.uplink.send(packets.ipv6(HOME_AGENT, update.source, packets.ROUTING, header), agent.mac)
    expect(agent.update(6.0) is not None, "no Binding Update")


@router("64k", "RFC 6275 11.5.5, RFC 3963 5.7", "at home: the router finds its home prefix and de-registers")
def at_home(agent):
    agent.register()
    agent.uplink.own(HOME_AGENT)
    until, found = time.monotonic() + 20.0, None
    while found is None and time.monotonic() < until:
        agent.advertise("2001:db8:f0::", 0)
        agent.advertise("2001:db8:1::")
        found = agent.update(2.0, lambda update: update.lifetime == 0)
    expect(found is not None, "no de-registration after the home prefix was seen")


@router("64l", "RFC 6275 11.7.1", "no more than three Binding Updates in a second, whatever happens")
def rate(agent):
    times = []
    until = time.monotonic() + 6.0
    while time.monotonic() < until:
        found = agent.update(until - time.monotonic(), advertise=True)
        if found is None:
            break
        times.append(found.when)
        agent.acknowledge(found, 135, sequence=(found.sequence + 7) & 0xFFFF)
    expect(len(times) > 3, f"{len(times)} Binding Updates although none was accepted")
    # Of a second of the station's, half: a busy machine may have kept the first one back, and not the last. A
    # router that sends too many sends them at once, because each gets an answer at once.
    for at in times:
        count = sum(1 for t in times if at <= t < at + 0.5)
        expect(count <= 3, f"{count} Binding Updates in half a second")
    span = times[-1] - times[0]
    expect(len(times) <= 3 * (span + 1.0), f"{len(times)} Binding Updates in {span:.1f} s")


@router("71", "RFC 6275 11.4.2, 11.4.3, 6.7", "the home agent is asked for the home prefix, from the home address; an answer with another identifier is "
        "none, the right one is taken", "prefix_discovery = true")
def prefix_discovery(agent):
    update = agent.register()

    def asked(patience):
        heard = agent.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == 146, "a Mobile Prefix Solicitation", patience)
        expect(heard.packet.destination == HOME_AGENT, f"to {packets.text(heard.packet.destination)}")
        expect(heard.packet.home_address == HOME_ADDRESS, "no Home Address option with the home address")
        return struct.unpack(">H", heard.packet.icmp[2][:2])[0]

    def answer(identifier):
        information = struct.pack(">BBBBIII", 3, 4, 64, 0xE0, 7200, 3600, 0) + HOME_AGENT
        message = packets.icmpv6(HOME_AGENT, HOME_ADDRESS, 147, 0, struct.pack(">HH", identifier, 0) + information)
        packet = packets.routing_2(HOME_ADDRESS, packets.ICMPV6) + message
        agent.uplink.send(packets.ipv6(HOME_AGENT, update.care_of, packets.ROUTING, packet), agent.mac)

    first = asked(6.0)
    answer(first ^ 1)
    second = asked(6.0)
    expect(second != first, "the same identifier twice")
    answer(second)
    agent.silence(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == 146, "asked again after the answer", 8.0)
