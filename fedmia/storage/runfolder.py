"""The folder of a run, an audit or a finished cell, read as data: nothing in it is executed."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmia.records import Curves
from fedmia.records.rows import FORMAT as REPORT_FORMAT
from fedmia.records.rows import Report
from fedmia.settings import session
from fedmia.settings.errors import InputError, prefix_errors
from fedmia.settings.yamlfile import RUN_KEY, Tree, load_all
from fedmia.storage.json_rows import from_json
from fedmia.storage.manifest import (
    CHECKPOINT,
    CHECKPOINT_INDEX,
    CONFIG,
    CURVES,
    EXPOSED,
    FORMAT,
    RECORDING,
    REPORT,
    SCORES,
    TABLE,
)
from fedmia.storage.results import from_npz, read
from fedmia.table import Row, flatten
from fedmia.untrusted.text import read_json

if TYPE_CHECKING:
    import pandas as pd

# What reading raises where values are of other types than a run of fedmia writes, or missing.
DAMAGE = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, EOFError, csv.Error,
)  # fmt: skip
IDS = ("image", "truth", "client", "subject", "label")  # columns of scores.csv of no attack
Trust = bool | Collection[str]  # whether plugins from outside may be imported, or which of them


class UntrustedPluginError(InputError):
    """A folder's settings name a plugin from outside that the user does not trust."""


# Options that may hold `name:PATH`, where `name` is a plugin of fedmia's own that takes a path.
WITH_PATH: Mapping[str, str] = {
    "data": "dataset",
    "data.name": "dataset",
    "members": "dataset",
    "nonmembers": "dataset",
    "shadow_data": "dataset",
    "shadow.data": "dataset",
    "shadow.data.name": "dataset",
    "partition": "partition",
    "partition.name": "partition",
}
# Options whose text may hold a colon, and by which nothing is imported when settings are read.
PLAIN = ("device", "machine.device", "ray_address", "machine.ray_address", "encoder",
         "encoder.name")  # fmt: skip


@contextmanager
def damaged(folder: Path, file: str = REPORT) -> Iterator[None]:
    """Refuse the file of a folder in one line where what is done inside fails on its content.

    Args:
        folder: of the run.
        file: that is read inside.

    Yields:
        Nothing.

    Raises:
        InputError: what was raised inside, and names the file.
    """
    try:
        yield
    except InputError:
        raise
    except DAMAGE as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(
            f"{file} of run '{folder}' is damaged, or not of fedmia: {type(error).__name__}: {what}"
        ) from error


class RunFolder:
    """The folder of a run, an audit or a finished cell: the one reader of its files.

    Its settings may name plugins from outside (`package.module:Class`), and importing those
    executes code of whoever wrote the settings. So only a reader who trusts them gets the settings
    to build.

    Args:
        path: of the folder.
        trust: whether such plugins may be imported: all, none, or those of these names.
    """

    def __init__(self, path: Path, trust: Trust = False) -> None:
        self.path, self.trust = path, trust

    @property
    def config(self) -> Path:
        """The file of its settings."""
        return self.path / CONFIG

    @property
    def recording(self) -> Path:
        """Folder of its models."""
        return self.path / RECORDING

    @property
    def checkpoint(self) -> Path:
        """Folder of what a run that is not finished goes on with."""
        return self.path / CHECKPOINT

    def has_settings(self) -> bool:
        """Whether it is the folder of a run at all."""
        return self.config.is_file()

    def has_report(self) -> bool:
        """Whether it has a report, damaged or not."""
        return (self.path / REPORT).is_file()

    def has_scores(self) -> bool:
        """Whether it has scores by image, damaged or not."""
        return (self.path / SCORES).is_file()

    def inside(self) -> list[RunFolder]:
        """The runs in it, by name."""
        configs = sorted(p for p in self.path.glob(f"*/{CONFIG}") if p.is_file())
        return [RunFolder(config.parent, self.trust) for config in configs]

    def check(self, models: bool = False) -> None:
        """Refuse a folder that is no run's.

        Args:
            models: whether it needs a recording.

        Raises:
            InputError: it lacks one; it names the runs inside it.
        """
        if self.has_settings() and (self.recording.is_dir() or not models):
            return
        names = ", ".join(run.path.name for run in self.inside()[:5])
        what = f"{CONFIG} and {RECORDING}/" if models else CONFIG
        hint = f"; runs inside it: {names}" if names else ""
        raise InputError(f"folder '{self.path}' is no run: no {what} in it{hint}")

    def resumable(self) -> Tree:
        """The settings of a run to go on with, to be built.

        Raises:
            InputError: no run, a link that leads out of it, or a plugin that is not trusted.
        """
        with prefix_errors("resume"):
            self.check()
        self.refuse_links()
        return self.tree()

    def tree(self, *sections: str) -> Tree:
        """The settings that the run was started with, to be built.

        Args:
            sections: those that will be built, where not all will.

        Raises:
            InputError: none, or a format that is not read here.
            UntrustedPluginError: a plugin from outside that is not trusted.
        """
        tree = self.facts()
        built = {name: tree[name] for name in sections or tree if name in tree}
        refuse_untrusted(self.path, built, self.trust)
        return tree

    def facts(self) -> Tree:
        """The settings as data, to compare or to print; nothing may be built of them.

        Raises:
            InputError: none, or a format that is not read here.
        """
        self.check()
        tree = load_all(self.config)
        about = tree.pop(RUN_KEY, None)
        check_format(f"folder '{self.path}'", about if isinstance(about, Mapping) else {})
        return tree

    def place(self) -> Mapping[str, Any]:
        """Where and with what the run took place: `versions`, `hardware`, `commit`, and `plugins`
        from outside with the SHA-256 of their files.

        Raises:
            InputError: no run, a file that is no YAML, or other content than a run writes.
        """
        self.check()
        about = load_all(self.config).get(RUN_KEY) or {}
        if not isinstance(about, Mapping):
            where = f"{CONFIG} of run '{self.path}' is damaged, or not of fedmia"
            raise InputError(f"{where}: {RUN_KEY} holds {about!r:.50}, must be a mapping")
        return about

    def report(self) -> Report:
        """Its report.json, every value of its type.

        Raises:
            InputError: no run, one that is not finished, or the file is damaged.
        """
        self.check()
        if (report := self.read_report_or_none()) is None:
            raise InputError(f"folder '{self.path}' holds no finished run: no {REPORT} in it")
        return report

    def read_report_or_none(self) -> Report | None:
        """Its report.json, None where there is none.

        Raises:
            InputError: the file is damaged.
        """
        if not self.has_report():
            return None
        with damaged(self.path):
            report = read_json(self.path / REPORT)
            if isinstance(report, Mapping):
                check_format(f"report of '{self.path}'", {"format": 1, **report}, REPORT_FORMAT)
            return from_json(Report, report, "report")

    def complete_report(self) -> Report | None:
        """Its report.json where the run is complete, else None.

        Raises:
            InputError: the file is damaged.
        """
        report = self.read_report_or_none()
        if report is None:
            return None
        ended_early = report.interrupted is not None or report.failure is not None
        return None if ended_early else report

    def finished(self) -> Report | None:
        """Its report.json, None where the run can still be resumed.

        Raises:
            InputError: the file is damaged.
        """
        return None if self.checkpoint.exists() else self.complete_report()

    def scores(self) -> pd.DataFrame:
        """Every attack's score of every image, as `fedmia.runs.Run.scores` says.

        Raises:
            InputError: there is no scores.csv, it is damaged, or it is not of the report.
        """
        import pandas as pd

        if not self.has_scores():
            raise InputError(f"run '{self.path}' holds no {SCORES}: it was not finished")
        with damaged(self.path, SCORES):
            types = dict(zip(IDS, ("int64", "int64", "Int64", "str", "int64"), strict=True))
            table = pd.read_csv(self.path / SCORES, dtype=types)
            names = table.columns.difference(IDS)
            table = table.astype({"truth": bool} | dict.fromkeys(names, "float64"))
            report = self.read_report_or_none()
            for row in report.attacks if report else ():
                scored = table.loc[table[row.name].notna(), "truth"]
                sides = int(scored.sum()), int((~scored).sum())
                if sides != (row.n_members, row.n_nonmembers):
                    raise ValueError(
                        f"{row.name} scores {sides[0]} members and {sides[1]} non-members; the "
                        f"report has {row.n_members} and {row.n_nonmembers}"
                    )
        return table

    def exposed(self) -> pd.DataFrame:
        """The list of exposed members, as `fedmia.runs.Run.exposed` says.

        Raises:
            InputError: there is no exposed.csv, or it is damaged.
        """
        import pandas as pd

        if not (file := self.path / EXPOSED).is_file():
            why = "it was not finished, or has few non-members or no attack"
            raise InputError(f"run '{self.path}' holds no {EXPOSED}: {why}")
        with damaged(self.path, EXPOSED):
            types = {"client": "Int64", "label": "Int64", "also": "str", "subject": "str"}
            return pd.read_csv(file, dtype=types).set_index("rank").fillna({"also": ""})

    def curves(self) -> Curves | None:
        """Losses of the scored images by attacked round; None where no client attacked.

        Raises:
            InputError: the file is damaged.
        """
        file = self.path / CURVES
        with damaged(self.path, CURVES):
            return from_npz(file) if file.is_file() else None

    def table(self) -> list[Row]:
        """Every number of its report, of its table where the folder has one.

        Raises:
            InputError: neither, or the file is damaged.
        """
        return read(self.path) if (self.path / TABLE).is_file() else flatten(self.report())

    def refuse_links(self) -> None:
        """Refuse a folder with links that lead out of it, before anything is written through one.

        Raises:
            InputError: it has one; it names the first.
        """
        root = self.path.resolve()
        for path in sorted(self.path.rglob("*")):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise InputError(
                    f"'{path}' is a link to '{path.resolve()}', outside of the run's folder, where "
                    "nothing is written; move what it leads to into the folder"
                )

    def begun(self) -> bool:
        """Whether it holds a run that can be resumed."""
        return (self.checkpoint / CHECKPOINT_INDEX).is_file()

    def can_go_on(self) -> bool:
        """Whether it holds a simulation that can be gone on with, or is finished."""
        try:
            return self.begun() or self.finished() is not None
        except InputError:
            return False

    def dropped(self) -> frozenset[int]:
        """Clients that the run dropped, none where there is no report.

        Raises:
            InputError: the report is damaged.
        """
        report = self.read_report_or_none()
        faults = report.faults if report else ()
        return frozenset(f.client for f in faults if f.action == "dropped")


def check_format(where: str, about: Mapping[str, Any], ours: int = FORMAT) -> None:
    """Refuse what another version of fedmia wrote.

    Args:
        where: names it.
        about: what it says of itself; without a `format` it is of this one.
        ours: the format that is read.

    Raises:
        InputError: another format.
    """
    if (version := about.get("format", ours)) != ours:
        raise InputError(f"{where} is of format {version}; this fedmia reads {ours}")


def refuse_untrusted(path: Path, tree: Mapping[str, Any], trust: Trust) -> None:
    """Refuse settings that name a plugin from outside, which importing would execute.

    Args:
        path: folder that the settings are of.
        tree: the settings that will be built.
        trust: whether such plugins may be imported: all, none, or those of these names.

    Raises:
        UntrustedPluginError: a plugin from outside that is not trusted, or a class of a Python
            session that this one lacks.
    """
    outside = outside_plugins(tree)
    for name in filter(session.is_session_name, outside):
        if not session.has_class(name):
            raise UntrustedPluginError(
                f"the settings of '{path}' name '{name}', a class of a Python session: "
                f"pass {session.short_name(name)} again, as it was (in Python)"
            )
    if trust is True:
        return
    for name in outside:
        if name not in (trust or ()) and not session.is_session_name(name):
            raise UntrustedPluginError(
                f"the settings of '{path}' name the plugin '{name}' from outside fedmia, which is "
                "not imported unless you trust it: --trust-plugins (in Python trust_plugins=True)"
            )


def outside_plugins(tree: Mapping[str, Any]) -> list[str]:
    """Names of plugins from outside that settings hold, in order.

    Every text that may name one counts, whatever the option: a plugin takes options of any name.
    """
    return [text for path, text in _texts(tree, ()) if _is_outside(path, text)]


def _texts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(path of the option, text) of every text in it, keys included."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield ".".join(path), str(key)
            yield from _texts(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
    elif isinstance(value, str):
        yield ".".join(path), value


def _is_outside(path: str, text: str) -> bool:
    """Whether a plugin by that name would be imported from outside: of what the import system
    takes for a module's name, only a slash is never part."""
    head, colon, _ = text.partition(":")
    if not colon or not head or "/" in head or path in PLAIN:
        return False
    kind = WITH_PATH.get(path)
    from fedmia.settings import registry  # takes its time, and `view` in Python needs none

    own = kind is not None and head in registry.names(kind)
    return not (own and getattr(registry.load(str(kind), head), "takes_path", False))
