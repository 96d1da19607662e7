"""What an encoder's outputs mean: a vector, a map, or tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from fedmia.options.errors import InputError


def float_tensors(outputs: Any) -> Iterator[Tensor]:
    """Float tensors among the outputs of a module or a program, in order."""
    if isinstance(outputs, Tensor):
        if outputs.is_floating_point():
            yield outputs
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from float_tensors(value)
    elif isinstance(outputs, tuple | list):
        for value in outputs:
            yield from float_tensors(value)


def is_map(value: Tensor) -> bool:
    """Whether a tensor is (B, D, h, w) of more than one place, a square one."""
    return value.ndim == 4 and value.shape[2] == value.shape[3] > 1


def grid(tokens: Tensor, side: int) -> Tensor:
    """(B, D, side, side) from tokens (B, prefix + side^2, D), those of the prefix left out."""
    patches = tokens[:, tokens.shape[1] - side**2 :]
    return patches.transpose(1, 2).unflatten(2, (side, side))


def read_outputs(outputs: Any, where: str) -> tuple[Tensor, Tensor | None]:
    """The vector (B, D) and the map (B, D, h, w), if there is one.

    The vector is the first output (B, D) or (B, D, 1, 1), else the map's mean. The map is the
    last output (B, D, h, w). Tokens (B, N, D), where there is neither: the first is the vector
    if N - 1 is a square, else the vector is their mean; those of the square are the map.

    Raises:
        InputError: none of these.
    """
    tensors_returned = list(float_tensors(outputs))
    vectors = [
        v.flatten(1)
        for v in tensors_returned
        if v.ndim == 2 or v.ndim == 4 and v.shape[2:] == (1, 1)
    ]
    maps = [v for v in tensors_returned if v.ndim == 4 and v.shape[2:] != (1, 1)]
    if vectors:
        return vectors[0], maps[-1] if maps else None
    if maps:
        return maps[-1].mean(dim=(2, 3)), maps[-1]
    for tokens in (v for v in tensors_returned if v.ndim == 3):
        count = tokens.shape[1]
        if count > 1 and math.isqrt(count - 1) ** 2 == count - 1:
            return tokens[:, 0], grid(tokens, math.isqrt(count - 1))
        square = math.isqrt(count) ** 2 == count > 1
        return tokens.mean(dim=1), grid(tokens, math.isqrt(count)) if square else None
    raise InputError(
        f"{where} returns {format_shapes(tensors_returned) or 'no float tensor'}; an encoder "
        "returns vectors (B, D), maps (B, D, h, w) or tokens (B, N, D)"
    )


def format_shapes(outputs: Iterable[Tensor]) -> str:
    """`(2, 4), (2, 8, 4, 4)`."""
    return ", ".join(str(tuple(v.shape)) for v in outputs)
