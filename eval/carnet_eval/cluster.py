"""The same tasks on a cluster: files for SLURM and Kubernetes, or a Dask scheduler.

All three work on a task list, a file with one run in a line, and on `task NUMBER` of the command line, which does one of
them and writes its result beside the list, one file for each task; `collect` puts them into results.jsonl. What has a
result is not done again, so a job that was cut off is simply submitted once more. The nodes share a file system, on
which the program, the wheel of ns-3 and the list are.
"""

from __future__ import annotations

import json
from pathlib import Path

from .tasks import Run, execute, finished, key, prepare


def write_tasks(runs: list[Run], folder: Path) -> int:
    """Writes `folder`/tasks.jsonl with the runs that have no result yet; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    done = finished(folder / "results.jsonl")
    todo = {key(run): run for run in runs}
    todo = {name: run for name, run in todo.items() if name not in done}
    prepare(list(todo.values()), folder)
    lines = [json.dumps(run) for run in todo.values()]
    (folder / "tasks.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return len(lines)


def do_task(number: int, folder: Path, program: Path) -> bool:
    """Does the task of a number, from 0 on, unless its result is there; whether it is now."""
    lines = (folder / "tasks.jsonl").read_text().splitlines()
    run = json.loads(lines[number])
    results = folder / "results"
    results.mkdir(exist_ok=True)
    place = results / f"{key(run)}.json"
    if place.exists():
        return True
    row = execute(run, program, folder)
    if "error" in row:
        print(f"task {number}: {row['error']}")
        return False
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(row, separators=(",", ":")) + "\n")
    fresh.replace(place)
    return True


def collect(folder: Path) -> int:
    """Appends the results of tasks to results.jsonl; returns how many were new."""
    results = folder / "results.jsonl"
    done = finished(results)
    count = 0
    with results.open("a") as out:
        for place in sorted((folder / "results").glob("*.json")):
            row = json.loads(place.read_text())
            if row["key"] not in done:
                out.write(json.dumps(row, separators=(",", ":")) + "\n")
                count += 1
    return count


def slurm(count: int, folder: Path, program: Path, command: str) -> str:
    """A job script for `sbatch`: one element of the array per task."""
    return f"""#!/bin/sh
#SBATCH --job-name=carnet-eval
#SBATCH --array=0-{max(count - 1, 0)}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=01:00:00
#SBATCH --output={folder}/slurm-%A_%a.log
set -eu
exec {command} task "$SLURM_ARRAY_TASK_ID" --out {folder} --program {program}
"""


def kubernetes(count: int, folder: Path, program: Path, command: str, image: str) -> str:
    """An Indexed Job for `kubectl apply`, as JSON: one completion per task; `folder` is on the claim `carnet-eval`."""
    words = command.split() + ["task", "$(JOB_COMPLETION_INDEX)", "--out", str(folder), "--program", str(program)]
    container = {
        "name": "run",
        "image": image,
        "command": words,
        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [{"name": "shared", "mountPath": str(folder.parent)}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "carnet-eval"}}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "carnet-eval"},
        "spec": {
            "completionMode": "Indexed",
            "completions": max(count, 1),
            "parallelism": max(1, min(count, 64)),
            "backoffLimitPerIndex": 2,
            "template": {"spec": pod},
        },
    }
    return json.dumps(job, indent=2) + "\n"


def dask(runs: list[Run], scheduler: str, folder: Path, program: Path) -> int:
    """Does the runs on the workers of a Dask scheduler (`tcp://host:8786`); returns how many failed."""
    from dask.distributed import Client, as_completed  # the extra "dask"

    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    done = finished(results)
    todo = [run for name, run in {key(run): run for run in runs}.items() if name not in done]
    prepare(todo, folder)
    failed = 0
    with Client(scheduler) as client, results.open("a") as out:
        futures = client.map(execute, todo, program=program, folder=folder, pure=False)
        for future in as_completed(futures):
            row = future.result()
            failed += "error" in row
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
            out.flush()
    return failed
