"""All tensors that a training goes on from, by name."""

from __future__ import annotations

from torch.optim import Optimizer

from fedmia.ssl.base import SSLMethod, State, under
from fedmia.ssl.optimizers import optimizer_state, restore


def training_state(method: SSLMethod, optimizer: Optimizer | None = None) -> State:
    """What a training has learned so far.

    Args:
        method: that is trained.
        optimizer: of its weights; None: none of its tensors.

    Returns:
        `shared.*`, `local.*` (what a client sends and keeps) and `optimizer.*`.
    """
    parts = {"shared": method.shared_state(), "local": method.local_state()}
    if optimizer is not None:
        parts["optimizer"] = optimizer_state(optimizer, method.trainable())
    return {f"{part}.{name}": t for part, state in parts.items() for name, t in state.items()}


def load_training(method: SSLMethod, state: State, optimizer: Optimizer | None = None) -> None:
    """Go on from what `training_state` returned.

    Args:
        method: of the same options; changes in place.
        state: tensors by name.
        optimizer: of its weights, changes in place; None: there is none.
    """
    method.load_shared(under("shared.", state))
    method.load_local(under("local.", state))
    if optimizer is not None:
        restore(optimizer, method.trainable(), under("optimizer.", state))
