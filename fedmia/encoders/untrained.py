"""The control of an encoder whose first weights nobody kept: its own weights, permuted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedmia.options.errors import InputError
from fedmia.options.seeding import torch_rng
from fedmia.ssl.base import SSLMethod

HOW = (
    "every weight tensor's entries permuted: same architecture, same weight distribution, no "
    "learnt structure (vectors such as biases kept where outputs would overflow)"
)
NOTHING = "no untrained control: it has no weights to permute"
LOOKS = 4  # images of noise that the control must embed to finite numbers


@torch.no_grad()
def permute_tensors(tensors: Mapping[str, Tensor], seed: int, least: int) -> int:
    """Permute the entries within each float tensor, in place.

    Args:
        tensors: name -> tensor.
        seed: of the permutations; each depends on it and on the tensor's name.
        least: tensors of fewer dimensions stay as they are.

    Returns:
        How many tensors were permuted.
    """
    count = 0
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.ndim >= least and tensor.numel() > 1:
            order = torch.randperm(tensor.numel(), generator=torch_rng(seed, "untrained", name))
            tensor.copy_(tensor.flatten()[order.to(tensor.device)].view_as(tensor))
            count += 1
    return count


@torch.no_grad()
def build_control(
    make: Callable[[int], SSLMethod],
    trained: nn.Module,
    where: str,
    shape: tuple[int, int, int],
    seed: int,
) -> SSLMethod:
    """The untrained control: the encoder with permuted weights.

    Permuted running statistics do not fit permuted weights. Where that overflows, vectors are left
    as they are.

    Args:
        make: builds the control with the tensors of so many dimensions or more permuted.
        trained: the encoder itself.
        where: what errors call the encoder.
        shape: (C, H, W) of the images that it must embed.
        seed: of the images that are tried.

    Returns:
        The control.

    Raises:
        InputError: its outputs are not finite either way, or those of the encoder itself.
    """
    noise = torch.rand(LOOKS, *shape, generator=torch_rng(seed, "untrained", "noise"))
    for least in (1, 2):
        method = make(least).eval()
        out = method.encoder(noise.to(method.encoder.mean.device))
        if torch.equal(out, trained(noise.to(out.device))):
            raise InputError(
                f"{where}: no untrained control: its outputs do not change with its weights"
            )
        if bool(torch.isfinite(out).all()):
            return method
    raise InputError(
        f"{where}: no untrained control: its outputs are not finite with permuted weights"
    )
