"""A CSV file that says something of each image of an audit: its client, its subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.data.encoded import EncodedSet
from fedmia.data.images import IntArray
from fedmia.evaluation.audits.sources import Source
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import escape_name
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.text import read_csv


def read_image_table(
    option: str, path: Path, key: str, sets: Mapping[str, Source], fits: Callable[[str], object]
) -> dict[str, list[str | None]]:
    """What the lines `image,KEY` of a CSV file say of each image, of several sets `side,image,KEY`.

    Args:
        option: that names the file, for errors.
        path: of the file, under a header of these names.
        key: what the last cell of a line is.
        sets: the images, by their side; a line names one by its file's name or its number.
        fits: whether a last cell is one.

    Returns:
        The last cell for each image, None where no line names it, by side.

    Raises:
        InputError: no such file, one of another form, or an image that is not there or is named
            twice.
    """
    head, where = ["side"] * (len(sets) > 1) + ["image", key], opt(option, path)
    with unreadable(f"{where}: cannot be read"):
        rows = read_csv(path)
    if not rows or [name.strip() for name in rows[0]] != head:
        raise InputError(f"{where}: must begin with the line {','.join(head)}")
    values = {side: list[str | None]([None]) * len(images) for side, images in sets.items()}
    places = {side: image_places(images) for side, images in sets.items()}
    for at, row in enumerate(rows[1:], 2):
        cells = [*sets][: len(sets) == 1] + [escape_name(cell.strip()) for cell in row]
        side, image, value = (*cells, "", "", "")[:3]
        if len(row) != len(head) or side not in sets or not fits(value):
            what = f"{' or '.join(sets)}, " * (len(sets) > 1) + f"an image and a {key}"
            raise InputError(f"{where}, line {at}: {what}, got '{','.join(row)}'")
        if (place := places[side].get(image)) in (None, -1):
            many = "no image" if place is None else "several images"
            among = f"among the {len(values[side])} {side}"
            raise InputError(f"{where}, line {at}: {many} '{image}' {among}")
        if values[side][place] is not None:
            raise InputError(f"{where}, line {at}: image '{image}' is named twice")
        values[side][place] = value
    return values


def read_image_numbers(option: str, source: Any, key: str, members: Source) -> IntArray:
    """A number of each member, such as its client, as a CSV file or an array tells.

    Args:
        option: that names either, for errors.
        source: path of a file of lines `image,KEY`; integers (N,).
        key: what the numbers are.
        members: the images.

    Returns:
        int64 (N,); of a file -1 where no line names the image.

    Raises:
        InputError: as `read_image_table`, or another array.
    """
    if isinstance(source, str | Path):
        sets = {"members": members}
        read = read_image_table(option, Path(source), key, sets, str.isdecimal)["members"]
        return np.array([-1 if one is None else int(one) for one in read], dtype=np.int64)
    array = np.asarray(source)
    if array.dtype.kind not in "iu" or array.shape != (len(members),):
        raise InputError(
            f"{opt(option)} must be a CSV file or integers ({len(members)},), the {key} of each "
            f"member, got {array.dtype} {array.shape}"
        )
    return array.astype(np.int64)


def image_places(images: Source) -> dict[str, int]:
    """Place of each image by any end of its file's path, with or without suffix, and by its number:
    that of the file where all are named by numbers, otherwise the place; -1: several images."""
    files = [Path(name) for name, _ in images.files] if isinstance(images, EncodedSet) else []
    numbered = bool(files) and all(file.stem.isdecimal() for file in files)
    names, others = dict[str, int](), dict[str, int]()
    for i in range(len(images)):
        keys = [] if numbered else [(others, str(i))]
        for file in files[i : i + 1]:
            keys += [(others, str(int(file.stem)))] if numbered else []
            for table, path in ((names, file), (others, file.with_suffix(""))):
                parts = path.parts
                ends = (Path(*parts[at:]).as_posix() for at in range(len(parts)))
                keys += [(table, escape_name(end)) for end in ends]
        for table, key in keys:
            table[key] = i if table.get(key, i) == i else -1
    return others | names
