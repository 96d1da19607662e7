# Sourced by the scripts beside it: an environment with this clone and what it needs installed, in
# the versions of constraints.txt.
# FEDMIA_VENV says where it lives (default: .venv in the clone), PYTHON which interpreter makes it.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${FEDMIA_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
constraints=$root/constraints.txt
cpu_builds=https://download.pytorch.org/whl/cpu

say() {
    echo "fedmia: $*" >&2
}

die() {
    say "error: $*"
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The first interpreter that is new enough; PYTHON, where set, is the only one tried.
find_python() {
    local name
    for name in ${PYTHON:-python3 python python3.13 python3.12 python3.11}; do
        if new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    die "Python >= 3.11 is needed, and ${PYTHON:-python3} is missing or older;" \
        "PYTHON=/path/to/python names another"
}

make_venv() {
    local python
    if [ -e "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv" 2>/dev/null)" ]; then
        die "$venv exists and is no virtual environment; set FEDMIA_VENV to another folder"
    fi
    python=$(find_python)
    say "making a virtual environment in $venv"
    "$python" -m venv --clear "$venv" >/dev/null 2>&1 && return
    # Some systems split ensurepip off from Python. Their own pip can fill the environment too.
    "$python" -m venv --clear --without-pip "$venv" >/dev/null 2>&1 &&
        "$python" -m pip --python "$venv/bin/python" install --quiet pip >&2 && return
    rm -rf "$venv"
    die "$python cannot make a virtual environment in $venv; on Debian or Ubuntu:" \
        "apt install python3-venv"
}

# What an environment must have been made from to be used as it is.
origin() {
    echo "$root"
    cat "$root/pyproject.toml" "$root/fedmia/__init__.py" "$constraints"
}

fits() {
    [ -f "$1" ] && [ "$(cat "$1")" = "$(origin)" ]
}

imports_clone() {
    (cd / && "$venv/bin/python" -c 'import fedmia; print(fedmia.__file__)' 2>/dev/null) |
        grep -qxF "$root/fedmia/__init__.py"
}

install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --constraint "$constraints" "$@" >&2
}

installed_torch() {
    "$venv/bin/python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null ||
        true
}

has_driver() {
    command -v nvidia-smi >/dev/null || [ -e /proc/driver/nvidia ] ||
        ldconfig -p 2>/dev/null | grep -q 'libcuda\.so'
}

cpu_builds_answer() {
    timeout 5 "$venv/bin/python" -c 'import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=5)' "$cpu_builds/torch/" >/dev/null 2>&1
}

# PyTorch of PyPI brings CUDA to Linux, 5 GB of it. torch and torchvision must come from the same
# place; pip then keeps them.
choose_torch() {
    [ "$(uname -s)" = Linux ] || return 0
    case $(installed_torch) in "" | *+cpu) ;; *) return 0 ;; esac
    if has_driver; then
        say "PyTorch with CUDA (6 GB): there is a driver of NVIDIA"
    elif ! cpu_builds_answer; then
        say "PyTorch with CUDA (6 GB), though there is no driver of NVIDIA: $cpu_builds does not answer"
    elif install --index-url "$cpu_builds" --no-deps torch torchvision; then
        say "PyTorch without CUDA (1.5 GB): there is no driver of NVIDIA"
    else
        say "PyTorch with CUDA (6 GB), though there is no driver of NVIDIA: $cpu_builds lacks a version"
    fi
}

# ready PURPOSE: the environment holds this clone with what `run`, `test`, `docs` or `dev` needs.
# The clone is installed editable, so its code is never stale. An install leaves a stamp; the stamp
# of another clone, or of another pyproject.toml or constraints.txt, does not match.
ready() {
    local purpose=$1 stamp serves extra=""
    case $purpose in
        run) serves="run test docs dev" ;;
        test) serves="test dev" extra="[test]" ;;
        docs) serves="docs dev" extra="[docs]" ;;
        dev) serves="dev" extra="[dev]" ;;
    esac
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
    for stamp in $serves; do
        if fits "$venv/fedmia-$stamp.stamp" && imports_clone; then return; fi
    done
    say "installing what is missing into $venv (at first: minutes)"
    for stamp in "$venv"/fedmia-*.stamp; do
        fits "$stamp" || rm -f "$stamp"
    done
    choose_torch
    install --editable "$root$extra" || die "pip could not install fedmia (see above)"
    imports_clone || die "$venv imports another fedmia than the one in $root"
    origin >"$venv/fedmia-$purpose.stamp"
}
