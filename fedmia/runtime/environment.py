"""Where a run took place: versions, hardware, and the commit of fedmia's own source.

Nothing here varies between two runs on one machine: no date, no load, no free memory.
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fedmia.runtime.cores import count_cores
from fedmia.runtime.device import count_gpus

PACKAGES = (
    "fedmia", "torch", "torchvision", "flwr", "ray", "opacus", "numpy", "scipy", "scikit-learn",
    "pyarrow", "pillow", "pyyaml", "safetensors", "matplotlib", "rich",
)  # fmt: skip
_GIB = 1 << 30


def describe() -> dict[str, Any]:
    """`{"versions": .., "hardware": .., "commit": ..}`, as the run folder keeps it."""
    return {"versions": versions(), "hardware": hardware(), "commit": commit()}


@functools.cache  # read off files, which do not change while the process runs
def version(package: str) -> str | None:
    """Installed version of a package, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Versions of Python and of every package that a number can depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, memory in GiB, GPUs by name, system."""
    return {
        "cpu": _cpu_name(),
        "cores": count_cores(),
        "memory_gib": _memory(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(count_gpus())],
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit(source: Path | None = None) -> str | None:
    """Commit of the checkout that holds fedmia's source, or None.

    None where fedmia runs from an installed copy, even one inside somebody else's repository,
    and where git is missing.

    Args:
        source: folder that holds the `fedmia` package; default that of this file.
    """
    root = (source or Path(__file__).resolve().parents[2]).resolve()
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root:
        return None
    if _git(root, "ls-files", "--error-unmatch", "fedmia/runtime/environment.py") is None:
        return None
    return _git(root, "rev-parse", "--verify", "HEAD")


def _git(folder: Path, *arguments: str) -> str | None:
    # A hook that runs us sets GIT_DIR and its like to the repository of the hook.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, timeout=10, check=False, env=clean,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB)
    except (ValueError, OSError, AttributeError):
        return None
