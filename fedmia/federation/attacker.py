"""The attacker of a run: what it has beside a model, and the network that it reads one through."""

from __future__ import annotations

import torch

from clients.client_context import ClientContext
from fedmia.attacks.base import Known
from fedmia.federation.schedule import Schedule
from fedmia.rounds.attacker import Attacker
from fedmia.ssl.base import SSLMethod, State


def make_attacker(context: ClientContext, known: Known | None = None) -> Attacker:
    """What the attacker of a run has. Negatives of an outsider are keys of the known images.

    Args:
        context: what all clients of the run share.
        known: images that it knows; None: those of the context.

    Returns:
        The attacker.
    """
    experiment = context.experiment
    holder = experiment.holder
    return Attacker(
        threat=experiment.threat,
        known=known or Known(*map(context.take, context.known)),
        seed=experiment.seed,
        augment=context.augment,
        device=torch.device(context.device),
        own=None if holder is None else context.take(context.parts["members"][holder]),
        received=frozenset(Schedule(experiment).received(holder)),
    )


def load_weights(context: ClientContext, state: State) -> SSLMethod:
    """The network of a run with some weights, as its attacker builds it.

    Args:
        context: what all clients of the run share.
        state: the weights by name.

    Returns:
        The network in evaluation mode.
    """
    holder = context.experiment.holder
    method = context.method(-1, None if holder is None else len(context.parts["members"][holder]))
    method.load_shared(state)
    return method.eval()


def load_model(context: ClientContext, attacker: Attacker, state: State, bank: State) -> SSLMethod:
    """The network of a run with some weights, and the negatives of its holder.

    A client's negatives are its queue in that round. Without one (round 0, or a client that does
    not train) they are keys of its own images.

    Args:
        context: what all clients of the run share.
        attacker: of the run.
        state: the weights by name.
        bank: negatives of the attacker's client; may be empty.

    Returns:
        The network in evaluation mode.
    """
    method = load_weights(context, state)
    attacker.fill_bank(method, bank)
    return method
