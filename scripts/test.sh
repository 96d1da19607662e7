#!/usr/bin/env bash
# Install what is missing, then run the tests: test.sh ARGUMENTS = python -m pytest ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready test
cd "$root"
exec "$venv/bin/python" -m pytest "$@"
