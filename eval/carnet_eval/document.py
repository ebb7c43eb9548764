"""The tables of docs/simulation.md, from the summary that is kept beside it.

A table stands between the lines `<!-- table NAME -->` and `<!-- end -->`. No other line of the document has a number
that was measured, and a test compares all tables with the summary.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .experiments import OF_THE_PAPER
from .figures import FIGURES
from .summary import VALUES
from .tasks import ROOT

DOCUMENT = ROOT / "docs" / "simulation.md"
SUMMARY = ROOT / "docs" / "figures" / "simulation.json"

# How the values of an experiment are written: name, heading, digits, factor.
SHOWN: dict[str, list[tuple[str, str, int, float]]] = {
    "fig4a": [("delivery", "", 3, 1)],
    "fig4b": [("delivery", "", 3, 1)],
    "fig5": [("kbps", "", 1, 1)],
    "fig7": [("kbps", "", 1, 1)],
    "fig8": [("kbps", "", 1, 1)],
    "swarm": [
        ("delivery", "delivery ratio", 3, 1),
        ("delay", "delay, ms", 0, 1000),
        ("frames", "frames on the air", 0, 1),
        ("octets_per_datagram", "kilobytes on the air for each datagram of 1000 octets that arrives", 1, 0.001),
    ],
    "roadside": [
        ("delivery", "delivery ratio", 3, 1),
        ("delay", "delay, ms", 0, 1000),
        ("outage", "longest time without a datagram, s", 2, 1),
        ("handovers", "changes of roadside unit", 0, 1),
    ],
}
SHOWN["grid"] = SHOWN["swarm"]


def load() -> dict[str, Any]:
    """The summary that is kept."""
    made: dict[str, Any] = json.loads(SUMMARY.read_text())
    return made


def _cell(point: list[Any] | None, digits: int, factor: float) -> str:
    if point is None:
        return ""
    _, mean, interval, runs = point
    number = f"{mean * factor:.{digits}f}"
    return number if runs < 2 else f"{number} ± {interval * factor:.{digits}f}"


def curves(made: dict[str, Any], name: str) -> str:
    """A table for each value of an experiment: variants down, x across."""
    series = made["experiments"][name]["series"]
    parts = []
    for value, heading, digits, factor in SHOWN[name]:
        across = sorted({point[0] for of in series.values() for point in of.get(value, [])})
        lines = ["| | " + " | ".join(f"{x:g}" for x in across) + " |", "|---" * (len(across) + 1) + "|"]
        for variant, of in series.items():
            points = {point[0]: point for point in of.get(value, [])}
            lines.append(f"| {variant} | " + " | ".join(_cell(points.get(x), digits, factor) for x in across) + " |")
        parts.append((f"{heading[0].upper()}{heading[1:]}:\n\n" if heading else "") + "\n".join(lines))
    return "\n\n".join(parts)


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    match unit:
        case "%":
            return f"{value:.1%}".replace("%", " %")
        case "times":
            return f"{value:.2f}"
        case "kb/s":
            return f"{value:.0f} kb/s"
        case _:
            return f"{value:g}"


def claims(made: dict[str, Any]) -> str:
    """Paper, here, ratio."""
    lines = ["| figure | | paper | here | here / paper |", "|---|---|---|---|---|"]
    for row in made["claims"]:
        if "paper" in row:
            paper = f"{row['word']} {_with_unit(row['paper'], row['unit'])}".strip()
            share = "" if row["here"] is None else f"{row['here'] / row['paper']:.2f}"
            lines.append(f"| {row['figure']} | {row['what']} | {paper} | {_with_unit(row['here'], row['unit'])} | {share} |")
    return "\n".join(lines)


def goals(made: dict[str, Any]) -> str:
    """Targets and results."""
    lines = ["| figure | | aim, at least | here |", "|---|---|---|---|"]
    for row in made["claims"]:
        if "goal" in row:
            unit = row["unit"]
            lines.append(f"| {row['figure']} | {row['what']} | {_with_unit(row['goal'], unit)} | {_with_unit(row['here'], unit)} |")
    return "\n".join(lines)


def improvements(made: dict[str, Any]) -> str:
    """Effect of each mechanism, on or off, in four settings."""
    settings = [
        ("ablation-columns", "kbps", "tcp", 1, "TCP, columns, 100 m/s, kb/s"),
        ("ablation-columns", "delivery", "udp", 3, "UDP 40/s, columns, 100 m/s, delivery"),
        ("ablation-waypoint", "kbps", 10, 1, "TCP, waypoints, 10 m/s, kb/s"),
        ("ablation-waypoint", "kbps", 90, 1, "90 m/s"),
    ]
    variants: dict[str, None] = {}
    for name, *_ in settings:
        variants |= dict.fromkeys(made["experiments"].get(name, {}).get("series", {}))
    lines = ["| | " + " | ".join(setting[4] for setting in settings) + " |", "|---" * (len(settings) + 1) + "|"]
    for variant in variants:
        cells = []
        for name, value, x, digits, _ in settings:
            points = made["experiments"].get(name, {}).get("series", {}).get(variant, {}).get(value, [])
            cells.append(_cell(next((point for point in points if point[0] == x), None), digits, 1))
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def highway(made: dict[str, Any]) -> str:
    """Time, memory and the core's own time, by the number of vehicles."""
    series = made["experiments"]["highway"]["series"]["carnet"]
    shown = [
        ("cpu_s", "processor s", 1, 1), ("wall_s", "wall s", 1, 1), ("rss_mb", "memory MB", 0, 1),
        ("core_packets", "million packets into stations", 2, 1e-6), ("core_us_per_packet", "core, µs for each", 2, 1),
        ("core_share", "core's share, %", 1, 100),
    ]  # fmt: skip
    lines = ["| vehicles | " + " | ".join(heading for _, heading, *_ in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for index, point in enumerate(sorted(series["cpu_s"])):
        cells = [_cell(sorted(series[value])[index], digits, factor) for value, _, digits, factor in shown]
        lines.append(f"| {point[0]:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cost(made: dict[str, Any]) -> str:
    """The core's share of the processor's time."""
    lines = ["| | runs | core's share | core, ns for each call |", "|---|---|---|---|"]
    for kind, of in made["cost"]["by_kind"].items():
        lines.append(f"| {kind} | {of['runs']} | {of['share']:.2%} | {of['ns_per_call']} |".replace("%", " %"))
    return "\n".join(lines)


def runs(made: dict[str, Any]) -> str:
    """Experiments and their commands."""
    command = f"`make sim-all SIM_ARGS='{made['arguments']}'`:"
    lines = [command, ""]
    lines += ["| | runs | seeds | seconds of traffic | processor s |", "|---|---|---|---|---|"]
    for name, of in made["experiments"].items():
        count = f"{of['runs']}" if of["runs"] == of["of"] else f"{of['runs']} of {of['of']}"
        lines.append(f"| {name} | {count} | {of['seeds']} | {of['duration']:g} | {of['cpu_s']:.0f} |")
    figures = [of for name, of in made["experiments"].items() if name in OF_THE_PAPER]
    whole = sum(of["runs"] for of in figures), sum(of["cpu_s"] for of in figures)
    lines.append(f"| the paper's figures together | {whole[0]} | | | {whole[1]:.0f} |")
    return "\n".join(lines)


TABLES = {
    "claims": claims, "goals": goals, "improvements": improvements, "highway": highway, "cost": cost, "runs": runs,
}  # fmt: skip


def filled(text: str, made: dict[str, Any]) -> str:
    """The document with all of its tables made anew."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
        if name not in made["experiments"] and name in VALUES:
            body = "Not run."
        else:
            body = TABLES[name](made) if name in TABLES else curves(made, name)
            if name in FIGURES:
                body += f"\n\n![{FIGURES[name][0]}](figures/{name}.svg)"
        return f"<!-- table {name} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def write(made: dict[str, Any], document: Path = DOCUMENT) -> None:
    """Makes the document's tables anew."""
    document.write_text(filled(document.read_text(), made))
