"""The cast of a run in its recording: which images it was trained and is scored on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmia.data.cast import OF_MEMBERS, OF_OTHERS, Cast
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray, digests
from fedmia.recording.files import check_digest, digest_of
from fedmia.recording.format import CAST, CAST_ABOUT, fits_each
from fedmia.recording.reader import read_header
from fedmia.settings.errors import InputError
from fedmia.storage.snapshot import read_tensors, write_tensors

TRAINED = ("members", "attackers", "placebo")  # beside those that the attacker knows or that are
ROLES = (
    *OF_MEMBERS[:2],
    *TRAINED,
    *(role for role in OF_OTHERS if role != "spare"),
)  # scored; by number
COLUMNS = {"id": torch.int64, "digest": torch.uint8, "role": torch.uint8, "owner": torch.int64}
OPTIONAL = ("whose", "subject")


def write_cast(folder: Path, cast: Cast) -> str:
    """Write the cast of a run, in a folder that is there.

    Args:
        folder: of the recording.
        cast: of the run.

    Returns:
        SHA-256 of the file, for `Header.cast`.

    Raises:
        DiskError: it cannot be written.
    """
    owner, members = cast.owners, cast.members
    assert owner is not None  # follows from the parts
    either = np.concatenate([cast.ids(role) for role in OF_MEMBERS[:2]])
    inside = {role: cast.ids(role) for role in OF_MEMBERS[:2]}
    inside["members"] = members[~np.isin(members, either)]
    attackers, outside = [*enumerate(cast.parts)][cast.honest :], ROLES[len(inside) + 2 :]
    listed: list[tuple[str, IntArray, IntArray | int]] = [
        *((role, ids, owner[ids]) for role, ids in inside.items()),
        *(("attackers", part, client) for client, part in attackers),
        *(("placebo", part, client) for client, part in enumerate(cast.placebo_parts)),
        *((role, cast.ids(role), -1) for role in outside),
    ]
    ids = np.concatenate([ids for _, ids, _ in listed])
    roles = np.repeat([ROLES.index(role) for role, *_ in listed], [len(i) for _, i, _ in listed])
    clients = np.concatenate([np.broadcast_to(client, ids.shape) for _, ids, client in listed])
    names = b"".join(digests(cast.data.images[at : at + 1])[0] for at in ids)  # may be mapped
    table = {
        "id": ids,
        "digest": np.frombuffer(names, np.uint8).reshape(len(ids), -1).copy(),
        "role": roles.astype(np.uint8),
        "owner": clients.astype(np.int64),
    }
    if cast.whose is not None:
        table["whose"] = cast.whose[ids]
    if cast.subjects is not None:
        table["subject"] = cast.subjects[0][ids]
    about = {
        "roles": ROLES,
        "clients": len(cast.parts),
        "malicious": cast.malicious,
        "placebo": bool(cast.placebo_parts),
        "received": sorted(cast.received or ()),
        "duplicates_removed": cast.duplicates_removed,
        "distinct": cast.distinct,
        "subjects": cast.subject_names,
    }
    write_tensors({n: torch.from_numpy(a) for n, a in table.items()}, folder / CAST, about)
    return digest_of(folder / CAST)


def read_cast(
    folder: Path, source: Callable[[], ImageSet | EncodedSet], run: Path, otherwise: str
) -> Cast:
    """The cast of a run, with its images from their data source.

    Args:
        folder: of the recording.
        source: opens the data source.
        run: folder of the run, for errors.
        otherwise: what to do where there is no cast, for the error.

    Returns:
        The images in their roles, as in the run.

    Raises:
        InputError: the recording has no cast, or not the one that was recorded, or the data source
            cannot be read or holds other images by now.
    """
    path, digest = folder / CAST, read_header(folder).cast
    if not digest:
        raise InputError(
            f"the recording of '{run}' does not say which images it was trained on (no {CAST}): "
            f"{otherwise}"
        )
    check_digest(path, digest)
    table, about = read_tensors(path)
    columns = {name: tensor.dtype for name, tensor in table.items() if name not in OPTIONAL}
    if columns != COLUMNS or not fits_each(about, CAST_ABOUT):
        raise InputError(f"'{path}' holds no cast of a run")
    rows: dict[str, Any] = {name: tensor.numpy() for name, tensor in table.items()}
    ids = rows["id"]
    data = _load(source(), ids)
    names = None if data is None else [digests(data.images[at : at + 1])[0] for at in ids]
    if data is None or names != [bytes(row) for row in rows["digest"]]:
        raise InputError(f"the data source no longer holds the images that '{run}' was trained on")
    try:
        cast = _cast_of(data, rows, about)
    except (ValueError, IndexError):  # an image in two roles, a role without a number
        raise InputError(f"'{path}' holds no cast of a run") from None
    return cast


def _cast_of(data: ImageSet, rows: Mapping[str, Any], about: Mapping[str, Any]) -> Cast:
    """The cast that the rows and values of the file tell, of images that are those of the run."""
    ids, owner, role = rows["id"], rows["owner"], np.array(about["roles"])[rows["role"]]
    trained, clients = (*OF_MEMBERS[:2], "members"), about["clients"]
    honest = clients - about["malicious"]

    def parts(roles: tuple[str, ...], numbers: range) -> tuple[IntArray, ...]:
        own = np.isin(role, roles)
        return tuple(np.sort(ids[own & (owner == client)]) for client in numbers)

    by_place = dict[str, IntArray]()
    for name in rows.keys() & {*OPTIONAL}:
        by_place[name] = np.full(len(data), -1, np.int64)
        by_place[name][ids] = rows[name]
    of = by_place.get("subject")
    return Cast.of_run(
        data,
        {one: ids[role == one] for one in ROLES if one not in TRAINED},
        parts=parts(trained, range(honest)) + parts(("attackers",), range(honest, clients)),
        malicious=about["malicious"],
        placebo_parts=parts(("placebo",), range(honest)) if about["placebo"] else (),
        whose=by_place.get("whose"),
        subjects=None if of is None else (of, of),
        subject_names=tuple(about["subjects"]),
        received=frozenset(about["received"]),
        duplicates_removed=about["duplicates_removed"],
        distinct=about["distinct"],
    )


def _load(source: ImageSet | EncodedSet, ids: IntArray) -> ImageSet | None:
    """The images of a source, of encoded ones those at `ids`; None: it has not so many."""
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(source):
        return None
    return source if isinstance(source, ImageSet) else source.decode(np.unique(ids))[0]
