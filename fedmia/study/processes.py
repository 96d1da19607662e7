"""Processes side by side, each in a group of its own, on cores and with threads of its own.

A process is that of `python -m MODULE [ARGUMENT ..]`, but that it ends when the study does, by
kill -9 too, and finds modules where the study does: `-m` would first look into the working folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from fedmia.cli.command import DISK_FAILED
from fedmia.runtime.cores import bind_cores, share_cores
from fedmia.storage.durable import DiskError

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PAUSE = 0.02  # seconds between two looks
PROGRAM = """import sys
sys.path[:] = dict.fromkeys([*sys.argv[1].split(chr(10)), *sys.path])
from fedmia.study.processes import main
sys.exit(main(*sys.argv[2:]))
"""


@dataclass(frozen=True)
class StudyProcess:
    """A process to be run.

    Attributes:
        name: of the task.
        arguments: its command line.
        log: file of what it prints.
        threads: of each numeric library, unless the environment says otherwise.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    threads: int


def run_all(
    tasks: Sequence[StudyProcess],
    jobs: int,
    stop: Event,
    began: Callable[[str], None],
) -> Generator[tuple[str, int, Path], None, None]:
    """Run the tasks in order, at most `jobs` at once, each on its share of the cores; when `stop`
    is set, or the iterator is closed, kill those that run.

    Args:
        tasks: in the order to start them.
        jobs: most processes at once.
        stop: set to end all processes.
        began: takes the name of a task before its process starts.

    Yields:
        Name of a task whose process ended, its exit code (negative: the signal that killed it),
            and the file of what it printed.

    Raises:
        DiskError: a process could not read or write a file; so could no other.
    """
    waiting, running = deque(tasks), list[tuple[StudyProcess, subprocess.Popen[bytes], list[int]]]()
    free = share_cores(min(jobs, len(tasks)))
    try:
        while (waiting or running) and not stop.is_set():
            while waiting and free:
                task, share = waiting.popleft(), free.pop()
                began(task.name)
                with bind_cores(share):
                    running.append((task, _start(task), share))
            # Not `stop.wait`: the handler of Ctrl-C that sets it runs in this very thread.
            time.sleep(PAUSE)
            for task, process, share in list(running):
                if (code := process.poll()) is not None:
                    running.remove((task, process, share))
                    free.append(share)
                    _end(process)
                    if code == DISK_FAILED:
                        raise DiskError(explain_exit(code, task.log, {}))
                    yield task.name, code, task.log
    finally:
        for _, process, _ in running:
            _end(process)


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
    study holds the other end of the input and writes nothing.

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


def _start(task: StudyProcess) -> subprocess.Popen[bytes]:
    limits = dict.fromkeys(LIMITS, str(task.threads))
    with task.log.open("wb") as log:
        # Its input ends with this process. Ctrl-C reaches this process alone.
        return subprocess.Popen(
            task.arguments,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**limits, **os.environ},
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and of those that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        process.stdin.close()
