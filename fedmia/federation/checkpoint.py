"""Checkpoints of a run: an index over files that are each written once.

`RUN/checkpoint/` holds `index.json`, which names all others and is replaced at once; the states of
the clients, the server's and the attacker's notes, each as it was when the index was written; and
the scores of finished attacks.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedmia import __version__
from fedmia.federation.ledger import Ledger
from fedmia.runtime.environment import version
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State, under
from fedmia.storage.archive import Archive
from fedmia.storage.durable import force, force_all, make_folder
from fedmia.storage.durable import write as write_files
from fedmia.storage.manifest import CHECKPOINT_INDEX
from fedmia.storage.snapshot import read_tensors, write_tensors
from fedmia.untrusted.limits import check_name
from fedmia.untrusted.text import read_json
from strategies.base import FederatedStrategy

INDEX = CHECKPOINT_INDEX
FORMAT = 2
MOST = 1 << 31  # files that a run may have written
Packed = tuple[State, Any]  # tensors, and what is JSON-able about them
CheckpointPart = Packed | str  # the name is that of a part whose file it shares


@dataclass
class BranchState:
    """Where a branch stands.

    Attributes:
        branch: `main`, `zero` or `placebo`.
        round: the last that is finished; 0: none yet.
        state: the global weights after it.
        strategy: with what its server keeps between rounds.
    """

    branch: str
    round: int
    state: State
    strategy: FederatedStrategy


class Checkpoint:
    """The folder of a run's checkpoints.

    Args:
        root: `RUN/checkpoint`.
        every: seconds from the beginning of one checkpoint to that of the next; 0: one is written
            after each round, None: none is.
        key: digest of what decides the run's numbers beside its settings: its images.

    Attributes:
        generation: number of checkpoints written.
    """

    def __init__(self, root: Path, every: float | None = None, key: str = "") -> None:
        self.root, self.every, self.key = root, every, key
        self.generation, self._files = 0, dict[str, str]()
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._running: Future[None] | None = None
        self._began = time.monotonic()

    def open(self) -> None:
        """Make the folder."""
        make_folder(self.root, self.root.parent)

    def close(self) -> None:
        """Wait for what is being written."""
        self._writer.shutdown()

    def read(self) -> dict[str, Any] | None:
        """The index; None before the first.

        Raises:
            InputError: it is of other images, of other versions of fedmia or torch, or names files
                elsewhere.
            LookupError, TypeError, ValueError, AttributeError: it is damaged.
        """
        if not (self.root / INDEX).is_file():
            return None
        index: dict[str, Any] = read_json(self.root / INDEX)
        theirs, ours = index["versions"], versions()
        if theirs != ours or index["format"] != FORMAT:
            raise InputError(
                f"the checkpoint in '{self.root}' was written by {format_versions(theirs)}; "
                f"this is {format_versions(ours)}"
            )
        if index["key"] != self.key:
            raise InputError(
                f"the data source no longer holds the images that the run in '{self.root.parent}' "
                "was started with"
            )
        where = f"{INDEX} of the checkpoint in '{self.root}'"  # files that it names are deleted
        files = {str(part): check_name(where, name) for part, name in index["files"].items()}
        for *_, name in index["clients"]["files"]:
            check_name(where, name)
        for number in (index["generation"], index["clients"]["serial"]):
            if not 0 <= int(number) < MOST:
                raise ValueError(f"a number of {number:.20g} files")
        self.generation, self._files = int(index["generation"]), files
        return index

    def write(
        self, about: Mapping[str, Any], parts: Mapping[str, CheckpointPart], ledger: Ledger,
        beside: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Have a checkpoint written while the next round is at work; of those tensors nobody may
        change any. First the one before is waited for.

        Args:
            about: JSON-able.
            parts: name -> what is written under it, or the part of before or of now whose file it
                shares.
            ledger: the clients' states.
            beside: forces to the disk what it counts on elsewhere.

        Raises:
            DiskError: the one before could not be written.
        """
        self.wait_for_writes()
        generation, files = self.generation + 1, dict[str, str]()
        new: dict[str, tuple[State, Any]] = {}
        for name, part in parts.items():
            if isinstance(part, str):
                files[name] = files[part] if part in files else self._files[part]
            else:
                files[name] = f"{name}-{generation:06d}.safetensors"
                new[files[name]] = part
        clients = ledger.index()
        index = {
            "format": FORMAT, "generation": generation, "versions": versions(), "key": self.key,
            **about, "files": files, "clients": clients,
        }  # fmt: skip
        gone = set(self._files.values()) - set(files.values())
        self.generation, self._files = generation, files
        self._began = time.monotonic()
        self._running = self._writer.submit(self._write, new, index, ledger, gone, beside)

    def _write(
        self, new: Mapping[str, tuple[State, Any]], index: Mapping[str, Any], ledger: Ledger,
        gone: set[str], beside: Callable[[], None],
    ) -> None:  # fmt: skip
        """Write what is new, replace the index, and then delete what only the one before named.

        All that the index counts on is forced to the disk before it, and it is before anything is
        deleted: a power cut leaves it whole, or the one before.
        """
        for name, (tensors, about) in new.items():
            write_tensors(tensors, self.root / name, about, forced=False)
        ledger.flush()
        force_all([self.root / name for name in new])
        beside()
        write_files({self.root / INDEX: json.dumps(index)})
        ledger.confirm_index(index["clients"])
        for name in gone:
            (self.root / name).unlink(missing_ok=True)

    def is_due(self) -> bool:
        """Whether one is to be written after a round. No round waits for one that is still being
        written, unless each is to have its own.

        Raises:
            DiskError: the one before could not be written.
        """
        if not self.every:
            return self.every == 0
        if self._running is not None and not self._running.done():
            return False
        self.wait_for_writes()
        return time.monotonic() - self._began >= self.every

    def wait_for_writes(self) -> None:
        """Wait for what is being written.

        Raises:
            DiskError: it could not be; nothing is written after it.
        """
        if self._running is not None:
            self._running.result()

    def get(self, name: str) -> Packed:
        """The part `name` of the index that was read."""
        return read_tensors(self.root / self._files[name])

    def has(self, name: str) -> bool:
        """Whether the index that was read has a part of this name."""
        return name in self._files

    @property
    def clients(self) -> Path:
        """Folder of the clients' states."""
        return self.root / "clients"

    def archive(self, key: str) -> Archive:
        """Where the scores of a state of the run are kept.

        Args:
            key: digest of that state.
        """
        return Archive(self.root / "scores", key)

    def exists(self) -> bool:
        """Whether there is anything to go on with."""
        return (self.root / INDEX).is_file()

    def delete(self) -> None:
        """Delete everything: the run is reported on whole, or was never begun."""
        self._writer.shutdown()
        (self.root / INDEX).unlink(missing_ok=True)  # first, so that half of it is none
        force(self.root)
        shutil.rmtree(self.root)


def versions() -> dict[str, str | None]:
    """What a checkpoint is good for alone."""
    return {"fedmia": __version__, "torch": version("torch")}


def format_versions(versions: Mapping[str, str | None]) -> str:
    """The versions, for a sentence."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def pack_branch(at: BranchState) -> Packed:
    """Where a branch stands, for a checkpoint that is written later.

    Args:
        at: weights, and what its server keeps between rounds.

    Returns:
        Its tensors, and the values.
    """
    tensors, plain = server_state(at.strategy)
    both = {f"global.{n}": t for n, t in at.state.items()}
    both |= {f"server.{n}": t.clone() for n, t in tensors.items()}
    return both, {"branch": at.branch, "round": at.round, "server": plain}


def unpack_branch(packed: Packed, strategy: FederatedStrategy) -> BranchState:
    """Undo `pack_branch`.

    Args:
        packed: what it returned.
        strategy: of the run, which gets what its server kept.

    Returns:
        Where the branch stands.

    Raises:
        LookupError, TypeError, ValueError: it is no such state.
    """
    tensors, about = packed
    restore_server(strategy, under("server.", tensors), about["server"])
    return BranchState(about["branch"], about["round"], under("global.", tensors), strategy)


def server_state(strategy: FederatedStrategy) -> tuple[State, dict[str, Any]]:
    """What a strategy keeps between rounds beside its options: tensors, and JSON-able values.

    Raises:
        TypeError: it keeps something else.
    """
    tensors, plain = State(), dict[str, Any]()
    passing = {field.name for field in fields(FederatedStrategy)}  # of one stretch of rounds
    skipped = passing | {field.name for field in fields(strategy) if field.init}
    for name, value in vars(strategy).items():
        if name in skipped:
            continue
        if isinstance(value, dict) and all(hasattr(t, "dtype") for t in value.values()):
            plain[name] = "tensors"
            tensors |= {f"{name}.{n}": t for n, t in value.items()}
        else:
            plain[name] = ["plain", json.loads(json.dumps(value))]
    return tensors, plain


def restore_server(strategy: FederatedStrategy, tensors: State, plain: Mapping[str, Any]) -> None:
    """Give a strategy the attributes that `server_state` returned, in its two parts.

    Args:
        strategy: gets them.
        tensors: by `ATTRIBUTE.NAME`.
        plain: attribute -> `tensors`, or `["plain", VALUE]`.

    Raises:
        ValueError: the strategy keeps no such attribute.
    """
    for name, value in plain.items():
        if callable(getattr(type(strategy), name, None)) or name.startswith("__"):
            raise ValueError(f"the strategy keeps no '{name}'")
        setattr(strategy, name, under(f"{name}.", tensors) if value == "tensors" else value[1])
