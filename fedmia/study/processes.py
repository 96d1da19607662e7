"""One process of a job: its command line, its start, its end, and why it failed.

It is that of `python -m MODULE [ARGUMENT ..]`, but that it ends when its parent does, by
kill -9 too, and finds modules where its parent does: `-m` would first look into the working folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PROGRAM = """import sys
sys.path[:] = dict.fromkeys([*sys.argv[1].split(chr(10)), *sys.path])
from fedmia.study.processes import main
sys.exit(main(*sys.argv[2:]))
"""


def explain_exit(code: int, log: Path, hidden: Mapping[str, str]) -> str:
    """One line that says why a process failed: its signal, or the last line that it printed.

    Args:
        code: exit code; negative: the signal.
        log: file of what the process printed.
        hidden: text -> what replaces it in the line.

    Returns:
        The line.
    """
    if code < 0:
        more = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{more}"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    for text, word in hidden.items():
        last = last.replace(text, word)
    last = last.removeprefix("fedmia: error: ").removeprefix("fedmia: the run failed: ")
    no_word = "a file cannot be written" if code == os.EX_IOERR else f"ended with exit code {code}"
    return last[:500] or no_word


def command(module: str, *arguments: object) -> Sequence[str]:
    """The command line of `python -m MODULE ARGUMENTS --quiet` that ends when this process does.

    Args:
        module: of the package.
        arguments: of the command.

    Returns:
        The arguments, that of Python first.
    """
    path = [folder or os.getcwd() for folder in sys.path]
    if path[-1] == os.getcwd():  # for plugins; our own packages come before
        path.pop()
    line = (sys.executable, "-P", "-c", PROGRAM, "\n".join(path), module, *arguments, "--quiet")
    return [str(part) for part in line]


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


def start(arguments: Sequence[str], log: Path, threads: int) -> subprocess.Popen[bytes]:
    """Start a process that leads a group of its own. Ctrl-C does not reach it.

    Args:
        arguments: its command line, as of `command`, so that it ends with this process.
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
