"""What `carnet-lab eval` found, for notebooks: rows, Parquet, curves, pictures.

    import carnet_eval
    run = carnet_eval.load("out/eval-papers/eval.json")
    run.curve("nemo-basic-support", "rtt-sizes", "subject").points
    run.draw("nemo-basic-support", "rtt-sizes")
    pandas.DataFrame(run.rows())

Two runs are compared by `carnet-lab eval --compare OLD NEW`, which `compare` calls. `results.schema.json`, beside this
file, is what an eval.json has to be; `check` says where one is not.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
# Fields of a sample that are equal for all points of a curve.
NAMES = ("paper", "experiment", "series", "with", "quantity", "unit")
# Fields of a run in every row of Parquet, so that files of several runs form one table.
ABOUT = ("subject", "effort", "time", "carnet", "commit", "cpu", "kernel")
# So many curves have their legend beside the picture.
MANY = 4
SCHEMA = Path(__file__).with_name("results.schema.json")


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
class Trace:
    """A ping against time: when each request was sent (seconds), its round trip (milliseconds, None if it was lost)."""

    label: str
    at_s: tuple[float, ...]
    ms: tuple[float | None, ...]
    moves: tuple[tuple[float, str], ...]
    """When another uplink took the traffic, and what kind of link it is."""

    def lost(self) -> list[float]:
        """When the requests were sent that nothing came back for."""
        return [at for at, ms in zip(self.at_s, self.ms, strict=True) if ms is None]


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

    def trace(self, paper: str, experiment: str) -> Trace | None:
        """The measured trace against time, if the experiment has one."""
        for one in self.document.get("traces", []):
            if (one["paper"], one["experiment"]) == (paper, experiment):
                moves = tuple((move["at_s"], move["to"]) for move in one["moves"])
                return Trace(one["label"], tuple(one["at_s"]), tuple(one["ms"]), moves)
        return None

    def axis(self, paper: str, experiment: str) -> str | None:
        """What the horizontal axis of an experiment is; None where it has none, or the file does not tell."""
        for made in self.document.get("experiments", []):
            if (made["paper"], made["experiment"]) == (paper, experiment):
                return _axis(made["parameters"])
        return None

    def about(self) -> dict[str, str | None]:
        """The measured quantity, the measuring program and the machine."""
        machine, document = self.document["machine"], self.document
        values = {"subject": document["subject"]["name"], "effort": document["effort"], "time": document["time"]}
        return values | {name: machine[name] for name in ("carnet", "commit", "cpu", "kernel")}

    def parquet(self, place: str | Path) -> None:
        """A row for each repetition, its columns the same for every run; the rest of eval.json is in the metadata."""
        import pyarrow as arrow
        from pyarrow import parquet

        of_texts = [(name, arrow.string()) for name in (*ABOUT, *NAMES)]
        numbers = [("emulated", arrow.bool_()), ("x", arrow.float64()), ("round", arrow.int32()), ("value", arrow.float64())]
        rest = {name: value for name, value in self.document.items() if name != "samples"}
        schema = arrow.schema(of_texts + numbers, metadata={"eval": json.dumps(rest)})
        about = self.about()
        rows = [about | {"emulated": self.emulated} | row for row in self.rows()]
        table = arrow.Table.from_pylist(rows, schema=schema)
        parquet.write_table(table, Path(place), compression="zstd")

    def _repr_html_(self) -> str:
        """Text of a run for notebooks."""
        rows = [(name, value or "unknown") for name, value in self.about().items()]
        rows.append(("papers", ", ".join(self.document["papers"])))
        rows += [("not to be relied on", why) for why in self.document["disturbed"]]
        rows += [(f"left out: {one['experiment']}", one["why"]) for one in self.document["left_out"]]
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table>{cells}</table>"

    def draw(self, paper: str, experiment: str, quantity: str | None = None) -> Any:
        """A matplotlib figure: medians, and from the lowest to the highest repetition; bars where there is no axis.

        What was seen against time is drawn so, with moves and losses, unless a quantity is named."""
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(layout="constrained")
        axes.set_title(f"{paper}: {experiment}" + (" (emulated machine)" if self.emulated else ""))
        if quantity is None and (trace := self.trace(paper, experiment)):
            _draw_trace(axes, trace)
            return figure
        if axis := self.axis(paper, experiment):
            axes.set_xlabel(axis)
        curves = self.curves(paper, experiment, quantity)
        for curve in curves:
            names = curve.names
            name = self.document["subject"]["name"] if names["series"] == "subject" else names["series"]
            label = ", ".join(text for text in (name, names["with"]) if text)
            middle = [point.median for point in curve.points]
            low, high = ([pick(point.rounds) for point in curve.points] for pick in (min, max))
            if curve.points[0].x is None:
                spread = [[middle[0] - low[0]], [high[0] - middle[0]]]
                axes.bar(label or "", middle, yerr=spread, capsize=4)
            else:
                xs = [point.x or 0.0 for point in curve.points]
                style = "-" if names["series"] in ("subject", "router") else "--"
                (line,) = axes.plot(xs, middle, style, marker="o", markersize=3, label=label)
                axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.15)
        axes.set_ylabel(_measured(curves[0].names))
        labels = axes.get_legend_handles_labels()[1]
        if len(labels) > MANY:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        elif labels:
            axes.legend()
        return figure


def _axis(parameters: dict[str, Any]) -> str | None:
    """The variable of the horizontal axis, by the keys of eval/papers."""
    match parameters:
        case {"kind": "udp" | "mgen", "across": "mbit"}:
            return "offered (Mbit/s)"
        case {"kind": "udp" | "rtt"}:
            return "payload (octets)"
        case {"kind": "packets" | "mgen"}:
            return "packet (octets)"
        case {"kind": "tcp", "windows": [_, *_]}:
            return "window (KiB)"
        case {"kind": "tcp", "segments": [_, *_]}:
            return "segment (octets)"
        case {"kind": "handover"}:
            return "move"
    return None


def _measured(names: dict[str, str | None]) -> str:
    """The measured quantity, with its unit."""
    quantity, unit = names["quantity"] or "", names["unit"]
    word = {"ms": "time", "mbit": "throughput", "loss": "lost"}.get(quantity, quantity)
    return word if word == unit else f"{word} ({unit})"


def _draw_trace(axes: Any, trace: Trace) -> None:
    """Every echo by when it was sent; lines where another uplink took the traffic, red ticks where an echo was lost."""
    echoes = [(at, ms) for at, ms in zip(trace.at_s, trace.ms, strict=True) if ms is not None]
    axes.plot([at for at, _ in echoes], [ms for _, ms in echoes], ".", markersize=2, label=trace.label)
    for number, to in enumerate(dict.fromkeys(to for _, to in trace.moves), start=1):
        for at in (at for at, other in trace.moves if other == to):
            axes.axvline(at, color=f"C{number}", linewidth=0.8, linestyle="--")
        axes.plot([], [], color=f"C{number}", linewidth=0.8, linestyle="--", label=f"moves to {to}")
    if lost := trace.lost():
        axes.plot(lost, [0.0] * len(lost), "|", color="tab:red", markersize=12, label=f"lost ({len(lost)})")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("round trip (ms)")
    axes.legend()


def load(place: str | Path) -> Run:
    """Reads an eval.json."""
    document = json.loads(Path(place).read_text())
    if (version := document.get("schema_version")) != SCHEMA_VERSION:
        raise ValueError(f"{place} has version {version}, expected {SCHEMA_VERSION}")
    return Run(document)


def check(document: Any) -> list[str]:
    """Where a document is no eval.json by its schema, and why; nothing if it is one."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    faults = sorted(validator.iter_errors(document), key=lambda fault: [str(step) for step in fault.absolute_path])
    return [f"{'/'.join(map(str, fault.absolute_path)) or 'the whole'}: {fault.message[:300]}" for fault in faults]


def compare(old: str | Path, new: str | Path, lab: str | Path | None = None) -> tuple[bool, str]:
    """Whether anything became slower, and what `carnet-lab eval --compare` says; it is `lab`, or $CARNET_LAB, or in PATH."""
    program = lab or os.environ.get("CARNET_LAB", "carnet-lab")
    done = subprocess.run([program, "eval", "--compare", old, new], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr.strip())
    return done.returncode == 1, done.stdout
