"""The optimizers of local training: how each is made, what it keeps, how far noise moves it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from fedmia.runtime.eager import SGD, AdamW
from fedmia.ssl._lars import LARS, TRUST
from fedmia.ssl.base import State

OPTIMIZERS = ("sgd", "adamw", "lars")
# Learning rates where none is given; with SGD the method's own. In the default run, seed 0, kNN is
# 0.80 with AdamW and 0.83 with LARS (0.78 at 0.3), 0.86 with SGD.
RATES: Mapping[str, float] = {"adamw": 1e-3, "lars": 1.0}


def build(
    name: str, weights: Sequence[Tensor], *, lr: float, momentum: float, beta2: float, decay: float
) -> Optimizer:
    """The optimizer called `name` over `weights`.

    AdamW (Loshchilov and Hutter, ICLR 2019) and LARS leave weights of one dimension, biases and
    norms, without decay, as the public code of MAE, DINO, BYOL and MoCo v3 does; SGD decays all, as
    that of MoCo v1.

    Args:
        name: of OPTIMIZERS.
        weights: parameters to train.
        lr: learning rate, > 0.
        momentum: of SGD and LARS, beta1 of AdamW.
        beta2: of AdamW.
        decay: weight decay, >= 0.

    Returns:
        the optimizer.
    """
    if name == "sgd":
        return SGD(weights, lr=lr, momentum=momentum, weight_decay=decay, foreach=True)
    if name == "lars":
        return LARS(weights, lr, momentum, decay)
    groups: list[dict[str, Any]] = [
        {"params": [w for w in weights if w.dim() > 1]},
        {"params": [w for w in weights if w.dim() <= 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=lr, betas=(momentum, beta2), weight_decay=decay, foreach=True)


def set_decay(optimizer: Optimizer, decay: float) -> None:
    """Another weight decay, of those weights that have one.

    Args:
        optimizer: of `build`; changes in place.
        decay: new weight decay, >= 0.
    """
    for group in optimizer.param_groups:
        if any(w.dim() > 1 for w in group["params"]) or isinstance(optimizer, torch.optim.SGD):
            group["weight_decay"] = decay


def clip_gradients(weights: Sequence[Tensor], most: float) -> None:
    """Scale each gradient that is longer than `most` to that length, each tensor by itself.

    The public code of DINO (`utils.clip_gradients`) divides by |g| + 1e-6, so does this.

    Args:
        weights: whose gradients change in place; those without one are left out.
        most: largest L2 norm of one tensor's gradient, > 0.
    """
    gradients = [w.grad for w in weights if w.grad is not None]
    for gradient, norm in zip(gradients, torch._foreach_norm(gradients), strict=True):
        gradient.mul_((most / (norm + 1e-6)).clamp(max=1.0))  # no test: a GPU is not waited for


def optimizer_state(optimizer: Optimizer, weights: Sequence[Tensor]) -> State:
    """What the optimizer keeps of each weight: `<place>.<name>`, not copied.

    Args:
        optimizer: of `build`.
        weights: the parameters that it trains, in order.

    Returns:
        its tensors by name.
    """
    return {
        f"{place}.{name}": tensor.detach()
        for place, weight in enumerate(weights)
        for name, tensor in optimizer.state.get(weight, {}).items()
        if tensor is not None
    }


def restore(optimizer: Optimizer, weights: Sequence[Tensor], state: State) -> None:
    """Set the optimizer's state to copies of `state`, where the weights are.

    Args:
        optimizer: of `build`; changes in place.
        weights: the parameters that it trains, in order.
        state: of `optimizer_state`, on any device.
    """
    for key, tensor in state.items():
        place, _, name = key.partition(".")
        weight = weights[int(place)]
        # AdamW counts its steps on the CPU.
        device = weight.device if tensor.dim() else "cpu"
        optimizer.state[weight][name] = tensor.to(device, copy=True)


def noise_moves(
    name: str, weights: Sequence[Tensor], spread: float, rates: float, momentum: float
) -> float:
    """How far Gaussian noise in the gradients moves all weights, L2, expected.

    A step of SGD passes the noise on; AdamW divides it by its own deviation; LARS makes each
    layer's gradient TRUST times as long as the layer, and passes on that of biases and norms.
    Momentum spreads a step over later ones, and except for AdamW's makes it
    1 / (1 - momentum) times as long.

    Args:
        name: of OPTIMIZERS.
        weights: the parameters that are trained.
        spread: deviation of the noise in each entry of the mean gradient.
        rates: the squared learning rates of all steps, summed.
        momentum: in [0, 1).

    Returns:
        expected L2 distance.
    """
    d = sum(w.numel() for w in weights)
    if name == "adamw":
        return math.sqrt(d * rates)
    if name == "lars":
        layers = [w.detach() for w in weights if w.dim() > 1]
        rest = sum(w.numel() for w in weights if w.dim() <= 1)
        length = float(get_total_norm(layers)) if layers else 0.0
        return math.sqrt(((TRUST * length) ** 2 + spread**2 * rest) * rates) / (1 - momentum)
    return spread * math.sqrt(d * rates) / (1 - momentum)
