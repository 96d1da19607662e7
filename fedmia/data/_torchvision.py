"""Data sets that torchvision knows: read from a folder, or downloaded into it first."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.data._resize import square
from fedmia.data._source import renumbered
from fedmia.data.base import Request
from fedmia.data.images import ImageSet
from fedmia.errors import InputError

SUBSETS = ("train", "test", "all")
TIMEOUT = 20.0  # seconds of silence after which a download counts as impossible

# (folder, part, download) -> torchvision data set with .data and .targets or .labels
Open = Callable[[str, str, bool], Any]


def default_folder() -> Path:
    """Where data sets are kept when no `--data-dir` is given."""
    return Path.home() / ".cache" / "fedmia"


def read(name: str, subset: str, request: Request, opener: Open, files: str) -> ImageSet:
    """A torchvision data set as an ImageSet, training images first.

    Args:
        name: name of the data set, for the ImageSet and errors.
        subset: train, test or all.
        request: gives the folder (`data_dir`) and the size.
        opener: opens one part, "train" or "test".
        files: what the folder should hold, for the error.

    Raises:
        InputError: the files are absent or corrupt and cannot be downloaded.
    """
    root = request.data_dir or default_folder()
    parts: Sequence[str] = ("train", "test") if subset == "all" else (subset,)
    opened = [_open(name, root, part, opener, files) for part in parts]
    images = np.concatenate([_channels_first(part.data) for part in opened])
    labels = np.concatenate([np.asarray(_labels(part)) for part in opened])
    return ImageSet(square(images, request.size, name), renumbered(labels), name)


def _open(name: str, root: Path, part: str, opener: Open, files: str) -> Any:
    missing = [p for p in (root, *root.parents) if not p.exists()]
    try:
        with contextlib.suppress(RuntimeError, FileNotFoundError):
            return opener(str(root), part, False)
        with _impatient(), contextlib.redirect_stdout(sys.stderr):
            return opener(str(root), part, True)
    # Broken archives raise what their readers raise: pickle, scipy, tarfile and socket errors.
    except Exception as error:
        with contextlib.suppress(OSError):  # torchvision makes the folder before it downloads
            for folder in missing:
                folder.rmdir()
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{name}: no readable {files} in {root}, and downloading it failed ({why}); put it "
            "there or give its folder with --data-dir"
        ) from None


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    """Sockets give up after TIMEOUT: torchvision's download would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _channels_first(data: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    pixels = np.asarray(data, dtype=np.uint8)
    return pixels if pixels.shape[1] == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _labels(part: Any) -> Any:
    return part.targets if hasattr(part, "targets") else part.labels
