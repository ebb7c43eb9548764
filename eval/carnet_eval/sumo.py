"""Traffic of a town: a grid of streets, vehicles by SUMO, their tracks as the simulator's `trace` scenario reads them.

`python3 -m carnet_eval sumo --out FOLDER` makes a network (netgenerate), random trips that go on for the whole time
(randomTrips, duarouter), runs SUMO without a window, and turns its floating car data into lines
`seconds,vehicle,x,y`. Equal seeds give equal files. SUMO is the wheel `eclipse-sumo` (`tools/setup.sh sim-paper`).
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path


def sumo_home() -> Path:
    """Where the wheel has put SUMO."""
    import sumo

    return Path(sumo.SUMO_HOME)


def grid(folder: Path, vehicles: int = 100, seconds: int = 120, seed: int = 1, blocks: int = 6, block_m: int = 200) -> Path:
    """Makes `folder`/grid-VEHICLES-SEED.csv, unless it is there; returns it."""
    place = folder / f"grid-{vehicles}-{seed}.csv"
    if place.exists():
        return place
    folder.mkdir(parents=True, exist_ok=True)
    home = sumo_home()
    environment = os.environ | {"SUMO_HOME": str(home)}

    def run(*words: str | Path) -> None:
        done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{Path(words[0]).name}: {done.stderr.strip()[-500:]}")

    network, routes, tracks = (folder / f"grid-{vehicles}-{seed}.{end}" for end in ("net.xml", "rou.xml", "fcd.csv"))
    run(
        home / "bin" / "netgenerate", "--grid", f"--grid.number={blocks}", f"--grid.length={block_m}",
        "--default.speed=13.9", "--default.lanenumber=2", "--tls.guess=true", f"--output-file={network}",
    )  # fmt: skip
    # All depart in the first half minute, and their ways are long enough for what follows.
    run(
        sys.executable, home / "tools" / "randomTrips.py", f"--net-file={network}", "--begin=0", "--end=30",
        f"--period={30 / (2 * vehicles)}", f"--seed={seed}", f"--route-file={routes}", "--intermediate=8",
        f"--min-distance={blocks * block_m * 0.6}", f"--output-trip-file={folder / 'trips.xml'}", "--validate",
    )  # fmt: skip
    warm_up = 60
    run(
        home / "bin" / "sumo", f"--net-file={network}", f"--route-files={routes}", "--step-length=0.1",
        f"--seed={seed}", f"--fcd-output={tracks}", "--fcd-output.attributes=x,y",
        f"--begin=0", f"--end={warm_up + seconds}", "--no-step-log", "--no-warnings", "--time-to-teleport=-1",
    )  # fmt: skip
    _convert(tracks, place, warm_up, seconds, vehicles)
    return place


def _convert(tracks: Path, place: Path, begin: float, seconds: float, vehicles: int) -> None:
    """The first vehicles that are present from `begin` to the end, at most this number, twice a second."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    with tracks.open(newline="") as file:
        for row in csv.DictReader(file, delimiter=";"):
            time, name = float(row["timestep_time"]), row.get("vehicle_id")
            if name and time >= begin and round(time * 10) % 5 == 0:
                points.setdefault(name, []).append((time - begin, float(row["vehicle_x"]), float(row["vehicle_y"])))
    steps = max(map(len, points.values()))
    whole = sorted(name for name, line in points.items() if len(line) == steps)[:vehicles]
    if len(whole) < 2:
        raise RuntimeError("no two vehicles are there all the time; make the trips longer")
    fresh = place.with_suffix(".new")
    with fresh.open("w") as out:
        for name in whole:
            out.writelines(f"{time:.1f},{name},{x:.2f},{y:.2f}\n" for time, x, y in points[name])
    fresh.replace(place)
