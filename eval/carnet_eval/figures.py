"""The paper's figures with its axes, and marks for the numbers in its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# What is drawn: title, the value, how it is called, the top of its axis, and what the paper states: x, y, what.
FIGURES: dict[str, tuple[str, str, str, float | None, list[tuple[float, float, str]]]] = {
    "fig4a": ("UDP, 1 packet/s, deterministic motion", "delivery", "delivery ratio", 1.05, [(100, 0.7, "AODV: less than")]),
    "fig4b": ("UDP, 40 packets/s, deterministic motion", "delivery", "delivery ratio", 1.05, []),
    "fig5": (
        "TCP, deterministic motion",
        "kbps",
        "throughput (kb/s)",
        None,
        [(0, 291, "GPSR (ha)"), (100, 230, "GPSR (ha)"), (0, 240, "AODV"), (100, 120, "AODV")],
    ),
    "fig7": (
        "TCP, random waypoints",
        "kbps",
        "throughput (kb/s)",
        None,
        [(10, 260, "AODV"), (90, 95, "AODV"), (90, 150, "GPSR (1.0)")],
    ),
    "fig8": (
        "TCP, random waypoints, packets kept in order",
        "kbps",
        "throughput (kb/s)",
        None,
        [(10, 315, "GPSR (ha)"), (90, 225, "GPSR (ha)"), (10, 260, "AODV"), (90, 95, "AODV")],
    ),
    "grid": ("UDP, 10 packets/s, vehicles in a town", "delivery", "delivery ratio", 1.05, []),
    "swarm": ("UDP, 10 packets/s, swarm in three dimensions", "delivery", "delivery ratio", 1.05, []),
}
# One look for each kind of routing in all figures, so that the paper's marks can have it too.
LOOKS = {
    "AODV": ("tab:red", "s"), "GPSR (1.0)": ("tab:orange", "^"), "GPSR (0.2)": ("tab:green", "v"),
    "GPSR (ha)": ("tab:blue", "D"), "carnet": ("black", "o"), "OLSR": ("tab:purple", "P"), "DSDV": ("tab:brown", "X"),
}  # fmt: skip
# A second variant of the same routing, and a third.
LINES = ["-", "--", ":"]


def _routing(variant: str) -> str:
    return next((name for name in LOOKS if variant.startswith(name)), "carnet")


def draw(name: str, series: dict[str, Any], folder: Path, formats: tuple[str, ...] = ("svg",)) -> list[Path]:
    """Draws a figure of a summary's curves; a town has its number of vehicles across."""
    import matplotlib

    matplotlib.use("agg")
    # Equal results, equal files.
    matplotlib.rcParams["svg.hashsalt"] = "carnet"
    # Text as text, a third of the size.
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    title, value, label, top, stated = FIGURES[name]
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    drawn: dict[str, int] = {}
    for variant, curves in series.items():
        points = sorted(curves.get(value, []))
        routing = _routing(variant)
        colour, marker = LOOKS[routing]
        line = LINES[drawn.setdefault(routing, 0) % len(LINES)]
        drawn[routing] += 1
        xs, means, intervals = ([point[at] for point in points] for at in (0, 1, 2))
        # The interval of a few runs reaches below what is possible.
        below = [min(interval, mean) for mean, interval in zip(means, intervals)]
        above = [min(interval, 1 - mean) if top else interval for mean, interval in zip(means, intervals)]
        axes.errorbar(
            xs, means, yerr=(below, above), capsize=2, color=colour, marker=marker, markersize=4, linestyle=line,
            elinewidth=0.7, linewidth=1.2, label=variant,
        )  # fmt: skip
    for x, y, what in stated:
        axes.plot(x, y, "*", color=LOOKS[_routing(what)][0], markersize=13, markeredgecolor="black", zorder=5)
    if stated:
        axes.plot([], [], "*", color="white", markeredgecolor="black", markersize=11, label="stated in the paper")
    axes.set(title=title, xlabel="vehicles" if name == "grid" else "speed (m/s)", ylabel=label)
    axes.set_ylim(0, top)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    places = [folder / f"{name}.{ending}" for ending in formats]
    for place in places:
        figure.savefig(place, metadata={"Date": None} if place.suffix == ".svg" else None, dpi=110)
    pyplot.close(figure)
    return places
