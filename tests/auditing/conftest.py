"""Audits in this process: two archives of small textures, a tiny encoder, few views."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.audit import main
from fedmia.data.base import Request
from fedmia.data.images import ImageSet
from fedmia.data.synthetic import Synthetic
from fedmia.report.figures import draw

MEMBERS, NONMEMBERS, PIXELS = 26, 40, 8
RUN = (
    "--dataset synthetic --data.pixels 8 --data.images 90 --data.classes 2 --clients 1 --rounds 2 "
    "--split.members 16 --split.known 4 --attacks none --train.local_epochs 1 "
    "--model.width 4 --ssl.dim 8"
)  # a run of one client


def write(path: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    """uint8 (N, C, H, W) images as an archive."""
    np.savez(path, x=images.transpose(0, 2, 3, 1), y=labels)
    return path


def textures(
    count: int, pixels: int = PIXELS, channels: int = 3, seed: int = 0, size: int | None = None
) -> ImageSet:
    """Distinct images of three classes, resized to `size`."""
    source = Synthetic(classes=3, images=count, pixels=pixels, channels=channels)
    return source.load(Request(None, None, size, seed))


@dataclass(frozen=True)
class Sides:
    """Two archives of one distribution, and the flags that name them."""

    members: Path
    nonmembers: Path

    @property
    def flags(self) -> str:
        return f"--members npz:{self.members} --nonmembers npz:{self.nonmembers} "


def sides(folder: Path, pixels: int = PIXELS, channels: int = 3) -> Sides:
    """Archives in `folder`, of `MEMBERS` and `NONMEMBERS` images."""
    both = textures(MEMBERS + NONMEMBERS, pixels, channels)
    cut = slice(0, MEMBERS), slice(MEMBERS, None)
    names = ("members", "nonmembers")
    return Sides(
        *(write(folder / f"{n}.npz", both.images[c], both.labels[c])
          for n, c in zip(names, cut, strict=True))
    )  # fmt: skip


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """Textures of 8x8 pixels, three channels."""
    return sides(tmp_path_factory.mktemp("archives"))


@dataclass(frozen=True)
class Audited:
    """What an audit did: its exit code, what it printed, and report.json if it wrote one."""

    code: int
    out: str
    err: str
    report: dict[str, Any]

    def names(self, what: str = "attacks") -> list[str]:
        return [row["name"] for row in self.report[what]]

    @property
    def not_run(self) -> dict[str, str]:
        return dict(self.report["not_run"])


Audit = Callable[..., Audited]


@pytest.fixture
def audit(
    archives: Sides, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Audit:
    """`audit(flags, out=None, figures=False, own_images=False)`: run it on the archives and the
    tiny encoder, where the flags name no others."""

    def run(
        flags: str, out: Path | None = None, *, figures: bool = False, own_images: bool = False
    ) -> Audited:
        if not figures:
            monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
        line = flags + " "
        if "--config " not in line:
            vectors = "-embeddings " in line
            line += "" if own_images or vectors or "members " in line else archives.flags
            line += (
                "" if vectors or "--encoder " in line else "--encoder tests.auditing.brought:tiny "
            )
            line += "" if "--attacks " in line else "--attacks similarity,lpla "
            line += "" if "--device " in line else "--device cpu "
            line += "--attack.similarity.views 3 " if "similarity," in line else ""
            line += "--threads 1 "
        arguments = shlex.split(line) + ([] if out is None else ["--out", str(out)])
        capsys.readouterr()
        code = main(arguments)
        printed, err = capsys.readouterr()
        file = None if out is None else out / "report.json"
        written = {} if file is None or not file.exists() else json.loads(file.read_text())
        return Audited(code, printed, err, written)

    return run


def numbers(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what a clock says."""
    return {k: v for k, v in report.items() if k != "timing"}
