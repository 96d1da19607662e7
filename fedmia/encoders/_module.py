"""From a torch module that somebody else wrote to a `Released` encoder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders import checkpoint, untrained
from fedmia.encoders._hooked import Trial
from fedmia.encoders.base import Constants, Released, Wanted, Weights
from fedmia.nets.base import Backbone
from fedmia.options.seeding import torch_rng
from fedmia.ssl._bank import Bank
from fedmia.ssl._twoview import TwoView
from fedmia.ssl.base import Encoder, SSLMethod, State
from fedmia.ssl.moco import MoCoV2

RANDOM = "random weights: nothing was trained. Without --checkpoint there is nothing to leak."
BANK = 1024  # random negatives before `fill_bank`


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """What `make` builds when torch's global generator, its only source, starts from `seed`.

    The generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class ReleasedMethod(TwoView):
    """A foreign encoder and a bank of negatives; it is attacked, never trained here.

    Args:
        width: P, length of the encoder's output.
        seed: of the unit vectors that the bank holds at first.

    Its temperature is MoCo v2's: what the encoder was trained with is not known.
    """

    bank: Bank

    def __init__(self, encoder: Encoder, width: int, seed: int) -> None:
        bank = Bank.random(BANK, width, torch_rng(seed, "released", "bank"))
        super().__init__(encoder, MoCoV2(), bank=bank)

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        raise RuntimeError("a released encoder is not trained here")

    def local_state(self) -> State:
        return {}


def white_box(
    name: str,
    network: Backbone | Encoder | SSLMethod,
    tried: Trial,
    wanted: Wanted,
    notes: list[str],
    *,
    own: Constants | None = None,
    size: int | None = None,
    weights: Weights | None = None,
) -> Released:
    """The encoder with its layers and weights at hand; its control has permuted weights.

    Args:
        network: a backbone, which gets no head, an encoder, or a method with its own loss.
        own: the normalisation that goes with a backbone, None: not known.
        size: that it asks for where the user gives none and other sizes work too.
        weights: where its weights come from; a backbone gets the head that came with them.
    """
    if isinstance(network, Backbone):
        mean, std = wanted.constants(tried.channels, own, notes)
        network = Encoder(network, nn.Identity(), mean, std)
        if weights is not None and weights.head is not None:
            network.head = _headed(network, weights.head, tried, notes)
    if isinstance(network, Encoder):
        network.requires_grad_(True)  # attacks train copies; whoever made it may have frozen it
        with torch.no_grad():
            blank = torch.zeros(1, tried.channels, tried.size, tried.size)
            width = network.eval()(blank).shape[1]
        network = ReleasedMethod(network, width, wanted.seed)
    method = network.to(wanted.device)

    def permuted(least: int) -> SSLMethod:
        made = copy.deepcopy(method)
        for prefix, module in made.shared_modules().items():
            tensors = {prefix + key: tensor for key, tensor in module.state_dict().items()}
            untrained.permute(tensors, wanted.seed, least)
        return made

    released = permutable("white_box", name, method, permuted, tried, wanted, notes, size)
    return released if weights is None else replace(released, weights=weights)


@torch.no_grad()
def _headed(encoder: Encoder, head: nn.Module, tried: Trial, notes: list[str]) -> nn.Module:
    """The head where it takes what the backbone gives, said in a note; else none."""
    blank = torch.zeros(1, tried.channels, tried.size, tried.size)
    width = encoder.eval()(blank).shape[1]
    if not checkpoint.fits(head, width):
        notes.append(f"The file's projection head takes no vectors of length {width}: left out.")
        return nn.Identity()
    notes.append("The output 'encoder' is that of the file's projection head, 'avgpool' its input.")
    return head


def permutable(
    access: str,
    name: str,
    method: SSLMethod,
    permuted: Callable[[int], SSLMethod],
    tried: Trial,
    wanted: Wanted,
    notes: list[str],
    size: int | None = None,
) -> Released:
    """A released encoder whose control is its own with weights permuted.

    Args:
        permuted: makes it, weight tensors of fewer dimensions than its argument left alone.
        size: as of `white_box`.
    """
    shape = (tried.channels, tried.size, tried.size)
    return Released(
        name=name,
        method=method,
        augment=MoCoV2().augment,
        untrained=lambda: untrained.control(permuted, name, shape, wanted.seed),
        untrained_how=untrained.HOW,
        access=access,
        channels=tried.channels,
        size=tried.size if tried.fixed or wanted.size else size,
        fixed_size=tried.fixed,
        notes=notes,
    )


def weigh(module: nn.Module, wanted: Wanted, where: str, notes: list[str]) -> Weights:
    """The checkpoint's weights into an architecture of a library, or a note that there are none."""
    if wanted.checkpoint is None:
        notes.append(f"{where}: {RANDOM}")
        return Weights("random weights")
    return checkpoint.fit(module, wanted, where, notes, adapt=True)
