"""Which runs belong to which figure.

The paper is Chen, Gerla, Lee, "TCP over Geo-routing for High Mobility: Vehicle Grids and Airborne Swarms". What it does
not say (places of sender and receiver among random waypoints, TCP's window, what happens at the end of a track) is in
`ns3/motion.cc` and `ns3/main.cc`.
"""

from __future__ import annotations

from .tasks import Run

SPEEDS = [0, 20, 40, 60, 80, 100]
RANDOM_SPEEDS = [10, 30, 50, 70, 90]
SEEDS = [1, 2, 3, 4, 5]

AODV = {"routing": "aodv"}
OLSR = {"routing": "olsr"}
DSDV = {"routing": "dsdv"}


def station(name: str, changes: dict | None = None, **more) -> dict:
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
# What carnet is without one of its improvements.
WITHOUT = {
    "motion prediction": {"geonet.forwarding.link_lifetime": None},
    "looking ahead (only who is in range now)": {"geonet.forwarding.link_lifetime": "0s"},
    "the neighbours' speed in the beacon interval": {"geonet.beacon.company_speed": None},
    "beacons on turning": {"geonet.beacon.deviation": None},
    "the lifetime in beacons": {"geonet.beacon.lifetime": None},
    "resequencing": {"geonet.ipv6": None},
    "perimeter recovery": {"geonet.forwarding.recovery": None},
}


def _runs(base: dict, variants: dict, speeds, seeds=SEEDS) -> list[Run]:
    return [
        base | {"figure": name, "speed": speed, "seed": seed} | variant
        for name, variant in variants.items()
        for speed in speeds
        for seed in seeds
    ]


def experiments(duration: float = 100, seeds=SEEDS) -> dict[str, list[Run]]:
    """All of them, by name."""
    columns = {"scenario": "columns", "phy": "ns2", "duration": duration}
    waypoint = {"scenario": "waypoint", "phy": "ns2", "duration": duration * 0.6, "traffic": "tcp"}
    in_order = {
        name: station(variant["station"], IN_ORDER) for name, variant in PAPER.items() if name.startswith("GPSR")
    }
    swarm = {"scenario": "swarm", "phy": "air", "duration": duration * 0.6, "traffic": "udp", "rate": 10, "start": 20}
    ablation = {"carnet": station("carnet")} | {
        f"without {name}": station("carnet", changes) for name, changes in WITHOUT.items()
    }
    ablation["without feedback of the MAC"] = station("carnet", feedback=False)
    return {
        "fig4a": _runs(columns | {"traffic": "udp", "rate": 1}, PAPER, SPEEDS, seeds),
        "fig4b": _runs(columns | {"traffic": "udp", "rate": 40}, PAPER, SPEEDS, seeds),
        "fig5": _runs(
            columns | {"traffic": "tcp"},
            PAPER
            | {
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
            | {"carnet": station("carnet")},
            RANDOM_SPEEDS,
            seeds,
        ),
        "ablation-columns": _runs(columns | {"traffic": "udp", "rate": 40}, ablation, [100], seeds)
        + _runs(columns | {"traffic": "tcp"}, ablation, [100], seeds),
        "ablation-waypoint": _runs(waypoint, ablation, [10, 90], seeds),
        "swarm": _runs(swarm, {"AODV": AODV, "OLSR": OLSR, "DSDV": DSDV, "carnet": station("carnet")}, [20, 60, 100], seeds),
        "grid": [
            {"scenario": "trace", "phy": "ns2", "traffic": "udp", "rate": 10, "start": 20, "duration": duration * 0.6}
            | {"sumo": vehicles, "speed": 14, "figure": name, "seed": seed}
            | variant
            for name, variant in {"AODV": AODV, "OLSR": OLSR, "carnet": station("carnet")}.items()
            for vehicles in (50, 100)
            for seed in seeds
        ],
        "highway": [
            {
                "scenario": "highway",
                "phy": "80211p",
                "traffic": "udp",
                "rate": 1,
                "cam": 1,
                "nodes": nodes,
                "speed": 33,
                "duration": 50,
                "start": 8,
                "seed": 1,
                "figure": "carnet",
            }
            | station("carnet", {"geonet.range": "400m"})
            for nodes in (125, 250, 500, 1000)
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
    return runs
