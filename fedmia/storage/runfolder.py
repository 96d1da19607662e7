"""The folder of a run, an audit or a finished cell, read as data: nothing in it is executed."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedmia.options import session
from fedmia.options.bounded import read_json
from fedmia.options.errors import InputError
from fedmia.options.yamlfile import RUN_KEY, Tree, load_all
from fedmia.storage.manifest import (
    CHECKPOINT,
    CHECKPOINT_INDEX,
    CONFIG,
    FORMAT,
    RECORDING,
    REPORT,
)

# What reading raises where values are of other types than a run of fedmia writes, or missing.
DAMAGE = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, SafetensorError, EOFError, csv.Error,
)  # fmt: skip
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
    "partition": "partition",
    "partition.name": "partition",
}
# Options whose text may hold a colon, and by which nothing is imported when settings are read.
PLAIN = ("device", "ray_address", "encoder")


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


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, an audit or a finished cell.

    Its settings may name plugins from outside (`package.module:Class`), and importing those
    executes code of whoever wrote the settings. So only a reader who trusts them gets the settings
    to build.

    Attributes:
        path: of the folder.
        trust: whether such plugins may be imported: all, none, or those of these names.
    """

    path: Path
    trust: Trust = False

    @property
    def config(self) -> Path:
        """The file of its settings."""
        return self.path / CONFIG

    @property
    def recording(self) -> Path:
        """Folder of its models."""
        return self.path / RECORDING

    def check(self, *needed: str) -> None:
        """Refuse a folder that is no run's.

        Args:
            needed: files, and folders with a `/`, that the reader needs.

        Raises:
            InputError: it lacks one; it names the runs inside it.
        """
        if not all((self.path / name).exists() for name in needed):
            inner = sorted(p.parent.name for p in self.path.glob(f"*/{CONFIG}"))
            hint = f"; runs inside it: {', '.join(inner[:5])}" if inner else ""
            what = " and ".join(needed)
            raise InputError(f"folder '{self.path}' is no run: no {what} in it{hint}")

    def resumable(self) -> Tree:
        """The settings of a run to go on with, to be built.

        Raises:
            InputError: no run, a link that leads out of it, or a plugin that is not trusted.
        """
        if not self.config.is_file():
            raise InputError(f"resume '{self.path}' is no run: it holds no {CONFIG}")
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
        tree = load_all(self.config)
        about = tree.pop(RUN_KEY, None)
        about = about if isinstance(about, Mapping) else {}
        version = about.get("format", FORMAT)
        if version != FORMAT:
            raise InputError(
                f"folder '{self.path}' is of format {version}; this fedmia reads {FORMAT}"
            )
        return tree

    def report(self) -> dict[str, Any]:
        """Its report.json.

        Raises:
            InputError: no run, or one that is not finished.
        """
        for name in (CONFIG, REPORT):
            if not (self.path / name).is_file():
                raise InputError(f"folder '{self.path}' holds no finished run: no {name} in it")
        if (report := self.read_report_or_none()) is None:
            raise InputError(f"{REPORT} of run '{self.path}' is no report of a run")
        return report

    def read_report_or_none(self) -> dict[str, Any] | None:
        """Its report.json, None where there is none that can be read."""
        try:
            report = read_json(self.path / REPORT)
        except (OSError, ValueError):
            return None
        return report if isinstance(report, dict) else None

    def complete_report(self) -> dict[str, Any] | None:
        """Its report.json where the run is complete, else None."""
        report = self.read_report_or_none()
        if report is None or not {"verdict", "attacks", "timing"} <= report.keys():
            return None
        ended_early = report.get("interrupted") is not None or report.get("failure") is not None
        return None if ended_early else report

    def finished(self) -> dict[str, Any] | None:
        """Its report.json, None where the run can still be resumed."""
        return None if (self.path / CHECKPOINT).exists() else self.complete_report()

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
        return (self.path / CHECKPOINT / CHECKPOINT_INDEX).is_file()

    def dropped(self) -> frozenset[int]:
        """Clients that the run dropped, none where no report tells."""
        try:
            faults = (self.read_report_or_none() or {})["faults"]
            return frozenset(f["client"] for f in faults if f["action"] == "dropped")
        except (KeyError, TypeError):
            return frozenset()


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
    from fedmia.options import registry  # takes its time, and `view` in Python needs none

    own = kind is not None and head in registry.names(kind)
    return not (own and getattr(registry.load(str(kind), head), "takes_path", False))
