"""Audits in this process: two archives of small textures, a tiny encoder, few views."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.data.base import Request
from fedmia.data.images import ImageSet
from fedmia.data.synthetic import Synthetic
from tests.commands import fedmia

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
def audit(archives: Sides) -> Audit:
    """`audit(flags, out=None, own_images=False, text=False)`: run it on the archives and the tiny
    encoder, where the flags name no others. Without `out` its report is the one that it prints, and
    no figure is drawn; with `text` it prints what a terminal shows."""

    def run(
        flags: str, out: Path | None = None, *, own_images: bool = False, text: bool = False
    ) -> Audited:
        line = flags + " "
        if "--config " not in line:
            vectors = "-embeddings " in line
            others = own_images or vectors or "members " in line.replace("knows nonmembers ", "")
            line += "" if others else archives.flags
            line += (
                "" if vectors or "--encoder " in line else "--encoder tests.auditing.brought:tiny "
            )
            line += "" if "--attacks " in line else "--attacks similarity,lpla "
            line += "" if "--device " in line else "--device cpu "
            line += "--attack.similarity.views 3 " if "similarity," in line else ""
            line += "--threads 1 "
        prints = out is None and not text and not {"--json", "--plan"} & {*line.split()}
        ran = fedmia(f"audit {line}{'--json' * prints}", out)
        written: dict[str, Any] = {}
        if out is not None and (out / "report.json").exists():
            written = json.loads((out / "report.json").read_text())
        elif prints and ran.out.startswith("{"):
            written = json.loads(ran.out)
        return Audited(ran.code, "" if prints and written else ran.out, ran.err, written)

    return run


def numbers(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what a clock says."""
    return {k: v for k, v in report.items() if k != "timing"}


def kept(out: Path) -> dict[str, int]:
    """When each score, and each shadow encoder, of a folder was computed."""
    files = [*out.glob("attacks/*.safetensors"), *out.glob("shadows/*/about.json")]
    return {f.parent.name if f.suffix == ".json" else f.stem: f.stat().st_mtime_ns for f in files}


def anew(out: Path, before: dict[str, int]) -> set[str]:
    """Those that were computed since, by the names of attacks on the encoder and its control."""
    return {name for name, at in kept(out).items() if before.get(name) != at}
