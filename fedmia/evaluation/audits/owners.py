"""Which client holds which member, as a file, a column or an array tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedmia.data.images import IntArray
from fedmia.evaluation.audits.imagetable import read_image_numbers
from fedmia.evaluation.audits.sources import Source
from fedmia.rounds.kept import KeptRounds
from fedmia.settings.errors import InputError, opt


def read_owners(source: Any, members: Source) -> IntArray | None:
    """The client of each member, as a CSV file, a column or an array tells.

    Args:
        source: path of lines of an image, by its file's name or its number, and its client, under
            the header `image,client`; a column that the images have been handed over with; integers
            (N,), negative for none; or None.
        members: the images.

    Returns:
        int64 (N,), negative for none; None: not known.

    Raises:
        InputError: no such file, one of another form, an image that is not there or is named twice,
            a value that is no number of a client, or a member without one.
    """
    if source is None:
        return None
    if (
        isinstance(source, str)
        and (column := members.columns.get("federation.owners")) is not None
        and not Path(source).suffix
    ):
        texts = column.astype(str).tolist()
        names = [text for text in texts if not text.isdecimal()]
        if names:
            raise InputError(
                f"{opt('federation.owners', source)}: '{names[0]}' is no number of a client; a CSV "
                "file under image,client gives each member that of its own"
            )
        return np.array([int(text) for text in texts], dtype=np.int64)
    return read_image_numbers("federation.owners", source, "client", members)


def check_owners(owners: IntArray, rounds: KeptRounds) -> None:
    """Refuse owners that leave a member out, or name a client that trained in no round.

    Args:
        owners: int64 (N,), the client of each member; negative: none.
        rounds: what was kept of the federation.

    Raises:
        InputError: naming the first image, or client.
    """
    where, without = opt("federation.owners"), np.flatnonzero(owners < 0)
    if len(without):
        raise InputError(
            f"{where}: {len(without)} of {len(owners)} members have no client (the first: image "
            f"{without[0]})"
        )
    clients = sorted(rounds.clients) if rounds.rostered else []
    strangers = sorted({*owners.tolist()}.difference(clients))
    if clients and strangers:
        listed = ", ".join(map(str, clients[:8])) + ", .." * (len(clients) > 8)
        raise InputError(
            f"{where}: client {strangers[0]} trained in no recorded round; those are {listed}"
        )
