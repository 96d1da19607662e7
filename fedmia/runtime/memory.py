"""What memory work that is not done yet will take: measured on a short one, and counted.

The one rule of `--plan` for memory, as `fedmia.runtime.forecast` has that for seconds. A phase
takes what was there when it began, what it added in a pilot, as many times as it will have more to
do, and what is counted because no pilot shows it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MB = 1e6
# Of what a training takes, the share that is freed and stays with the allocator: glibc gives back
# what lies at the end of a heap, and clients that come and go leave holes
# (research/measurements/memory.py).
SLACK = 0.5
LAZY = 50 * MB  # bytes of libraries that a phase loads when it first needs them
WORTH = 0.05  # share of the peak from which on lowering a part is worth it
CGROUPS = (  # limit and use of a container, in its second version and in its first
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
Parts = Mapping[str, float]  # bytes by part


def resident_bytes() -> int:
    """Bytes of this process in memory; where the system does not tell, the most so far."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    return peak_bytes()


def peak_bytes() -> int:
    """The most bytes that this process had in memory since its mark was forgotten."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(one for one in lines if one.startswith("VmHWM")).split()[1])
    import resource  # not on every system

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def release_freed() -> None:
    """Give back to the system what this process has freed, where its allocator can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class Watermark:
    """How much memory this process had in each phase of its work, by the system's own mark.

    Linux forgets the mark at the beginning of each phase. Elsewhere it is the most so far, so a
    phase after a larger one is said to take as much.

    Attributes:
        start: bytes when it was made.
        starts: bytes at the beginning of each phase, what was freed before among them.
        added: the most bytes that a phase added to what was in use when it began.
    """

    def __init__(self) -> None:
        self.start = resident_bytes()
        self.starts, self.added = dict[str, int](), dict[str, int]()
        self._phase, self._before = "", 0

    def enter(self, phase: str) -> None:
        """A phase begins, or goes on; the one before it ends."""
        if phase == self._phase:
            return
        self.close()
        start = resident_bytes()
        release_freed()  # else the phase would hide in it
        self.starts[phase] = max(start, self.starts.get(phase, 0))
        self._phase, self._before = phase, resident_bytes()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the mark falls to what is in use

    def close(self) -> None:
        """The last phase ends."""
        if self._phase:
            added = peak_bytes() - self._before
            self.added[self._phase] = max(added, self.added.get(self._phase, 0))
            self._phase = ""


def foresee_phase(
    start: float, added: float, pilot: Parts, whole: Parts, growth: float = 1.0
) -> dict[str, float]:
    """What a phase will take, by part.

    Args:
        start: bytes when it began in the pilot.
        added: bytes that it added there.
        pilot: bytes that are counted for the pilot, by part.
        whole: bytes that are counted for the whole, by part.
        growth: how many times as much the phase will add.

    Returns:
        The parts of `whole`, as `more images` what grows, and as `rest` what was measured in the
        pilot beyond its counts.
    """
    rest = max(0.0, start + added - sum(pilot.values()))
    return {**whole, "rest": rest, "more images": (growth - 1) * max(0.0, added - LAZY)}


def foresee_phases(phases: Mapping[str, Parts], lowers: Mapping[str, str]) -> dict[str, Any]:
    """What a command will take at most, and what the user can lower.

    Args:
        phases: bytes by phase and part.
        lowers: the option that lowers a part, by part.

    Returns:
        `peak_mb` and its `phase`, `parts_mb` of this phase, the peaks of all (`phases_mb`);
        `lower`, the option for its largest part that one lowers, and `free_mb`, what this process
        has and may take, None where there is none. An MB is 1,000,000 bytes.
    """
    totals = {name: sum(parts.values()) for name, parts in phases.items()}
    peak = max(totals, key=lambda name: totals[name])
    parts = phases[peak]
    worth = [name for name in lowers if parts.get(name, 0) > WORTH * totals[peak]]
    largest = max(worth, key=lambda name: parts[name], default="")
    free = free_bytes()
    return {
        "peak_mb": totals[peak] / MB,
        "phase": peak,
        "parts_mb": megabytes(parts),
        "phases_mb": megabytes(totals),
        "lower": lowers.get(largest),
        "free_mb": None if free is None else (free + resident_bytes()) / MB,
    }


def megabytes(parts: Parts) -> dict[str, float]:
    """Parts in MB."""
    return {name: size / MB for name, size in parts.items()}


def free_bytes(cgroups: Sequence[tuple[str, str]] = CGROUPS) -> int | None:
    """Bytes that this process may still take: of the machine, and of the container that it is in.

    Args:
        cgroups: files with the limit of a container and with what it uses.

    Returns:
        The bytes; None where the system does not tell.
    """
    free = list[int]()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free.append(1024 * int(next(one for one in lines if "MemAvailable" in one).split()[1]))
    for limit, use in cgroups:
        with suppress(OSError, ValueError):  # `max` is no number: no limit
            free.append(int(Path(limit).read_text()) - int(Path(use).read_text()))
    return max(0, min(free)) if free else None
