"""From a torch module that somebody else wrote to a `Released` encoder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders import checkpoint, untrained
from fedmia.encoders._hooked import TrialPass
from fedmia.encoders.base import (
    FAILURES,
    Constants,
    LoadContext,
    LoadedEncoder,
    Weights,
    first_line,
)
from fedmia.nets.base import Backbone
from fedmia.options.errors import InputError
from fedmia.options.seeding import torch_rng
from fedmia.ssl._bank import Bank
from fedmia.ssl._twoview import TwoView
from fedmia.ssl.base import Encoder, SSLMethod, State
from fedmia.ssl.moco import MoCoV2

RANDOM = "random weights: nothing was trained. Without --checkpoint there is nothing to leak."
HEADED = "The output 'encoder' is that of the file's projection head, 'avgpool' its input."
UNFIT = "The file's projection head takes no vectors of length {}: left out."
BANK = 1024  # random negatives before `fill_bank`


def build_seeded(make: Callable[[], Any], seed: int) -> Any:
    """What `make` builds when torch's global generator, its only source, starts from `seed`.

    The generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def build(loading: LoadContext, make: Callable[[], Any], *passed: type[Exception]) -> Any:
    """What a library makes, with weights of the user's seed.

    Args:
        passed: errors that are let through.

    Raises:
        InputError: it makes nothing.
    """
    try:
        return build_seeded(make, loading.wanted.seed)
    except passed:
        raise
    except (ImportError, OSError, LookupError, *FAILURES) as error:
        raise InputError(f"{loading.where} cannot be built: {first_line(error)}") from None


class LoadedEncoderMethod(TwoView):
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


def load_white_box(
    loading: LoadContext,
    network: Backbone | Encoder | SSLMethod,
    tried: TrialPass,
    own: Constants | None = None,
    size: int | None = None,
) -> LoadedEncoder:
    """The encoder with its layers and weights at hand; its control has permuted weights.

    Args:
        network: a backbone, which gets the head that came with its weights, an encoder, or a
            method with its own loss.
        own: the normalisation that goes with a backbone, None: not known.
        size: that it asks for where the user gives none and other sizes work too.
    """
    wanted = loading.wanted
    blank = torch.zeros(1, tried.channels, tried.size, tried.size)
    if isinstance(network, Backbone):
        mean, std = wanted.channel_constants(tried.channels, own, loading.notes)
        network = Encoder(network, nn.Identity(), mean, std)
        if (head := loading.weights.head) is not None:
            width = _width(network, blank)
            fits = checkpoint.head_fits(head, width)
            network.head = head if fits else network.head
            loading.notes.append(HEADED if fits else UNFIT.format(width))
    if isinstance(network, Encoder):
        network.requires_grad_(True)  # attacks train copies; whoever made it may have frozen it
        network = LoadedEncoderMethod(network, _width(network, blank), wanted.seed)
    method = network.to(wanted.device)

    def permuted(least: int) -> SSLMethod:
        made = copy.deepcopy(method)
        for prefix, module in made.shared_modules().items():
            tensors = {prefix + key: tensor for key, tensor in module.state_dict().items()}
            untrained.permute_tensors(tensors, wanted.seed, least)
        return made

    return load_with_control(loading, "white_box", method, permuted, tried, size)


@torch.no_grad()
def _width(encoder: Encoder, blank: Tensor) -> int:
    """Length of its outputs."""
    return int(encoder.eval()(blank).shape[1])


def load_with_control(
    loading: LoadContext,
    access: str,
    method: SSLMethod,
    permuted: Callable[[int], SSLMethod],
    tried: TrialPass,
    size: int | None = None,
) -> LoadedEncoder:
    """A released encoder whose control is its own with weights permuted.

    Args:
        permuted: makes it, weight tensors of fewer dimensions than its argument left alone.
        size: as of `white_box`.
    """
    name, wanted = loading.where, loading.wanted
    shape = (tried.channels, tried.size, tried.size)
    return LoadedEncoder(
        name=name,
        method=method,
        augment=MoCoV2().augment,
        untrained=lambda: untrained.build_control(permuted, name, shape, wanted.seed),
        untrained_how=untrained.HOW,
        access=access,
        channels=tried.channels,
        size=tried.size if tried.fixed or wanted.size else size,
        fixed_size=tried.fixed,
        notes=loading.notes,
        weights=loading.weights,
    )


def load_weights(loading: LoadContext, module: nn.Module) -> None:
    """The checkpoint's weights into an architecture of a library, or a note that there are none."""
    if loading.wanted.checkpoint is None:
        loading.notes.append(f"{loading.where}: {RANDOM}")
        loading.weights = Weights("random weights")
    else:
        loading.weights = checkpoint.load_checkpoint(loading, module, adapt=True)
