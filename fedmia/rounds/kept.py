"""The models of a federation's rounds, recorded or kept in files, as the tensors of one network."""

from __future__ import annotations

import copy
import hashlib
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmia.encoders.base import LoadedEncoder
from fedmia.encoders.schemes import tables_of
from fedmia.encoders.weight_checks import refuse_diverged
from fedmia.recording import Recording
from fedmia.recording.branches import MAIN, UNTRAINED
from fedmia.recording.format import ROUNDS, RecordedRound
from fedmia.records.note import Note
from fedmia.records.rows import FaultRow
from fedmia.rounds.base import EncoderRounds, TargetModel
from fedmia.rounds.notes import Notes, read_notes
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import disk_paths
from fedmia.ssl.base import SSLMethod, State, all_finite
from fedmia.storage.states import States
from fedmia.untrusted.arrays import open_npz
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.torchfile import read_weights

MOST = 24  # models that are scored, evenly spread over the rounds
SUFFIXES = (".npz", ".pth", ".pt", ".safetensors")
NUMBERED = re.compile(r"(arr_)?(\d+)")  # arrays of a list: Flower's ArrayRecord, np.savez's


@dataclass(kw_only=True)
class KeptRounds(EncoderRounds):
    """What was kept of anybody's federation.

    Attributes:
        encoder: the network that was trained, with the last model; None until `fit`.
        where: what errors call it.
        states: the global model after each round; 0: before the first.
        digest: of all models and updates.
        sent: what each client sent, by round and client; empty where it was not kept.
        banks: what the attacker's client of a run of fedmia held beside the model, by round.
        records: what is known of each round; empty where models alone were kept.
        rostered: whether clients bear the numbers of their partitions.
        notes: of an attacker inside; None: there was none, or nobody knows of it.
        remarks: for the reader of the report.
        faults: updates that are not finite or zero, which attacks do not read.
        controls: models that attacks are compared on, by branch and round.
    """

    encoder: LoadedEncoder = None  # type: ignore[assignment]  # until `fit`
    where: str
    states: Mapping[int, State]
    digest: str
    sent: Mapping[int, Mapping[int, State]] = field(default_factory=dict)
    banks: Mapping[int, State] = field(default_factory=dict)
    records: Mapping[int, RecordedRound] = field(default_factory=dict)
    rostered: bool = False
    notes: Notes | None = None
    remarks: tuple[Note, ...] = ()
    faults: tuple[FaultRow, ...] = ()
    controls: Mapping[str, Mapping[int, State]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not max(self.states, default=0):
            only = ", only that before the first" if self.states else ""
            raise InputError(f"{self.where} holds no model after a round{only}")

    def fit(self, encoder: LoadedEncoder, strict: bool) -> KeptRounds:
        """The same by the names of the shared tensors of a network; every file is read once, and
        refused where it is missing, damaged or of another network; so is a model that diverged.
        Updates that no training sends are its `faults`.

        Args:
            encoder: of the network that was trained.
            strict: whether the models must hold the statistics of norms, too.

        Returns:
            The rounds, their states by those names.

        Raises:
            InputError: naming the file, the first tensor that differs, or the round that diverged.
        """
        method, network = encoder.method, encoder.name
        own = {
            prefix + name: tensor
            for prefix, module in method.shared_modules().items()
            for name, tensor in module.state_dict().items()
        }
        needed = {n for n, t in own.items() if t.is_floating_point()}
        needed = needed if strict else {*method.shared_parameters()}

        def fitted(states: Mapping[int, State], what: str) -> States:
            def one(number: int) -> State:
                where = f"{self.where}: the {what} {number}"
                return fit_state(states[number], own, needed, where, network)

            return States(states, one)

        models = fitted(self.states, "model of round")
        updates = {
            r: fitted(sent, f"update in round {r} of client") for r, sent in self.sent.items()
        }
        for _ in self.banks.values():
            pass
        names = method.shared_parameters()
        faults = tuple(
            FaultRow(branch=MAIN, round=round, client=client, reason=reason, action="left out")
            for round, sent in updates.items()
            for client, reason in _broken(sent, models.get(round - 1), names).items()
        )
        outer = _prefixes(own)[0]
        parameters = [name.removeprefix(outer) for name in names]
        for round, state in models.items():
            self._refuse(round, {n.removeprefix(outer): t for n, t in state.items()}, parameters)
        remarks = self.remarks + _left_out(faults, sum(map(len, updates.values())))
        return replace(
            self, encoder=encoder, states=models, sent=updates, faults=faults, remarks=remarks
        )

    # -- as any rounds -------------------------------------------------------------------------

    @property
    def round(self) -> int:
        return max(self.states)

    @property
    def scored(self) -> list[int]:
        """Rounds whose models are scored: all, or `MOST` of them with the first and the last."""
        return spread_rounds(sorted(r for r in self.states if r))

    def load(self, target: TargetModel) -> SSLMethod:
        if target.branch == UNTRAINED or (target.branch, target.round) == (MAIN, self.round):
            return super().load(target)
        return self.with_state(int(target.round or 0), target.branch)

    def with_state(self, round: int, branch: str = MAIN) -> SSLMethod:
        """A copy of the network with the model of a round."""
        other = copy.deepcopy(self.encoder.method)
        other.load_shared(self.models(branch)[round])
        return other

    def models(self, branch: str = MAIN) -> Mapping[int, State]:
        return self.states if branch == MAIN else self.controls.get(branch, {})

    def negatives(self, branch: str = MAIN) -> Mapping[int, State]:
        return self.banks if branch == MAIN else {}

    def updates(self, branch: str = MAIN) -> Mapping[int, Mapping[int, State]]:
        """Those without `faults`; the table of suspects alone reads these."""
        broken = {(fault.round, fault.client) for fault in self.faults}
        return {
            r: States([c for c in sent if (r, c) not in broken], sent.__getitem__)
            for r, sent in (self.sent if branch == MAIN else {}).items()
        }

    def before(self, branch: str = MAIN) -> Mapping[int, State]:
        """What the clients of a round received, for rounds whose updates and model were kept."""

        def received(round: int) -> State:
            self._refuse(round - 1, state := self.states[round - 1], state)
            return state

        known = [r for r in self.sent if r - 1 in self.states] if branch == MAIN else []
        return States(known, received)

    @property
    def clients(self) -> set[int]:
        """Those that took part in any round; none where models alone were kept."""
        return {client for one in self.records.values() for client in one.cohort}

    def _refuse(self, round: int, state: State, parameters: Iterable[str]) -> None:
        refuse_diverged(f"{self.where}: the model of round {round}", state, parameters)


def _broken(
    sent: Mapping[int, State], before: State | None, parameters: Sequence[str]
) -> dict[int, str]:
    """Client -> why its update is none, of those whose update is none."""
    broken = dict[int, str]()
    for client, state in sent.items():
        weights = {name: state[name] for name in parameters if name in state}
        if not all_finite(state.values()):
            broken[client] = "sent an update that is not finite"
        elif not any(bool(weight.any()) for weight in weights.values()):
            broken[client] = "sent weights that are all zero"
        elif before is not None and all(torch.equal(w, before[n]) for n, w in weights.items()):
            broken[client] = "sent an update that is all zero"
    return broken


def _left_out(faults: Sequence[FaultRow], updates: int) -> tuple[Note, ...]:
    """The note that names them; none where there are none."""
    if not faults:
        return ()
    listed = [(one.client, one.round, one.reason) for one in faults]
    return (Note("updates-left-out", {"faults": listed, "updates": updates}),)


def spread_rounds(rounds: Sequence[int]) -> list[int]:
    """All of at most `MOST` rounds; of more, so many, evenly spread with the first and the last."""
    places = np.linspace(0, len(rounds) - 1, min(len(rounds), MOST)).round().astype(int)
    return [rounds[i] for i in places]


def fit_state(
    state: State, own: Mapping[str, Tensor], needed: set[str], where: str, network: str
) -> State:
    """A recorded state by the names of a network's tensors.

    Args:
        state: by the names of `network.state_dict()`, or numbered in its order.
        own: the network's tensors, some prefix before those names.
        needed: names of `own` that the state must have.
        where: what errors call the state.
        network: what errors call the network.

    Returns:
        Its floating tensors by names of `own`.

    Raises:
        InputError: naming the first tensor that differs.
    """
    prefixes, hint = _prefixes(own), ""
    if state and all(NUMBERED.fullmatch(name) for name in state):
        order = sorted(state, key=lambda name: int(name.removeprefix("arr_")))
        if len(order) != len(own):
            raise InputError(
                f"{where} is a list of {len(order)} arrays, and {network} has {len(own)} tensors: "
                "[t.cpu().numpy() for t in net.state_dict().values()] lists them"
            )
        prefix, tensors = prefixes[0], dict(zip(own, map(state.get, order), strict=True))
    else:
        prefix = max(prefixes, key=lambda p: sum(p + name in own for name in state))
        tensors = {prefix + name: tensor for name, tensor in state.items()}
        for outer in _prefixes(state)[:-1]:
            if all(prefix + name.removeprefix(outer) in own for name in state):
                hint = f"; its names begin with '{outer}': the network's must, too"
    fitting = sum(n in tensors and tensors[n].shape == own[n].shape for n in needed)  # type: ignore[union-attr]
    for name in [n for n in own if n in needed]:
        short, shape = name.removeprefix(prefix), tuple(own[name].shape)
        tensor = tensors.get(name)
        if tensor is None or tuple(tensor.shape) != shape:
            wrong = "is missing" if tensor is None else f"is {tuple(tensor.shape)}"
            raise InputError(
                f"{where}: tensor '{short}' {wrong}, {network} needs {shape} ({fitting} of "
                f"{len(needed)} tensors fit){hint}"
            )
    for name, tensor in tensors.items():
        if name not in own and tensor is not None and tensor.is_floating_point():
            short = name.removeprefix(prefix)
            raise InputError(f"{where}: tensor '{short}' has no place in {network}")
    floats = {n: t for n, t in tensors.items() if n in own and own[n].is_floating_point()}
    return {n: t.to(own[n].dtype) for n, t in floats.items() if t is not None}


def _prefixes(names: Iterable[str]) -> list[str]:
    """Prefixes of all names that end with a dot, the longest first, and the empty one."""
    common = os.path.commonprefix(list(names))
    return [common[:at] for at in range(len(common), 0, -1) if common[at - 1] == "."] + [""]


def read_recording(folder: Path, until: int | None = None) -> KeptRounds:
    """What a recording holds of the federation itself.

    Args:
        folder: of the recording.
        until: the last round that counts; None: all do.

    Returns:
        The rounds, with remarks on what the recording lacks.

    Raises:
        InputError: there is no recording, one of another format, or one without a model.
    """
    recording = Recording(folder)
    if until is not None:
        for branch, every in recording.records.items():
            recording.records[branch] = {r: one for r, one in every.items() if r <= until}
    rounds = recording.records.get(MAIN, {})
    models = recording.models()
    last, end = max(models, default=0), max((r for r in rounds if rounds[r].cohort), default=0)
    remarks = [Note("last-model", {"round": last, "end": end})]
    rostered = recording.named_by == "roster"
    if not rostered:
        remarks.append(Note("clients-by-contact"))
    if rounds and (sizes := [len(one.cohort) for one in rounds.values() if one.cohort]):
        clients = len(recording.clients())
        remarks.append(Note("rounds-recorded", {"cohorts": sizes, "clients": clients}))
    return KeptRounds(
        where=f"recording '{folder}'", states=models, digest=_digest([folder / ROUNDS]),
        sent=recording.updates(), banks=recording.held(), records=rounds, rostered=rostered,
        notes=read_notes(recording), remarks=tuple(remarks),
    )  # fmt: skip


def read_files(pattern: str, key: str | None = None) -> KeptRounds:
    """Models that somebody kept, a file a round, by the last number in the file's name.

    Args:
        pattern: of their paths, such as `rounds/*.npz`.
        key: of the entry of each file that holds the model; None: it holds one.

    Returns:
        The rounds, whose models are read as they are asked for.

    Raises:
        InputError: no such file, one without a number, or two of one number.
    """
    where, by_round = opt("encoder.checkpoint", pattern), dict[int, Path]()
    for path in map(Path, disk_paths(pattern)):
        if path.suffix not in SUFFIXES:
            raise InputError(f"{where}: '{path.name}' is none of {', '.join(SUFFIXES)}")
        numbers = re.findall(r"\d+", path.stem)
        if not numbers:
            raise InputError(f"{where}: no number in '{path.name}' says which round it is of")
        other = by_round.setdefault(int(numbers[-1]), path)
        if other is not path:
            raise InputError(
                f"{where}: '{other.name}' and '{path.name}' are both of round {int(numbers[-1])}, "
                "the last number of their names"
            )
    if not by_round:
        raise InputError(f"{where}: no such file")
    files = dict(sorted(by_round.items()))
    names = {round: path.name for round, path in files.items()}
    remarks = (Note("models-by-file", {"files": names}),)
    models = States(files, lambda r: read_model(files[r], key))
    digest = _digest(files.values())
    return KeptRounds(where=where, states=models, digest=digest, remarks=remarks)


def read_model(path: Path, key: str | None = None) -> State:
    """The state in a file, or in an entry of it.

    Args:
        path: of the file.
        key: of the entry; None: there is one.

    Returns:
        Tensors by name, or by their numbers.

    Raises:
        InputError: the file is damaged, or holds no network or several.
    """
    content: Any = None
    if path.suffix == ".npz":
        where = f"weights '{path}'"
        with unreadable(f"{where}: cannot be read"), open_npz(where, path) as arrays:
            content = {name: torch.from_numpy(arrays[name].copy()) for name in arrays.files}
    else:
        content = read_weights(path)
    if not (isinstance(content, dict) and all(isinstance(t, Tensor) for t in content.values())):
        tables = dict(tables_of(content))
        fitting = [entry for entry in tables if key in (None, entry)]
        if not tables:
            way = "torch.save(net.state_dict(), FILE) keeps one"
            raise InputError(f"weights '{path}': no named tensors in it: {way}")
        if len(fitting) != 1:
            which = f"{opt('encoder.checkpoint_key', key)} must name one of {', '.join(tables)}"
            raise InputError(f"weights '{path}': {which}")
        content = tables[fitting[0]]
    return {str(name): tensor for name, tensor in content.items()}


def _digest(files: Iterable[Path]) -> str:
    """Of the contents of files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()
