"""`pixel_range` reaches every command: one range for members, non-members and shadow images."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedmia
from fedmia.federation.plan import make_plan
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import IncompleteError, InputError
from fedmia.settings.tree import from_tree, to_tree
from tests.commands import fedmia as command
from tests.data.material import experiment_on, write_image
from tests.papers.finished import papers

DEEP = np.random.default_rng(0).integers(0, 4096, (60, 8, 8), dtype=np.uint16)
BYTES = np.rint(DEEP / 4095 * 255).astype(np.uint8)[:, None]
LIMITS = (0.0, 4095.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at, pixels in enumerate(DEEP):
        write_image(tmp_path / f"{at:02d}.png", pixels)
    return tmp_path


def test_simulate__scales_the_images_of_a_folder(folder: Path) -> None:
    plan = make_plan(experiment_on(folder, pixel_range=list(LIMITS)))
    used = np.sort(plan.cast.used)
    assert np.array_equal(plan.cast.data.images[used], BYTES[used])
    with pytest.raises(IncompleteError, match=r"data\.pixel_range \(--pixel-range\) 0,4095"):
        make_plan(experiment_on(folder))


def test_settings__leave_it_out_where_it_is_not_given(folder: Path) -> None:
    assert "pixel_range" not in to_tree(experiment_on(folder))["data"]
    tree = to_tree(experiment_on(folder, pixel_range=list(LIMITS)))
    assert tree["data"]["pixel_range"] == list(LIMITS)
    assert from_tree(Experiment, tree).data.request(0).pixel_range == LIMITS


def test_audit__scales_every_source_by_the_same_range(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of the shadows, too, which hold the images as they were trained on them."""
    tmp_path, other, own = (tmp_path_factory.mktemp(name) for name in ("out", "other", "own"))
    deep = np.random.default_rng(1).integers(0, 4096, (40, 8, 8), dtype=np.uint16)
    for at, pixels in enumerate(deep):
        write_image((other if at < 28 else own) / f"{at:02d}.png", pixels)
    sides = f"--members folder:{folder} --nonmembers folder:{other} --shadow-data folder:{own} "
    flags = "--encoder tests.auditing.brought:grey --shadows 1 --shadow.epochs 1 --known 4 "
    flags += "--shadow.knowledge data --shadow.model smallnet --attacks encodermi-t "
    flags += f"--attack.encodermi-t.layer avgpool --threads 1 --cache {tmp_path}/cache "
    ran = command(f"audit {sides}{flags}")
    assert ran.code == 2 and "data.pixel_range (--pixel-range) 0,4095" in ran.err
    ran = command(f"audit {sides}{flags}--pixel-range 0,4095", tmp_path / "A")
    assert ran.code == 0, ran.err
    cast = fedmia.open_run(tmp_path / "A").images
    theirs = np.rint(deep / 4095 * 255).astype(np.uint8)[:, None]
    for role, side in (("scored_members", BYTES), ("scored_nonmembers", theirs)):
        assert np.array_equal(cast.pixels(role), side[cast.ids(role)])
    with np.load(next((tmp_path / "cache").glob("*/images.npz"))) as archive:
        trained = {image.tobytes() for part in archive.values() for image in part}
    assert trained == {image.tobytes() for image in theirs[28:]}
    ran = command("audit --encoder e --pixel-range 0,4095")
    assert ran.code == 2 and "a run's images have its" in ran.err


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (None, {"dataset": DEEP, "pixel_range": LIMITS}),
        (None, {"dataset": DEEP, "pixel_range": "0,4095"}),
        (None, {"dataset": DEEP, "data.pixel_range": [0, 4095]}),
        (None, {"data": {"name": DEEP, "pixel_range": [0, 4095]}}),
        ({"data": {"pixel_range": [0, 4095]}}, {"dataset": DEEP}),
    ],
    ids=["flag", "text", "path", "section", "file"],
)
def test_python__the_range_is_given_anywhere(config: Any, options: dict[str, Any]) -> None:
    """What is refused then is another matter; without a range these images are."""
    with pytest.raises(InputError, match="2044 images needed, images has 60 distinct"):
        fedmia.run_simulation(config, **options, clients=1000, partition="iid")
    with pytest.raises(InputError, match=r"give data\.pixel_range .* LOW,HIGH"):
        fedmia.run_simulation(dataset=DEEP, clients=1000)


def test_python__audits_by_name_and_of_objects() -> None:
    encoder, more = torch.nn.Conv2d(1, 8, 3), {"attacks": "similarity", "quiet": True}
    with pytest.raises(InputError, match=r"data.pixel_range \(--pixel-range\) LOW,HIGH"):
        fedmia.audit_encoder(encoder, DEEP[:30], DEEP[30:], **more)
    run = fedmia.audit_encoder(encoder, DEEP[:30], DEEP[30:], pixel_range=LIMITS, **more)
    images = run.images
    for role, side in (("scored_members", BYTES[:30]), ("scored_nonmembers", BYTES[30:])):
        assert np.array_equal(images.pixels(role), side[images.ids(role)])
    assert run.settings.data.pixel_range == LIMITS


def test_python__what_was_converted_stands_in_the_report(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, 20, 8, 8, 4), dtype=np.uint8)
    members, others = [[Image.fromarray(one) for one in side] for side in pixels]
    encoder = torch.nn.Conv2d(3, 8, 3)
    fedmia.audit_encoder(encoder, members, others, attacks="similarity", quiet=True, out=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    notes = [note for note in report["notes"] if "20 of mode RGBA" in note]
    assert [note.partition(":")[0] for note in notes] == ["members", "others"]


def test_head__takes_its_images_by_the_range(tmp_path: Path) -> None:
    for at in range(30):
        write_image(tmp_path / str(at % 2) / f"{at:02d}.png", DEEP[at])
    line = "head --encoder tests.auditing.brought:grey --size 8 --device cpu --images 100 "
    ran = papers(f"{line} --data folder:{tmp_path}")
    assert ran.code == 2 and re.search(r" give data\.pixel_range .* LOW,HIGH", ran.err)
    ran = papers(f"{line} --data folder:{tmp_path} --pixel-range 0,4095")
    assert ran.code == 2 and "400 labelled images, there are 30" in ran.err
