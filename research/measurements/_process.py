"""A whole process, measured from its start to its end."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence


def measure_process(
    command: Sequence[str], more: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Seconds of a process and of its own processors (`wall_s`, `cpu_s`), peak memory in MiB.

    Args:
        more: variables of its environment beside those of this one.

    Raises:
        RuntimeError: it failed; holds what it printed.
    """
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        running = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(more or {})}
        )
        _, status, used = os.wait4(running.pid, 0)
        wall = time.perf_counter() - began
        running.returncode = os.waitstatus_to_exitcode(status)
        if running.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {output.read()[-2000:]}")
    return {
        "wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024,
    }  # fmt: skip
