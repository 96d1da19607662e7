"""What files of others say of the pixels that their network takes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from fedmia.encoders._positions import is_positions
from fedmia.encoders.base import Constants, EncoderFacts, channel_constants
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt
from fedmia.untrusted.torchfile import OptionsStub

CHANNELS = 4  # most of an image
DEEPEST = 16  # settings in one another

# How the audit brings images to a size. Files have other ways, which are not followed.
RESIZING = {
    "interpolation": "bilinear", "resample": 2, "crop_pct": 1, "crop_mode": "center",
    "resize_mode": "shortest",
}  # fmt: skip
# Names of settings and of buffers in checkpoints.
CONSTANT = re.compile(
    r"((?:(?:images?|img|pixel|norm\w*|data\w*|channel|rgb|new|input)_)?)(mean|std)"
)
SIZE = re.compile(r"(ima?ge?|input)_(size|resolution)")
# What shapes vectors, and is not read: the tensors' names and shapes stand for it.
NETWORK = re.compile(
    r"arch(itecture)?|backbone|(model|encoder)(_name)?|(num_)?heads|patch_size|act(ivation|_layer)"
    r"|BitmapPixelFormat|NominalPixelRange|(global_)?pool(ing)?|norm_eps|output_stride|crop_(size|pct)|interpolation|resize_mode"
)


def own_constants(where: str, mean: Any, std: Any, unit: float = 1.0) -> Constants:
    """The normalisation that a file gives, for pixels in [0, 1].

    Args:
        where: names the file.
        mean: a number, or one a channel, as the file has it.
        std: likewise.
        unit: what a pixel of 1 is in the file's numbers.

    Returns:
        Mean and deviation.

    Raises:
        InputError: something else than finite numbers, or deviations that are not positive.
    """
    values = dict[str, tuple[float, ...]]()
    for name, value in (("mean", mean), ("std", std)):
        try:
            numbers = channel_constants(value)
        except (TypeError, ValueError):
            numbers = None
        if not numbers or not np.isfinite(numbers).all() or (name == "std" and min(numbers) <= 0):
            least = "numbers > 0" if name == "std" else "finite numbers"
            raise InputError(f"{where}: {name} {str(value)[:60]}, must be {least}, one a channel")
        values[name] = tuple(one / unit for one in numbers)
    return values["mean"], values["std"]


def square_side(facts: EncoderFacts, where: str, value: Any) -> int | None:
    """Pixels a side of the images that a field of a file names.

    Args:
        facts: has the size that the user gives, which takes the place of sides that differ.
        where: names file and field.
        value: a number, (.., height, width), or a mapping with `height` and `width`, or with
            `shortest_edge`.

    Returns:
        The side; None: the field names none.

    Raises:
        InputError: no whole number of pixels, or sides that differ.
    """
    sides = list(value[-2:]) if isinstance(value, list | tuple) else [value]
    if isinstance(value, Mapping):
        sides = [value[n] for n in ("height", "width") if n in value]
        sides = sides or [value.get("shortest_edge")]
    if sides in ([None], []) or (facts.load_options.size and len({*map(str, sides)}) > 1):
        return None
    if not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in sides):
        raise InputError(f"{where}: {str(value)[:60]!r}, must be a whole number of pixels")
    if len(set(sides)) > 1:
        raise InputError(
            f"{where}: {value}: only square images are audited; {opt('data.size')} gives their side"
        )
    return int(sides[0])


def note_resizing(facts: EncoderFacts, where: str, fields: Mapping[str, Any]) -> None:
    """Note the fields by which images are resized in another way than the audit does."""
    other = [
        f"{name} {str(value)[:20]}"
        for name, usual in RESIZING.items()
        if (value := fields.get(name)) is not None and value != usual
    ]
    if other:
        facts.notes.append(Note("resizing-not-done", {"where": where, "fields": other}))


def note_unread(
    facts: EncoderFacts, where: str, fields: Mapping[str, Any], known: Collection[str]
) -> None:
    """Note the fields of a file that say something, and are not known."""
    if unread := [n for n, value in fields.items() if value and n not in known]:
        facts.notes.append(Note("fields-unread", {"where": where, "fields": unread}))


def read_settings(facts: EncoderFacts, where: str, content: Any, own: Collection[str]) -> None:
    """Take normalisation and size of the images from a checkpoint's settings and buffers, where the
    user gives none and the network has none of its own; note what of them is not read.

    Args:
        facts: gets them, and the notes.
        where: names the file.
        content: of the file.
        own: names of the network's tensors.

    Raises:
        InputError: deviations that are not positive, or images that are not square.
    """
    options, names = facts.load_options, {n.rpartition(".")[2] for n in own}
    every = {p: v for p, v in _leaves(content) if p.rpartition(".")[2] not in names}
    pairs, sizes, unread = dict[str, Constants](), dict[str, int](), list[str]()
    for place, value in every.items():
        name = place.rpartition(".")[2]
        if (one := CONSTANT.fullmatch(name)) and one[2] == "mean":
            std = every.get(f"{place.removesuffix('mean')}std")
            if not _are_constants(value, std) or None not in (options.mean, options.std):
                continue
            if one[1] or isinstance(value, list | tuple):  # else of weights, or of noise
                pairs[place] = own_constants(f"{where}: {place}", value, std)
            else:
                unread.append(f"{place} {value}")
        elif (
            SIZE.fullmatch(name) and options.size is None and isinstance(value, int | list | tuple)
        ):
            if (side := square_side(facts, f"{where}: {place}", value)) is not None:
                sizes[place] = side
        elif NETWORK.fullmatch(name) and isinstance(value, str | int | float):
            unread.append(f"{place} {str(value)[:30]}")
    if len({*pairs.values()}) == 1:
        place, facts.constants = next(iter(pairs.items()))
        facts.notes.append(Note("normalised-by-file", {"name": place}))
    fixed = facts.size is not None or any(map(is_positions, own))
    if len({*sizes.values()}) == 1 and not fixed:
        place, facts.size = next(iter(sizes.items()))
        facts.notes.append(Note("size-of-file", {"name": place, "size": facts.size}))
    unread += pairs if len({*pairs.values()}) > 1 else []
    unread += [f"{p} {n}" for p, n in sizes.items() if n != facts.size]
    if unread:
        facts.notes.append(Note("settings-unread", {"settings": unread}))


def _are_constants(*values: Any) -> bool:
    """Whether these are numbers, one or as many as channels, no tensors of a layer."""
    return all(
        isinstance(v, int | float)
        or (isinstance(v, list | tuple) and 0 < len(v) <= CHANNELS
            and all(isinstance(n, int | float) for n in v))
        for v in values
    )  # fmt: skip


def _leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(names in one another, value) of all settings and small tensors in containers."""
    content = _plain(content)
    if isinstance(content, Mapping):
        parts: Any = content.items()
    elif isinstance(content, list | tuple) and any(isinstance(_plain(v), Mapping) for v in content):
        parts = enumerate(content)
    else:
        yield place, content
        return
    for name, value in parts if place.count(".") < DEEPEST else ():
        yield from _leaves(value, f"{place}.{name}" if place else str(name))


def _plain(value: Any) -> Any:
    """What a stand-in of options keeps, and the numbers of a small tensor."""
    state = getattr(value, "state", None) if isinstance(value, OptionsStub) else None
    if isinstance(state, Mapping):  # omegaconf keeps mappings, lists and single values so
        return _plain(state.get("_content", state.get("_val", state)))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Tensor) and value.numel() <= CHANNELS:
        return value.flatten().tolist() if value.ndim else value.item()
    return value
