"""The scheduler of jobs, in processes side by side: of a study, and of the tables of papers.

A job is one process and what is done before and after it. Whoever asks for jobs keeps them in a
folder that says which are finished, and asks for the others alone: the same command again goes on.

A job starts as soon as the one that it needs is finished, the first of the list first, on its share
of the cores. One that fails takes those that need it with it; the others run. Ctrl-C and the end of
the time kill what runs, which the same command goes on with. A disk that fails ends all: every
other job would fail there as well.
"""

from __future__ import annotations

import shutil
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
from fedmia.study.processes import command, end, explain_exit, start

HINT = "the same command again goes on with what is not finished"
PAUSE = 0.02  # seconds between two looks


@dataclass(frozen=True)
class Job:
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
    jobs: Sequence[Job], at_once: int, stop: Event, quiet: bool, minutes: float | None = None
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
    running = list[tuple[Job, subprocess.Popen[bytes], list[int], float]]()
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


def can_go_on(folder: Path) -> bool:
    """Whether a folder holds a simulation that can be gone on with, or is finished.

    Args:
        folder: of the run.

    Returns:
        Whether `fedmia simulate --resume` takes it.
    """
    run = RunFolder(folder)
    return run.begun() or run.finished() is not None


def simulate_command(config: Path, folder: Path) -> Sequence[str]:
    """The command line that begins a simulation, or goes on with it where it can.

    Args:
        config: file of its settings, whose plugins the user named.
        folder: of the run; what cannot be gone on with is deleted.

    Returns:
        The arguments, as of `processes.command`.
    """
    if can_go_on(folder):
        return command("fedmia.simulate", "--resume", folder, "--trust-plugins")
    shutil.rmtree(folder, ignore_errors=True)
    return command("fedmia.simulate", "--config", config, "--out", folder)
