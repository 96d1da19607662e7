#!/usr/bin/env bash
# Install what is missing, then run the tests, two at a time: test.sh ARGUMENTS = pytest ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready test
cd "$root"
exec "$venv/bin/python" -m pytest -n 2 --dist worksteal "$@"
