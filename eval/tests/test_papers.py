"""`PYTHONPATH=eval python3 -m unittest discover -s eval/tests`

What needs matplotlib, pyarrow or jsonschema is skipped where they are not installed, unless CARNET_EVAL_WHOLE is set, as
`make test-eval` does, which installs them.
"""

import contextlib
import copy
import importlib.util
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from carnet_eval import __main__ as command_line
from carnet_eval import papers


def needs(*modules):
    """Skips a test without these, aloud."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing and os.environ.get("CARNET_EVAL_WHOLE"):
        raise RuntimeError(f"not installed: {', '.join(missing)}")
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def sample(series, x, rounds, quantity="ms"):
    values = {"median": sorted(rounds)[len(rounds) // 2], "lowest": min(rounds), "highest": max(rounds), "rounds": rounds}
    names = {"paper": "p", "experiment": "e", "series": series, "with": None, "x": x, "quantity": quantity, "unit": "ms"}
    return names | {"values": values}


def document():
    """A whole eval.json, small."""
    samples = [sample("plain", 20, [1, 2, 3]), sample("plain", 10, [1, 1, 1]), sample("subject", 10, [4, 5, 6])]
    samples.append(sample("subject", 10, [0], "loss"))
    samples.append(sample("plain", None, [7.5]) | {"experiment": "bars", "with": "2 Mbit/s"})
    machine = {"cpu": "a <processor>", "cores": 2, "memory_mib": 100, "kernel": "6", "system": "Debian", "carnet": "0.1"}
    return {
        "schema_version": 1,
        "machine": machine | {"commit": None},
        "time": "2026-01-01 00:00:00 UTC",
        "effort": "quick",
        "duration_s": 1.5,
        "load_before": [0.1, 0.2, 0.3],
        "others": [0.0, 0.0],
        "disturbed": [],
        "subject": {"name": "carnet", "mr": None, "ha": None},
        "papers": ["p"],
        "samples": samples,
        "left_out": [{"paper": "p", "experiment": "f", "why": "no root"}],
    }


def trace():
    """Ten seconds of echoes with a move and a loss in it."""
    echoes = {"at_s": [0.0, 4.9, 5.0, 5.1, 10.0], "ms": [3.0, 3.1, None, 47.0, 47.1]}
    names = {"paper": "p", "experiment": "moved", "label": "in the tunnel"}
    return names | echoes | {"moves": [{"at_s": 5.0, "to": "WiMAX"}]}


def objects(node, steps=()):
    """Every object of a document, as the steps to it."""
    if isinstance(node, dict):
        yield steps
    of_it = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, inner in of_it:
        yield from objects(inner, (*steps, step))


def at(node, steps):
    for step in steps:
        node = node[step]
    return node


class Papers(unittest.TestCase):
    def setUp(self):
        self.run_ = papers.Run(document())

    def test_curves_have_their_points_in_order(self):
        curves = self.run_.curves("p", "e")
        self.assertEqual([curve.names["series"] for curve in curves], ["plain", "subject"])
        self.assertEqual([point.x for point in curves[0].points], [10, 20])
        self.assertEqual(self.run_.curve("p", "e", "subject", "loss").points[0].rounds, (0,))
        with self.assertRaises(KeyError):
            self.run_.curves("p", "x")

    def test_rows_have_every_repetition(self):
        rows = self.run_.rows()
        self.assertEqual(len(rows), 11)
        self.assertEqual((rows[1]["x"], rows[1]["round"], rows[1]["value"]), (20, 1, 2))

    def test_an_emulated_machine_is_known(self):
        self.assertFalse(self.run_.emulated)
        self.assertTrue(papers.Run({"machine": {"emulated": True}, "samples": []}).emulated)

    def test_another_version_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "eval.json"
            place.write_text(json.dumps({"schema_version": 2, "samples": []}))
            with self.assertRaisesRegex(ValueError, "has version 2, expected 1"):
                papers.load(place)

    def test_the_schema_is_of_this_version(self):
        schema = json.loads(papers.SCHEMA.read_text())
        self.assertEqual(schema["properties"]["schema_version"]["const"], papers.SCHEMA_VERSION)
        names = schema["properties"]["samples"]["items"]["required"]
        self.assertEqual(set(names), {*papers.NAMES, "x", "values"})

    @needs("jsonschema")
    def test_a_field_that_is_missing_or_has_another_name_is_refused(self):
        self.assertEqual(papers.check(document()), [])
        places = list(objects(document()))
        self.assertEqual(len(places), 4 + 2 * len(document()["samples"]))
        for steps in places:
            for name in at(document(), steps):
                for other in (None, f"{name}_"):
                    changed = document()
                    value = at(changed, steps).pop(name)
                    if other:
                        at(changed, steps)[other] = value
                    self.assertNotEqual(papers.check(changed), [], f"{steps}: {name} as {other}")
            more = copy.deepcopy(document())
            at(more, steps)["more"] = 1
            self.assertNotEqual(papers.check(more), [], f"{steps}: one more")

    @needs("jsonschema")
    def test_a_trace_is_by_the_schema(self):
        self.assertEqual(papers.check(document() | {"traces": [trace()]}), [])
        for name in trace():
            without = {other: value for other, value in trace().items() if other != name}
            self.assertNotEqual(papers.check(document() | {"traces": [without]}), [], name)
        for other in ({"ms": ["lost"]}, {"moves": [{"at_s": 1}]}, {"more": 1}):
            self.assertNotEqual(papers.check(document() | {"traces": [trace() | other]}), [], str(other))

    def test_the_axis_is_known_by_what_was_varied(self):
        kinds = [
            ({"kind": "udp", "across": "mbit"}, "offered (Mbit/s)"),
            ({"kind": "udp", "across": "size"}, "payload (octets)"),
            ({"kind": "mgen", "across": "size"}, "packet (octets)"),
            ({"kind": "packets"}, "packet (octets)"),
            ({"kind": "tcp", "windows": [8], "segments": []}, "window (KiB)"),
            ({"kind": "tcp", "windows": [], "segments": [400]}, "segment (octets)"),
            ({"kind": "tcp", "windows": [], "segments": []}, None),
            ({"kind": "handover"}, "move"),
            ({"kind": "echo"}, None),
        ]
        for parameters, axis in kinds:
            made = {"paper": "p", "experiment": "e", "parameters": parameters}
            self.assertEqual(papers.Run(document() | {"experiments": [made]}).axis("p", "e"), axis, parameters)
        self.assertIsNone(self.run_.axis("p", "e"))

    @needs("jsonschema")
    def test_values_of_another_kind_are_refused(self):
        for steps, value in [
            (("effort",), "half"),
            (("time",), "yesterday"),
            (("machine", "cores"), "2"),
            (("subject", "mr"), "a command without the other"),
            (("samples", 0, "series"), "both"),
            (("samples", 0, "x"), "20"),
            (("samples", 0, "values", "rounds"), []),
            (("samples", 0, "values", "median"), None),
        ]:
            changed = document()
            at(changed, steps[:-1])[steps[-1]] = value
            told = papers.check(changed)
            self.assertTrue(told and told[0].startswith(str(steps[0])), f"{steps}: {told}")

    @needs("jsonschema")
    def test_the_command_says_where_a_file_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "eval.json"
            for found, status, said in [
                (document(), 0, "1 by the schema"),
                (document() | {"papers": []}, 1, f"{place}: papers: [] "),
            ]:
                place.write_text(json.dumps(found))
                self.assertEqual(command("check", place)[0], status)
                self.assertIn(said, command("check", place)[1])

    @needs("pyarrow")
    def test_parquet_has_a_row_for_each_repetition(self):
        from pyarrow import parquet

        with tempfile.TemporaryDirectory() as folder:
            source, place = Path(folder) / "eval.json", Path(folder) / "eval.parquet"
            source.write_text(json.dumps(document()))
            self.assertEqual(command("parquet", source, place), (0, f"{place}\n"))
            table = parquet.read_table(place)
            self.assertEqual(table.column_names, [*papers.ABOUT, *papers.NAMES, "emulated", "x", "round", "value"])
            rows = table.to_pylist()
            self.assertEqual([{name: row[name] for name in self.run_.rows()[0]} for row in rows], self.run_.rows())
            self.assertEqual({(row["subject"], row["effort"], row["commit"]) for row in rows}, {("carnet", "quick", None)})
            rest = json.loads(table.schema.metadata[b"eval"])
            self.assertEqual(rest | {"samples": document()["samples"]}, document())
            # Columns have the same types whatever is in them: here every x, commit and with is null.
            source.write_text(json.dumps(document() | {"samples": [sample("plain", None, [1])]}))
            command("parquet", source, place)
            self.assertEqual(parquet.read_table(place).schema.types, table.schema.types)


def command(*words):
    """The status and output of the command line."""
    with mock.patch("sys.argv", ["carnet_eval", *map(str, words)]), contextlib.redirect_stdout(io.StringIO()) as said:
        return command_line.main(), said.getvalue()


class Notebook(unittest.TestCase):
    """What somebody does in a notebook, cell by cell, with nothing but `import carnet_eval`."""

    @needs("matplotlib")
    def test_it_loads_draws_and_compares(self):
        import matplotlib

        matplotlib.use("agg")
        cells = [
            "import carnet_eval",
            "run = carnet_eval.load(place)",
            "table = run._repr_html_()",
            "curve = run.curve('p', 'e', 'subject')",
            "figure = run.draw('p', 'e')",
            "bars = run.draw('p', 'bars')",
            "moved = run.draw('p', 'moved')",
        ]
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "eval.json"
            made = {"paper": "p", "experiment": "e", "parameters": {"kind": "rtt"}}
            place.write_text(json.dumps(document() | {"experiments": [made], "traces": [trace()]}))
            session = {"place": str(place)}
            for cell in cells:
                exec(cell, session)
            # A real run, where make test-eval has one, beside the carnet-lab that made it.
            if lab := os.environ.get("CARNET_LAB"):
                session["lab"] = lab
                exec("slower, said = carnet_eval.compare(place, place, lab)", session)
                self.assertFalse(session["slower"])
                self.assertIn("0 slower, 0 faster", session["said"])
            else:
                print("SKIPPED: comparison in a notebook: CARNET_LAB names no carnet-lab")
        self.assertIn("a &lt;processor&gt;", session["table"])
        self.assertEqual(session["curve"].points[0].median, 5)
        axes = session["figure"].axes[0]
        self.assertEqual([line.get_label() for line in axes.get_lines()], ["plain", "carnet"])
        self.assertEqual(list(axes.get_lines()[0].get_ydata()), [1, 2])
        self.assertEqual([bar.get_height() for bar in session["bars"].axes[0].patches], [7.5])
        self.assertEqual((axes.get_xlabel(), axes.get_ylabel()), ("payload (octets)", "time (ms)"))
        self.assertEqual(session["bars"].axes[0].get_xlabel(), "")
        moved = session["moved"].axes[0]
        labels = [text.get_text() for text in moved.get_legend().get_texts()]
        self.assertEqual(labels, ["in the tunnel", "moves to WiMAX", "lost (1)"])
        by_label = {line.get_label(): line for line in moved.get_lines()}
        self.assertEqual(list(by_label["in the tunnel"].get_ydata()), [3.0, 3.1, 47.0, 47.1])
        self.assertEqual(list(by_label["lost (1)"].get_xdata()), [5.0])
        self.assertEqual((moved.get_xlabel(), moved.get_ylabel()), ("time (s)", "round trip (ms)"))
        picture = io.BytesIO()
        session["figure"].savefig(picture, format="png")
        self.assertTrue(picture.getvalue().startswith(b"\x89PNG"))


if __name__ == "__main__":
    unittest.main()
