#!/usr/bin/env bash
# Install what is missing, then run the tests, two at a time: test.sh ARGUMENTS = pytest ARGUMENTS.
# test.sh --newest ARGUMENTS: with the newest versions that pyproject.toml allows, in an environment
# of their own.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
if [ "${1:-}" = --newest ]; then
    shift
    venv=$venv-newest constraints=/dev/null
    if [ -f "$venv/pyvenv.cfg" ]; then rm -rf "$venv"; fi # what was newest need not be
fi
ready test
cd "$root"
# Each of the two on one core: more threads in the linear algebra would only wait for each other.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# anyio, which ray or flwr may bring, has a plugin that looks at every test for coroutines.
exec "$venv/bin/python" -m pytest -p no:anyio -n 2 --dist worksteal "$@"
