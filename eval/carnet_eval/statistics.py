"""From results to means with confidence intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

# The 97.5 % quantile of Student's t for 1 to 30 degrees of freedom.
_T = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
]  # fmt: skip


def mean_and_interval(values: list[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % confidence interval (0 for a single value)."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    quantile = _T[count - 2] if count - 2 < len(_T) else 1.96
    return mean, quantile * math.sqrt(variance / count)


def load(results: Path) -> dict[str, dict[str, Any]]:
    """The rows with a result, by key; the last one counts."""
    rows = {}
    for line in results.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "result" in row:
            rows[row["key"]] = row
    return rows


def parquet(rows: list[dict[str, Any]], place: Path) -> None:
    """All rows, flat: parameters, results, counters by their names."""
    import pyarrow as arrow
    from pyarrow import parquet as file

    flat = []
    for row in rows:
        line = {f"run.{name}": value if not isinstance(value, dict) else json.dumps(value) for name, value in row["run"].items()}
        for name, value in row["result"].items():
            if name == "counters":
                line |= {f"counter.{counter}": count for counter, count in value.items()}
            elif not isinstance(value, dict):
                line[f"result.{name}"] = value
        flat.append({"key": row["key"], "elapsed_s": row["elapsed_s"]} | line)
    names = sorted({name for line in flat for name in line})
    columns = {name: [line.get(name) for line in flat] for name in names}
    file.write_table(arrow.table(columns), place, compression="zstd")
