"""Weights that no sound training leaves: without a shape, all zero, or not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedmia.settings.errors import InputError
from fedmia.ssl.base import all_finite


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


def refuse_zeros(where: str, weights: Iterable[Tensor]) -> None:
    """Refuse weights that are all zero. Outputs of an encoder tell those that are not finite.

    Args:
        where: what errors call the module.
        weights: its parameters.

    Raises:
        InputError: every weight is zero.
    """
    weights = [*weights]
    if weights and not any(weight.detach().any() for weight in weights):
        raise InputError(f"{where}: every weight is zero")


def refuse_diverged(where: str, state: Mapping[str, Tensor], parameters: Iterable[str]) -> None:
    """Refuse the model of a round that is not finite, or whose weights are all zero.

    Args:
        where: what errors call the model.
        state: its tensors by name.
        parameters: names of those that are trained.

    Raises:
        InputError: naming the first tensor that is not finite, or every weight is zero.
    """
    if not all_finite(state.values()):
        name = next(name for name, tensor in state.items() if not all_finite([tensor]))
        raise InputError(f"{where}: '{name}' is not finite (NaN or infinity): training diverged")
    refuse_zeros(where, [state[name] for name in parameters if name in state])
