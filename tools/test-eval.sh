#!/bin/sh
# The Python package of the evaluation, installed by pip as it is now, and tested from another folder: its types
# (mypy --strict, as eval/pyproject.toml says), and its tests with all that they can use. `tools/setup.sh test` has made
# the environment.
#
#   tools/test-eval.sh [CARNET-LAB]
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
environment=$here/out/tools/eval
lab=${1:-$here/target/release/carnet-lab}
case $lab in /*) ;; *) lab=$here/$lab ;; esac

(cd "$here/eval" && "$environment/bin/mypy")
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --force-reinstall "$here/eval"
rm -rf "$here/eval/build"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Only the tests of what is installed: the simulator's read the repository (make sim-smoke).
cp "$here/eval/tests/test_papers.py" "$scratch"
cd "$scratch"
[ ! -x "$lab" ] || export CARNET_LAB="$lab"
CARNET_EVAL_WHOLE=1 "$environment/bin/python3" -m unittest test_papers
