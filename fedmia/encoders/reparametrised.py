"""Weights that a file holds in parts, as pruning and weight norm keep them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from torch import Tensor

from fedmia.records.note import Note
from fedmia.settings.errors import InputError


def _scale_direction(length: Tensor, direction: Tensor) -> Tensor:
    """A weight-normed tensor: the length is of size 1 along what the norm is taken over."""
    over = [i for i, size in enumerate(length.shape) if size == 1 < direction.shape[i]]
    norm = direction.square().sum(dim=over, keepdim=True).sqrt() if over else direction.abs()
    return direction * (length / norm)


# Name of the first part; of the second, beside it; and the tensor of both.
PARTS: tuple[tuple[str, str, Callable[[Tensor, Tensor], Tensor]], ...] = (
    (r"(.*\.)?(\w+)_orig", "{}{}_mask", lambda weight, mask: weight * mask),
    (r"(.*\.)?(\w+)_g", "{}{}_v", _scale_direction),
    (
        r"(.*\.)?parametrizations\.(\w+)\.original0",
        "{}parametrizations.{}.original1",
        _scale_direction,
    ),
)
# Spectral norm, quantised layers, and pruned ones without their masks.
OTHERS = re.compile(r".*(_orig|\._packed_params.*)|(.*\.)?parametrizations\..*")
PROTOTYPES = "last_layer."  # of DINO: read with its head, or left out


def refuse_parts(names: Iterable[str], where: str) -> None:
    """Refuse tensors that are parts of others, which nothing joins.

    Args:
        names: of tensors.
        where: names their file.

    Raises:
        InputError: naming the first.
    """
    parts = [n for n in names if OTHERS.fullmatch(n) and PROTOTYPES not in n]
    if parts:
        raise InputError(
            f"{where}: '{parts[0]}' is part of a tensor that its layer makes anew at each call "
            "(pruned, normed or quantised): save plain weights "
            "(torch.nn.utils.parametrize.remove_parametrizations, torch.nn.utils.prune.remove)"
        )


def join_parts(content: Any, where: str, own: Collection[str], notes: list[Note]) -> Any:
    """What a file holds, with pruned and weight-normed tensors as their layers use them.

    Args:
        content: tensors in containers.
        where: names the file in errors.
        own: names of the tensors of the network that the file is for, which may keep parts itself.
        notes: gets one that counts the joined tensors.

    Returns:
        The content.

    Raises:
        InputError: a tensor is kept in parts of another make.
    """
    if not isinstance(content, Mapping):
        return content
    if not any(isinstance(value, Tensor) for value in content.values()):
        return {name: join_parts(one, where, own, notes) for name, one in content.items()}
    whole = dict(content)
    for pattern, second, join in PARTS:
        for name in [n for n in map(str, content) if n not in own and PROTOTYPES not in n]:
            if match := re.fullmatch(pattern, name):
                other = second.format(match[1] or "", match[2])
                if other in whole:
                    joined = join(whole.pop(name), whole.pop(other))
                    whole[f"{match[1] or ''}{match[2]}"] = joined
    refuse_parts((n for n in map(str, whole) if n not in own), where)
    if count := (len(content) - len(whole)):
        notes.append(Note("parts-joined", {"weights": count}))
    return whole
