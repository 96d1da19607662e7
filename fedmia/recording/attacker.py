"""The attacker inside a federation in its recording: which images are under attack, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmia.recording.files import check_digest, digest_of
from fedmia.recording.format import ATTACKER, ATTACKER_ABOUT, fits_each
from fedmia.settings.errors import InputError
from fedmia.storage.snapshot import read_tensors, write_tensors

DIGEST = 32  # bytes of a SHA-256


def write_attacker(folder: Path, targets: Sequence[bytes], about: Mapping[str, Any]) -> str:
    """Write who attacks which images, in a folder that is there.

    Args:
        folder: of the recording.
        targets: SHA-256 of each image under attack.
        about: the values of `ATTACKER_ABOUT`.

    Returns:
        SHA-256 of the file, for `Header.attacker`.

    Raises:
        DiskError: it cannot be written.
    """
    rows = np.frombuffer(b"".join(targets), np.uint8).reshape(len(targets), DIGEST)
    write_tensors({"targets": torch.from_numpy(rows.copy())}, folder / ATTACKER, dict(about))
    return digest_of(folder / ATTACKER)


def read_attacker(folder: Path, digest: str) -> tuple[list[bytes], dict[str, Any]]:
    """Who attacked which images.

    Args:
        folder: of the recording.
        digest: of the file, as the header says.

    Returns:
        SHA-256 of each image under attack, and the values of `ATTACKER_ABOUT`.

    Raises:
        InputError: it is not the file that was recorded, or holds something else.
    """
    path = folder / ATTACKER
    check_digest(path, digest)
    tensors, about = read_tensors(path)
    rows = tensors.get("targets", torch.zeros(0))
    shaped = rows.dtype == torch.uint8 and rows.shape[1:] == (DIGEST,)
    if not (shaped and fits_each(about, ATTACKER_ABOUT) and 0 <= about["known"] <= len(rows)):
        raise InputError(f"'{path}' names no attacker and its targets")
    return [bytes(row) for row in rows.numpy()], about
