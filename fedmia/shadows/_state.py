"""An optimizer's state as named tensors, and back."""

from __future__ import annotations

import torch

from fedmia.ssl.base import State


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Momenta and counters: `<parameter>.<name>`, or `<parameter>.<name>#` for a plain number."""
    found: State = {}
    for parameter, kept in optimizer.state_dict()["state"].items():
        for name, value in kept.items():
            if isinstance(value, torch.Tensor):
                found[f"{parameter}.{name}"] = value
            elif value is not None:
                found[f"{parameter}.{name}#"] = torch.tensor(value)
    return found


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: State) -> None:
    """Load what `optimizer_state` gave into an optimizer of the same parameters."""
    state: dict[int, dict[str, object]] = {}
    for key, tensor in tensors.items():
        parameter, _, name = key.partition(".")
        kept = state.setdefault(int(parameter), {})
        kept[name.removesuffix("#")] = tensor.item() if name.endswith("#") else tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
