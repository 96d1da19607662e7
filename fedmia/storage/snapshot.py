"""Client updates, the state that clients keep between rounds, and files of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import save_file
from torch import Tensor, nn

from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.durable import replacing
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.tensors import read_safetensors
from fedmia.untrusted.text import parse_json


@dataclass(frozen=True)
class Update:
    """One client's upload in one round.

    Attributes:
        client: partition id.
        round: 1, 2, ... over the whole run.
        state: the shared weights that it sent.
        examples: number of images that these were trained on; 0: the server does not aggregate
            them.
        metrics: numbers of its training and defence.
    """

    client: int
    round: int
    state: State
    examples: int
    metrics: dict[str, float]


@dataclass
class ClientState:
    """What one client keeps between rounds.

    Attributes:
        tensors: by name: queue, key encoder, optimizer moments, ..; nobody changes them, as the
            client may have to work again from the same state.
        memory: values that JSON can hold.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass
class LocalTraining:
    """What the client's half of a strategy works on.

    Attributes:
        received: the global weights as they came, by name; other clients read them too, so they
            must not be changed.
        broadcast: tensors that the server's half sent beside them; likewise.
        own_state: tensors of the strategy's own that stay with the client between the rounds of a
            branch; empty before its first round.
        memory: JSON-able, stays likewise, shared with the client's defence.
        weights: the parameters in training, by their names in `received`.
        reach: the learning rates of the steps so far, summed, over 1 - momentum: how far a
            gradient of 1 in every step moves a weight in the end.
    """

    received: State
    broadcast: State
    own_state: State
    memory: dict[str, Any]
    weights: dict[str, nn.Parameter]
    reach: float = 0.0


@dataclass(frozen=True)
class ExpectedRound:
    """A round as an attacker who knows the server's rule expects it.

    Attributes:
        received: global weights of the round.
        broadcast: what the server sends beside the weights.
        guesses: of honest clients' uploads, none unless the strategy `compares`.
        fellows: malicious clients that upload the same.
    """

    received: State
    broadcast: State
    guesses: Sequence[State]
    fellows: int


class StateStore(Protocol):
    """Where clients keep their local state, by branch of the run and partition id."""

    def load(self, branch: str, client: int) -> ClientState | None:
        """The state of a client in a branch of the run, None where it has none."""

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep the state of a client in a branch of the run."""

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give one branch every client state of another.

        Args:
            source: branch that is copied.
            target: branch that gets the copies.
            clients: number of clients.
        """


def write_tensors(
    tensors: Mapping[str, Tensor], path: Path, about: object = None, forced: bool = True
) -> None:
    """Write a state to a file; the file is written whole or not at all.

    Args:
        tensors: by name.
        path: of a safetensors file, in a folder that is there.
        about: kept beside the tensors; what JSON can hold.
        forced: whether it is on the disk when this returns.

    Raises:
        DiskError: it cannot be written.
    """
    metadata = None if about is None else {"about": json.dumps(about)}
    with replacing(path, forced=forced) as (partial,):
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, partial, metadata)


def read_tensors(path: Path) -> tuple[State, Any]:
    """Read a file of `write_tensors`: the state, and what was written about it, or None.

    Args:
        path: of the file.

    Returns:
        Tensors by name, and the values.

    Raises:
        InputError: the file is damaged.
    """
    check_file_type(path)
    try:
        tensors, texts = read_safetensors(path)
        return tensors, parse_json(texts["about"]) if "about" in texts else None
    except ValueError as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
