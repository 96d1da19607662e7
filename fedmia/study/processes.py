"""One process of a job: its start and its end, and what it does first itself.

It leads a group of its own, and ends when its parent does, by kill -9 too.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def start(arguments: Sequence[str], log: Path, threads: int) -> subprocess.Popen[bytes]:
    """Start a process that leads a group of its own. Ctrl-C does not reach it.

    Args:
        arguments: its command line, as of `scheduler.command`, so that it ends with this process.
        log: file of what it prints.
        threads: of each numeric library, unless the environment says otherwise.

    Returns:
        The process.
    """
    limits = dict.fromkeys(LIMITS, str(threads))
    with log.open("wb") as printed:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env={**limits, **os.environ},
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process and of those that it started.

    Args:
        process: of `start`.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        process.stdin.close()


def main(module: str, *arguments: str) -> int:
    """Run a command's module in this process, which leads a group, until it or its input ends: the
    parent holds the other end of the input and writes nothing.

    Args:
        module: of the command.
        arguments: of its command line.

    Returns:
        The exit code.
    """

    def watch() -> None:
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    Thread(target=watch, daemon=True).start()
    code: int = importlib.import_module(module).main(arguments)
    return code
