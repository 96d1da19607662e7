"""Arrays, tensors, torch data sets and folders as a data source."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data._pixels import resize_all
from fedmia.data._source import absent_labels, renumber_labels
from fedmia.data.base import Dataset, Request
from fedmia.data.images import ByteArray, ImageSet
from fedmia.options import session
from fedmia.options.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


class LabelledArrays(NamedTuple):
    """Images and their labels.

    Attributes:
        images: uint8 (N, C, H, W), C in {1, 3}.
        labels: int64 (N,), or None.
    """

    images: ByteArray
    labels: NDArray[np.int64] | None


@dataclass(frozen=True)
class ArrayDataset(Dataset):
    """Images that a Python session holds. A subclass holds the arrays."""

    content: ClassVar[LabelledArrays]
    called: ClassVar[str] = "images"

    def load(self, request: Request) -> ImageSet:
        images, values = self.content
        labels, classes = absent_labels(len(images)) if values is None else renumber_labels(values)
        images = resize_all(images, request.size, self.called)
        return ImageSet(images, labels, self.called, classes)


def name_images(value: Any, what: str) -> str:
    """The data source that settings name for images.

    Args:
        value: name of a data source, folder as a path, or images as `read_images` takes them.
        what: name of the argument, for errors.

    Returns:
        The name of a data source. Images in memory become a class of the session.

    Raises:
        InputError: anything else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Path):
        return f"folder:{value}" if value.is_dir() else str(value)
    if isinstance(value, type) and issubclass(value, Dataset):
        from fedmia.door.plugins import name_class

        return name_class("dataset", value)
    arrays = read_images(value, "dataset" if what == "data" else what)
    text = hashlib.sha256(np.ascontiguousarray(arrays.images).tobytes())
    text.update(repr(arrays.images.shape).encode())
    if arrays.labels is not None:
        text.update(arrays.labels.tobytes())
    label = "images" if what == "data" else what
    body: dict[str, Any] = {
        "__module__": "__main__",  # so that it travels with its images, not by its name
        "__doc__": ArrayDataset.__doc__,
        "content": arrays,
        "called": label,
        "__annotations__": {},
    }
    cls: type = dataclass(frozen=True)(type(label, (ArrayDataset,), body))
    return session.register_class(cls, text.hexdigest())


def read_images(value: Any, what: str) -> LabelledArrays:
    """Images in memory, and their labels where they have any.

    Args:
        value: uint8 or float [0, 1] array or tensor, (N, C, H, W), (N, H, W, C) or (N, H, W); a
            pair of it and integer labels (N,); a torch Dataset or DataLoader of images, or of
            pairs with a label.
        what: how errors call it.

    Returns:
        The images as uint8, and their labels or None.

    Raises:
        InputError: anything else, values out of [0, 1], or images of several sizes.
    """
    if isinstance(value, Tensor | np.ndarray):
        return LabelledArrays(to_uint8(value, what), None)
    if isinstance(value, tuple | list) and len(value) == 2 and is_array(value[0]):
        images = to_uint8(value[0], what)
        return LabelledArrays(images, None if value[1] is None else to_labels(value[1], what))
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        return stack_items((value[i] for i in range(len(value))), what, batched=False)
    if isinstance(value, Iterable):
        return stack_items(iter(value), what, batched=True)
    raise InputError(
        f"{what} must be images: an array or a tensor, a torch Dataset or DataLoader, a folder as "
        f"a pathlib.Path, or the name of a data source; got {type(value).__name__}"
    )


def _number_items(items: Iterable[Any], what: str, batched: bool) -> Iterator[Any]:
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


def is_array(value: Any) -> bool:
    """Whether a value is an array of images, not one image."""
    return isinstance(value, Tensor | np.ndarray) and value.ndim >= 3


def stack_items(items: Iterable[Any], what: str, batched: bool) -> LabelledArrays:
    """The items of a Dataset, or the batches of a DataLoader, as arrays.

    Args:
        items: images, or pairs of image and label.
        what: how errors call them.
        batched: whether each item is a batch.

    Returns:
        Images and labels.

    Raises:
        InputError: no images, or images of several shapes.
    """
    images, labels = list[ByteArray](), list[Any]()
    for item in _number_items(items, what, batched):
        pair = isinstance(item, tuple | list) and len(item) >= 2
        image = to_array(item[0] if pair else item[0] if isinstance(item, tuple | list) else item)
        images.append(to_uint8(image if batched else image[None], what))
        if pair:
            labels += np.atleast_1d(np.asarray(item[1])).tolist()
        if images[-1].shape[1:] != images[0].shape[1:]:
            sizes = " and ".join("x".join(map(str, a.shape[1:])) for a in (images[0], images[-1]))
            raise InputError(
                f"{what} must be images of one shape, got {sizes}; resize them, or give a folder"
            )
    if not images:
        raise InputError(f"{what} has no images")
    whole = np.concatenate(images)
    numbered = len(labels) == len(whole) and all(isinstance(y, int) for y in labels)
    return LabelledArrays(whole, to_labels(labels, what) if numbered else None)


def to_array(image: Tensor | NDArray[Any] | Image) -> Tensor | NDArray[Any]:
    """An image of a Dataset as an array; a PIL image is converted to gray or RGB."""
    if isinstance(image, Tensor | np.ndarray):
        return image
    mode = getattr(image, "mode", None)
    if mode is None:
        raise InputError(
            "the items of a Dataset must be images: tensors, arrays or PIL images, got "
            + type(image).__name__
        )
    return np.asarray(image if mode in ("L", "RGB") else image.convert("RGB"))  # type: ignore[union-attr]


def to_uint8(images: Tensor | NDArray[Any], what: str) -> ByteArray:
    """Images as uint8 (N, C, H, W).

    Args:
        images: uint8, or floats in [0, 1]: (N, C, H, W), (N, H, W, C) or (N, H, W).
        what: how errors call them.

    Returns:
        The array. Floats are rounded to the nearest of 256 values.

    Raises:
        InputError: another shape or type, or values out of range.
    """
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    shape = array.shape
    kind = f"{what} must be images, uint8 or floats from 0 to 1, (N, C, H, W) with C 1 or 3"
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3):
        array = np.moveaxis(array, 3, 1)
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        raise InputError(f"{kind}; got {array.dtype} {shape}")
    if len(array) == 0:
        raise InputError(f"{what} has no images: {shape}")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"{kind}; got {array.dtype} {shape}")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0.0 and high <= 1.0):  # also refuses NaN
        raise InputError(
            f"{kind}; got {array.dtype} from {low:g} to {high:g}: undo the normalisation, or "
            "convert to uint8"
        )
    return np.ascontiguousarray(np.rint(array * 255).astype(np.uint8))


def to_labels(labels: Any, what: str) -> NDArray[np.int64]:
    """Labels as int64 (N,).

    Args:
        labels: integers, an array, a tensor or a list.
        what: how errors call the images.

    Returns:
        The labels.

    Raises:
        InputError: they are no integers.
    """
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise InputError(
            f"labels of {what} must be integers (N,), got {values.dtype} {values.shape}"
        )
    return values.astype(np.int64)
