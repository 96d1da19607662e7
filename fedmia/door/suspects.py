"""Which client attacks, from Python: a recording, and what a session hands over beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fedmia.door.images import read_images
from fedmia.encoders.base import LoadOptions
from fedmia.encoders.memory import build_network, load_module
from fedmia.evaluation.audits.federation import load_rounds, loss_unknown
from fedmia.evaluation.audits.suspects import PUBLIC, public_loss, rank_suspects
from fedmia.records.client_rows import SuspectRow
from fedmia.rounds.kept import read_recording
from fedmia.settings.errors import InputError, opt
from fedmia.statistics.suspicion import FEWEST
from fedmia.threat import WhiteBox


def rank(recording: Path, net: Any, public: Any, loss: Any, seed: int) -> list[SuspectRow]:
    """The rows of `fedmia.rank_suspects`.

    Args:
        recording: folder with updates of clients.
        net: a function that returns the network, or a module; None: no loss is read.
        public: images that no client trained on; None: no loss is read.
        loss: of the network's owner, or None.
        seed: of the views.

    Returns:
        A row a client, the most suspicious first.

    Raises:
        InputError: as of `fedmia.rank_suspects`.
    """
    rounds = read_recording(recording)
    if not rounds.sent:
        keeps = 'fedmia.flower.record(grid, folder, updates="all") keeps them'
        own = f"of a simulation {opt('federation.keep_updates', 'N')}"
        raise InputError(f"{rounds.where} has no updates of clients: {keeps}, {own}")
    if isinstance(net, str):
        raise InputError(f"net must be a function that returns the network, or a module; got {net}")
    if (net is None) != (public is None) or (net is None and loss is not None):
        raise InputError("the loss of public images needs both net and public: give both, or none")
    state_loss = None
    if net is not None:
        images = torch.from_numpy(read_images(public, "public").images[:PUBLIC])
        options = LoadOptions(size=int(images.shape[2]), seed=seed)
        released = load_module(build_network(net), options, channels=int(images.shape[1]))
        rounds = load_rounds(released, rounds, loss)
        if loss_unknown(rounds):
            raise InputError("loss is missing: with which clients trained net, (network, pixels)")
        released.method.fill_bank(images)
        view = WhiteBox(
            released.method, released.augment, seed=seed, device=options.device, held=images
        )
        state_loss = public_loss(view, images)
    rows = rank_suspects(rounds.before(), rounds.sent, state_loss, rounds.clients)
    if not rows:
        raise InputError(
            f"{rounds.where} has no round with the updates of {FEWEST} clients and the model that "
            "they received"
        )
    return rows
