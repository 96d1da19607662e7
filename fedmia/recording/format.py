"""The format of a recording; docs/reference/recording.md publishes it.

    recording.json                               what made it, how clients are named, what is kept
    rounds.jsonl                                 what happened in each round, as it happened
    models/BRANCH/ROUND.safetensors              the global model after a round; 0: before the first
    updates/BRANCH/ROUND/CLIENT.safetensors      what a client sent in a round
    held/BRANCH/ROUND.safetensors                what the attacker's client held beside the model
    notes/BRANCH/ROUND.safetensors               what an attacker read of its targets in a round
    cast.safetensors                             which images a run was trained and is scored on
    attacker.safetensors                         who attacked which images from inside

A line of `rounds.jsonl` names a branch and a round. Several lines of one round complete each other:
a server hears of a round's updates before it sends the model that they became. What a line names
was on the disk before the line was written; `"model": ""` and `"updates": {}` say that a file that
an earlier line named is no longer kept.

`cast.safetensors` says who is who, a row an image that has a role in a run of fedmia: `id` (int64,
its place in the data source), `digest` (uint8 (N, 32), SHA-256 of its shape and bytes), `role`
(uint8, a number of `roles`), `owner` (int64, the client that trains on it, -1 for none) and, where
images belong to clients before they are dealt, `whose` (int64). The other values are in its
metadata, as JSON under `about`. Nothing of it leaves a private node: a run on private nodes has no
such file, and neither has the federation of another app.

An attacker inside the federation reads its targets round by round: `notes` hold float64 tensors by
name, and values of its own as JSON under `about` in the metadata. `attacker.safetensors` says what
they are of: `targets` (uint8 (T, 32), SHA-256 of the shape and bytes of each image under attack, in
the order of the notes), and under `about` the name and the options of its attack, its client, and
how many of the targets it knows. A recording may hold notes and no models.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from fedmia.records.json_schema import DRAFT, type_schema
from fedmia.settings.errors import InputError
from fedmia.storage.json_rows import from_json
from fedmia.untrusted.text import parse_json

FORMAT = 1
HEADER = "recording.json"
ROUNDS = "rounds.jsonl"
CAST = "cast.safetensors"
# Of files of which there is one a round, by the field of `RecordedRound` that has their SHA-256.
FOLDERS = {"model": "models", "held": "held", "notes": "notes"}
CAST_ABOUT: dict[str, Any] = {  # in its metadata
    "roles": list[str],  # by their numbers
    "clients": int,
    "malicious": int,  # how many of the last ones are the attacker's
    "placebo": bool,  # whether the federation ran once more on other images
    "received": list[int],  # rounds whose models the attacker had
    "duplicates_removed": int,
    "distinct": int,
    "subjects": list[str],  # by their numbers; empty: images belong to none
}
ATTACKER = "attacker.safetensors"
ATTACKER_ABOUT: dict[str, Any] = {  # in its metadata
    "attack": str,
    "options": dict,
    "client": int,
    "known": int,  # of the targets
    "batches": bool,  # whether each batch has a round to itself, by which it is scored
}


@dataclass(frozen=True)
class Header:
    """What `recording.json` says.

    Attributes:
        made_by: versions and names of what trained, such as `{"flwr": "1.42.0"}`.
        updates: `none`, `all`, or the number of the last rounds whose updates are kept.
        every: a model is kept every so many rounds, and of the last round; 0: of rounds that were
            chosen.
        names: whether tensors bear names; else these are their places, 0, 1, .., and they are
            matched by order and shape.
        cast: SHA-256 of `cast.safetensors`; empty: there is none.
        attacker: SHA-256 of `attacker.safetensors`; empty: there is none.
        format: version of the format.
    """

    made_by: dict[str, str] = field(default_factory=dict)
    updates: str | int = "none"
    every: int = 1
    names: bool = True
    cast: str = ""
    attacker: str = ""
    format: int = FORMAT


@dataclass
class RecordedRound:
    """One round, as a recording has it.

    Attributes:
        branch: of the federation; `main`.
        round: 0: before the first, 1, 2, ...
        model: SHA-256 of the file of the global model after it; empty where it is not kept.
        updates: SHA-256 of the file of each client's update, by client.
        cohort: clients whose updates arrived, ascending.
        examples: number of images that a client says it trained on, by client.
        metrics: numbers of each client, by client.
        seconds: wall-clock seconds from the first order to the last update.
        named_by: `roster`: clients bear the numbers of their partitions; `nodes`: they are
            numbered in the order in which the server first sent to them.
        held: SHA-256 of the file of what the attacker's client held then, such as its queue.
        notes: SHA-256 of the file of what an attacker read of its targets in the round.
    """

    branch: str
    round: int
    model: str = ""
    updates: dict[int, str] = field(default_factory=dict)
    cohort: list[int] = field(default_factory=list)
    examples: dict[int, float] = field(default_factory=dict)
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    named_by: str = "roster"
    held: str = ""
    notes: str = ""

    def to_line(self, **more: object) -> bytes:
        """A line of `rounds.jsonl`: branch, round, and what is known beside, or `more` says."""
        usual = {f.name: getattr(RecordedRound(self.branch, -1), f.name) for f in fields(self)}
        values = asdict(self)
        values["metrics"] = {
            client: {name: number for name, number in one.items() if math.isfinite(number)}
            for client, one in self.metrics.items()
        }  # JSON knows no others
        line = {"branch": self.branch} | {k: v for k, v in values.items() if v != usual[k]}
        return json.dumps(line | more).encode() + b"\n"

    def files(self, root: Path) -> list[Path]:
        """The files that it names, of a recording in the folder `root`."""
        return [
            *(round_file(root, k, self.branch, self.round) for k in FOLDERS if getattr(self, k)),
            *(update_file(root, self.branch, self.round, client) for client in self.updates),
        ]

    def add(self, line: dict[str, Any]) -> None:
        """Complete the round by another line of it; what is empty there was deleted since.

        Raises:
            ValueError: a value of another kind than the format's.
        """
        hints = _hints()
        for name in hints.keys() & line.keys():
            value = from_json(hints[name], line[name], name)
            if isinstance(value, dict) and value:
                value = getattr(self, name) | {int(client): one for client, one in value.items()}
            setattr(self, name, value)


@functools.cache
def _hints() -> dict[str, Any]:
    """Types of a line's values; a long recording has thousands of lines."""
    return get_type_hints(RecordedRound)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of JSON is of a type; numbers of clients are text there.

    Args:
        value: as JSON gives it.
        hint: a type, such as `list[int]`.

    Returns:
        True where it is.
    """
    try:
        from_json(hint, value, "")
    except ValueError:
        return False
    return True


def fits_each(values: Any, hints: dict[str, Any]) -> bool:
    """Whether a value of JSON is an object with a value of each type.

    Args:
        values: as JSON gives it.
        hints: a type by name, such as `CAST_ABOUT`.

    Returns:
        True where it is.
    """
    return isinstance(values, dict) and all(fits(values.get(n), h) for n, h in hints.items())


def round_file(root: Path, kind: str, branch: str, round: int) -> Path:
    """A file of which there is one a round at most.

    Args:
        root: folder of the recording.
        kind: one of FOLDERS.
        branch: of the federation.
        round: 0: before the first, 1, 2, ...

    Returns:
        Its path.
    """
    return root / FOLDERS[kind] / branch / f"{round:04d}.safetensors"


def update_file(root: Path, branch: str, round: int, client: int) -> Path:
    """File of a client's update.

    Args:
        root: folder of the recording.
        branch: of the federation.
        round: 1, 2, ...
        client: its number.

    Returns:
        Its path.
    """
    return root / "updates" / branch / f"{round:04d}" / f"{client:04d}.safetensors"


def check_branch(branch: str) -> str:
    """The name of a branch, which is the name of a folder.

    Raises:
        ValueError: it could lead out of the recording.
    """
    if not re.fullmatch(r"[a-z0-9-]+", branch):
        raise ValueError(f"a branch is named by a-z, 0-9 and -, got '{branch}'")
    return branch


def index_rounds(
    root: Path, lines: Iterable[bytes], rounds: dict[str, dict[int, RecordedRound]] | None = None
) -> dict[str, dict[int, RecordedRound]]:
    """What lines say of each round, by branch and round.

    Args:
        root: folder of the recording.
        lines: of `rounds.jsonl`.
        rounds: what was known before, to be completed.

    Returns:
        The rounds, as they come.

    Raises:
        InputError: a line is damaged.
    """
    rounds = {} if rounds is None else rounds
    for number, line in enumerate(lines, start=1):
        try:
            values = parse_json(line)
            branch, round = check_branch(values["branch"]), values["round"]
            record = rounds.setdefault(branch, {}).setdefault(round, RecordedRound(branch, round))
            record.add(values)
        except (ValueError, TypeError, KeyError):
            raise InputError(f"'{root / ROUNDS}', line {number}: not a round") from None
    return rounds


def named_files(root: Path, lines: Iterable[bytes]) -> list[Path]:
    """The files that lines name.

    Args:
        root: folder of the recording.
        lines: of `rounds.jsonl`.

    Returns:
        Their paths.
    """
    branches = index_rounds(root, lines).values()
    return [file for rounds in branches for one in rounds.values() for file in one.files(root)]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `recording.json`; `$defs/round` is that of a line of `rounds.jsonl`, and
    `$defs/cast` and `$defs/attacker` those of the metadata of these files."""
    head = {"$schema": DRAFT, "title": HEADER}
    parts = {"round": _schema_of(RecordedRound)}
    for part, hints in (("cast", CAST_ABOUT), ("attacker", ATTACKER_ABOUT)):
        about = {name: type_schema(hint, {}) for name, hint in hints.items()}
        parts[part] = {"type": "object", "required": [*about], "properties": about}
    return head | _schema_of(Header) | {"$defs": parts}


def _schema_of(record: type) -> dict[str, Any]:
    must = [f.name for f in fields(record) if f.default is f.default_factory is MISSING]
    properties = {name: type_schema(hint, {}) for name, hint in get_type_hints(record).items()}
    if record is Header:
        must, properties["format"] = ["format"], {"const": FORMAT}
    return {"type": "object", "required": must, "properties": properties}
