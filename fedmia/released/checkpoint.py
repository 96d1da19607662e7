"""Weights from a file into an architecture: every tensor must find its place."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from fedmia.errors import InputError, opt
from fedmia.released import _resnet, _vit
from fedmia.released._heads import PROTOTYPES, read_head
from fedmia.released._positions import is_positions, resampled
from fedmia.released.base import Wanted, Weights
from fedmia.released.schemes import Found, find
from fedmia.released.torchfile import read

STATISTICS = ("running_mean", "running_var")


def fit(
    module: nn.Module, wanted: Wanted, where: str, notes: list[str], *, adapt: bool = False
) -> Weights:
    """Load every parameter and running statistic of `module` from the checkpoint.

    Tables of positions are resampled to the module's grid, and the statistics of a batch norm
    split in parts are averaged, as its code does when it evaluates.

    Args:
        notes: takes what the reader should know.
        adapt: whether a ResNet's stem and norms may become those of the file.

    Raises:
        InputError: a tensor that the file lacks and that `wanted` does not let go, or of another
            shape.
    """
    path = wanted.checkpoint
    assert path is not None
    own = module.state_dict()
    found = find(read(path), path, wanted.key, lambda t: sum(n in own for n in _named(t, own)[0]))
    given, relu = _named(found.trunk, own)
    if adapt:
        notes += _resnet.adapt(module, given, relu, found.scheme.padding)
        notes += _vit.set_heads(module, found.scheme.form)
        own = module.state_dict()
    return put(module, found, given, wanted, where, notes)


def put(
    module: nn.Module,
    found: Found,
    given: Mapping[str, Tensor],
    wanted: Wanted,
    where: str,
    notes: list[str],
) -> Weights:
    """Load `given`, what was found by the module's names, into the module.

    Raises:
        InputError: as `fit`.
    """
    own, ready = module.state_dict(), dict[str, Tensor]()
    for name, tensor in given.items():
        if name in own and (fitted := _fitted(name, tensor, own[name])) is not None:
            ready[name] = fitted
            if fitted.shape != tensor.shape and is_positions(name):
                notes.append(f"Positions '{name}' were resampled to the size of the images.")
    _check(own, given, ready, found, wanted, where)
    module.load_state_dict(ready, strict=False)
    head = read_head(found.head)
    if found.head and head is None:
        notes.append("The file's projection head is of an unknown make, and is left out.")
    read_too = [n for n in found.head if head is not None and not n.startswith(PROTOTYPES)]
    unread = [found.scheme.head + n for n in found.head if n not in read_too]
    prefixes = {id(t): found.prefix + n for n, t in found.trunk.items()}
    dropped = [prefixes[id(t)] for n, t in given.items() if n not in ready]
    missing = [n for n, t in own.items() if t.is_floating_point() and n not in ready]
    if missing:
        notes.append(f"{len(missing)} of the encoder's weights are random: the file lacks them.")
    return Weights(
        found.scheme.form,
        len(ready) + len(read_too),
        (*dropped, *unread, *found.others),
        tuple(missing),
        head,
    )


def _named(
    tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], bool]:
    """A file's tensors by torchvision's names where the module is a ResNet of such names."""
    return _resnet.canonical(tensors) if _resnet.is_resnet(own) else (dict(tensors), True)


def _fitted(name: str, tensor: Tensor, own: Tensor) -> Tensor | None:
    """The tensor in the shape that is needed, or None where it has another meaning."""
    if tensor.shape == own.shape:
        return tensor
    if is_positions(name) and tensor.ndim == own.ndim and tensor.shape[-1] == own.shape[-1]:
        return resampled(tensor, own.shape[-2])
    if name.endswith(STATISTICS) and own.ndim and len(tensor) % len(own) == 0:
        return tensor.view(-1, len(own)).mean(dim=0)
    return None


def _check(
    own: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    ready: Mapping[str, Tensor],
    found: Found,
    wanted: Wanted,
    where: str,
) -> None:
    """Raise InputError for the first tensor that is needed, and missing or of another shape."""
    needed = [n for n, t in own.items() if t.is_floating_point()]
    fits = sum(n in ready for n in needed)
    for name in needed:
        if name in ready:
            continue
        if name not in given and wanted.allow_missing and fits:
            continue
        wrong, more = "is missing", f"; {opt('allow_missing')} leaves it random" if fits else ""
        if name in given:
            shape = tuple(given[name].shape)
            wrong, more = f"is {shape}, {where} needs {tuple(own[name].shape)}", ""
        raise InputError(
            f"weights '{wanted.checkpoint}': tensor '{found.prefix + name}' {wrong} "
            f"({fits} of {len(needed)} tensors fit){more}"
        )
