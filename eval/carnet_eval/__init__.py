"""Sweeps over the simulator: many runs, one line of JSON each, and what is drawn of them.

* `experiments`: which runs belong to which figure.
* `tasks`: a run and its key; the config of its stations.
* `local`: all cores of this machine. `cluster`: the same tasks by SLURM, Kubernetes or Dask.
* `statistics`, `summary`: means with confidence intervals, what the paper states beside them, Parquet.
* `figures`, `document`: pictures, and the tables of docs/simulation.md.
* `sumo`: traffic of a town.
* `papers`: what `carnet-lab eval` found, loaded, compared and drawn (`load`, `compare`); that has nothing to do with the
  simulator.

Nothing beyond Python 3.11 is needed to run; figures want matplotlib, Parquet wants pyarrow
(`requirements.txt`), the schema jsonschema; a Dask scheduler wants `requirements-dask.txt`, there and on its workers.
"""

from .papers import Curve, Point, Run, Trace, check, compare, load

__all__ = ["Curve", "Point", "Run", "Trace", "check", "compare", "load"]
