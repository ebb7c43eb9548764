"""`PYTHONPATH=eval python3 -m unittest discover -s eval/tests`"""

import json
import tempfile
import unittest
from pathlib import Path

from carnet_eval import papers

EVAL = Path(__file__).parent.parent


def sample(series, x, rounds, quantity="ms"):
    values = {"median": sorted(rounds)[len(rounds) // 2], "lowest": min(rounds), "highest": max(rounds), "rounds": rounds}
    names = {"paper": "p", "experiment": "e", "series": series, "with": None, "x": x, "quantity": quantity, "unit": "ms"}
    return names | {"values": values}


class Papers(unittest.TestCase):
    def setUp(self):
        samples = [sample("plain", 20, [1, 2, 3]), sample("plain", 10, [1, 1, 1]), sample("subject", 10, [4, 5, 6])]
        samples.append(sample("subject", 10, [0], "loss"))
        self.run_ = papers.Run({"schema_version": 1, "samples": samples})

    def test_curves_have_their_points_in_order(self):
        curves = self.run_.curves("p", "e")
        self.assertEqual([curve.names["series"] for curve in curves], ["plain", "subject"])
        self.assertEqual([point.x for point in curves[0].points], [10, 20])
        self.assertEqual(self.run_.curve("p", "e", "subject", "loss").points[0].rounds, (0,))
        with self.assertRaises(KeyError):
            self.run_.curves("p", "x")

    def test_rows_have_every_repetition(self):
        rows = self.run_.rows()
        self.assertEqual(len(rows), 10)
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
        schema = json.loads((EVAL / "results.schema.json").read_text())
        self.assertEqual(schema["properties"]["schema_version"]["const"], papers.SCHEMA_VERSION)
        names = schema["properties"]["samples"]["items"]["required"]
        self.assertEqual(set(names), {*papers.NAMES, "x", "values"})


if __name__ == "__main__":
    unittest.main()
