"""What `carnet-lab eval` found, for notebooks: rows, Parquet, curves, pictures.

    from carnet_eval import papers
    run = papers.load("out/eval-papers/eval.json")
    run.curve("nemo-basic-support", "rtt-sizes", "subject").points
    run.draw("nemo-basic-support", "rtt-sizes")

Two runs are compared by `carnet-lab eval --compare OLD NEW`, which `compare` calls.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
# What of a sample is the same for all points of a curve.
NAMES = ("paper", "experiment", "series", "with", "quantity", "unit")


@dataclass(frozen=True)
class Point:
    """A place on the axis (None if there is no axis) and all repetitions, in order."""

    x: float | None
    median: float
    rounds: tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """The points of one curve, by their place on the axis."""

    names: dict[str, str | None]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Run:
    """An eval.json."""

    document: dict[str, Any]

    @property
    def emulated(self) -> bool:
        """Whether the machine was an emulator's: its times and rates are not to be held against real ones."""
        return bool(self.document.get("machine", {}).get("emulated", False))

    def rows(self) -> list[dict[str, Any]]:
        """Every repetition of every point, flat."""
        return [
            {name: sample[name] for name in (*NAMES, "x")} | {"round": number, "value": value}
            for sample in self.document["samples"]
            for number, value in enumerate(sample["values"]["rounds"])
        ]

    def curves(self, paper: str, experiment: str, quantity: str | None = None) -> list[Curve]:
        """The curves of an experiment; of its first quantity unless one is named."""
        samples = [one for one in self.document["samples"] if (one["paper"], one["experiment"]) == (paper, experiment)]
        if not samples:
            raise KeyError(f"no samples of {paper}, {experiment}")
        quantity = quantity or samples[0]["quantity"]
        found: dict[tuple[str | None, ...], list[Point]] = {}
        for sample in (one for one in samples if one["quantity"] == quantity):
            values = sample["values"]
            point = Point(sample["x"], values["median"], tuple(values["rounds"]))
            found.setdefault(tuple(sample[name] for name in NAMES), []).append(point)
        return [
            Curve(dict(zip(NAMES, names, strict=True)), tuple(sorted(points, key=lambda point: point.x or 0.0)))
            for names, points in found.items()
        ]

    def curve(self, paper: str, experiment: str, series: str, quantity: str | None = None) -> Curve:
        """The first curve of a series."""
        for curve in self.curves(paper, experiment, quantity):
            if curve.names["series"] == series:
                return curve
        raise KeyError(f"no series {series} of {paper}, {experiment}")

    def parquet(self, place: Path) -> None:
        """All rows; what is the same for all of them is in the metadata."""
        import pyarrow as arrow
        from pyarrow import parquet

        about = {name: value for name, value in self.document.items() if name != "samples"}
        table = arrow.Table.from_pylist(self.rows())
        parquet.write_table(table.replace_schema_metadata({"eval": json.dumps(about)}), place, compression="zstd")

    def draw(self, paper: str, experiment: str, quantity: str | None = None) -> Any:
        """A matplotlib figure: medians, and from the lowest to the highest repetition."""
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(layout="constrained")
        for curve in self.curves(paper, experiment, quantity):
            xs = [point.x or 0.0 for point in curve.points]
            names = curve.names
            label = ", ".join(text for text in (names["series"], names["with"]) if text)
            (line,) = axes.plot(xs, [point.median for point in curve.points], marker="o", markersize=3, label=label)
            low, high = ([pick(point.rounds) for point in curve.points] for pick in (min, max))
            axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.15)
            axes.set_ylabel(f"{names['quantity']} ({names['unit']})")
        axes.set_title(f"{paper}: {experiment}" + (" (emulated machine)" if self.emulated else ""))
        axes.legend()
        return figure


def load(place: str | Path) -> Run:
    """Reads an eval.json."""
    document = json.loads(Path(place).read_text())
    if (version := document.get("schema_version")) != SCHEMA_VERSION:
        raise ValueError(f"{place} has version {version}, expected {SCHEMA_VERSION}")
    return Run(document)


def compare(old: str | Path, new: str | Path, lab: str | Path = "carnet-lab") -> tuple[bool, str]:
    """Whether anything became slower, and what `carnet-lab eval --compare` says."""
    done = subprocess.run([lab, "eval", "--compare", old, new], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr.strip())
    return done.returncode == 1, done.stdout
