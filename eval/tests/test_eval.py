"""`PYTHONPATH=eval python3 -m unittest discover -s eval/tests`"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

from carnet_eval import cluster, document, experiments, local, statistics, summary, tasks

DASK = importlib.util.find_spec("distributed") is not None
# Says what it was asked, counts how often, and fails where it is told to.
FAKE = """#!{python}
import json, sys
options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
with open({log!r}, "a") as log:
    log.write("x")
if options["seed"] == "13":
    sys.exit("thirteen")
print(json.dumps({{"kbps": float(options["seed"]), "config": options.get("config")}}))
"""


class Sweeps(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.log = self.folder / "log"
        self.program = self.folder / "fake"
        self.program.write_text(FAKE.format(python=sys.executable, log=str(self.log)))
        self.program.chmod(0o755)

    def tearDown(self):
        self.temporary.cleanup()

    def runs(self, *seeds):
        station = experiments.station("carnet", {"geonet.beacon.lifetime": None})
        return [{"figure": "a", "speed": 1, "seed": seed, "duration": 1} | station for seed in seeds]

    def done(self):
        return len(self.log.read_text()) if self.log.exists() else 0

    def test_a_sweep_goes_on_where_it_was_left(self):
        out = self.folder / "out"
        self.assertEqual(local.sweep(self.runs(1, 2, 13), self.program, out, jobs=2, quiet=True), 1)
        self.assertEqual(self.done(), 3)
        # A line that a crash has cut off, and the failed run, are done again.
        with (out / "results.jsonl").open("a") as results:
            results.write('{"key": "cut o\n')
        self.assertEqual(local.sweep(self.runs(1, 2, 3, 13), self.program, out, quiet=True), 1)
        self.assertEqual(self.done(), 5)
        rows = statistics.load(out / "results.jsonl")
        self.assertEqual(sorted(row["result"]["kbps"] for row in rows.values()), [1, 2, 3])
        config = tomllib.loads(Path(next(iter(rows.values()))["result"]["config"]).read_text())
        self.assertNotIn("lifetime", config["geonet"]["beacon"])

    def test_tasks_of_a_cluster(self):
        out = self.folder / "out"
        self.assertEqual(cluster.write_tasks(self.runs(1, 2, 13), out), 3)
        done = [cluster.do_task(number, out, self.program) for number in range(3)]
        self.assertEqual(done, [True, True, False])
        self.assertTrue(cluster.do_task(0, out, self.program))
        self.assertEqual(self.done(), 3)
        self.assertEqual((cluster.collect(out), cluster.collect(out)), (2, 0))
        # A run with a result is no longer a task.
        self.assertEqual(cluster.write_tasks(self.runs(1, 2, 13), out), 1)

    def test_files_for_schedulers(self):
        script = cluster.slurm(7, Path("/data/out"), Path("/data/carnet-sim"), "python3 -m carnet_eval")
        self.assertEqual(subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode, 0)
        self.assertIn("#SBATCH --array=0-6\n", script)
        job = json.loads(cluster.kubernetes(7, Path("/data/out"), Path("/data/sim"), "python3 -m carnet_eval", "i"))
        self.assertEqual((job["kind"], job["spec"]["completionMode"], job["spec"]["completions"]), ("Job", "Indexed", 7))
        self.assertIn("$(JOB_COMPLETION_INDEX)", job["spec"]["template"]["spec"]["containers"][0]["command"])


    @unittest.skipUnless(DASK, "no dask (eval/requirements-dask.txt)")
    def test_tasks_on_a_dask_scheduler(self):
        from dask.distributed import LocalCluster

        out = self.folder / "out"
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers:
            address = workers.scheduler_address
            self.assertEqual(cluster.dask(self.runs(1, 2, 13), address, out, self.program), 1)
            # A finished run is not repeated.
            self.assertEqual(cluster.dask(self.runs(1, 2, 3, 13), address, out, self.program), 1)
        self.assertEqual(self.done(), 5)
        rows = statistics.load(out / "results.jsonl")
        self.assertEqual(sorted(row["result"]["kbps"] for row in rows.values()), [1, 2, 3])


class Reports(unittest.TestCase):
    def rows(self, runs):
        """Results: as many kb/s as the speed and the seed together."""
        rows = {}
        for run in runs:
            result = {"cpu_s": 2.0, "kbps": 400.0 - run["speed"] + run["seed"], "delivery": 0.5, "received": 7}
            if run["routing"] == "carnet":
                result |= {"core_ns": 1e8, "core_calls": 1000, "core_packets": 500}
            rows[tasks.key(run)] = {"key": tasks.key(run), "run": run, "result": result}
        return rows

    def test_a_summary_has_means_claims_and_cost(self):
        wanted = experiments.experiments(10, [1, 2, 3])
        fig5 = wanted["fig5"]
        # One result is still missing.
        made = summary.summary(self.rows(fig5[1:]), {"fig5": fig5, "fig8": wanted["fig8"]})
        of = made["experiments"]["fig5"]
        self.assertEqual((of["runs"], of["of"], of["seeds"], list(made["experiments"])), (len(fig5) - 1, len(fig5), 3, ["fig5"]))
        self.assertEqual(of["series"]["carnet"]["kbps"][-1], [100.0, 302.0, 2.4843, 3])
        self.assertEqual(of["series"]["AODV"]["kbps"][0][3], 2)
        claims = {row["what"]: row["here"] for row in made["claims"]}
        self.assertEqual(claims["TCP over GPSR (ha), 100 m/s"], 302)
        self.assertAlmostEqual(claims["TCP over carnet keeps from 0 to 100 m/s"], 302 / 402, places=4)
        self.assertIsNone(claims["TCP over AODV, 10 m/s"])
        self.assertEqual(made["cost"]["by_kind"]["columns, tcp"]["share"], 0.05)
        self.assertFalse(summary.is_whole(made))

    def test_the_documents_tables_are_those_of_its_summary(self):
        text = document.DOCUMENT.read_text()
        self.assertEqual(document.filled(text, document.load()), text)
        self.assertGreaterEqual(text.count("<!-- table "), 10)

    def test_nothing_else_in_the_document_was_measured(self):
        text = re.sub(r"<!-- table .*?<!-- end -->", "", document.DOCUMENT.read_text(), flags=re.DOTALL)
        self.assertEqual(re.findall(r"[^\n]*(?:± ?\d|\d kb/s|\d %)[^\n]*", text), [])


class Runs(unittest.TestCase):
    def test_keys_follow_parameters_and_nothing_else(self):
        run = {"seed": 1, "speed": 2}
        self.assertEqual(tasks.key(run), tasks.key({"speed": 2, "seed": 1}))
        self.assertNotEqual(tasks.key(run), tasks.key(run | {"seed": 2}))
        for name, runs in experiments.experiments().items():
            keys = [tasks.key(run) for run in runs]
            self.assertEqual(len(keys), len(set(keys)), name)
            self.assertIn(name, summary.VALUES)

    def test_configs_survive_being_written(self):
        for station in ("carnet", "gpsr-1.0", "gpsr-0.2", "gpsr-ha"):
            before = tomllib.loads((tasks.STATIONS / f"{station}.toml").read_text())
            self.assertEqual(tomllib.loads(tasks.station_config(station, None)), before)
        changed = tomllib.loads(tasks.station_config("carnet", {"geonet.ipv6": None, "geonet.mib.cbf_max_time": "1ms"}))
        self.assertNotIn("ipv6", changed["geonet"])
        self.assertEqual(changed["geonet"]["mib"]["cbf_max_time"], "1ms")

    def test_confidence_intervals(self):
        mean, interval = statistics.mean_and_interval([1.0, 2.0, 3.0, 4.0, 5.0])
        self.assertEqual(mean, 3)
        # s = 1.5811, t(4) = 2.776
        self.assertAlmostEqual(interval, 1.9629, places=3)
        self.assertEqual(statistics.mean_and_interval([7.0]), (7.0, 0.0))


if __name__ == "__main__":
    unittest.main()
