"""What the headers of image files say before any of them is decoded, and all that options lack."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedmia.data.decoding import GREY, Encoded, list_unreadable, why_unreadable
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import CHANNELS
from fedmia.data.scans import check_shape, read_array
from fedmia.records.note import Note
from fedmia.runtime.cores import count_cores
from fedmia.settings.errors import IncompleteError, InputError, opt
from fedmia.untrusted.arrays import check_array, is_npy
from fedmia.untrusted.dicom import is_dicom, is_rescaled, read_tags, value_span, window_span
from fedmia.untrusted.limits import first_line
from fedmia.untrusted.pictures import open_picture, refuse_bombs

HEAD = 1 << 16  # bytes of a file in which its header mostly lies
SAMPLE = 64  # files whose values are read for a proposal
EMBEDDED = 1024  # images of one file, such as Parquet, that are looked at
CHUNK = 256  # files that a thread reads at a time
EIGHT, FLOATS = "8 bits", "floats"
# Greatest values of 8 to 16 bits, one of which a proposed range ends at.
ENDS = tuple(2.0**bits - 1 for bits in (8, 10, 12, 14, 16))
Limits = tuple[float, float]


class ImageHeader(NamedTuple):
    """What the header of one image's file says.

    Attributes:
        kind: format of the file.
        width, height: pixels.
        channels: 1 or 3 once it is decoded.
        depth: `8 bits`, `16 bits`, .., `floats`.
        span: values that its bits can hold, of DICOM in rescaled units; None: not known.
        window: values that its own window makes black and white; None: it names none.
        problem: why it cannot be read; empty: it can.
    """

    kind: str
    width: int = 0
    height: int = 0
    channels: int = 1
    depth: str = EIGHT
    span: Limits | None = None
    window: Limits | None = None
    problem: str = ""


def survey_sets(
    sets: Mapping[str, EncodedSet],
    skip: bool,
    channels: int | None = None,
    roles: Callable[[], object] = lambda: None,
) -> dict[str, EncodedSet]:
    """Look at the headers of the files of one data source, or of both sides of an audit.

    Args:
        sets: what errors call each -> its files; size and range are those that the user gave.
        skip: whether files that cannot be read are left out.
        channels: that the encoder takes; None: it takes any, or the user chose some.
        roles: refuses too few images; called where something else is missing, too.

    Returns:
        The same sets; what is not plain of one is a note of it.

    Raises:
        IncompleteError: all that is missing, with the options that would do.
        InputError: something that no option mends is among it.
    """
    headers = {name: read_headers(one.files) for name, one in sets.items()}
    good = {name: [h for h in listed if not h.problem] for name, listed in headers.items()}
    lacks: dict[str, Mapping[str, Any] | None] = {}
    if any(one.size is None for one in sets.values()):
        lacks |= _lack_size(good)
    lacks |= _lack_range(good, sets, headers)
    lacks |= _lack_channels(good, channels)
    if lacks:
        lacks |= {} if skip else _lack_readable(headers, sets)
        try:
            roles()
        except InputError as error:
            lacks[str(error)] = error.options if isinstance(error, IncompleteError) else None
        options = {k: v for mend in lacks.values() for k, v in (mend or {}).items()}
        if None in lacks.values():
            raise InputError("; ".join(lacks))
        raise IncompleteError([*lacks], options)
    return {name: replace(one, notes=(*one.notes, *_notes(one.where, good[name])))
            for name, one in sets.items()}  # fmt: skip


def read_headers(files: Sequence[Encoded]) -> list[ImageHeader]:
    """The headers of files, in threads; of many images in one file those of an even part.

    Args:
        files: what to call each image, and its bytes or where they lie.

    Returns:
        A header for each file that was looked at.
    """
    if len(files) > EMBEDDED and not isinstance(files[0][1], Path):
        files = [files[i] for i in np.linspace(0, len(files) - 1, EMBEDDED).astype(int)]
    chunks = [files[i : i + CHUNK] for i in range(0, len(files), CHUNK)]
    with refuse_bombs(), ThreadPoolExecutor(min(8, count_cores())) as pool:
        return [header for part in pool.map(_read_chunk, chunks) for header in part]


def _read_chunk(files: Sequence[Encoded]) -> list[ImageHeader]:
    return [_read_header(source) for _, source in files]


def _read_header(source: Any) -> ImageHeader:
    if isinstance(source, Path):
        try:
            length = source.stat().st_size
            with source.open("rb", buffering=0) as file:
                head = file.read(HEAD)
            header = _parse(head, length)
        except OSError as error:
            return ImageHeader("", problem=first_line(error))
        if not header.problem or len(head) == length:
            return header
    try:
        content = source if isinstance(source, bytes) else source.read_bytes()
    except Exception as error:  # a source of somebody's own
        return ImageHeader("", problem=first_line(error))
    return _parse(content, len(content))


def _parse(head: bytes, length: int) -> ImageHeader:
    """The header of a file of `length` bytes that begins with `head`."""
    try:
        if is_npy(head):
            shape, kind = check_array("it", io.BytesIO(head), length)
            height, width, channels = check_shape(shape, kind)
            depth = FLOATS if kind.kind == "f" else f"{8 * kind.itemsize} bits"
            return ImageHeader("NumPy", width, height, channels, depth)
        if is_dicom(head):
            return _of_tags(read_tags(head, length))
        with open_picture(head) as picture:
            return _of_picture(picture)
    except InputError as error:
        if is_dicom(head):  # no pydicom: of no file more than of another
            raise
        return ImageHeader("", problem=str(error))
    except Exception as error:  # of broken bytes readers raise many kinds of errors
        return ImageHeader("", problem=why_unreadable(error, head))


def _of_picture(picture: Image.Image) -> ImageHeader:
    integers, depth = picture.mode.startswith("I"), EIGHT  # of 16-bit colour the high ones
    if picture.mode == "F":
        depth = FLOATS
    elif integers:
        tiles = [picture.mode, *(str(tile[3]) for tile in getattr(picture, "tile", ()))]
        depth = "16 bits" if any(";16" in text for text in tiles) else "32 bits"
    channels = 1 if integers or picture.mode in (*GREY, "F") else 3
    return ImageHeader(str(picture.format), *picture.size, channels, depth)


def _of_tags(tags: Any) -> ImageHeader:
    channels = int(tags.SamplesPerPixel)
    plain = int(tags.BitsAllocated) == 8 and not is_rescaled(tags)
    depth = EIGHT if plain else f"{int(tags.BitsStored)} bits"
    sides = int(tags.Columns), int(tags.Rows)
    return ImageHeader("DICOM", *sides, channels, depth, value_span(tags), window_span(tags))


# -- what is missing ------------------------------------------------------------------------------


def _lack_readable(
    headers: Mapping[str, list[ImageHeader]], sets: Mapping[str, EncodedSet]
) -> dict[str, Mapping[str, Any]]:
    """Files without a header that can be read."""
    lacks: dict[str, Mapping[str, Any]] = {}
    for name, listed in headers.items():
        bad = [at for at, header in enumerate(listed) if header.problem]
        if bad and len(listed) == len(sets[name]):
            those = list_unreadable([sets[name].files[at][0] for at in bad])
            lacks[
                f"{name}: {those} cannot be read, the first: {listed[bad[0]].problem}; "
                f"{opt('data.skip_unreadable')} leaves them out"
            ] = {"data.skip_unreadable": True}
    return lacks


def _lack_size(good: Mapping[str, list[ImageHeader]]) -> dict[str, Mapping[str, Any]]:
    """A size of images that differ in size or are not square."""
    every = [header for listed in good.values() for header in listed]
    sizes = {(header.width, header.height) for header in every}
    if len(sizes) <= 1 and all(width == height for width, height in sizes):
        return {}
    counts = Counter(min(header.width, header.height) for header in every)
    side = min(counts, key=lambda one: (-counts[one], one))
    what = f"{' and '.join(good)}: {_describe_sizes(every)}, not all of one square size"
    return {f"{what}: {opt('data.size', side)} resizes them": {"data.size": side}}


def _lack_range(
    good: Mapping[str, list[ImageHeader]],
    sets: Mapping[str, EncodedSet],
    headers: Mapping[str, list[ImageHeader]],
) -> dict[str, Mapping[str, Any] | None]:
    """A range of values of more than 8 bits; depths that no one range suits."""
    limits = next(iter(sets.values())).pixel_range
    every = [header for listed in good.values() for header in listed]
    eight = sum(header.depth == EIGHT for header in every)
    if eight == len(every) or (limits is not None and limits[1] <= 255):
        return {}
    depths = ", ".join(f"{n}: {_describe_depths(listed)}" for n, listed in good.items() if listed)
    lacks: dict[str, Mapping[str, Any] | None] = {}
    unlike = {**lacks, f"{depths}: no range suits both; bring all to one depth": None}
    if limits is not None:
        return unlike if eight else lacks
    values = _sample(sets, headers)
    unit = [depth == FLOATS and low >= 0 and high <= 1 for depth, low, high in values]
    if all(unit) and all(header.depth in (EIGHT, FLOATS) for header in every):
        return lacks
    if eight or any(unit):
        return unlike
    windows = Counter(header.window for header in every if header.window is not None)
    spans = [header.span for header in every if header.span is not None]
    if windows and len(spans) == len(every):
        low, high = windows.most_common(1)[0][0]
        count = windows[low, high]
        others = f", others name {len(windows) - 1} more" if len(windows) > 1 else ""
        why = f"the window that {count} of {len(every)} DICOM files name{others}"
    else:
        spans += [(low, high) for _, low, high in values]
        low, high = _round_out(min(s[0] for s in spans), max(s[1] for s in spans))
        why = f"from the values of {len(values)} files" if values else "what their bits can hold"
    ends = _whole(low), _whole(high)
    lack = (
        f"{depths}, where 8 bits are read: {opt('data.pixel_range', ends)} is a proposal, {why}; "
        "better take the range of your scanner or of the training"
    )
    return {lack: {"data.pixel_range": ends}}


def _lack_channels(
    good: Mapping[str, list[ImageHeader]], needed: int | None
) -> dict[str, Mapping[str, Any]]:
    """Channels that the encoder takes."""
    have = {n: max(h.channels for h in listed) for n, listed in good.items() if listed}
    value = next((name for name, count in CHANNELS.items() if count == needed), None)
    if value is None or not have or {*have.values()} == {needed}:
        return {}
    listed = ", ".join(f"{name} of {count}" for name, count in have.items())
    what = {"rgb": "repeats the gray channel", "gray": "takes the luminance"}[value]
    lack = f"the encoder takes {needed} channels ({listed}): {opt('data.channels', value)} {what}"
    return {lack: {"data.channels": value}}


def _sample(
    sets: Mapping[str, EncodedSet], headers: Mapping[str, list[ImageHeader]]
) -> list[tuple[str, float, float]]:
    """Depth, least and greatest value of at most 64 files whose header does not tell their values,
    evenly over all of them."""
    sources = [
        (header.depth, source)
        for name, listed in headers.items()
        if len(listed) == len(sets[name])
        for header, (_, source) in zip(listed, sets[name].files, strict=True)
        if not header.problem and header.span is None and header.depth != EIGHT
    ]
    step = max(1.0, len(sources) / SAMPLE)
    chosen = [sources[int(at * step)] for at in range(min(SAMPLE, len(sources)))]
    with refuse_bombs():
        values = [(depth, *_ends(source)) for depth, source in chosen]
    return [(depth, low, high) for depth, low, high in values if low <= high]


def _ends(source: Any) -> Limits:
    """Least and greatest value of a file; inf, -inf where it cannot be read."""
    try:
        content = source if isinstance(source, bytes) else source.read_bytes()
        if is_npy(content):
            values = read_array(content)
        else:
            with open_picture(content) as picture:
                values = np.asarray(picture)
        return float(values.min()), float(values.max())
    except Exception:  # the decoder says so later
        return np.inf, -np.inf


def _round_out(low: float, high: float) -> Limits:
    """The least range of whole bits that holds these values: never an image's own."""
    least = 0.0 if low >= 0 else -(2.0 ** np.ceil(np.log2(-low)))
    ends = [end for end in ENDS if end >= high]
    return float(least), ends[0] if ends else float(2.0 ** np.ceil(np.log2(high)))


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


# -- what is said ---------------------------------------------------------------------------------


def _notes(where: str, headers: Sequence[ImageHeader]) -> list[Note]:
    """A note on images that are not of one square size with 8 bits, or none."""
    sizes = {(header.width, header.height) for header in headers}
    plain = all(width == height for width, height in sizes) and len(sizes) <= 1
    if plain and {header.depth for header in headers} <= {EIGHT}:
        return []
    windows = Counter(header.window for header in headers if header.window is not None)
    spans = {"{:g} to {:g}".format(*span): count for span, count in windows.most_common(3)}
    return [
        Note(
            "images-surveyed",
            {
                "where": where,
                "sizes": _describe_sizes(headers),
                "depths": dict(_depths(headers)),
                "kinds": Counter(header.kind for header in headers),
                "windows": spans,
            },
        )
    ]


def _describe_sizes(headers: Sequence[ImageHeader]) -> str:
    """`1,200 images of 3 sizes, 512x512 to 1024x768 pixels`: by area."""
    sizes = sorted({(h.width * h.height, h.width, h.height) for h in headers})
    first, last = (f"{width}x{height}" for _, width, height in (sizes[0], sizes[-1]))
    if len(sizes) == 1:
        return f"{len(headers):,} images of {first} pixels"
    return f"{len(headers):,} images of {len(sizes)} sizes, {first} to {last} pixels"


def _describe_depths(headers: Sequence[ImageHeader]) -> str:
    """`12 images of 8 bits and 4 of 16 bits (DICOM, PNG)`."""
    listed = [f"{count:,} of {depth}" for depth, count in _depths(headers)]
    kinds = ", ".join(sorted({header.kind for header in headers}))
    first, *others = listed
    return " and ".join([first.replace(" of ", " images of ", 1), *others]) + f" ({kinds})"


def _depths(headers: Sequence[ImageHeader]) -> list[tuple[str, int]]:
    return sorted(Counter(header.depth for header in headers).items())
