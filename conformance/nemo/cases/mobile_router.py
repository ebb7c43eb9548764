"""The mobile router: RFC 3963 5, RFC 6275 11."""

import os
import signal
import struct
import time

from tester import packets
from tester.agent import FAR, HOME_ADDRESS, HOME_AGENT, HOST, Agent
from tester.case import LATE, A, H, R, case, expect
from tester.packets import ip


def router(name, clause, title, config=""):
    """A case with a mobile router of its own."""
    def declare(run):
        def whole(program, capture):
            agent = Agent(program, config, capture)
            try:
                run(agent)
                expect(agent.station.alive(), f"THE STATION ENDED: {agent.station.tail()}")
            finally:
                agent.close()
        return case(name, clause, title, target="mobile-router")(whole)
    return declare


def is_update(heard):
    return heard.packet.mh == packets.UPDATE


@router("63", "RFC 6275 11.8", "lost Binding Updates come again after 1.5 s, then after twice the time, each with a new number")
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


@router("64a", "RFC 6275 11.7.3", "status 135: again at once, with a number behind the one that the agent told")
def out_of_window(agent):
    update = agent.first()
    last = (update.sequence + 5000) & 0xFFFF
    agent.acknowledge(update, 135, sequence=last)
    found = agent.update(1.2)
    expect(found is not None, "no Binding Update before the next retransmission would be due")
    expect((found.sequence - last) % 65536 in range(1, 32768), f"number {found.sequence} after {last}")


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
    agent.acknowledge(agent.first(), 142)
    time.sleep(0.5)
    solicitation = packets.icmpv6(ip("fe80::77"), ip("ff02::2"), 133, 0, bytes(4))
    agent.lan.send(packets.ipv6(ip("fe80::77"), ip("ff02::2"), packets.ICMPV6, solicitation, 255), b"\x33\x33\0\0\0\2")

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
    agent.silence(advertised, "the prefix, or the router, is advertised", 4.0)


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
    agent.acknowledge(found)
    agent.silence(is_update, "a Binding Update after a good answer", 3.0)


@router("64f", "RFC 3963 5.6", "no Router Advertisement on the visited link, not even when asked")
def silent_abroad(agent):
    agent.register()
    source = ip("fe80::99")
    agent.uplink.own(source)
    solicitation = packets.icmpv6(source, ip("ff02::2"), 133, 0, bytes(4))
    agent.uplink.send(packets.ipv6(source, ip("ff02::2"), packets.ICMPV6, solicitation, 255), b"\x33\x33\0\0\0\2")
    agent.silence(lambda heard: heard.wire is agent.uplink and heard.packet.icmp and heard.packet.icmp[0] == 134,
                  "a Router Advertisement on the visited link", 2.0)


@router("64g", "RFC 3963 5.5, 9", "packets of the mobile network go into the tunnel, those from other sources nowhere")
def ingress_filtering(agent):
    update = agent.register()
    mac = agent.board_mac()
    good = packets.echo(HOST, FAR, 1)
    for attempt in range(3):
        agent.lan.send(good, mac)
        try:
            heard = agent.wait(lambda heard: heard.packet.inner and heard.packet.inner.octets[8:] == good[8:],
                               "the packet in the tunnel", 3.0)
            break
        except AssertionError:
            if attempt == 2:
                raise
    expect((heard.packet.source, heard.packet.destination) == (update.care_of, HOME_AGENT), f"{heard!r}")
    bad = packets.echo(ip("2001:db8:dead::1"), FAR, 2)
    agent.lan.send(bad, mac)
    agent.silence(lambda heard: heard.wire is agent.uplink and bad[8:40] in
                  (heard.packet.octets[8:40], heard.packet.inner and heard.packet.inner.octets[8:40]),
                  "a packet with a source that is not in the prefix left the vehicle")


@router("64h", "RFC 3963 5.1, 5.3", "each refresh names the prefixes, the goodbye none", "")
def refresh(agent):
    update = agent.first()
    agent.acknowledge(update, lifetime=8)
    found = agent.update(8.0)
    expect(found is not None and found.when - update.when < 8.0, "no refresh within the lifetime")
    expect(found.prefixes() == update.prefixes(), f"prefixes {found.prefixes()} in a refresh")
    agent.acknowledge(found)
    os.kill(agent.station.pid, signal.SIGTERM)
    found = agent.update(6.0, lambda update: update.lifetime == 0)
    expect(found is not None, "no de-registration at the end")
    expect(not found.prefixes(), "a de-registration with prefixes")
    agent.station.alive = lambda: True


@router("64i", "RFC 3963 5.5, 9", "out of the tunnel only from the home agent, and only for the mobile network")
def decapsulation(agent):
    update = agent.register()
    agent.board_mac()
    inner = packets.echo(FAR, HOST, 3)

    def come(source):
        agent.uplink.send(packets.ipv6(source, update.care_of, packets.IPV6, inner), agent.mac)
    arrived = (lambda heard: heard.wire is agent.lan and heard.packet.octets[8:] == inner[8:])
    come(ip("2001:db8:bad::1"))
    agent.silence(arrived, "a packet from a tunnel of nobody's")
    come(HOME_AGENT)
    agent.wait(arrived, "the packet on board")


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
    # A second of the station's: the machine may have kept the first one back, and not the last.
    second = 1.0 - LATE
    worst = max((sum(1 for t in times if at <= t < at + second) for at in times), default=0)
    expect(0 < worst <= 3, f"{worst} Binding Updates in {second} s")

