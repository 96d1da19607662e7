#!/usr/bin/env bash
# Install what is missing, then study: study.sh ARGUMENTS = python -m fedmia.study ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready run
exec "$venv/bin/python" -m fedmia.study "$@"
