"""Two home agents on one home link: RFC 6275 10.5, RFC 3963 7, and who defends what both have bound."""

from tester import packets
from tester.agents import two_agents
from tester.case import PATIENCE, Mobile, expect
from tester.packets import ICMPV6, ip
from tester.wire import group_mac

from cases.discovery import advertise, until

ALL_ROUTERS = ip("ff02::2")


def seek_routers(mobile):
    """A host on the home link solicits routers, so that the test need not wait for the next Router
    Advertisement."""
    source = ip(f"fe80::a8:{mobile.number:x}")
    message = packets.icmpv6(source, ALL_ROUTERS, 133, 0, bytes(4))
    mobile.target.home.send(packets.ipv6(source, ALL_ROUTERS, ICMPV6, message, 255), group_mac(ALL_ROUTERS))


def known_to_each_other(agents, node):
    """The node as seen by either, when each names both."""
    mobiles = [Mobile(target, node, 1 + n) for n, target in enumerate(agents.targets)]
    first, second = (target.home_agent for target in agents.targets)
    seek_routers(mobiles[0])
    for mobile in mobiles:
        until(mobile, lambda router, named: router and named == [second, first], "not both, or not the preferred one first")
    return mobiles


@two_agents("70", "RFC 6275 10.5.1, RFC 3963 7.1, 7.2, 7.3", "two home agents on one link: each names both with R, the preferred one first")
def name_each_other(agents, node):
    known_to_each_other(agents, node)


@two_agents("70b", "RFC 6275 10.5.1, 7.4", "one that stops is no longer named by the other")
def one_stops(agents, node):
    mobile, other = known_to_each_other(agents, node)
    agents.stations.pop().close()
    until(mobile, lambda _, named: other.target.home_agent not in named, "still named after its end")


@two_agents("70c", "RFC 6275 10.1, 10.5.1", "a third one that is heard no more is forgotten by both when its lifetime has ended")
def one_ages(agents, node):
    mobiles = known_to_each_other(agents, node)
    third = ip("2001:db8:1::a9:1")
    advertise(mobiles[0], third, 30, 1800)
    for mobile in mobiles:
        until(mobile, lambda _, named: named[0] == third, "the third is not first")
    # The last Router Advertisement of the home agent has a short lifetime.
    advertise(mobiles[0], third, 30, 5)
    for mobile in mobiles:
        until(mobile, lambda _, named: third not in named, "the third is still named", 2 * PATIENCE)


@two_agents("70d", "RFC 6275 10.3.1, 10.4.1", "a node that goes from one to the other: the other accepts it while the first still defends the home "
            "address, and is the only one that answers for it in the end")
def handed_over(agents, node):
    here, there = known_to_each_other(agents, node)
    macs = [mobile.target.home.mac_of(mobile.target.home_agent, ip("fe80::a5:ffff")) for mobile in (here, there)]
    expect(all(macs) and macs[0] != macs[1], f"home agents at {macs}")

    def defenders(mobile):
        return {heard.source_mac for heard in mobile.answers(mobile.home)}
    here.register()
    expect(defenders(here) == {macs[0]}, "not just the first answers for the home address when it alone has a binding")
    there.register()
    there.arrives(there.home)
    here.deregister()
    # Not the one that answers first: all that do.
    found = defenders(there)
    expect(found == {macs[1]}, f"{[mac.hex(':') for mac in found]} answer for the home address, {macs[1].hex(':')} should")
    there.deregister()
    expect(not defenders(there), "the home address is still defended when nobody has a binding any more")
