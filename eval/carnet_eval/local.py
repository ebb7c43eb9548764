"""Runs tasks on all cores of this machine, one process per run; goes on where it was left."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from .tasks import Run, execute, finished, key, prepare


def sweep(runs: list[Run], program: Path, folder: Path, jobs: int | None = None, quiet: bool = False) -> int:
    """Does all runs that have no result in `folder`/results.jsonl yet; returns how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    done = finished(results)
    todo = {key(run): run for run in runs}
    total = len(todo)
    todo = {name: run for name, run in todo.items() if name not in done}
    prepare(list(todo.values()), folder)
    # The long ones first: the end is not to wait for a single one.
    waiting = sorted(todo.values(), key=lambda run: -run.get("duration", 100) * run.get("nodes", 14))
    failed, count, started = 0, 0, time.monotonic()
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool, results.open("a") as out:
        futures = [pool.submit(execute, run, program, folder) for run in waiting]
        for future in as_completed(futures):
            row = future.result()
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
            out.flush()
            count += 1
            if "error" in row:
                failed += 1
                print(f"\n{row['key']}: {row['error']}\n  {json.dumps(row['run'])}", file=sys.stderr)
            if not quiet:
                _progress(count, len(waiting), total, time.monotonic() - started, failed)
    if not quiet and waiting:
        print(file=sys.stderr)
    return failed


def _progress(count: int, todo: int, total: int, elapsed: float, failed: int) -> None:
    left = elapsed / count * (todo - count)
    bar = "#" * (30 * count // todo)
    more = f", {failed} failed" if failed else ""
    line = f"[{bar:30}] {total - todo + count}/{total} runs, {left / 60:.1f} min left{more}"
    end = "\r" if sys.stderr.isatty() else "\n"
    if sys.stderr.isatty() or count == todo or count % 20 == 0:
        print(line, end=end, file=sys.stderr, flush=True)
