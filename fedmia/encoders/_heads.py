"""A projection head, from the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

PROTOTYPES = "last_layer."  # of DINO: what comes after the projection


def read_head(tensors: Mapping[str, Tensor]) -> nn.Module | None:
    """The head, its weights loaded, or None where the tensors are not of linear and batch norm
    layers, bare or numbered in an nn.Sequential.

    A number without tensors is an activation: ReLU, or GELU where prototypes follow, as in DINO.
    The output is the projection; prototypes are left out.
    """
    act = nn.GELU if any(n.startswith(PROTOTYPES) for n in tensors) else nn.ReLU
    own = {_short(n): t for n, t in tensors.items() if not n.startswith(PROTOTYPES)}
    if "weight" in own:
        own = {f"0.{n}": t for n, t in own.items()}
    groups: dict[int, dict[str, Tensor]] = {}
    for name, tensor in own.items():
        number, _, rest = name.partition(".")
        if not number.isdigit() or "." in rest:
            return None
        groups.setdefault(int(number), {})[rest] = tensor
    if not groups:
        return None
    layers = [_layer(groups[i]) if i in groups else act() for i in range(max(groups) + 1)]
    if None in layers:
        return None
    head = nn.Sequential(*(layer for layer in layers if layer is not None))
    head.load_state_dict(own, strict=False)
    return head.eval()


def _short(name: str) -> str:
    """Without what code bases call the nn.Sequential inside the head."""
    return name.removeprefix("layers.").removeprefix("mlp.")


def _layer(tensors: Mapping[str, Tensor]) -> nn.Module | None:
    weight, mean = tensors.get("weight"), tensors.get("running_mean")
    if mean is not None:
        return nn.BatchNorm1d(len(mean), affine=weight is not None)
    if weight is None or weight.ndim != 2:
        return None
    return nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in tensors)


@torch.no_grad()
def fits(head: nn.Module, width: int) -> bool:
    """Whether the head takes vectors of length `width`."""
    layer = next(m for m in head.modules() if isinstance(m, nn.Linear))
    return bool(layer.in_features == width)
