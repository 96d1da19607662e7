#!/usr/bin/env bash
# Install what is missing, then write the pages of every public module to docs/api/ (or to $1).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready docs
out=${1:-$root/docs/api}
# Ray asks the system for its GPUs when it is imported. Before Python 3.12 pdoc does not see from
# where a TypedDict inherits a field, and says so of each.
(cd "$root" && PDOC_ALLOW_EXEC=1 "$venv/bin/python" -W "ignore:Cannot determine where" -m pdoc --docformat google --output-directory "$out" \
    fedmia strategies clients)
echo "$out/index.html"
