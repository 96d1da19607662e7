"""The attacker of a run: what it has beside a model, and the network that it reads one through."""

from __future__ import annotations

import torch

from clients.client_setup import ClientSetup
from fedmia.attacks.base import Known
from fedmia.federation.schedule import Schedule
from fedmia.rounds.attacker import Attacker
from fedmia.ssl.base import SSLMethod, State


def make_attacker(setup: ClientSetup, known: Known | None = None) -> Attacker:
    """What the attacker of a run has. Negatives of an outsider are keys of the known images.

    Args:
        setup: what all clients of the run share.
        known: images that it knows; None: those of the setup.

    Returns:
        The attacker.
    """
    experiment = setup.experiment
    holder = experiment.holder
    return Attacker(
        threat=experiment.threat,
        known=known or Known(*map(setup.take, setup.known)),
        seed=experiment.seed,
        augment=setup.augment,
        device=torch.device(setup.device),
        own=None if holder is None else setup.take(setup.parts["members"][holder]),
        received=frozenset(Schedule(experiment).received(holder)),
    )


def load_weights(setup: ClientSetup, state: State) -> SSLMethod:
    """The network of a run with some weights, as its attacker builds it.

    Args:
        setup: what all clients of the run share.
        state: the weights by name.

    Returns:
        The network in evaluation mode.
    """
    holder = setup.experiment.holder
    method = setup.method(-1, None if holder is None else len(setup.parts["members"][holder]))
    method.load_shared(state)
    return method.eval()


def load_model(setup: ClientSetup, attacker: Attacker, state: State, bank: State) -> SSLMethod:
    """The network of a run with some weights, and the negatives of its holder.

    A client's negatives are its queue in that round. Without one (round 0, or a client that does
    not train) they are keys of its own images.

    Args:
        setup: what all clients of the run share.
        attacker: of the run.
        state: the weights by name.
        bank: negatives of the attacker's client; may be empty.

    Returns:
        The network in evaluation mode.
    """
    method = load_weights(setup, state)
    attacker.fill_bank(method, bank)
    return method
