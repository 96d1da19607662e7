"""Arrays, tensors, torch data sets and folders as a data source."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from fedmia.data.arrays import Range, arrange_images
from fedmia.data.base import Dataset, Request
from fedmia.data.decoding import (
    Losses,
    array_crop_notes,
    conversion_notes,
    find_losses,
    resize_all,
    to_bytes,
)
from fedmia.data.images import ByteArray, ImageSet
from fedmia.data.labels import absent_labels, check_labels, renumber_labels
from fedmia.records.note import Note
from fedmia.settings import session
from fedmia.settings.dataset_names import LISTS
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import disk_path

LOOK = 16  # items that are read again: of as many, a flip of one in two is seen


class ArrayDataset(Dataset):
    """Images that a Python session holds. A subclass holds the arrays."""

    content: ClassVar[ImageSet]
    subjects: ClassVar[NDArray[np.str_]]  # (N,) of the images, where `columns` names them
    called: ClassVar[str] = "images"

    def load(self, request: Request) -> ImageSet:
        images, columns = self.content.images, {option: self.subjects for option in request.columns}
        cut = array_crop_notes(self.called, images, request.size, request.fit)
        notes = (*self.content.notes, *cut)
        resized = resize_all(images, request.size, self.called, fit=request.fit)
        return replace(self.content, images=resized, name=self.called, columns=columns, notes=notes)


def name_images(value: Any, what: str, pixel_range: Range = None, subjects: Any = None) -> str:
    """The data source that settings name for images.

    Args:
        value: name of a data source, folder or table (.csv, .tsv) as a path, or images as
            `read_images` takes them.
        what: name of the argument, for errors.
        pixel_range: of images in memory, as of `scale_values`.
        subjects: of images in memory, (N,) integers or text; None: they belong to none.

    Returns:
        The name of a data source. Images in memory become a class of the session.

    Raises:
        InputError: anything else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Path):
        value = Path(disk_path(value))
        kind = "folder:" if value.is_dir() else "list:" * (value.suffix.lower() in LISTS)
        return f"{kind}{value}"
    if isinstance(value, type) and issubclass(value, Dataset):
        from fedmia.door.plugins import name_class

        return name_class("dataset", value)
    arrays = read_images(value, "dataset" if what == "data" else what, pixel_range)
    text = hashlib.sha256(np.ascontiguousarray(arrays.images).tobytes())
    text.update(repr(arrays.images.shape).encode())
    if arrays.labelled:
        text.update(arrays.class_labels().tobytes())
    label, more = "images" if what == "data" else what, {}
    if subjects is not None:
        column = np.asarray(subjects).astype(str)
        text.update(repr(column.tolist()).encode())
        more = {"subjects": column, "columns": "the groups in memory"}
    return session.register_values(
        ArrayDataset, label, text.hexdigest(), content=arrays, called=label, **more
    )


def read_images(value: Any, what: str, pixel_range: Range = None) -> ImageSet:
    """Images in memory, and their labels where they have any.

    Args:
        value: array or tensor of images, as `arrange_images` takes them; a pair of it and labels
            (N,), integers or text; a torch Dataset or DataLoader of images, or of pairs with a
            label; an iterable of images or of batches, where one of three dimensions, of which the
            first or the last is 1 or 3, is an image.
        what: how errors call it.
        pixel_range: as of `scale_values`.

    Returns:
        The images and their labels; unlabelled where they have none.

    Raises:
        InputError: anything else, values out of the range, images of several sizes, or items that
            differ when they are read again.
    """
    if isinstance(value, Tensor | np.ndarray):
        return _name_classes(arrange_images(to_array(value, what), what, pixel_range), None, what)
    if isinstance(value, tuple | list) and len(value) == 2 and _is_array(value[0]):
        images = arrange_images(to_array(value[0], what), what, pixel_range)
        if value[1] is None:
            return _name_classes(images, None, what)
        own = to_array(value[1], what) if isinstance(value[1], Tensor) else value[1]
        labels = check_labels(own, len(images), f"labels of {what}")
        return _name_classes(images, labels, what)
    if _by_place(value):
        arrays = _stack_items((value[i] for i in range(len(value))), what, False, pixel_range)
        _check_again(value, lambda i: value[i], what, False, pixel_range)
        return arrays
    if isinstance(value, Iterable):
        loader, batched = False, None
        if isinstance(value, DataLoader):
            loader = value.batch_sampler is not None
            batched = True if loader and value.batch_size != 1 else None  # one may be unpacked
        arrays = _stack_items(iter(value), what, batched, pixel_range)
        if isinstance(value, DataLoader) and _by_place(data := value.dataset):
            collate = value.collate_fn
            again = (lambda i: collate([data[i]])) if loader else lambda i: collate(data[i])
            _check_again(data, again, what, batched, pixel_range)
        return arrays
    raise InputError(
        f"{what} must be images: an array or a tensor, a torch Dataset or DataLoader, a folder as "
        f"a pathlib.Path, or the name of a data source; got {type(value).__name__}"
    )


def check_order(value: Any, what: str, option: str) -> None:
    """Refuse a DataLoader that shuffles where another argument goes by the images' places.

    Args:
        value: images as of `read_images`.
        what: how errors call them.
        option: the other argument.

    Raises:
        InputError: the loader's order is not that of its data set.
    """
    if isinstance(value, DataLoader) and _by_place(value.dataset):
        batches = value.batch_sampler
        order = [*value.sampler] if batches is None else [*itertools.chain.from_iterable(batches)]
        if order != sorted(order):
            raise InputError(
                f"{what}: a DataLoader that shuffles gives images in another order than "
                f"{opt(option)}; give it without shuffle, or its Dataset"
            )


def _by_place(value: Any) -> bool:
    """Whether items have places: not those of an IterableDataset, whose base class has them."""
    whole = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return whole and not isinstance(value, IterableDataset)


def _check_again(
    data: Any, read: Callable[[int], Any], what: str, batched: bool | None, pixel_range: Range
) -> None:
    """Refuse items that are drawn at random: they are not the images that were trained on."""
    for i in range(min(len(data), LOOK)):
        first, again = (_stack_items(map(read, [i]), what, batched, pixel_range) for _ in range(2))
        if not np.array_equal(first.images, again.images):
            raise InputError(
                f"{what}: item {i} differs when it is read again; give the images as stored, "
                "without random transforms"
            )


def _number_items(items: Iterable[Any], what: str, batched: bool | None) -> Iterator[Any]:
    """The items in turn; InputError with the number of the one that cannot be read."""
    rest = iter(items)
    for number in itertools.count():
        try:
            item = next(rest)
        except StopIteration:
            return
        except InputError:
            raise
        except Exception as error:  # the user's own code, or the bytes of an image
            why = (str(error).strip().splitlines() or [""])[-1]  # workers put a traceback before
            kind = "batch" if batched else "item"
            why = f"{type(error).__name__}: {why.removeprefix(f'{type(error).__name__}: ')}"
            raise InputError(f"{what}: {kind} {number} cannot be read: {why}") from error
        yield item


def _name_classes(
    images: ByteArray, values: NDArray[Any] | None, what: str, notes: Iterable[Note] = ()
) -> ImageSet:
    """Images whose labels (N,), if there are any, are integers or text."""
    labels, classes = absent_labels(len(images)) if values is None else renumber_labels(values)
    return ImageSet(images, labels, what, classes, notes=tuple(notes))


def _is_array(value: Any) -> bool:
    """Whether a value is an array of images, not one image."""
    return isinstance(value, Tensor | np.ndarray) and value.ndim >= 3


def _stack_items(
    items: Iterable[Any], what: str, batched: bool | None, pixel_range: Range = None
) -> ImageSet:
    """The items of a Dataset, or the batches of a DataLoader, as arrays (None: their shape tells);
    gray images beside colour ones become colour."""
    images, labels, losses = list[ByteArray](), list[Any](), list[Losses]()
    kinds = set[bool]()
    kind = "batch" if batched else "item"
    for number, item in enumerate(_number_items(items, what, batched)):
        where = f"{what}: {kind} {number}"
        parts = item if isinstance(item, tuple | list) else (item,)
        image, batch = parts[0], bool(batched)
        if hasattr(image, "getbands"):  # Pillow's
            losses.append(find_losses(image, None))
            image = np.asarray(to_bytes(image, losses[-1].mode, where, pixel_range))
            images.append(arrange_images(image[None], where))
        else:
            array = to_array(image, where)
            if batched is None:
                batch = array.ndim != 3 or not {1, 3} & {array.shape[0], array.shape[2]}
                kinds.add(batch)
            if len(kinds) > 1:
                raise InputError(
                    f"{where} of shape {array.shape} beside others may be an image or a batch; "
                    "give batches as (N, C, H, W)"
                )
            images.append(arrange_images(array if batch else array[None], where, pixel_range))
        if len(parts) > 1:
            label = parts[1].tolist() if isinstance(parts[1], Tensor | np.ndarray) else parts[1]
            labels += label if batch and isinstance(label, list | tuple) else [label]
        if images[-1].shape[2:] != images[0].shape[2:]:
            sizes = " and ".join("x".join(map(str, a.shape[1:])) for a in (images[0], images[-1]))
            raise InputError(
                f"{what} must be images of one shape, got {sizes} ({kind} {number}); resize them, "
                "or give a folder"
            )
    if not images:
        raise InputError(f"{what} has no images")
    channels = max(x.shape[1] for x in images)
    whole = np.concatenate([np.broadcast_to(x, (len(x), channels, *x.shape[2:])) for x in images])
    notes = conversion_notes(what, losses)
    if all(label is None for label in labels):
        return _name_classes(whole, None, what, notes)
    values = check_labels(labels, len(whole), f"labels of {what}")
    if len({*values.tolist()}) == len(values) > 1:
        notes.append(Note("labels-of-their-own", {"where": what}))
        return _name_classes(whole, None, what, notes)
    return _name_classes(whole, values, what, notes)


def to_array(image: Any, where: str) -> NDArray[Any]:
    """A tensor or an array as an array.

    Args:
        image: the tensor or array.
        where: what the error calls it.

    Returns:
        The array, on the CPU.

    Raises:
        InputError: anything else.
    """
    if isinstance(image, Tensor):
        image = image.detach().cpu()
        return np.asarray(image.float() if image.dtype == torch.bfloat16 else image)
    if isinstance(image, np.ndarray):
        return image
    raise InputError(
        f"{where} must be images: tensors, arrays or PIL images, got {type(image).__name__}"
    )
