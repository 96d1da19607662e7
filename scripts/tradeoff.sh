#!/usr/bin/env bash
# Install what is missing, then compare defences: tradeoff.sh ARGUMENTS = python -m fedmia.tradeoff ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready run
exec "$venv/bin/python" -m fedmia.tradeoff "$@"
