"""Trainings, audits, heads and federations, each made once in a process of its own.

A job is named by the digest of its settings, so that every table that asks for an encoder finds the
one that is there, and a command that is repeated makes only what is missing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event, Timer
from typing import Any

from fedmia.config.audit import Audit
from fedmia.config.tree import from_tree
from fedmia.evaluation.audits.resume import same_audit
from fedmia.options.bounded import read_json
from fedmia.options.errors import InputError, opt
from fedmia.options.yamlfile import Tree, dump
from fedmia.runtime.environment import describe
from fedmia.storage import durable
from fedmia.storage.outfolder import locked
from fedmia.storage.runfolder import RunFolder
from fedmia.study.processes import StudyProcess, command, explain_exit, run_all

DONE = "done.json"  # of a finished job: its seconds and where it took place; written last
SETTINGS = "settings.yaml"  # of a job, as its command reads them
ENCODER = "encoder"  # kinds of jobs
AUDIT = "audit"
HEAD = "head"
FEDERATION = "federation"
PAPER = "paper"  # tables and figures of a federation's run
OTHERS = "npz:nonmembers.npz"  # images of a head: those that its encoder never saw, beside it


@dataclass(frozen=True)
class TableJob:
    """One process and the folder that it fills.

    Attributes:
        kind: `ENCODER`, `FEDERATION`, `AUDIT`, `HEAD` or `PAPER`.
        tree: the settings of its command, without paths of what it needs.
        needs: the job whose folder it reads; None for trainings.
        epoch: of the encoder that it reads; None: the last one.
        preset: of the paper, below its settings; empty without one.
    """

    kind: str
    tree: Tree = field(hash=False)
    needs: TableJob | None = None
    epoch: int | None = None
    preset: str = field(default="", compare=False)

    @cached_property
    def key(self) -> str:
        """Name of its folder: a digest of all that decides its numbers."""
        above = "" if self.needs is None else self.needs.key
        text = json.dumps([self.kind, self.tree, above, self.epoch], sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def chain(self) -> Iterator[TableJob]:
        """What it needs, first things first, and itself."""
        if self.needs is not None:
            yield from self.needs.chain()
        yield self


class JobFolder:
    """The folder of all jobs: a subfolder each, and a file in it that says that it is finished.

    Args:
        root: of the results; made where it is missing.
        data_dir: folder of the data sets' files, None where no job reads one.
        device: `cpu` or `cuda`, on which the jobs run.
    """

    def __init__(self, root: Path, data_dir: Path | None = None, device: str = "cpu") -> None:
        self.root, self.jobs = root, root / "jobs"
        self.data_dir, self.device = data_dir, device

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second command out of the folder.

        Raises:
            InputError: another one is at work in it, or it cannot be made.
        """
        where = opt("out", str(self.root))
        if self.root.is_dir() and any(self.root.iterdir()) and not self.jobs.is_dir():
            raise InputError(f"{where} holds something else; name a new folder")
        try:
            durable.make_folder(self.jobs)
        except durable.DiskError as error:
            raise InputError(f"{where} cannot be made: {error.reason}") from None
        with locked(self.jobs, where):
            yield

    def path(self, job: TableJob) -> Path:
        """Folder of a job."""
        return self.jobs / job.key

    def done(self, job: TableJob) -> dict[str, Any] | None:
        """Seconds, hardware and versions of a finished job, None where it is not finished."""
        try:
            return read_json(self.path(job) / DONE)
        except (OSError, ValueError):
            return None

    def finish(self, job: TableJob, seconds: float) -> None:
        """Write that a job is finished, once all that it made is on the disk.

        Args:
            job: whose process ended well.
            seconds: that it took.

        Raises:
            DiskError: it cannot be written.
        """
        facts = {"kind": job.kind, "settings": job.tree, "seconds": round(seconds, 2), **describe()}
        durable.force_tree(self.path(job))
        durable.write({self.path(job) / DONE: json.dumps(facts, indent=1)})

    def start(self, job: TableJob) -> Sequence[str]:
        """Write the settings of a job, and clear what cannot be gone on with; its command line."""
        folder = self.path(job)
        results = folder / "results"
        durable.make_folder(folder, self.jobs)
        settings = folder / SETTINGS
        if job.kind == PAPER:
            assert job.needs is not None
            shutil.rmtree(results, ignore_errors=True)
            run_path = self.path(job.needs) / "results"
            return command("papers.__main__", "run", run_path, "--out", results)
        tree = {**job.tree, **self._sources(job)}
        durable.write({settings: dump(tree)})
        if job.kind == FEDERATION:
            if RunFolder(results).can_go_on():
                return command("fedmia.simulate", "--resume", results)
            shutil.rmtree(results, ignore_errors=True)
            return command("fedmia.simulate", "--config", settings, "--out", results)
        if job.kind == ENCODER:
            return command("papers.central", settings, results)
        # An audit goes on if it is this one: folder or device may have changed since.
        if job.kind == HEAD or not same_audit(from_tree(Audit, tree))(results):
            shutil.rmtree(results, ignore_errors=True)
        module = ("papers.__main__", "head") if job.kind == HEAD else ("fedmia.audit",)
        return command(*module, "--config", settings, "--out", results)

    def _sources(self, job: TableJob) -> Tree:
        """What the settings of a job say of the folder that it reads."""
        own: Tree = {"device": self.device}
        if job.needs is None:
            return {**own, "data": {**job.tree["data"], **self._located(job.tree["data"]["name"])}}
        if job.kind == AUDIT:
            cache = {"cache": str(self.jobs / "shadows")} if job.tree.get("shadows") else {}
            own |= {**cache, "threads": 1}
        key = "data" if job.kind == HEAD else "shadow_data"
        if (data := job.tree.get(key)) is not None:
            options = dict(data) if isinstance(data, Mapping) else {"name": data}
            place = self._located(options["name"])
            own[key] = {**options, "name": place["name"]}
            own |= {"data_dir": place["dir"]} if "dir" in place else {}
        above = self.path(job.needs) / "results"
        if job.tree.get(key) == OTHERS:
            own[key] = f"npz:{above / 'nonmembers.npz'}"
        own["encoder"] = str(above) if job.epoch is None else f"{above}@{job.epoch}"
        if job.needs.kind == FEDERATION or job.kind == HEAD:
            return own
        return own | {side: f"npz:{above / side}.npz" for side in ("members", "nonmembers")}

    def _located(self, source: str) -> Tree:
        """Name and folder of a data source whose files lie in the folder of data sets."""
        plugin, _, file = source.partition(":")
        if self.data_dir is None or plugin in ("digits", "synthetic"):
            return {"name": source}
        if file:
            return {"name": f"{plugin}:{self.data_dir / file}"}
        return {"name": source, "dir": str(self.data_dir)}


def run_jobs(
    jobs: Sequence[TableJob], folder: JobFolder, side_by_side: int, stop: Event,
    minutes: float | None, say: Callable[[str], None],
) -> Mapping[str, str]:  # fmt: skip
    """Make the jobs that are not finished, and what they need.

    Args:
        jobs: to be made.
        folder: where they are kept.
        side_by_side: processes at once.
        stop: set to end; what was begun can be gone on with.
        minutes: after which `stop` is set; None: never.
        say: takes a line for the user.

    Returns:
        Key of each job that failed -> why. Those that `stop` ended are not among them.

    Raises:
        DiskError: a file could not be written or read; what was begun can be gone on with.
    """
    ordered = {job.key: job for one in jobs for job in one.chain()}
    waiting = [job for job in ordered.values() if folder.done(job) is None]
    waiting.sort(key=lambda job: job.kind != FEDERATION)  # the longest first, so no core waits
    failed, began, count = dict[str, str](), dict[str, float](), itertools.count(1)

    def starts(key: str) -> None:
        began[key] = time.perf_counter()

    with ExitStack() as at_end:
        if minutes is not None:
            timer = Timer(60 * minutes, stop.set)
            timer.daemon = True
            timer.start()
            at_end.callback(timer.cancel)
        depths = {job.key: len(tuple(job.chain())) for job in waiting}
        for depth in sorted(set(depths.values())):  # a job runs after all that it needs
            tasks = []
            for job in (one for one in waiting if depths[one.key] == depth):
                broken = next((above.key for above in job.chain() if above.key in failed), None)
                if broken is not None:
                    failed[job.key] = f"{broken} failed"
                elif not stop.is_set():
                    log = folder.path(job) / "log.txt"
                    tasks.append(StudyProcess(job.key, folder.start(job), log, 1))
            at_once = max(1, min(side_by_side, len(tasks)))
            with closing(run_all(tasks, at_once, stop, starts)) as ends:
                for key, code, log in ends:
                    seconds, how = time.perf_counter() - began[key], "done"
                    if code:
                        failed[key] = explain_exit(code, log, {str(folder.root): "OUT"})
                        how = f"failed: {failed[key]}"
                    else:
                        folder.finish(ordered[key], seconds)
                    say(f"{next(count)}/{len(waiting)} {key} {how} ({seconds:.0f} s)")
    return failed
