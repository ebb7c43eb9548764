"""A run, and the recordings of its stations played by `carnet replay`: the same frames, without ns-3."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

from .tasks import Run, command


def _fnv(octets: bytes, value: int) -> int:
    for octet in octets:
        value = ((value ^ octet) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return value


def hashes(run: Run, program: Path, carnet: Path, folder: Path) -> tuple[str, str]:
    """The hash of all frames that the run says, and that of those that the recordings give."""
    prefix = folder / "recording"
    words = command(run, program, folder) + [f"--record={prefix}"]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    config = next(word.removeprefix("--config=") for word in words if word.startswith("--config="))
    frames = []
    for node in range(said["nodes"]):
        replay: list[str | Path] = [carnet, "replay", "--config", config, f"{prefix}-{node}.jsonl"]
        done = subprocess.run(replay, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return said["hash"], f"none, {carnet} says: {done.stderr.strip()}"
        for number, line in enumerate(done.stdout.splitlines()):
            row = json.loads(line)
            if "frame" in row["output"]:
                octets = bytes.fromhex(row["output"]["frame"]["packet"])
                frames.append((round(row["time"] * 1e9), node, number, octets))
    value = 14695981039346656037
    for time, node, _, octets in sorted(frames):
        value = _fnv(struct.pack("<QI", time, node) + octets, value)
    return said["hash"], f"{value:x}"
