"""The control of an encoder whose first weights nobody kept: its own weights, permuted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedmia.encoders.base import EncoderFacts
from fedmia.seeding import torch_rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import SSLMethod

HOW = (
    "every weight tensor's entries permuted: same architecture, same weight distribution, no "
    "learnt structure (vectors such as biases kept where outputs would overflow)"
)
NO_WEIGHTS = "it has no weights to permute"
LOOKS = 4  # images of noise that the control must embed to finite numbers


def refusal(facts: EncoderFacts, why: str) -> InputError:
    """The error for an encoder without a control."""
    return InputError(f"{facts.where}: no untrained control: {why}")


@torch.no_grad()
def permute_tensors(tensors: Mapping[str, Tensor], facts: EncoderFacts, least: int) -> None:
    """Permute the entries within each float tensor, in place.

    Args:
        tensors: name -> tensor.
        facts: has the seed of the permutations; each depends on it and on the tensor's name.
        least: tensors of fewer dimensions stay as they are.

    Raises:
        InputError: there is none.
    """
    weights = {
        n: t
        for n, t in tensors.items()
        if t.is_floating_point() and t.ndim >= least and t.numel() > 1
    }
    if not weights:
        raise refusal(facts, NO_WEIGHTS)
    for name, tensor in weights.items():
        generator = torch_rng(facts.load_options.seed, "untrained", name)
        order = torch.randperm(tensor.numel(), generator=generator)
        tensor.copy_(tensor.flatten()[order.to(tensor.device)].view_as(tensor))


@torch.no_grad()
def build_control(
    make: Callable[[int], SSLMethod], trained: nn.Module, facts: EncoderFacts, shape: Sequence[int]
) -> SSLMethod:
    """The untrained control: the encoder with permuted weights.

    Permuted running statistics do not fit permuted weights. Where that overflows, vectors are left
    as they are.

    Args:
        make: builds the control with the tensors of so many dimensions or more permuted.
        trained: the encoder itself.
        facts: names the encoder, and has the seed of the images that are tried.
        shape: (C, H, W) of the images that it must embed.

    Returns:
        The control.

    Raises:
        InputError: its outputs are not finite either way, or those of the encoder itself.
    """
    generator = torch_rng(facts.load_options.seed, "untrained", "noise")
    noise = torch.rand(LOOKS, *shape, generator=generator)
    for least in (1, 2):
        method = make(least).eval()
        out = method.encoder(noise.to(method.encoder.mean.device))
        if torch.equal(out, trained(noise.to(out.device))):
            raise refusal(facts, "its outputs do not change with its weights")
        if bool(torch.isfinite(out).all()):
            return method
    raise refusal(facts, "its outputs are not finite with permuted weights")
