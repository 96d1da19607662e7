"""Processes side by side, each in a group of its own, on cores and with threads of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from fedmia.cli.command import DISK_FAILED
from fedmia.runtime.cores import bind_cores, share_cores
from fedmia.storage.durable import DiskError

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PAUSE = 0.02  # seconds between two looks


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
    began: Callable[[StudyProcess], None],
    ended: Callable[[StudyProcess, int], str | None],
    stop: Event,
) -> dict[str, str]:
    """Run the tasks in order, at most `jobs` at once, each on its share of the cores; when `stop`
    is set, kill those that run.

    Args:
        tasks: in the order to start them.
        jobs: most processes at once.
        began: called before a task's process starts.
        ended: takes a task and the exit code of its process (negative: the signal that killed it),
            and says why it failed, or None; not called for those that `stop` ended.
        stop: set to end all processes.

    Returns:
        Name of each task that failed -> why.

    Raises:
        DiskError: a process could not read or write a file; so could no other.
    """
    failed: dict[str, str] = {}
    waiting, running = deque(tasks), list[tuple[StudyProcess, subprocess.Popen[bytes], list[int]]]()
    free = share_cores(min(jobs, len(tasks)))
    try:
        while (waiting or running) and not stop.is_set():
            while waiting and free:
                task, share = waiting.popleft(), free.pop()
                began(task)
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
                    if (reason := ended(task, code)) is not None:
                        failed[task.name] = reason
    finally:
        for _, process, _ in running:
            _end(process)
    return failed


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


def end_with_the_study() -> None:
    """Kill this process and what it started as soon as its standard input ends.

    To be called by a task's own process, which leads a group; the study holds the other end of its
    input and writes nothing.
    """

    def watch() -> None:
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    Thread(target=watch, daemon=True).start()


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
