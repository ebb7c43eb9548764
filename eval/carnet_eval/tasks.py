"""A run: its parameters, its key, its command line, its result.

A run is a dict of parameters. Those of the simulator go to it as `--name=value`; `station` names a config of
`ns3/stations` (the scenario `roadside` has its own), `set` changes values of it (`{"geonet.beacon.lifetime": 3}`; `None`
takes a key away), and `sumo` says for how many vehicles SUMO makes the tracks. The key is a hash of all parameters, so
that a run that has been done is known by them and by nothing else: who changes the program begins in an empty folder.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STATIONS = ROOT / "ns3" / "stations"

Run = dict[str, Any]


def key(run: Run) -> str:
    """The run's name: equal parameters, equal key."""
    text = json.dumps(run, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value)
        case dict():
            return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case _:
            return str(value)


def station_config(station: str, changes: dict[str, Any] | None) -> str:
    """The text of a station's config, with changes."""
    config = tomllib.loads((STATIONS / f"{station}.toml").read_text())
    for path, value in (changes or {}).items():
        *tables, name = path.split(".")
        table = config
        for step in tables:
            table = table.setdefault(step, {})
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value
    lines = []
    for section, table in config.items():
        lines.append(f"[{section}]")
        lines.extend(f"{name} = {_toml(value)}" for name, value in table.items())
    return "\n".join(lines) + "\n"


def trace(run: Run, folder: Path) -> Path:
    """The file of the tracks that a run of the scenario `trace` follows."""
    return folder / "sumo" / f"grid-{run['sumo']}-{run['seed']}.csv"


def prepare(runs: list[Run], folder: Path) -> None:
    """Makes the tracks that runs follow; the same for all of their variants."""
    wanted = {(run["sumo"], run["seed"]): trace(run, folder) for run in runs if "sumo" in run}
    for (vehicles, seed), place in wanted.items():
        if not place.exists():
            from . import sumo

            made = sumo.grid(place.parent, vehicles=vehicles, seed=seed)
            assert made == place


def command(run: Run, program: Path, folder: Path) -> list[str]:
    """The command line of a run; a config that it needs is written into `folder`."""
    arguments = {name: value for name, value in run.items() if name not in ("station", "set", "figure", "sumo")}
    if "sumo" in run:
        arguments["trace"] = trace(run, folder)
    if run.get("scenario") == "roadside":
        arguments["config"] = STATIONS
    elif run["routing"] == "carnet":
        text = station_config(run["station"], run.get("set"))
        config = folder / "configs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
        if not config.exists():
            config.parent.mkdir(parents=True, exist_ok=True)
            # Others may be writing the same.
            fresh = config.with_suffix(f".{key(run)}")
            fresh.write_text(text)
            fresh.replace(config)
        arguments["config"] = config
    words = ("true" if value is True else "false" if value is False else value for value in arguments.values())
    return [str(program)] + [f"--{name}={word}" for name, word in zip(arguments, words)]


def execute(run: Run, program: Path, folder: Path, limit_s: float = 3600) -> dict[str, Any]:
    """Does a run; the result has `key`, `run`, and either what the simulator says or `error`."""
    result = {"key": key(run), "run": run}
    started = time.monotonic()
    try:
        done = subprocess.run(
            command(run, program, folder), capture_output=True, text=True, timeout=limit_s, check=False
        )
        if done.returncode == 0:
            result |= {"result": json.loads(done.stdout.strip().splitlines()[-1])}
        else:
            result |= {"error": f"exit status {done.returncode}: {done.stderr.strip()[-500:]}"}
    except (subprocess.TimeoutExpired, ValueError, IndexError, OSError) as error:
        result |= {"error": str(error)}
    return result | {"elapsed_s": round(time.monotonic() - started, 3)}


def finished(results: Path) -> set[str]:
    """The keys of the runs that have a result; a line that was cut off by a crash is none."""
    keys = set()
    if results.exists():
        for line in results.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if "result" in row:
                keys.add(row["key"])
    return keys
