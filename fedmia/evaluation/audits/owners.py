"""Which client holds which member, as a file or an array tells."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.evaluation.audits.rounds import RoundHistory
from fedmia.options.bounded import read_utf8
from fedmia.options.errors import InputError, opt

HEAD = ["image", "client"]


def read_owners(source: Any, members: ImageSet | EncodedSet) -> IntArray | None:
    """The client of each member, as a CSV file or an array tells.

    Args:
        source: path of lines of an image, by its file's name or its number, and its client, under
            the header `image,client`; integers (N,), negative for none; or None.
        members: the images.

    Returns:
        int64 (N,), negative for none; None: not known.

    Raises:
        InputError: no such file, one of another form, an image that is not there or is named twice,
            or a member without a client.
    """
    if source is None:
        return None
    if not isinstance(source, str | Path):
        array = np.asarray(source)
        if array.dtype.kind not in "iu" or array.shape != (len(members),):
            raise InputError(
                f"{opt('owners')} must be a CSV file or integers ({len(members)},), the client of "
                f"each member, got {array.dtype} {array.shape}"
            )
        return array.astype(np.int64)
    path, where = Path(source), opt("owners", source)
    try:
        rows = [row for row in csv.reader(io.StringIO(read_utf8(path), newline="")) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{where}: cannot be read: {' '.join(str(error).split())}") from None
    if not rows or [name.strip() for name in rows[0]] != HEAD:
        raise InputError(f"{where}: must begin with the line {','.join(HEAD)}")
    places = {str(i): i for i in range(len(members))}
    if isinstance(members, EncodedSet):  # by any end of a file's path that no other has
        for i, (name, _) in enumerate(members.files):
            parts = Path(name).parts
            for end in (Path(*parts[at:]).as_posix() for at in range(len(parts))):
                places[end] = -1 if end in places else i
    owners = np.full(len(members), -1, dtype=np.int64)
    for at, row in enumerate(rows[1:], 2):
        image, client = (value.strip() for value in (*row, "", "")[:2])
        if len(row) != 2 or not client.isdecimal():
            raise InputError(f"{where}, line {at}: an image and a client, got '{','.join(row)}'")
        if (place := places.get(image)) in (None, -1):
            many = "no image" if place is None else "several images"
            raise InputError(
                f"{where}, line {at}: {many} '{image}' among the {len(members)} members"
            )
        if owners[place] >= 0:
            raise InputError(f"{where}, line {at}: image '{image}' is named twice")
        owners[place] = int(client)
    return owners


def check_owners(owners: IntArray, history: RoundHistory) -> None:
    """Refuse owners that leave a member out, or name a client that trained in no round.

    Args:
        owners: int64 (N,), the client of each member; negative: none.
        history: what was kept of the federation.

    Raises:
        InputError: naming the first image, or client.
    """
    where, without = opt("owners"), np.flatnonzero(owners < 0)
    if len(without):
        raise InputError(
            f"{where}: {len(without)} of {len(owners)} members have no client (the first: image "
            f"{without[0]})"
        )
    clients = sorted(history.clients) if history.rostered else []
    strangers = sorted({*owners.tolist()}.difference(clients))
    if clients and strangers:
        listed = ", ".join(map(str, clients[:8])) + ", .." * (len(clients) > 8)
        raise InputError(
            f"{where}: client {strangers[0]} trained in no recorded round; those are {listed}"
        )
