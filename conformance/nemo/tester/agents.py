"""Home agents under test, as the cases see them."""

from . import bed, packets
from .case import Target, case, stations


def target_of(station, address=bed.HOME_AGENT, home=None):
    """A home agent with this address; `home` is the link that it shares with others."""
    foreign, home = station.wires["f0"], home or station.wires.get("h0")
    asker = packets.ip(f"{bed.FOREIGN}a:1")
    foreign.own(asker)
    gateway = foreign.mac_of(packets.ip(f"{bed.FOREIGN}1"), asker, bed.PATIENCE)
    if gateway is None:
        raise AssertionError("the station does not answer on the foreign link")

    def operator(what, home_address=None, bid=None, within=None, other=None):
        named = [home_address and packets.text(home_address), bid and f"--bid={bid}", within and f"--within={within}s",
                 other and f"--to={packets.text(other)}"]
        station.order(what, *filter(None, named))

    return Target(foreign, home, address, "2001:db8:1::", bed.FOREIGN, gateway, operator, bed.OTHER_AGENT, station.memory)


class TwoAgents:
    """Two home agents of the same nodes on one home link, of which the second is preferred."""

    def __init__(self, program, nodes, capture):
        self.link, self.stations, self.targets = bed.SharedLink("h0", capture), [], []
        try:
            for address, preference in ((bed.HOME_AGENT, 10), (bed.OTHER_AGENT, 20)):
                station = bed.home_agent(program, nodes, True, capture, address, preference, home_link=self.link)
                self.stations.append(station)
                self.targets.append(target_of(station, address, self.link.wire))
        except BaseException:
            self.close()
            raise

    def close(self):
        for station in self.stations:
            station.close()
        self.link.close()


def two_agents(name, clause, title):
    """A case with two home agents of its own; it is handed them and a node."""
    def declare(run):
        def whole(program, capture):
            node = bed.Node("2001:db8:1::1001", ["2001:db8:a001::/64"], 301, bytes(range(16)))
            agents = TwoAgents(program, [node], capture)
            with stations(agents.stations, agents.close):
                run(agents, node)
        return case(name, clause, title, agents=True)(whole)
    return declare
