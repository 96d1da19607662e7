"""The folder of a study: `cells/` holds finished runs and nothing else.

A run is made in `unfinished/` and renamed when it is over, so that what a kill -9 leaves behind is
finished, or gone on with from its checkpoint, or thrown away. `failed/` holds what failed runs
printed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedmia.cli.command import FAILED
from fedmia.records.rows import Report
from fedmia.settings.commands.study import Cell, Study, format_grid_value, tree_key
from fedmia.settings.errors import InputError, opt
from fedmia.settings.yamlfile import MOST, dump
from fedmia.storage import durable
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.runfolder import RunFolder
from fedmia.study.scheduler import ProcessJob, explain_exit

KEY = "settings.json"  # complete settings of a run, as `Cell.key` has them
MARK = "jobs"  # what the settings of many runs have
LONGEST = 120  # letters of a folder's name


class StudyFolder:
    """`--out` of a study.

    Args:
        out: the folder; what lies there must be of this study, or of a part of it.
        runs: what is asked for.
        settings: of the study.

    Raises:
        InputError: it holds anything else, or cannot be made.
    """

    def __init__(self, out: Path, runs: Sequence[Cell], settings: Study) -> None:
        self.out, self.runs, self.settings = out, runs, settings
        self.cells, self.unfinished, self.failed = (
            out / name for name in ("cells", "unfinished", "failed")
        )
        self._place = OutFolder(out, "another run", self._belongs_here)
        self.names = names(runs)

    def _belongs_here(self, folder: Path) -> bool:
        try:
            if MARK not in RunFolder(folder).facts():
                return False
        except InputError:
            return False
        keys = {cell.key for cell in self.runs}
        other = next((p.name for key, p in self._finished_folders() if key not in keys), None)
        if other is not None:
            raise InputError(
                f"{opt('out')} '{self.out}' holds {other}, which this study does not ask for; name "
                "a new folder, or add values and seeds only"
            )
        return True

    def _finished_folders(self) -> Iterator[tuple[str, Path]]:
        """Key and folder of every finished run."""
        for folder in sorted(self.cells.glob("*/")):
            file = folder / KEY
            if file.is_file() and file.stat().st_size <= MOST:
                yield file.read_text(encoding="utf-8", errors="replace"), folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, keep other studies out of it, and clear what an ended one left.

        Raises:
            InputError: another command is at work in it.
        """
        with self._place as place:
            place.begin(self.settings.tree())
            shutil.rmtree(self.failed, ignore_errors=True)
            for subfolder in (self.cells, self.unfinished):
                durable.make_folder(subfolder, self.out)
            self._tidy()
            try:
                yield
            finally:
                self._tidy()
                if not any(self.unfinished.iterdir()):
                    self.unfinished.rmdir()

    def _tidy(self) -> None:
        """Delete what is unfinished, but for runs of this study that can be gone on with."""
        keys_by_name = {self.names[cell.key]: tree_key(cell.tree) for cell in self.runs}
        for path in self.unfinished.iterdir():
            if not path.is_dir():
                path.unlink()
            elif not self._can_go_on(path) or settings_of(path) != keys_by_name.get(path.name):
                shutil.rmtree(path)

    def _can_go_on(self, path: Path) -> bool:
        """Whether a run can be gone on with; an audit goes on with whatever lies there."""
        return bool(self.settings.encoders) or RunFolder(path).can_go_on()

    def finished(self) -> dict[str, tuple[Path, Report]]:
        """Folder and report of every finished run that is asked for, by the key of its settings."""
        keys, reports = {cell.key for cell in self.runs}, {}
        for key, folder in self._finished_folders():
            with suppress(InputError):  # one that somebody broke is made again
                if key in keys and (report := RunFolder(folder).complete_report()) is not None:
                    reports[key] = folder, report
        return reports

    def job(
        self, cell: Cell, start: Callable[[Path, Path], Sequence[str]], threads: int
    ) -> ProcessJob:
        """A run as a job of the scheduler.

        Args:
            cell: the run, not finished.
            start: makes its command line of the file of its settings, and the folder to fill.
            threads: of each numeric library, where the run does not say.

        Returns:
            The job: its run is kept once it is whole, else what it printed alone.
        """
        name = self.names[cell.key]
        config, folder, log = (self.unfinished / f"{name}{end}" for end in (".yaml", "", ".log"))

        def begin() -> Sequence[str]:
            durable.write({config: dump(cell.tree)})
            return start(config, folder)

        def keep(code: int, seconds: float) -> str | None:
            # A run of which an attack alone failed is whole but for it, and its report says so.
            reason = self.keep(cell) if code in (0, FAILED) else ""
            if code and reason is not None:
                hidden = {f" in {config}": "", str(self.unfinished): "unfinished"}
                reason = explain_exit(code, log, hidden)
            if reason is not None:
                durable.make_folder(self.failed, self.out)
                log.replace(self.failed / log.name)
                shutil.rmtree(folder, ignore_errors=True)
            return reason

        return ProcessJob(name, begin, keep, log, cell.threads or threads)

    def keep(self, cell: Cell) -> str | None:
        """Move a run that ended well among the finished ones; why it cannot be, or None."""
        name = self.names[cell.key]
        unfinished, finished = self.unfinished / name, self.cells / name
        run = RunFolder(unfinished)
        try:
            if not run.has_report():
                return "its report cannot be read"
            whole = run.complete_report() is not None
        except InputError as error:
            return str(error)
        if not whole or settings_of(unfinished) != tree_key(cell.tree):
            return "its report is of another run, or of a part of it"
        durable.write({unfinished / KEY: cell.key})
        if not self.settings.keep_snapshots:
            for kept_to_go_on in (run.recording, run.checkpoint):
                shutil.rmtree(kept_to_go_on, ignore_errors=True)
        shutil.rmtree(finished, ignore_errors=True)  # one that somebody broke
        durable.move(unfinished, finished)
        return None


def settings_of(folder: Path) -> str | None:
    """The complete settings of a run as one text, None where they cannot be read."""
    try:  # not the report's own copy, whose numbers are rounded
        return tree_key(RunFolder(folder).facts())
    except InputError:
        return None


def names(cells: Sequence[Cell]) -> dict[str, str]:
    """Key -> name of the folder of every run, each another: `partition.alpha=0.1_seed=0`."""
    names_by_key: dict[str, str] = {}
    for cell in cells:
        values = {**cell.grid, "seed": cell.seed}
        # Between commas an audit reads several encoders.
        texts = {path: format_grid_value(v).replace(",", "+") for path, v in values.items()}
        whole = "_".join(f"{path}={text}" for path, text in texts.items())
        plain = re.sub(r"[^A-Za-z0-9.=+,_@-]", "-", whole)
        if plain != whole or len(plain) > LONGEST:
            digest = hashlib.sha256(cell.key.encode()).hexdigest()[:8]
            plain = f"{plain[:LONGEST]}_{digest}_seed={cell.seed}"
        names_by_key[cell.key] = plain
    return names_by_key
