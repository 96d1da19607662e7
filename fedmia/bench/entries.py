"""Entries of a bench: the scores of an attack on each target, as files.

results/ATTACK/SOURCE-HASH/entry.json           what was run, where, on which targets, at what cost
results/ATTACK/SOURCE-HASH/ranks.safetensors    ranks of the scores, TARGET/KNOWS/SIDE
results/ATTACK/SOURCE-HASH/attack.py            the source, of an attack from outside

Ranks are all that AUCs, TPRs and their intervals read of scores, in a fifth of the space.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from fedmia import __version__
from fedmia.bench.scoring import (
    BOTH,
    NOTHING,
    OTHERS,
    SEED,
    Entrant,
    Scores,
    TargetScores,
    hash_source,
)
from fedmia.bench.targets import MEMBERS, NONMEMBERS, RESULTS, Target
from fedmia.records.rows import BROKEN
from fedmia.runtime.environment import hardware, versions
from fedmia.settings import registry, session
from fedmia.settings.errors import InputError, opt, wrong_value
from fedmia.storage import durable
from fedmia.storage.outfolder import locked
from fedmia.threat import ACCESS, VANTAGE
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.tensors import read_safetensors
from fedmia.untrusted.text import read_json

ENTRY, RANKS, SOURCE = "entry.json", "ranks.safetensors", "attack.py"
SIDES = MEMBERS, NONMEMBERS
KEY = re.compile(rf"({BOTH}|{OTHERS}|{NOTHING})(, [1-9][0-9]* shadows)?", re.ASCII)
WORDS = {
    str: "text", dict: "a mapping", bool: "true or false", int: "an integer", list: "a list",
}  # fmt: skip
PACKAGES = ("python", "torch", "numpy", "scikit-learn")  # whose version a score can depend on
Machine = Mapping[str, str | None]  # `processor`, `fedmia` and PACKAGES; None: not recorded
Arrays = Mapping[str, NDArray[Any]]  # by TARGET/KNOWS/SIDE
ByKey = Mapping[str, Mapping[str, TargetScores | str]]  # by key of the entrant, then by target


@dataclass(frozen=True)
class BenchEntry:
    """The scores of one attack, as a folder holds them.

    Attributes:
        attack: its name.
        options: those that differ from their defaults.
        source: hash of its source and options.
        verified: whether the bench's keepers ran it; scores from outside are not, at first.
        by_key: scores, or why there are none, by what the attacker knows and by target.
        machines: on which it was run, each once.
    """

    attack: str
    options: Mapping[str, Any]
    source: str
    verified: bool
    by_key: ByKey
    machines: Sequence[Machine] = ()

    def scores(self, key: str) -> dict[str, TargetScores]:
        """By target; those of one kind of attacker."""
        rows = self.by_key.get(key, {})
        return {name: one for name, one in rows.items() if not isinstance(one, str)}

    def done(self, key: str) -> dict[str, TargetScores | str]:
        """By target, what need not be run again: scores and refusals, not what failed."""
        rows = self.by_key.get(key, {}).items()
        return {n: one for n, one in rows if not (isinstance(one, str) and one.startswith(BROKEN))}

    @property
    def label(self) -> str:
        """Its name, with its options and what is to be said of it."""
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        marks = " *" * (not self.verified) + " (scores of an earlier version)" * self.stale
        return self.attack + (f" ({options})" if options else "") + marks

    @property
    def stale(self) -> bool:
        """Whether the source of a built-in attack has changed since; others bring their own."""
        if ":" in self.attack:
            return False
        now = Entrant(self.attack, self.options)
        return self.attack not in registry.names("attack") or now.hash() != self.source


def describe_machine() -> Machine:
    """What this machine is, as far as scores depend on it; a bench runs on processors alone."""
    own = versions()
    packages = {name: own[name] for name in PACKAGES}
    return {"processor": hardware()["cpu"], "fedmia": __version__, **packages}


@contextmanager
def own_entry(folder: Path, entrant: Entrant) -> Iterator[None]:
    """Keep other commands out of the entry of an attack, from before it runs until it is written.

    Args:
        folder: of the results, such as `research/bench/encoders-v1/results`.
        entrant: the attack.

    Yields:
        Nothing.

    Raises:
        InputError: another command is at work in it.
        DiskError: the folder cannot be made.
    """
    entry = folder / entrant.title
    durable.make_folder(entry)
    try:
        with locked(entry, f"{opt('submit')} '{entry}'"):
            yield
    finally:
        with suppress(OSError):  # it holds an entry
            entry.rmdir()


def write_entry(folder: Path, entrant: Entrant, results: Mapping[str, TargetScores | str],
                targets: Mapping[str, Target],
                machines: Sequence[Machine] | None = None) -> Path:  # fmt: skip
    """Write or complete the entry of an attack.

    Args:
        folder: of the results, such as `research/bench/encoders-v1/results`.
        entrant: the attack.
        results: by target, scores or why there are none.
        targets: by name.
        machines: on which it was run, None: on this one; an entry that is completed keeps those
            of before.

    Returns:
        The folder of the entry.

    Raises:
        InputError: an attack that lies in no file.
    """
    if session.is_session_name(entrant.name):
        raise InputError(f"{entrant.title} is a class of a session: an entry needs its file")
    place = folder / entrant.title / entrant.hash()
    for old in (folder / entrant.title).glob(f"*/{ENTRY}"):  # of an earlier source
        same = read_json(old)["options"] == entrant.options
        if same and ":" not in entrant.name and old.parent != place:
            shutil.rmtree(old.parent)
    durable.make_folder(place)
    file, ranks = place / ENTRY, dict[str, NDArray[Any]]()
    before: dict[str, Any] = {"commands": [], "machines": [], "targets": {}}
    if file.is_file():
        before = read_json(file)
        ranks = read_safetensors(place / RANKS, "numpy")[0]
    every = [describe_machine()] if machines is None else machines
    listed: dict[str, Any] = before["targets"]
    for name, result in results.items():
        card = targets[name].card
        about = {"version": card["version"], "card": targets[name].digest}
        rows = listed.get(name, {}).get("rows", {})
        of = _name_ranks(name, entrant.key)
        if isinstance(result, str):
            row: dict[str, Any] = {"not_run": result}
        else:
            row = {one: getattr(result, one) for one in ("access", "vantage", "queries")}
            row["seconds"] = None if result.seconds is None else round(result.seconds, 2)
            ranks |= dict(zip(of, rank_sides(result), strict=True))
        listed[name] = {**about, "rows": {**rows, entrant.key: row}}
    versions_of = {str(targets[name].card["version"]) for name in results}
    commands = {*before["commands"], *(describe_command(entrant, one) for one in versions_of)}
    about = {
        "attack": entrant.name, "options": entrant.options, "source": entrant.hash(),
        "verified": ":" not in entrant.name, "seed": SEED, "commands": sorted(commands),
        "machines": [*before["machines"], *(m for m in every if m not in before["machines"])],
        "targets": listed,
    }  # fmt: skip
    content: dict[Path, str | bytes] = {place / RANKS: save(ranks)}
    if ":" in entrant.name:
        content[place / SOURCE] = entrant.source()
    durable.write({**content, file: json.dumps(about, indent=1) + "\n"})
    return place


def describe_command(entrant: Entrant, version: str) -> str:
    """The command that makes the rows of an attack, but for the sources of images.

    Args:
        entrant: the attack.
        version: of the bench.

    Returns:
        The command line.
    """
    flags = [f"--attack.{entrant.name}.{name} {one}" for name, one in entrant.options.items()]
    flags += ["--knows nonmembers"] * (entrant.knows == OTHERS)
    flags += [f"--shadows {entrant.shadows}"] * bool(entrant.shadows)
    return " ".join(["fedmia bench", entrant.name, f"--bench {version}", *flags])


def _name_ranks(target: str, key: str) -> tuple[str, str]:
    """The names of an attack's ranks on a target, of members and of non-members."""
    members, nonmembers = (f"{target}/{key}/{side}" for side in SIDES)
    return members, nonmembers


def rank_sides(scores: TargetScores) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ranks of scores among those of both sides, from 0; equal scores have one rank.

    Args:
        scores: of a target.

    Returns:
        Ranks of the members (n,) and of the non-members (m,), in the smallest type that has them.
    """
    both = np.concatenate([scores.members, scores.nonmembers])
    ranks = np.unique(both, return_inverse=True)[1].reshape(-1)
    ranks = ranks.astype(np.result_type(np.uint16, np.min_scalar_type(int(ranks.max()))))
    return ranks[: len(scores.members)], ranks[len(scores.members) :]


def read_entry(folder: Path, targets: Mapping[str, Target]) -> BenchEntry:
    """The entry of a folder, checked: its structure, its hashes, its numbers.

    Args:
        folder: `results/ATTACK/SOURCE-HASH`.
        targets: by name.

    Returns:
        The entry.

    Raises:
        InputError: a file is missing or damaged, of another version or target, or was changed.
    """
    where, by_key = f"entry '{folder}'", dict[str, dict[str, TargetScores | str]]()
    kinds = {"attack": str, "options": dict, "source": str, "verified": bool, "seed": int}
    lists = {"commands": list, "machines": list}
    about = _read(folder / ENTRY, {**kinds, **lists, "targets": dict})
    place = f"'{folder / ENTRY}'"
    _check_machines(place, about)
    with unreadable(f"'{folder / RANKS}' cannot be read"):
        ranks = read_safetensors(folder / RANKS, "numpy")[0]
    for name, content in about["targets"].items():
        if not isinstance(content, dict):
            raise wrong_value(f"{place}: targets: {name}", content, WORDS[dict])
        _check_fields(f"{place}: {name}", content, {"version": str, "card": str, "rows": dict})
        target = _check_target(place, name, content, targets)
        for key, row in content["rows"].items():
            scores = _scores(f"{place}: {name}", key, row, target, ranks)
            by_key.setdefault(key, {})[name] = scores
    entry = BenchEntry(
        about["attack"], about["options"], about["source"], about["verified"], by_key,
        about["machines"],
    )  # fmt: skip
    entrant = Entrant(entry.attack, entry.options)
    if (folder.parent.name, folder.name) != (entrant.title, entry.source):
        raise InputError(f"{where} is of {entrant.title}/{entry.source}")
    if ":" in entry.attack:
        path = folder / SOURCE
        if not path.is_file() or hash_source(path.read_bytes(), entry.options) != entry.source:
            raise InputError(f"'{path}' is not the source that was run: another SHA-256")
    return entry


def _read(file: Path, fields: Mapping[str, type]) -> dict[str, Any]:
    """A file's mapping, whose fields are of these types."""
    with unreadable(f"'{file}' cannot be read"):
        content: dict[str, Any] = read_json(file)
    if not isinstance(content, dict):
        raise wrong_value(f"'{file}'", content, WORDS[dict])
    _check_fields(f"'{file}'", content, fields)
    return content


def _check_fields(where: str, content: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    for name, kind in fields.items():
        if type(content.get(name)) is not kind:
            raise wrong_value(f"{where}: {name}", content.get(name), WORDS[kind])


def _check_machines(where: str, about: Mapping[str, Any]) -> None:
    """Refuse an entry that does not say where it was run; of those that keepers ran before this was
    recorded, a version may be null."""
    if not about["machines"]:
        raise wrong_value(f"{where}: machines", [], "those on which it was run")
    for one in about["machines"]:
        if not isinstance(one, dict):
            raise wrong_value(f"{where}: machines", one, WORDS[dict])
        for name in ("processor", "fedmia", *PACKAGES):
            value = one.get(name, ...)
            if not (isinstance(value, str) or (value is None and about["verified"])):
                raise wrong_value(f"{where}: machines: {name}", one.get(name), WORDS[str])


def _check_target(
    where: str, name: str, content: Mapping[str, Any], targets: Mapping[str, Target]
) -> Target:
    target = targets.get(name)
    if target is None:
        raise InputError(f"{where}: no target '{name}'")
    if (content["version"], content["card"]) != (target.card["version"], target.digest):
        raise InputError(f"{where} is of another version of target '{target.name}'")
    return target


def _scores(where: str, key: str, row: Any, target: Target, ranks: Arrays) -> TargetScores | str:
    if not KEY.fullmatch(key):
        raise wrong_value(f"{where}: rows", key, "both, nonmembers or nothing[, N shadows]")
    where = f"{where}: {key}"
    if not isinstance(row, dict):
        raise wrong_value(where, row, WORDS[dict])
    if "not_run" in row:
        _check_fields(where, row, {"not_run": str})
        return str(row["not_run"])
    fits = {
        "access": (row.get("access") in ACCESS, " or ".join(ACCESS)),
        "vantage": (row.get("vantage") in VANTAGE, ", ".join(VANTAGE)),
        "queries": (_is_finite(row.get("queries")) and row["queries"] >= 0, "a number >= 0"),
        "seconds": (
            row.get("seconds", 0) is None
            or (_is_finite(row.get("seconds")) and row["seconds"] >= 0),
            "a number >= 0, or null",
        ),
    }
    for name, (right, allowed) in fits.items():
        if not right:
            raise wrong_value(f"{where}: {name}", row.get(name), allowed)
    sides = list[Scores]()
    for side, name in zip(SIDES, _name_ranks(target.name, key), strict=True):
        own, need = ranks.get(name), len(target.roles[side])
        if own is None or own.shape != (need,) or own.dtype.kind != "u":
            raise InputError(f"{where}: {RANKS} must have {need} ranks of {side}")
        sides.append(own.astype(np.float64))
    members, nonmembers = sides
    return TargetScores(members, nonmembers, **{name: row[name] for name in fits})


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def read_entries(folder: Path, targets: Sequence[Target]) -> Iterator[BenchEntry]:
    """Every entry of a bench.

    Args:
        folder: of the bench.
        targets: of it.

    Yields:
        One entry for each attack and its options.

    Raises:
        InputError: as `read_entry`.
    """
    by_name = {target.name: target for target in targets}
    for file in sorted((folder / RESULTS).glob(f"*/*/{ENTRY}")):
        yield read_entry(file.parent, by_name)
