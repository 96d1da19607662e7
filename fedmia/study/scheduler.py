"""The scheduler of jobs, in processes side by side: of a study, and of the tables of papers.

A job is one process and what is done before and after it. Whoever asks for jobs keeps them in a
folder that says which are finished, and asks for the others alone: the same command again goes on.

A job starts as soon as the one that it needs is finished, the first of the list first, on its share
of the cores. One that fails takes those that need it with it; the others run. Ctrl-C and the end of
the time kill what runs, which the same command goes on with. A disk that fails ends all: every
other job would fail there as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from fedmia.cli.command import DISK_FAILED, FAILED, INTERRUPTED
from fedmia.runtime.cores import bind_cores, count_cores, share_cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.progress import StudyDisplay
from fedmia.storage import durable
from fedmia.storage.runfolder import RunFolder
from fedmia.study.processes import end, start

HINT = "the same command again goes on with what is not finished"
PAUSE = 0.02  # seconds between two looks
PROGRAM = """import sys
sys.path[:] = dict.fromkeys([*sys.argv[1].split(chr(10)), *sys.path])
from fedmia.study.processes import main
sys.exit(main(*sys.argv[2:]))
"""


@dataclass(frozen=True)
class ProcessJob:
    """A process that is run once.

    Attributes:
        name: no other job of the command has it.
        begin: writes what the process reads, just before it starts; its command line.
        keep: takes the exit code (negative: the signal that killed it) and the seconds of the
            process, and keeps what it made; why the job failed, None where it did not.
        log: file of what the process prints; its folder is there once `begin` returns.
        threads: of each numeric library, unless the environment says otherwise.
        needs: name of the job that must be finished before; empty: none.
    """

    name: str
    begin: Callable[[], Sequence[str]]
    keep: Callable[[int, float], str | None]
    log: Path
    threads: int
    needs: str = ""


def run_jobs(
    jobs: Sequence[ProcessJob], at_once: int, stop: Event, quiet: bool, minutes: float | None = None
) -> dict[str, str]:
    """Run jobs until each is finished or failed, or `stop` is set.

    Args:
        jobs: those that are not finished, in the order to start them.
        at_once: most processes side by side.
        stop: set to kill those that run and to start no other.
        quiet: show no progress.
        minutes: after which `stop` is set; None: never.

    Returns:
        Name of each job that failed -> why. Those that `stop` ended are not among them.

    Raises:
        DiskError: a file could not be written or read; what was begun stays.
    """
    limit = None if minutes is None else time.monotonic() + 60 * minutes
    waiting, failed = {job.name: job for job in jobs}, dict[str, str]()
    running = list[tuple[ProcessJob, subprocess.Popen[bytes], list[int], float]]()
    widest = len(waiting.keys() - {job.needs for job in jobs})  # no two of them need each other
    free = share_cores(min(at_once, widest))

    def over(name: str, reason: str | None) -> None:
        display.ended(name, reason)
        if reason is not None:
            failed[name] = reason
            for above in [job.name for job in waiting.values() if job.needs == name]:
                del waiting[above]
                over(above, f"{name} failed")

    with StudyDisplay(len(jobs), quiet) as display:
        try:
            while (waiting or running) and not stop.is_set():
                unfinished = {*waiting, *(job.name for job, *_ in running)}
                ready = [job for job in waiting.values() if job.needs not in unfinished]
                for job in ready[: len(free)]:
                    del waiting[job.name]
                    display.began(job.name)
                    arguments, share, began = job.begin(), free.pop(), time.perf_counter()
                    with bind_cores(share):
                        process = start(arguments, job.log, job.threads)
                    running.append((job, process, share, began))
                assert running, f"{', '.join(waiting)} need each other"
                # Not `stop.wait`: the handler of Ctrl-C that sets it runs in this very thread.
                time.sleep(PAUSE)
                for one in list(running):
                    job, process, share, began = one
                    if (code := process.poll()) is not None:
                        running.remove(one)
                        free.append(share)
                        end(process)
                        if code == DISK_FAILED:
                            raise durable.DiskError(explain_exit(code, job.log, {}))
                        over(job.name, job.keep(code, time.perf_counter() - began))
                if limit is not None and time.monotonic() > limit:
                    stop.set()
        finally:
            for _, process, *_ in running:
                end(process)
    return failed


def side_by_side(jobs: int | None, devices: Iterable[str], threads: int) -> int:
    """How many jobs are run at once.

    Args:
        jobs: what the user asks for; None: one on a GPU, else as many as have cores.
        devices: of the jobs: `auto`, `cpu` or `cuda`.
        threads: of a job, at least 1.

    Returns:
        The number, at least 1.
    """
    if jobs is not None:
        return jobs
    on_gpu = any(resolve_device(device) != "cpu" for device in devices)
    return 1 if on_gpu else max(1, count_cores() // threads)


@contextmanager
def going_on(stop: Event) -> Iterator[None]:
    """Inside it a command runs its jobs: where the disk or the user ends it, it says how to go on.

    Args:
        stop: set when the user interrupts, or the time is over.

    Yields:
        Nothing.

    Raises:
        DiskError: a file could not be written or read.
    """
    with durable.explain(hint=HINT):
        yield
    if stop.is_set():
        print(f"fedmia: {HINT}", file=sys.stderr)


def exit_code(stop: Event, failed: Mapping[str, str]) -> int:
    """The exit code of a command that ran jobs.

    Args:
        stop: as of `run_jobs`.
        failed: what `run_jobs` returned.

    Returns:
        130 where it was stopped, 1 where a job failed, else 0.
    """
    return INTERRUPTED if stop.is_set() else FAILED if failed else 0


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

    It finds modules where this process does: `-m` would first look into the working folder.

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


def simulate_command(config: Path, folder: Path) -> Sequence[str]:
    """The command line that begins a simulation, or goes on with it where it can.

    Args:
        config: file of its settings, whose plugins the user named.
        folder: of the run; what cannot be gone on with is deleted.

    Returns:
        The arguments, as of `command`.
    """
    if RunFolder(folder).can_go_on():
        return command("fedmia.simulate", "--resume", folder, "--trust-plugins")
    shutil.rmtree(folder, ignore_errors=True)
    return command("fedmia.simulate", "--config", config, "--out", folder)
