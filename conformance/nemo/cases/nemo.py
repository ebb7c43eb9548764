"""The home agent and mobile networks: RFC 3963."""

import ipaddress
import time

from tester.case import A, H, R, SILENCE, Stream, case, expect
from tester.packets import ip

TWO = {"nodes": [(2, True)]}
ELSEWHERE = "2001:db8:dead::/64"


@case("01", "RFC 3963 6.2, 6.5, 6.6", "explicit mode: accepted with R, the prefix goes through the tunnel")
def explicit(mobile):
    found = mobile.register()
    expect(found.router, "R is not set in the Binding Acknowledgement")
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))
    mobile.arrives(mobile.home)
    mobile.leaves(mobile.host(mobile.node.prefixes[0]))


@case("02", "RFC 3963 6.2", "R without H: status 140")
def router_without_home(mobile):
    mobile.register(140, flags=A | R)
    mobile.does_not_arrive(mobile.host(mobile.node.prefixes[0]))


@case("03", "RFC 3963 6.2, 6.6", "R from a node that is not configured as a mobile router: refused with 140 or 143",
      nodes=[(0, True)])
def not_a_router(mobile):
    # A node without prefixes is a mobile node; which of the two statuses depends on how an agent keeps its table.
    sequence = mobile.update(prefixes=[])
    found = mobile.acknowledgement(sequence)
    expect(found is not None and found.status in (140, 143), f"status {found and found.status}")


@case("04", "RFC 3963 6.2", "a prefix that is not the router's: status 142, what was bound stays as it was")
def foreign_prefix(mobile):
    mobile.register()
    other = mobile.care_of_address(1)
    mobile.register(142, prefixes=[ELSEWHERE], care_of=other)
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))


@case("05", "RFC 3963 6.2", "one bad prefix of two: refused, neither is forwarded")
def one_bad(mobile):
    good = mobile.host(mobile.node.prefixes[0])
    sequence = mobile.update(prefixes=[mobile.node.prefixes[0], ELSEWHERE])
    found = mobile.acknowledgement(sequence)
    expect(found is not None and found.status in (141, 142), f"status {found and found.status}")
    mobile.does_not_arrive(good)
    mobile.does_not_arrive(mobile.host(ELSEWHERE))
    mobile.does_not_leave(good)
    mobile.register()
    mobile.arrives(good)
    mobile.does_not_arrive(mobile.host(ELSEWHERE))


@case("05b", "RFC 3963 6.2", "one bad prefix of two, with traffic running: what is bound loses nothing, the other is not forwarded", **TWO)
def one_bad_under_traffic(mobile):
    bound, other = (mobile.host(prefix) for prefix in mobile.node.prefixes[:2])
    mobile.register(prefixes=mobile.node.prefixes[:1])
    with Stream(mobile, bound, other) as stream:
        begin = stream.flow(bound)
        time.sleep(SILENCE)
        sequence = mobile.update(prefixes=[mobile.node.prefixes[1], ELSEWHERE], care_of=mobile.care_of_address(1))
        found = mobile.acknowledgement(sequence)
        expect(found is not None and found.status in (141, 142), f"status {found and found.status}")
        stream.flow(bound)
        lost = stream.lost(bound, begin)
        expect(lost == 0, f"{lost} packets of the bound prefix were lost")
        expect(stream.lost(other, begin) == sum(to == other and when >= begin for when, to, _ in stream.sent),
               "packets of the refused prefix came through the tunnel")


@case("06", "RFC 3963 5.2, 6.2", "implicit mode: the home agent's own table names the prefix")
def implicit(mobile):
    found = mobile.register(prefixes=[])
    expect(found.router, "R is not set")
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))


@case("07", "RFC 3963 6.2", "implicit mode without a table: status 143", nodes=[(0, True)])
def implicit_nothing(mobile):
    mobile.register(143, prefixes=[])


@case("08", "RFC 3963 4.1", "without R: bound as a mobile node, the prefix is not forwarded")
def mobile_node(mobile):
    found = mobile.register(flags=A | H, prefixes=[])
    expect(not found.router, "R is set in the answer to a mobile node")
    mobile.arrives(mobile.home)
    mobile.does_not_arrive(mobile.host(mobile.node.prefixes[0]))


@case("09", "RFC 3963 6.2", "a bound router comes without R: status 139, bound as before")
def type_change(mobile):
    mobile.register()
    mobile.register(139, flags=A | H, prefixes=[], care_of=mobile.care_of_address(1))
    mobile.arrives(mobile.host(mobile.node.prefixes[0]))


@case("10", "RFC 3963 6.2", "the same with lifetime 0: accepted, whatever R says")
def type_change_goodbye(mobile):
    inside = mobile.host(mobile.node.prefixes[0])
    mobile.register()
    mobile.arrives(inside)
    mobile.deregister(flags=A | H)
    mobile.does_not_arrive(inside)


@case("10b", "RFC 3963 6.2", "de-registration with other flags, with traffic running: it flows until the answer, and ends with it")
def type_change_goodbye_under_traffic(mobile):
    inside = mobile.host(mobile.node.prefixes[0])
    mobile.register()
    with Stream(mobile, inside) as stream:
        begin = stream.flow(inside)
        time.sleep(SILENCE)
        asked = time.monotonic()
        mobile.deregister(flags=A | H)
        # Packets that were on their way at the acknowledgement may still arrive.
        ended = time.monotonic() + SILENCE
        time.sleep(3 * SILENCE)
        lost = stream.lost(inside, begin, asked)
        expect(lost == 0, f"{lost} packets were lost before the goodbye")
        after = sum(when > ended for when, _, _ in stream.sent)
        expect(stream.lost(inside, ended) == after, "packets came through the tunnel after the goodbye")


@case("11", "RFC 3963 6.2", "a refresh that leaves out one of two prefixes: that one ends, the other lives", **TWO)
def fewer(mobile):
    first, second = mobile.node.prefixes
    mobile.register()
    mobile.arrives(mobile.host(second))
    mobile.register(prefixes=[first])
    mobile.arrives(mobile.host(first))
    mobile.does_not_arrive(mobile.host(second))


@case("11b", "RFC 3963 6.2", "a refresh that leaves out one of two prefixes, with traffic running: the one that stays loses nothing",
      **TWO)
def dropped_under_traffic(mobile):
    stays, goes = (mobile.host(prefix) for prefix in mobile.node.prefixes[:2])
    mobile.register()
    with Stream(mobile, stays, goes) as stream:
        stream.flow(goes)
        begin = stream.flow(stays)
        time.sleep(SILENCE)
        mobile.register(prefixes=mobile.node.prefixes[:1])
        ended = time.monotonic() + SILENCE
        time.sleep(3 * SILENCE)
        lost = stream.lost(stays, begin)
        expect(lost == 0, f"{lost} packets of the prefix that stays were lost")
        after = sum(to == goes and when > ended for when, to, _ in stream.sent)
        expect(stream.lost(goes, ended) == after, "packets of the prefix that was left out came through the tunnel")


@case("12", "RFC 3963 6.7", "de-registration that names prefixes: they are ignored, everything ends", **TWO)
def goodbye_with_prefixes(mobile):
    hosts = [mobile.host(prefix) for prefix in mobile.node.prefixes]
    mobile.register()
    for host in hosts:
        mobile.arrives(host)
    mobile.deregister(prefixes=[mobile.node.prefixes[0]])
    for host in hosts:
        mobile.does_not_arrive(host)


@case("13", "RFC 3963 6.7", "de-registration in implicit mode: the routes of the table end, too")
def goodbye_implicit(mobile):
    inside = mobile.host(mobile.node.prefixes[0])
    mobile.register(prefixes=[])
    mobile.arrives(inside)
    mobile.deregister()
    mobile.does_not_arrive(inside)


@case("14", "RFC 3963 6.2", "a home address out of the mobile network: accepted", nodes=[("inside", True)])
def home_inside(mobile):
    prefix = mobile.node.prefixes[0]
    expect(ipaddress.IPv6Address(mobile.home) in ipaddress.IPv6Network(prefix), "no such node")
    mobile.register()
    mobile.arrives(mobile.host(prefix))


@case("14b", "RFC 6275 10.3.1", "a home address that nobody has, on the home link or elsewhere: refused with 132 or another status, or silence; "
      "nothing is bound to it")
def nobodys(mobile):
    mobile.works()
    for stranger in (f"{mobile.target.home_prefix}dead:{mobile.number:x}", f"2001:db8:dead::{mobile.number:x}"):
        stranger = ip(stranger)
        sequence = mobile.update(home=stranger, prefixes=[])
        found = mobile.acknowledgement(sequence, patience=2 * SILENCE)
        expect(found is None or found.status in (132, 133, 129, 146), f"status {found and found.status}")
        mobile.does_not_arrive(stranger)
        mobile.does_not_leave(stranger)
    mobile.works()


@case("15", "RFC 3963 6.2, RFC 6275 10.4.1", "the home agent's Neighbor Advertisement for a router has the R bit",
      link=True)
def router_bit(mobile):
    mobile.register()
    answer = mobile.solicit(mobile.home)
    expect(answer is not None, "nobody answers for the home address on the home link")
    expect(answer.packet.icmp[2][0] & 0x80, "R is not set in the Neighbor Advertisement for a router's home address")


@case("15b", "RFC 6275 10.4.1", "for a mobile node it has not", link=True)
def no_router_bit(mobile):
    mobile.register(flags=A | H, prefixes=[])
    answer = mobile.solicit(mobile.home)
    expect(answer is not None, "nobody answers for the home address on the home link")
    expect(not answer.packet.icmp[2][0] & 0x80, "R is set in the Neighbor Advertisement for a mobile node")


@case("18", "RFC 6275 10.4.5, RFC 3963 9", "out of the reverse tunnel from another outer source: dropped")
def outer_source(mobile):
    mobile.register()
    host = mobile.host(mobile.node.prefixes[0])
    mobile.leaves(host)
    mobile.does_not_leave(host, care_of=mobile.care_of_address(1))


@case("19", "RFC 3963 9", "out of the reverse tunnel from an inner source of nobody's: dropped")
def inner_source(mobile):
    mobile.register()
    mobile.does_not_leave(ip("2001:db8:dead::1"))
    mobile.does_not_leave(mobile.target.home_agent)
    mobile.leaves(mobile.home)


@case("20", "RFC 3963 6.1.2", "a prefix of another router: status 142, its owner keeps its traffic",
      nodes=[(1, True), (1, True)])
def theft(owner, thief):
    stolen, own = owner.host(owner.node.prefixes[0]), thief.host(thief.node.prefixes[0])
    owner.register()
    # Bound and with a tunnel: what does not come out of it is for its source alone.
    thief.register()
    thief.leaves(own)
    thief.register(142, prefixes=owner.node.prefixes)
    owner.arrives(stolen)
    thief.does_not_leave(stolen)
    thief.leaves(own)


@case("21", "RFC 3963 6.5, RFC 4443 3.1", "after the binding has expired: no tunnel, no loop, an error instead")
def expired(mobile):
    found = mobile.register(lifetime=4)
    expect(found.lifetime == 4, f"a lifetime of {found.lifetime} s")
    host = mobile.host(mobile.node.prefixes[0])
    mobile.arrives(host)
    mobile.silence(lambda heard: False, "", 5.0)
    packet = mobile.ping_in(host)
    mobile.wait(lambda heard: heard.packet.icmp and heard.packet.icmp[0] == 1 and packet[8:40] in heard.packet.icmp[2],
                "Destination Unreachable")
    mobile.does_not_arrive(host)


@case("21b", "RFC 3963 4.2", "a refusal has the sequence number of what it refuses, and R only if that had it")
def refusal_copies(mobile):
    # Only an answer with the number of a question is taken for one.
    found = mobile.register(142, prefixes=[ELSEWHERE])
    expect(found.router, "no R in the refusal of a mobile router")
    # A de-registration without a binding.
    found = mobile.register(133, flags=A | H, lifetime=0, prefixes=[])
    expect(not found.router, "R in the refusal of a mobile node")
