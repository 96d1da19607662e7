"""Pixels and names of files are in a report where the user asks for them, and nowhere else."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmia import open_run
from tests.auditing.conftest import Audit, textures
from tests.commands import fedmia

COUNT, SIZE = 60, 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Members and non-members, an image a file, under names that nothing else has."""
    root, images = tmp_path_factory.mktemp("scans"), textures(2 * COUNT).images
    for at, image in enumerate(images):
        folder = root / ("in" if at < COUNT else "out")
        folder.mkdir(exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"patient-{at}.png")
    return root


def flags(folders: Path) -> str:
    return f"--members folder:{folders}/in --nonmembers folder:{folders}/out --known 8 "


def traces(folders: Path) -> Iterator[bytes]:
    """What would tell an image: its name, the picture that the table would show, its pixels."""
    for file in sorted(folders.rglob("*.png")):
        picture = io.BytesIO()
        with Image.open(file) as image:
            image.save(picture, "PNG")
            pixels = np.asarray(image)
        png = picture.getvalue()
        yield from (file.stem.encode(), base64.b64encode(png), png)
        yield from (pixels.tobytes(), pixels.transpose(2, 0, 1).tobytes())


def test_images__are_in_no_file_unless_they_are_asked_for(
    audit: Audit, folders: Path, tmp_path: Path
) -> None:
    plain, told = tmp_path / "plain", [*traces(folders)]
    assert audit(flags(folders), plain).code == 0
    files = [f for f in plain.rglob("*") if f.is_file()]
    assert {"exposed.csv", "report.html", "table.parquet"} <= {f.name for f in files}
    for file in files:
        content = file.read_bytes()
        assert not [one for one in told if one in content], file
    assert not [*plain.rglob("exposed.p*")]
    assert "show_images" not in (plain / "config.yaml").read_text()
    # The same audit goes on, and shows them.
    done = audit(f"{flags(folders)}--show-images", plain)
    assert done.code == 0 and "continued" not in done.err
    rows = done.report["exposed"]
    of_file = {f.name: f for f in folders.rglob("*.png")}
    for row in rows[:20]:
        with Image.open(of_file[row["file"]]) as image:
            want = np.asarray(image)
        picture = Image.open(io.BytesIO(base64.b64decode(row["picture"])))
        assert (np.asarray(picture) == want).all()
        assert sorted((folders / "in").iterdir())[row["image"]].name == row["file"]
    page = (plain / "report.html").read_text()
    assert rows[0]["file"] in page and rows[0]["picture"] in page
    assert rows[0]["picture"].encode() in told  # which is what was looked for before
    assert (plain / "figures" / "exposed.png").is_file()
    frame = open_run(plain).exposed
    assert frame.index.name == "rank" and frame.loc[1, "file"] == rows[0]["file"]
    assert frame["most_false"].tolist()[:20] == [row["most_false"] for row in rows[:20]]


def test_images__of_vectors_cannot_be_shown(audit: Audit, tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(40, 2, 4)))
    vectors = f"--member-embeddings {tmp_path}/a.npy --nonmember-embeddings {tmp_path}/b.npy "
    done = audit(f"{vectors}--show-images")
    assert done.code == 2 and "show_images" in done.err and "Traceback" not in done.err


@pytest.mark.slow
def test_images__of_a_run_are_shown(folders: Path, tmp_path: Path) -> None:
    line = (
        f"simulate --data folder:{folders}/in --clients 2 --rounds 2 --split.members 24 "
        "--split.known 4 --split.nonmembers 26 --split.test 4 --partition iid --model.width 4 "
        "--train.local_epochs 1 --device cpu "
        "--attacks similarity --show-images"
    )
    assert fedmia(line, tmp_path / "RUN").code == 0
    report = open_run(tmp_path / "RUN").records
    assert all(row.file and row.picture and row.client is not None for row in report.exposed[:20])
