"""Networks whose weights no training can have left: without a shape, or all zero."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy

from fedmia.options.errors import InputError


def check_initialised(where: str, module: nn.Module) -> None:
    """Refuse a module some of whose weights get their shapes at its first call.

    Args:
        where: what errors call it.
        module: to be read.

    Raises:
        InputError: naming the first.
    """
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(
                f"{where}: '{name}' has no shape before the module is called (a lazy layer): call "
                "it once on images of the right size where it is made"
            )


def refuse_zeros(where: str, module: nn.Module) -> None:
    """Refuse weights that are all zero. Outputs tell those that are not finite.

    Args:
        where: what errors call the module.
        module: to be read.

    Raises:
        InputError: every weight is zero.
    """
    weights = [*module.parameters()]
    if weights and not any(weight.detach().any() for weight in weights):
        raise InputError(f"{where}: every weight is zero")
