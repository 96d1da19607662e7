"""The data sources of an audit, decoded where an image has a role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from fedmia.data.base import AugmentLimits, Dataset, Request
from fedmia.data.decoding import UnreadableError
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.settings import registry
from fedmia.settings.commands.audit import Audit
from fedmia.settings.dataset_names import split_dataset
from fedmia.settings.errors import IncompleteError, InputError, opt, prefix_errors

Source = ImageSet | EncodedSet
SIDES = ("members", "nonmembers")


def source_views(audit: Audit) -> AugmentLimits:
    """The views that suit the images of the data source of the members."""
    name = split_dataset(str(audit.members))[0]
    built = registry.build("dataset", name, audit.members_options, path="members")
    views: AugmentLimits = built.views
    return views


def find_images(audit: Audit, flag: str, size: int | None) -> Source:
    """Find the images of `--members` or `--nonmembers`; decode them later where the source can.

    Args:
        flag: the option that names the data source.
        size: side of an image in pixels; None keeps the source's.

    Returns:
        The images, decoded later where the source can.

    Raises:
        InputError: missing, empty or corrupt, with the flag named.
    """
    source, request = _source(audit, flag, size)
    with _name_flag(flag):
        encoded = source.encoded(request)
        if encoded is None:
            return source.load(request).with_channels(audit.data.channels)
        return encoded.drop_unreadable() if audit.data.skip_unreadable else encoded


def load_images(audit: Audit, flag: str, size: int | None) -> ImageSet:
    """Load all images of `--shadow-data`.

    Args:
        flag: the option that names the data source.
        size: side of an image in pixels; None keeps the source's.

    Returns:
        All images with their labels.

    Raises:
        InputError: as `find_images`.
    """
    source, request = _source(audit, flag, size)
    with _name_flag(flag):
        encoded = source.encoded(request) if audit.data.skip_unreadable else None
        loaded = source.load(request) if encoded is None else encoded.drop_unreadable().all()
        return loaded.with_channels(audit.data.channels)


def take(source: Source, flag: str, indices: IntArray) -> tuple[ImageSet, bool]:
    """Decode the images at `indices`, in that order.

    Args:
        source: the data source with its images listed.
        flag: the option that names the data source.
        indices: indices of images.

    Returns:
        The images, and whether no two of them are equal.

    Raises:
        InputError: one that cannot be decoded, with the flag named.
    """
    if isinstance(source, ImageSet):
        return source.take(indices), True
    with _name_flag(flag):
        return source.pick(indices)


def _source(audit: Audit, flag: str, size: int | None) -> tuple[Dataset, Request]:
    name, path = split_dataset(str(attrgetter(flag)(audit)))
    folder = None if audit.data.dir is None else Path(audit.data.dir)
    options = attrgetter(f"{flag}_options")(audit)
    source: Dataset = registry.build("dataset", name, options, path=flag)
    column = None if flag == "shadow.data" else audit.subject_column
    if column is not None and not source.columns:
        raise InputError(
            f"{opt('groups', column)}: data source '{name}' has no columns; a CSV file under "
            "side,image,subject tells the subject of each image"
        )
    columns = {} if column is None else {"groups": column}
    if flag == "members" and source.columns and audit.owner_column is not None:
        columns["federation.owners"] = audit.owner_column
    side = flag if flag in SIDES else None
    return source, Request(path, folder, size, audit.seed, columns, audit.data.pixel_range, side)


@contextmanager
def _name_flag(flag: str) -> Iterator[None]:
    """Errors of a data source under its flag."""
    try:
        yield
    except IncompleteError:
        with prefix_errors(flag):
            raise
    except InputError as error:
        hint = f"; {opt('data.skip_unreadable')} leaves them out"
        way_out = hint if isinstance(error, UnreadableError) else ""
        raise InputError(f"{flag}: {error}{way_out}") from None
