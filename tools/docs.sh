#!/usr/bin/env bash
# Install what is missing, then build the site into site/ (or into $1). It needs no network for that.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
ready docs
case ${1:-} in
    "") out=$root/site ;;
    /*) out=$1 ;;
    *) out=$PWD/$1 ;;
esac
cd "$root"
"$venv/bin/python" docs/build.py "$out"
