#!/usr/bin/env bash
# Install what is missing, then simulate: run.sh ARGUMENTS = python -m fedmia.simulate ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready run
exec "$venv/bin/python" -m fedmia.simulate "$@"
