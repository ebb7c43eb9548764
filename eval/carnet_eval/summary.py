"""Results, boiled down to what documents and figures need: one JSON object that is small enough to be kept.

`experiments` has, for each experiment, how many of its runs there are, and for each variant and value the points of a
curve: x, mean, half of the 95 % confidence interval, runs. `claims` puts what the paper states beside what came out.
"""

from __future__ import annotations

from typing import Any

from . import statistics
from .experiments import OF_THE_PAPER
from .tasks import Run, key

# Values that are kept of an experiment, and what lies across. Frames are all on the air, acknowledgements included.
VALUES = {
    "fig4a": ("speed", ["delivery", "delay"]),
    "fig4b": ("speed", ["delivery", "delay"]),
    "fig5": ("speed", ["kbps"]),
    "fig7": ("speed", ["kbps"]),
    "fig8": ("speed", ["kbps"]),
    "ablation-columns": ("traffic", ["kbps", "delivery"]),
    "ablation-waypoint": ("speed", ["kbps"]),
    "swarm": ("speed", ["delivery", "delay", "frames", "octets_per_datagram"]),
    "grid": ("sumo", ["delivery", "delay", "frames", "octets_per_datagram"]),
    "roadside": ("speed", ["delivery", "delay", "outage", "handovers"]),
    "highway": ("nodes", ["cpu_s", "wall_s", "rss_mb", "core_us_per_packet", "core_packets", "core_share"]),
}


def value_of(result: dict[str, float], name: str) -> float | None:
    """A value of a run's result, some of them reckoned."""
    match name:
        case "rss_mb":
            return result["rss_kb"] / 1024
        case "core_us_per_packet":
            return result["core_ns"] / 1000 / max(result["core_packets"], 1)
        case "core_share":
            return result["core_ns"] / 1e9 / result["cpu_s"]
        case "octets_per_datagram":
            # Octets on the air for each datagram that arrives, its own octets included.
            return result["frame_octets"] / result["received"] if result.get("received") else None
        case "delay":
            # Without values, the mean is None.
            return result["delay"] if result.get("received") else None
        case _:
            return result.get(name)


def summary(rows: dict[str, dict[str, Any]], wanted: dict[str, list[Run]], arguments: str = "") -> dict[str, Any]:
    """The summary of all experiments of which there are results; `arguments` is how they were asked for."""
    experiments = {}
    for name, runs in wanted.items():
        found = [rows[key(run)] for run in runs if key(run) in rows]
        if not found:
            continue
        across, values = VALUES[name]
        series: dict[str, Any] = {}
        for row in found:
            curves = series.setdefault(row["run"]["figure"], {})
            for value in values:
                if (measured := value_of(row["result"], value)) is not None:
                    curves.setdefault(value, {}).setdefault(str(row["run"][across]), []).append(measured)
        experiments[name] = {
            "runs": len(found),
            "of": len(runs),
            "seeds": len({row["run"]["seed"] for row in found}),
            "duration": found[0]["run"]["duration"],
            "cpu_s": round(sum(row["result"]["cpu_s"] for row in found), 1),
            "series": {
                variant: {value: [_point(at, numbers) for at, numbers in points.items()] for value, points in curves.items()}
                for variant, curves in series.items()
            },
        }
    everything = [rows[key(run)] for runs in wanted.values() for run in runs if key(run) in rows]
    return {"arguments": arguments, "experiments": experiments, "claims": claims(experiments), "cost": cost(everything)}


def _point(at: str, numbers: list[float]) -> list[Any]:
    mean, interval = statistics.mean_and_interval(numbers)
    x = float(at) if at.replace(".", "", 1).isdigit() else at
    return [x, _rounded(mean), _rounded(interval), len(numbers)]


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def cost(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Processor time of the core in loaded runs of the paper's figures, and the number of these runs."""
    with_core = [row["result"] for row in rows if "core_ns" in row["result"]]
    shares: dict[str, list[float]] = {}
    for row in rows:
        run, result = row["run"], row["result"]
        if "core_ns" not in result:
            continue
        kind = f"{run['scenario']}, {run['traffic']}" + (f" {run['rate']:g}/s" if run["traffic"] == "udp" else "")
        total = shares.setdefault(kind, [0.0, 0.0, 0.0, 0.0])
        for at, value in enumerate((result["core_ns"] / 1e9, result["cpu_s"], result["core_calls"], 1)):
            total[at] += value
    return {
        "runs": len(with_core),
        "by_kind": {
            kind: {"share": _rounded(core / cpu), "ns_per_call": round(core / calls * 1e9), "runs": int(count)}
            for kind, (core, cpu, calls, count) in sorted(shares.items())
        },
    }


def at(experiments: dict[str, Any], name: str, variant: str, value: str, x: float) -> float | None:
    """The mean at a point of a curve, if it is there."""
    points = experiments.get(name, {}).get("series", {}).get(variant, {}).get(value, [])
    return next((point[1] for point in points if point[0] == x), None)


def claims(experiments: dict[str, Any]) -> list[dict[str, Any]]:
    """Numbers of the paper and of these runs, then carnet's targets."""

    def kbps(name: str, variant: str, speed: float) -> float | None:
        return at(experiments, name, variant, "kbps", speed)

    def delivery(name: str, variant: str, speed: float) -> float | None:
        return at(experiments, name, variant, "delivery", speed)

    def ratio(over: float | None, under: float | None) -> float | None:
        return over / under if over is not None and under else None

    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    def lost(over: float | None, under: float | None) -> float | None:
        kept = ratio(over, under)
        return None if kept is None else 1 - kept

    def lowest(name: str, variant: str) -> float | None:
        points = experiments.get(name, {}).get("series", {}).get(variant, {}).get("delivery", [])
        return min((point[1] for point in points), default=None)

    def below(name: str, variant: str, other: str) -> float | None:
        """From which speed on a variant delivers less than another."""
        speeds = [0, 20, 40, 60, 80, 100]
        worse = []
        for speed in speeds:
            one, two = delivery(name, variant, speed), delivery(name, other, speed)
            worse.append(one is not None and two is not None and one < two)
        return next((speed for index, speed in enumerate(speeds) if all(worse[index:])), None)

    fixed = [
        ratio(kbps("fig5", f"{routing}, Fixed-RTO", speed), kbps("fig5", routing, speed))
        for routing in ("AODV", "GPSR (ha)")
        for speed in (0, 20, 40, 60, 80, 100)
    ]
    held = [
        ratio(kbps("fig7", "GPSR (1.0), the paper's receiver", speed), kbps("fig7", "GPSR (1.0)", speed))
        for speed in (10, 30, 50, 70, 90)
    ]
    ha, carnet = "GPSR (ha)", "carnet"
    ordered = "GPSR (ha), resequencing"
    # Figure, what, the paper's value (None: not a number), this value, unit.
    rows = [
        ("4a", "AODV loses, 100 m/s", 0.30, lost(delivery("fig4a", "AODV", 100), 1), "%", "more than"),
        ("4a", "GPSR (1.0) delivers, 100 m/s", 1.0, delivery("fig4a", "GPSR (1.0)", 100), "%", "almost"),
        ("4a", "GPSR (ha) delivers at least, all speeds", 1.0, lowest("fig4a", ha), "%", "around"),
        ("4b", "GPSR (1.0) is worse than AODV from so many m/s on", 40, below("fig4b", "GPSR (1.0)", "AODV"), "", "above"),
        ("5", "TCP over GPSR (ha), 100 m/s", 230, kbps("fig5", ha, 100), "kb/s", "around"),
        ("5", "TCP over GPSR (ha) loses from 0 to 100 m/s", 0.21, lost(kbps("fig5", ha, 100), kbps("fig5", ha, 0)), "%", ""),
        ("5", "TCP over AODV, 100 m/s", 120, kbps("fig5", "AODV", 100), "kb/s", "about"),
        ("5", "TCP over AODV loses from 0 to 100 m/s", 0.50, lost(kbps("fig5", "AODV", 100), kbps("fig5", "AODV", 0)), "%", ""),
        ("5", "Fixed-RTO, times TCP's own", 1.0, mean([each for each in fixed if each is not None]), "times", "practically"),
        ("7", "the paper's receiver, times TCP's own", 1.10, mean([each for each in held if each is not None]), "times", "about"),
        ("7", "TCP over GPSR (1.0), 90 m/s", 150, kbps("fig7", "GPSR (1.0)", 90), "kb/s", ""),
        ("8", "TCP over GPSR (ha) in order, 10 m/s", 315, kbps("fig8", ordered, 10), "kb/s", ""),
        ("8", "the same, 90 m/s", 225, kbps("fig8", ordered, 90), "kb/s", ""),
        ("8", "TCP over AODV, 10 m/s", 260, kbps("fig8", "AODV", 10), "kb/s", ""),
        ("8", "the same, 90 m/s", 95, kbps("fig8", "AODV", 90), "kb/s", ""),
        ("8", "GPSR (ha) in order, times AODV, 90 m/s", 225 / 95, ratio(kbps("fig8", ordered, 90), kbps("fig8", "AODV", 90)), "times", ""),
    ]
    goals = [
        ("4a", "carnet delivers at least, all speeds", 1.0, lowest("fig4a", carnet), "%"),
        ("4b", "carnet delivers, 100 m/s", 0.97, delivery("fig4b", carnet, 100), "%"),
        ("5", "TCP over carnet keeps from 0 to 100 m/s", 0.85, ratio(kbps("fig5", carnet, 100), kbps("fig5", carnet, 0)), "%"),
        ("8", "TCP over carnet keeps from 10 to 90 m/s", 0.60, ratio(kbps("fig8", carnet, 90), kbps("fig8", carnet, 10)), "%"),
        ("8", "TCP over carnet, times AODV, 90 m/s", 4, ratio(kbps("fig8", carnet, 90), kbps("fig8", "AODV", 90)), "times"),
    ]
    ecn = "carnet, ECN"
    goals += [
        ("5", "TCP over carnet with ECN keeps from 0 to 100 m/s", 0.85, ratio(kbps("fig5", ecn, 100), kbps("fig5", ecn, 0)), "%"),
        ("8", "TCP over carnet with ECN keeps from 10 to 90 m/s", 0.60, ratio(kbps("fig8", ecn, 90), kbps("fig8", ecn, 10)), "%"),
        ("8", "TCP over carnet with ECN, times AODV, 90 m/s", 4, ratio(kbps("fig8", ecn, 90), kbps("fig8", "AODV", 90)), "times"),
    ]
    made = [
        {"figure": figure, "what": what, "paper": _rounded(paper), "word": word, "here": None if here is None else _rounded(here), "unit": unit}
        for figure, what, paper, here, unit, word in rows
    ]
    made += [
        {"figure": figure, "what": what, "goal": _rounded(goal), "here": None if here is None else _rounded(here), "unit": unit}
        for figure, what, goal, here, unit in goals
    ]
    return made


def is_whole(made: dict[str, Any]) -> bool:
    """Whether all runs of the paper's figures are in it."""
    experiments = made["experiments"]
    return all(name in experiments and experiments[name]["runs"] == experiments[name]["of"] for name in OF_THE_PAPER)
