"""A worker: takes lists of cases of one profile, runs each list on a station of its own, and tells the results.

Lists come as JSON lines on standard input, results go as JSON lines to standard output; frames of the station
go into a capture file.
"""

import json
import signal
import sys

from testbed import Capture

from . import bed
from .case import CASES, execute
from .profiles import PROFILES


def failed(declared, reason):
    return {
        "id": declared.name, "title": declared.title, "clause": declared.clause, "group": declared.group,
        "profile": declared.profile, "outcome": "failed", "reason": reason, "attempts": 1, "seconds": 0.0,
    }


def run_list(program, cases, capture, tell):
    station = None
    for declared in cases:
        try:
            if station is None:
                station = bed.Bed(program, PROFILES[declared.profile])
            result, heard = execute(declared, station)
            for octets in heard:
                capture.add(octets)
            if not station.alive():
                result["outcome"] = "failed"
                result["reason"] = f"THE STATION ENDED; {result['reason']}; {station.tail()}"
                station.close()
                station = None
            tell(result)
        except (AssertionError, OSError) as error:
            tell(failed(declared, f"no test bed: {error}"))
            if station is not None:
                station.close()
                station = None
    if station is not None:
        status = station.close()
        if status != 0:
            tell({"fault": f"a station ended with status {status} when asked to stop"})


def main(program, capture_path):
    # By an exception, so that directories are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bed.die_with_parent(signal.SIGTERM)
    bed.enter()
    by_name = {declared.name: declared for declared in CASES}
    capture = Capture(capture_path)

    def tell(result):
        print(json.dumps(result), flush=True)

    for line in sys.stdin:
        run_list(program, [by_name[name] for name in json.loads(line)], capture, tell)
        tell({"done": True})
    capture.close()
