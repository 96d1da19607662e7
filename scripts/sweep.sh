#!/usr/bin/env bash
# Install what is missing, then sweep: sweep.sh ARGUMENTS = python -m fedmia.sweep ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready run
exec "$venv/bin/python" -m fedmia.sweep "$@"
