"""The paper's figures, in its axes, with what it says marked."""

from __future__ import annotations

from pathlib import Path

from .statistics import curves

# What is drawn: title, the value, how it is called, and what the paper states (x, y, about what).
FIGURES = {
    "fig4a": ("UDP, 1 packet/s, deterministic motion", "delivery", "delivery ratio", [(100, 0.7, "AODV: below")]),
    "fig4b": ("UDP, 40 packets/s, deterministic motion", "delivery", "delivery ratio", []),
    "fig5": (
        "TCP, deterministic motion",
        "kbps",
        "throughput (kb/s)",
        [(100, 230, "GPSR (ha)"), (100, 120, "AODV"), (0, 291, "GPSR (ha)")],
    ),
    "fig7": ("TCP, random waypoints", "kbps", "throughput (kb/s)", [(10, 260, "AODV"), (90, 95, "AODV")]),
    "fig8": (
        "TCP, random waypoints, packets kept in order",
        "kbps",
        "throughput (kb/s)",
        [(10, 315, "GPSR (ha)"), (90, 225, "GPSR (ha)"), (10, 260, "AODV"), (90, 95, "AODV")],
    ),
    "grid": ("UDP, 10 packets/s, vehicles in a town", "delivery", "delivery ratio", []),
    "swarm": ("UDP, 10 packets/s, swarm in three dimensions", "delivery", "delivery ratio", []),
}


def draw(name: str, rows: list[dict], folder: Path) -> Path:
    """Draws a figure as SVG; a town has its number of vehicles across."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    title, value, label, stated = FIGURES[name]
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    across, unit = ("sumo", "vehicles") if name == "grid" else ("speed", "speed (m/s)")
    for variant, points in curves(rows, value, across).items():
        speeds = list(points)
        means = [points[speed][0] for speed in speeds]
        intervals = [points[speed][1] for speed in speeds]
        axes.errorbar(speeds, means, yerr=intervals, capsize=3, marker="o", markersize=3, label=variant)
    for speed, at, what in stated:
        axes.plot(speed, at, "k*", markersize=8)
        axes.annotate(f"paper, {what}", (speed, at), textcoords="offset points", xytext=(-6, 6), ha="right", fontsize=7)
    axes.set(title=title, xlabel=unit, ylabel=label, ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    place = folder / f"{name}.svg"
    figure.savefig(place, metadata={"Date": None})
    pyplot.close(figure)
    return place
