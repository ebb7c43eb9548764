"""Which runs belong to which figure.

The paper is Chen, Gerla, Lee, "TCP over Geo-routing for High Mobility: Vehicle Grids and Airborne Swarms". What it does
not say (places of sender and receiver among random waypoints, TCP's window, what happens at the end of a track) is in
`ns3/motion.cc` and `ns3/main.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .tasks import Run

SPEEDS = [0, 20, 40, 60, 80, 100]
RANDOM_SPEEDS = [10, 30, 50, 70, 90]
SEEDS = [1, 2, 3, 4, 5]

AODV = {"routing": "aodv"}
OLSR = {"routing": "olsr"}
DSDV = {"routing": "dsdv"}


def station(name: str, changes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A variant of the product."""
    variant = {"routing": "carnet", "station": name} | more
    return variant | ({"set": changes} if changes else {})


# How carnet holds back what has overtaken other packets, for stations that lack it.
IN_ORDER = {"geonet.ipv6.reorder_wait": "50ms"}
PAPER = {
    "AODV": AODV,
    "GPSR (1.0)": station("gpsr-1.0"),
    "GPSR (0.2)": station("gpsr-0.2"),
    "GPSR (ha)": station("gpsr-ha"),
    "carnet": station("carnet"),
}
# Variants of carnet, each without one of its improvements.
WITHOUT = {
    "motion prediction": station("carnet", {"geonet.forwarding.link_lifetime": None}),
    "link lifetime (who is in range now)": station("carnet", {"geonet.forwarding.link_lifetime": "0s"}),
    "adaptive beacons (one a second)": station(
        "carnet", {"geonet.beacon": {"interval": "875ms", "jitter": "250ms", "lifetime": 4}}
    ),
    "the neighbours' speed in the beacon interval": station("carnet", {"geonet.beacon.company_speed": None}),
    "beacons on turning": station("carnet", {"geonet.beacon.deviation": None}),
    "the lifetime in beacons": station("carnet", {"geonet.beacon.lifetime": None}),
    "feedback of the MAC": station("carnet", feedback=False),
    "a next hop kept for 200 ms": station("carnet", {"geonet.mib.next_hop_hold": None}),
    "more than the standard's 10 hops": station("carnet", {"geonet.mib.default_hop_limit": None}),
    "perimeter recovery": station("carnet", {"geonet.forwarding.recovery": None}),
    "resequencing": station("carnet", {"geonet.ipv6": None}),
}
# And with one that it does not have by default. The last two concern TCP alone.
HOLD = {"reorder_wait": "200ms", "reorder_rule": "changed", "reorder_hold": "acknowledgements"}
ECN = station("carnet", {"geonet.ipv6.congestion_mark": 3000}, ecn=True, backlog=True)
WITH = {
    "implicit beacons": station("carnet", {"geonet.beacon.piggyback": True}),
    "acknowledgements held in place of resequencing": station("carnet", {"geonet.ipv6": HOLD}),
    "congestion signalled early (ECN)": ECN,
}
ABLATION = (
    {"carnet": station("carnet")}
    | {f"without {name}": variant for name, variant in WITHOUT.items()}
    | {f"with {name}": variant for name, variant in WITH.items()}
)
# Experiments of the paper, and further experiments.
OF_THE_PAPER = ["fig4a", "fig4b", "fig5", "fig7", "fig8"]


def _runs(base: dict[str, Any], variants: dict[str, Any], speeds: Iterable[float], seeds: Iterable[int] = SEEDS) -> list[Run]:
    return [
        base | {"figure": name, "speed": speed, "seed": seed} | variant
        for name, variant in variants.items()
        for speed in speeds
        for seed in seeds
    ]


def experiments(duration: float = 100, seeds: Iterable[int] = SEEDS) -> dict[str, list[Run]]:
    """All of them, by name. The paper's figures take `duration`; the others, for the time that they take, 0.3 of it."""
    columns = {"scenario": "columns", "phy": "ns2", "duration": duration}
    waypoint = {"scenario": "waypoint", "phy": "ns2", "duration": duration * 0.6, "traffic": "tcp"}
    short = duration * 0.3
    short_columns, short_waypoint = columns | {"duration": short}, waypoint | {"duration": short * 0.6}
    in_order = {
        name: station(variant["station"], IN_ORDER) for name, variant in PAPER.items() if name.startswith("GPSR")
    }
    swarm = {"scenario": "swarm", "phy": "air", "duration": short * 0.6, "traffic": "udp", "rate": 10, "start": 20}
    of_udp = {name: variant for name, variant in ABLATION.items() if "acknowledgements" not in name and "ECN" not in name}
    return {
        "fig4a": _runs(columns | {"traffic": "udp", "rate": 1}, PAPER, SPEEDS, seeds),
        "fig4b": _runs(columns | {"traffic": "udp", "rate": 40}, PAPER, SPEEDS, seeds),
        "fig5": _runs(
            columns | {"traffic": "tcp"},
            PAPER
            | {
                "carnet, ECN": ECN,
                "AODV, Fixed-RTO": AODV | {"variant": "fixed-rto"},
                "GPSR (ha), Fixed-RTO": PAPER["GPSR (ha)"] | {"variant": "fixed-rto"},
            },
            SPEEDS,
            seeds,
        ),
        "fig7": _runs(
            waypoint,
            {
                "AODV": AODV,
                "GPSR (1.0)": station("gpsr-1.0"),
                "GPSR (1.0), the paper's receiver": PAPER["GPSR (1.0)"] | {"variant": "patient"},
                "GPSR (1.0), resequencing": in_order["GPSR (1.0)"],
            },
            RANDOM_SPEEDS,
            seeds,
        ),
        "fig8": _runs(
            waypoint,
            {"AODV": AODV}
            | {f"{name}, resequencing": variant for name, variant in in_order.items()}
            | {"carnet": station("carnet"), "carnet, ECN": ECN},
            RANDOM_SPEEDS,
            seeds,
        ),
        "ablation-columns": _runs(short_columns | {"traffic": "udp", "rate": 40}, of_udp, [100], seeds)
        + _runs(short_columns | {"traffic": "tcp"}, ABLATION, [100], seeds),
        "ablation-waypoint": _runs(short_waypoint, ABLATION, [10, 90], seeds),
        "swarm": _runs(swarm, {"AODV": AODV, "OLSR": OLSR, "DSDV": DSDV, "carnet": station("carnet")}, [20, 60, 100], seeds),
        "grid": [
            {"scenario": "trace", "phy": "ns2", "traffic": "udp", "rate": 10, "start": 20, "duration": short * 0.6}
            | {"sumo": vehicles, "speed": 14, "figure": name, "seed": seed}
            | variant
            for name, variant in {
                "AODV": AODV,
                "OLSR": OLSR,
                "carnet": station("carnet"),
                "carnet, 10 hops": WITHOUT["more than the standard's 10 hops"],
            }.items()
            for vehicles in (50, 100)
            for seed in seeds
        ],
        "roadside": _runs(
            {"scenario": "roadside", "phy": "80211p", "traffic": "udp", "rate": 20, "duration": short, "start": 15},
            {"carnet": {"routing": "carnet"}},
            [10, 30, 60],
            seeds,
        ),
        "highway": [
            {
                "scenario": "highway",
                "phy": "80211p",
                "traffic": "udp",
                "rate": 1,
                "cam": 1,
                "nodes": nodes,
                "speed": 33,
                # With the two seconds that datagrams have to arrive: a minute.
                "duration": 50,
                "start": 8,
                "seed": 1,
                "figure": "carnet",
            }
            | station("carnet", {"geonet.range": "400m"})
            for nodes in (250, 500, 1000)
        ],
    }


def smoke() -> list[Run]:
    """A few short runs that show that everything works, and that the claims hold roughly."""
    columns = {"scenario": "columns", "phy": "ns2", "duration": 20}
    udp, tcp = columns | {"traffic": "udp", "rate": 40}, columns | {"traffic": "tcp"}
    runs = [
        udp | {"figure": "udp 40/s at 100 m/s", "speed": 100, "seed": 1} | station("carnet"),
        udp | {"figure": "udp 40/s at 100 m/s, AODV", "speed": 100, "seed": 1} | AODV,
        tcp | {"figure": "tcp over IPv6 at rest", "speed": 0, "seed": 1} | station("carnet"),
        tcp | {"figure": "tcp over IPv4 at rest", "speed": 0, "seed": 1, "ip": 4} | station("carnet"),
        tcp | {"figure": "tcp over IPv6 at 100 m/s", "speed": 100, "seed": 1} | station("carnet"),
        tcp | {"figure": "tcp at 100 m/s, AODV", "speed": 100, "seed": 1} | AODV,
    ]
    road = {"scenario": "roadside", "phy": "80211p", "traffic": "udp", "rate": 20, "start": 15, "duration": 30}
    runs.append(road | {"figure": "by roadside units at 30 m/s", "speed": 30, "seed": 1, "routing": "carnet"})
    return runs
