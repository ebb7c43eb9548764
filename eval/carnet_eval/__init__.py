"""Sweeps over the simulator: many runs, one line of JSON each, and what is drawn of them.

* `experiments`: which runs belong to which figure.
* `tasks`: a run and its key; the config of its stations.
* `local`: all cores of this machine. `cluster`: the same tasks by SLURM, Kubernetes or Dask.
* `statistics`, `figures`: means with confidence intervals, tables, pictures, Parquet.
* `sumo`: traffic of a town.

Nothing beyond Python 3.11 is needed to run; figures want matplotlib, Parquet wants pyarrow.
"""
