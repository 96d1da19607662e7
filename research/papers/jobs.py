"""Trainings, audits, heads and federations, each made once in a process of its own.

A job is named by the digest of its settings, so that every table that asks for an encoder finds the
one that is there, and a command that is repeated makes only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fedmia.evaluation.audits.resume import same_audit
from fedmia.runtime.environment import describe
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError, opt
from fedmia.settings.layout import Flat
from fedmia.settings.tree import flatten, from_tree
from fedmia.settings.yamlfile import Tree, dump
from fedmia.storage import durable
from fedmia.storage.outfolder import locked
from fedmia.study.scheduler import ProcessJob, command, explain_exit, simulate_command
from fedmia.untrusted.text import read_json
from research.papers.central_settings import Central
from research.papers.heads.settings import Head

DONE = "done.json"  # of a finished job: its seconds and where it took place; written last
SETTINGS = "settings.yaml"  # of a job, as its command reads them
ENCODER = "encoder"  # kinds of jobs
AUDIT = "audit"
HEAD = "head"
FEDERATION = "federation"
PAPER = "paper"  # tables and figures of a federation's run
ROOTS: Mapping[str, Any] = {  # of the settings of their commands
    ENCODER: Central, AUDIT: Audit, HEAD: Head, FEDERATION: Experiment,
}  # fmt: skip
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

    def unfinished(self, jobs: Iterable[TableJob]) -> list[ProcessJob]:
        """The jobs of the scheduler that make what is not finished of some jobs and their needs.

        Args:
            jobs: of tables.

        Returns:
            Federations first, as they take longest; then in the order of the tables.
        """
        chained = {job.key: job for one in jobs for job in one.chain()}
        waiting = [job for job in chained.values() if self.done(job) is None]
        waiting.sort(key=lambda job: job.kind != FEDERATION)
        return [
            ProcessJob(
                job.key, partial(self.start, job), partial(self._keep, job),
                self.path(job) / "log.txt", 1, "" if job.needs is None else job.needs.key,
            )
            for job in waiting
        ]  # fmt: skip

    def _keep(self, job: TableJob, code: int, seconds: float) -> str | None:
        """Finish a job whose process ended well; why it failed otherwise."""
        if code:
            return explain_exit(code, self.path(job) / "log.txt", {str(self.root): "OUT"})
        self.finish(job, seconds)
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
            return command("research.papers.__main__", "run", run_path, "--out", results)
        tree = {**flatten(ROOTS[job.kind], job.tree), **self._sources(job)}
        durable.write({settings: dump(tree)})
        if job.kind == FEDERATION:
            return simulate_command(settings, results)
        if job.kind == ENCODER:
            return command("research.papers.central", settings, results)
        # An audit goes on if it is this one: folder or device may have changed since.
        if job.kind == HEAD or not same_audit(from_tree(Audit, tree))(results):
            shutil.rmtree(results, ignore_errors=True)
        module = ("research.papers.__main__", "head") if job.kind == HEAD else ("fedmia.audit",)
        return command(*module, "--config", settings, "--out", results)

    def _sources(self, job: TableJob) -> Flat:
        """What the settings of a job say of the folder that it reads."""
        root = ROOTS[job.kind]
        flat, whole = flatten(root, job.tree), partial(flatten, root)
        own: Tree = {"device": self.device}
        if job.needs is None:
            return whole({**own, **self._located(flat["data.name"])})
        if job.kind == AUDIT:
            cache = {"cache": str(self.jobs / "shadows")} if flat.get("shadow.count") else {}
            own |= {**cache, "threads": 1}
        key = "data.name" if job.kind == HEAD else "shadow.data"
        above = self.path(job.needs) / "results"
        if (data := flat.get(key)) is not None:
            place = self._located(data)
            name = f"npz:{above / 'nonmembers.npz'}" if data == OTHERS else place["data.name"]
            own |= {**place, key: name} if job.kind == HEAD else {key: name}
            own |= {"data.dir": place["data.dir"]} if "data.dir" in place else {}
        own["encoder"] = str(above) if job.epoch is None else f"{above}@{job.epoch}"
        if job.needs.kind == FEDERATION or job.kind == HEAD:
            return whole(own)
        return whole(own | {side: f"npz:{above / side}.npz" for side in ("members", "nonmembers")})

    def _located(self, source: str) -> Tree:
        """Name and folder of a data source whose files lie in the folder of data sets."""
        plugin, _, file = source.partition(":")
        if self.data_dir is None or plugin in ("digits", "synthetic"):
            return {"data.name": source}
        if file:
            return {"data.name": f"{plugin}:{self.data_dir / file}"}
        return {"data.name": source, "data.dir": str(self.data_dir)}
