"""`pixel_range` reaches every command: one range for members, non-members and shadow images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedmia
from fedmia.cli.commands import AUDIT, SIMULATE
from fedmia.door.arguments import build_settings
from fedmia.evaluation.audits.sources import SIDES, find_images, load_images
from fedmia.federation.plan import make_plan
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import IncompleteError, InputError
from fedmia.settings.tree import from_tree, to_tree
from papers.heads import measure
from papers.heads.settings import Head
from tests.data.material import experiment_on, write_image

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


def test_audit__scales_every_source_by_the_same_range(folder: Path) -> None:
    source = f"folder:{folder}"
    audit = from_tree(
        Audit,
        {"encoder": "e", "members": source, "nonmembers": source, "shadows": 2,
         "shadow_data": source, "pixel_range": list(LIMITS)},
    )  # fmt: skip
    for side in find_images(audit, SIDES, None):
        assert np.array_equal(side.all().images, BYTES)
    assert np.array_equal(load_images(audit, "shadow.data", None).images, BYTES)
    bad = replace(audit, data=replace(audit.data, pixel_range=None))
    with pytest.raises(IncompleteError) as caught:
        find_images(bad, SIDES, None)
    assert caught.value.options == {"data.pixel_range": (0, 4095)}
    with pytest.raises(
        InputError,
        match=r"^data.pixel_range .* without members .*: a run's images have its",
    ):
        from_tree(Audit, {"encoder": "e", "pixel_range": list(LIMITS)})


def images_of(settings: Any) -> np.ndarray:
    return settings.data.source().load(settings.data.request(0)).images


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
    settings = build_settings(SIMULATE, config, options)
    assert np.array_equal(images_of(settings), BYTES)


def test_python__audits_by_name_and_of_objects() -> None:
    options = {"members": DEEP, "nonmembers": DEEP[::-1], "pixel_range": LIMITS}
    audit = build_settings(AUDIT, None, {"encoder": "e", **options})
    members, others = find_images(audit, SIDES, None)
    assert np.array_equal(members.images, BYTES) and np.array_equal(others.images, BYTES[::-1])
    with pytest.raises(InputError, match=r"members must be .* give data\.pixel_range .* LOW,HIGH"):
        build_settings(AUDIT, None, {"encoder": "e", "members": DEEP, "nonmembers": DEEP})
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


def test_head__scales_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded(Exception):
        """Ends the test where the images are loaded."""

    def split(count: int, *more: Any) -> None:
        raise Loaded(count)

    released = type("Released", (), {"size": 8, "notes": []})()
    monkeypatch.setattr(measure, "load", lambda *a, **more: released)
    monkeypatch.setattr(measure, "split_images", split)
    for at in range(30):
        write_image(tmp_path / str(at % 2) / f"{at:02d}.png", DEEP[at])
    with pytest.raises(InputError, match=r" give data\.pixel_range .* LOW,HIGH"):
        measure.prepare(from_tree(Head, {"encoder": "e", "data": f"folder:{tmp_path}"}))
    with pytest.raises(Loaded, match="30"):
        tree = {"encoder": "e", "data": f"folder:{tmp_path}", "pixel_range": list(LIMITS)}
        measure.prepare(from_tree(Head, tree))
