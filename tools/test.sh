#!/bin/sh
# Runs every test and closes with what failed, by name, and one line of counts. A test that cannot run here prints
# `SKIPPED: reason`; the skips are listed and counted, never silent.
set -eu
cd "$(dirname "$0")/.."

# Where the means are there, a skip is a failure.
export CARNET_REQUIRE_TOOLS=1
[ "$(id -u)" = 0 ] && export CARNET_REQUIRE_ROOT=1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# The end-to-end tests measure: nothing else may run beside them, so they come last and one by one.
{ cargo test --no-fail-fast --workspace --exclude carnet-lab -- --nocapture --test-threads=2 2>&1 ||
    true;
  # Once more over each of the other ways that packets may take, but for tests that choose theirs.
  for path in tun xdp; do
    echo "The program over the data path $path:"
    CARNET_TEST_PATH=$path cargo test --no-fail-fast --package carnet --test program -- --nocapture \
      --test-threads=2 --skip offloads:: --skip fast_path:: 2>&1 || true
  done
  cargo test --no-fail-fast --package carnet-lab -- --nocapture --test-threads=1 2>&1 || true;
  # The station in ns-3, whose wheel there is for this processor only.
  if [ "$(uname -m)" = x86_64 ]; then
    make --no-print-directory sim-smoke 2>&1 || echo 'error: sim-smoke'
  else
    echo 'SKIPPED: the simulator: no wheel of ns-3 for this processor'
  fi
  # Its dashboard in a browser, and its API by its description.
  if [ "$(id -u)" = 0 ]; then
    "${CARNET_PYTHON:-/usr/bin/python3}" web/test/run target/debug/carnet 2>&1 || echo 'error: dashboard'
    tools/test-api.sh target/debug/carnet smoke 2>&1 || echo 'error: api'
  else
    echo 'SKIPPED: the dashboard and the description of the API: need root, for network namespaces'
  fi
  # The program from outside, against the clauses of the standards.
  for suite in geonetworking nemo; do
    echo "The conformance suite $suite:"
    "${CARNET_PYTHON:-/usr/bin/python3}" conformance/$suite/run 2>&1 || echo 'error: conformance'
  done
  # The cases themselves: where nobody answers, and where all is accepted and nothing forwarded.
  for stand_in in silent yes-man; do
    echo "The conformance suite nemo against what stands in for the program, $stand_in:"
    "${CARNET_PYTHON:-/usr/bin/python3}" conformance/nemo/run --$stand_in 2>&1 || echo 'error: conformance'
  done; } |
  tee "$log"
# `sh` has no pipefail: the log says whether a runner failed.
grep -Eq '^(test result: FAILED|error(\[|:))' "$log" && status=1

# "conformance: 149 passed, 1 failed, 0 not applicable (1 known)": a known miss is no failure.
cases='/^(conformance|dashboard|beside the test purposes|simulator): / { sub(/^[^:]*: /, "")'
passed=$(awk '/^test result:/ { n += $4 }'"$cases"'; n += $1 } END { print n + 0 }' "$log")
failed=$(awk '/^test result:/ { n += $6 }'"$cases"'; n += $3 - substr($8, 2) } END { print n + 0 }' "$log")
# The runner may have put the test's name in front.
skipped=$(grep -c 'SKIPPED: ' "$log" || true)
if [ "$skipped" -gt 0 ]; then
  echo
  echo "Skipped, and why:"
  grep -o 'SKIPPED: .*' "$log" | sort | uniq -c
fi
awk -f tools/failures.awk "$log"
echo
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
