"""A hospital's folder: images of two sites, and a list of them as a spreadsheet writes it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from tests.data.material import write_image

HEAD = ("Datei", "Split", "Patient", "Klinik", "Diagnose")
Form = Literal["NFC", "NFD"]
SITES = "Münster", "Köln"


def hospital(
    folder: Path, patients: int = 16, images: int = 3, size: int = 12, form: Form = "NFC"
) -> Path:
    """Images of patients, half of them for training, and the list of them.

    The list has a BOM, semicolons, lines of Windows, backslashes and accents as marks (NFD).

    Args:
        folder: to write into.
        patients: each of one of the two sites in turn.
        images: of each patient.
        size: pixels a side.
        form: of the names of files: accents are letters (NFC) or marks (NFD).

    Returns:
        The list's path.
    """
    rng, rows = np.random.default_rng(0), []
    for number in range(patients * images):
        patient, label = number // images, ("ja", "nein")[number % 2]
        path = f"Bilder/{SITES[patient % 2]}/Schädel {number:03d}.png"
        pixels = rng.integers(0, 256, (size, size), dtype=np.uint8)
        write_image(folder / unicodedata.normalize(form, path), pixels)
        split = "train" if patient < patients // 2 else "test"
        rows.append((path.replace("/", "\\"), split, f"P{patient:02d}", SITES[patient % 2], label))
    return write_list(folder / "patienten.csv", [HEAD, *rows])


def write_list(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    """A table as a German spreadsheet saves it."""
    text = unicodedata.normalize("NFD", "\r\n".join(map(";".join, rows)))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    return path
