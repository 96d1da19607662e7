"""The data sources of an audit, decoded where an image has a role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path

from fedmia.data.base import AugmentLimits, Dataset, Request
from fedmia.data.decoding import UnreadableError
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.data.survey import survey_sets
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


def find_images(
    audit: Audit,
    flags: Sequence[str],
    size: int | None,
    channels: int | None = None,
    roles: Callable[..., object] = lambda *counts: None,
) -> tuple[Source, ...]:
    """Find the images of `--members` and `--nonmembers`, look at the headers of their files, and
    decode them later where the source can.

    Args:
        flags: SIDES, or one of them.
        size: side of an image in pixels; None keeps the source's.
        channels: that the encoder takes; None: not known.
        roles: refuses so many images of each side.

    Returns:
        The images of each side, decoded later where the source can.

    Raises:
        InputError: missing, empty or corrupt, with the flag named.
        IncompleteError: options that the files ask for, of both sides at once.
    """
    sides: dict[str, Source] = {}
    asking = dict[str, EncodedSet]()
    for flag in flags:
        source, request = _source(audit, flag, size)
        with _name_flag(flag):
            encoded = source.encoded(request)
            if encoded is None:
                sides[flag] = source.load(request).with_channels(audit.data.channels)
            else:
                sides[flag] = encoded
                asking |= {} if source.uniform else {flag: encoded}
    skip, needed = audit.data.skip_unreadable, None if audit.data.channels else channels
    if asking:
        count = partial(roles, *map(len, sides.values()))
        sides |= survey_sets(asking, skip, needed, count)
    for flag, one in sides.items():
        if skip and isinstance(one, EncodedSet):
            with _name_flag(flag):
                sides[flag] = one.drop_unreadable()
    return tuple(sides.values())


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
    return source, Request(
        path, folder, size, audit.seed, columns, audit.data.pixel_range, side, audit.data.fit
    )


@contextmanager
def _name_flag(flag: str) -> Iterator[None]:
    """Errors of a data source under its flag."""
    try:
        yield
    except IncompleteError:
        with prefix_errors(flag):
            raise
    except UnreadableError as error:
        raise error.way_out(flag) from None
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None
