"""Pictures of made-up images say so and nothing is claimed of them; others are as drawn."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from papers import drawing, run
from papers.entries import Entry, TableCell
from papers.jobs import PAPER, JobFolder, TableJob
from papers.settings import Reproduce


def pixels(picture: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def test_mark__a_line_in_red_over_the_same_picture() -> None:
    row = {"level": "", "row": "SVHN", "column": "LpLA", "ours": 0.5, "theirs": 0.7}
    drawn = drawing.draw("t", [row | {"low": None, "high": None}], "bars")
    assert drawn is not None
    before, after = pixels(drawn), pixels(drawing.mark(drawn))
    band, rest = after[: drawing.BAND], after[drawing.BAND :]
    assert (rest == before).all()
    red, green, _ = band[(band != 255).any(axis=2)].T
    assert len(red) > 500 and (red >= green).all()
    written = band.min(axis=2).min(axis=0) < 255  # the line ends before the picture does
    assert not written[-5:].any()


def test_plane__a_point_a_row_of_two_numbers() -> None:
    """A row without the first number, or without the other, has no point."""
    numbers = {("v1", "kNN"): 0.4, ("v1", "LpLA"): 0.5, ("v2", "kNN"): 0.6, ("v2", "LpLA"): 0.7,
               ("v3", "LpLA"): 0.9, ("v4", "kNN"): 0.3}  # fmt: skip
    rows = [{"row": row, "column": column, "ours": n} for (row, column), n in numbers.items()]
    axes = Figure().add_subplot()
    drawing._plane(axes, rows, "plane")
    (points,) = axes.lines
    assert np.asarray(points.get_xydata()).tolist() == [[0.4, 0.5], [0.6, 0.7]]
    assert axes.get_xlabel() == "kNN" and points.get_label() == "LpLA"
    assert [text.get_text() for text in axes.texts] == ["v1", "v2"]


def test_bars__whose_colours_come_again_are_hatched() -> None:
    """Eight columns: the last one has the colour of the first. Rows without the paper's numbers."""
    axes = Figure().add_subplot()
    rows = [
        {"row": "r", "column": str(nth), "ours": 0.5, "low": 0.4, "high": 0.6} for nth in range(8)
    ]
    drawing._plot(axes, rows, "bars")
    looks = [(bar.get_facecolor(), bar.get_hatch() or "") for bar in axes.patches]
    assert looks[0][0] == looks[7][0] and len(set(looks)) == 8


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_write_all__marks_every_picture_of_smoke(
    scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "draw", lambda title, rows, kind: b"drawn")
    monkeypatch.setattr(run, "mark", lambda picture: b"marked " + picture)
    folder, job = JobFolder(tmp_path), TableJob(PAPER, {})
    results = folder.path(job) / "results"
    results.mkdir(parents=True)
    (results / "fig-5.png").write_bytes(b"copied")
    cells = [TableCell("a row", "c", "", "", (job,), None, None)]
    entries = [
        Entry(name, "p", "Fig. 1", "t", figure)
        for name, figure in (("one", "bars"), ("two", "fig-5"), ("none", ""))
    ]
    config = Reproduce(tables=("one",), scale=scale)
    run.write_all([(entry, cells) for entry in entries], config, folder, {})
    written = {p.name: p.read_bytes() for p in (tmp_path / "tables").glob("*.png")}
    before = b"marked " if scale == "smoke" else b""
    assert written == {"one.png": before + b"drawn", "two-a-row.png": before + b"copied"}


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_claims__are_judged_of_real_images_alone(scale: str, tmp_path: Path) -> None:
    claim = {"says": "A over .5", "better": "A", "over": 0.5}
    cells = [TableCell("row", "A", "", "", (), None, None)]
    entry = Entry("t", "p", "Table 1", "t", claims=(claim,))
    config = Reproduce(tables=("t",), scale=scale)
    run.write_all([(entry, cells)], config, JobFolder(tmp_path), {})
    assert len([*tmp_path.glob("claims.*")]) == (0 if scale == "smoke" else 3)
