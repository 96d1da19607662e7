#!/usr/bin/env bash
# Install what is missing, then audit: audit.sh ARGUMENTS = python -m fedmia.audit ARGUMENTS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready run
exec "$venv/bin/python" -m fedmia.audit "$@"
