"""`--plan` with `--groups`: what patients could show, said before the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.statistics.one_subject import chance_of_naming, others_needed, smallest_nameable_auc
from tests.commands import fedmia

STILL = "--augment.jitter_p 0 --augment.gray_p 0 --augment.crop_min 0.6 --device cpu --threads 1"


def archive(path: Path, subjects: int, each: int, seed: int) -> str:
    """8x8 images, `each` of a subject like one another, as a data source."""
    stream = np.random.default_rng(seed)
    first = np.repeat(stream.normal(size=(subjects, 8, 8, 3)), each, 0)
    images = 120 + 25 * (3 * first + 2 * stream.normal(size=first.shape))
    whose = np.repeat([f"{path.stem}-{i}" for i in range(subjects)], each)
    labels = np.arange(len(images)) % 2
    np.savez(path, x=np.clip(images, 0, 255).astype(np.uint8), y=labels, who=whose)
    return f"npz:{path}"


FIXED = ("audit", "--encoder", "tests.auditing.brought:tiny", "--groups", "who", *STILL.split())


def run(*flags: str) -> Any:
    """What a command prints as JSON."""
    ran = fedmia([*FIXED, *flags, "--json"])
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_plan__of_subjects_foresees_the_numbers_of_the_report(
    tmp_path: Path,
) -> None:
    sides = ("--members", archive(tmp_path / "in.npz", 16, 4, 0))
    sides += ("--nonmembers", archive(tmp_path / "out.npz", 16, 4, 1))
    flags = *sides, "--known", "16", "--attacks", "similarity,dataset-inference"
    before = sorted(tmp_path.iterdir())
    row = run(*flags, "--plan", "0.6", "--out", str(tmp_path / "A"))
    assert sorted(tmp_path.iterdir()) == before
    report = run(*flags)
    (attack,), (inference,) = report["attacks"], report["dataset_inference"]
    of, one = row["subjects"], row["one_subject"]
    assert (of["scored_members"], of["scored_nonmembers"]) == (12, 12)
    assert attack["n_member_subjects"] == 12 and of["images_each"] == [4.0, 4.0]
    # All subjects are in this pilot; two estimates of the design effect are not one.
    assert attack["design_effect"] > 1.7
    assert max(of["design_effects"]) == pytest.approx(attack["design_effect"], abs=0.2)
    assert row["smallest_auc"] == pytest.approx(report["smallest_leak"], abs=0.02)
    assert row["tests"] == report["family"]["intervals"] == 2
    assert one["tests"] == inference["family"] * inference["n_tested"] == 24
    assert one["smallest_p"] == pytest.approx(1 / 13)
    assert one["others_needed"] == others_needed(24) == 479 and one["others_needed_alone"] == 19
    alike, (beside, tests) = one["correlation"], (one["beside"], one["beside_tests"])
    assert (beside, tests) == (19, 1)  # beside these 12 nothing could be told
    for images, told in one["images"].items():
        known = int(images), alike, beside, tests
        assert told["chance"] == pytest.approx(chance_of_naming(0.6, *known))
        assert told["smallest_auc"] == pytest.approx(smallest_nameable_auc(*known))
    assert list(one["images"]) == ["1", "4", "20"]
    assert of["available"] == 12 < of["needed"]


def test_plan__of_one_subject_says_what_it_can_be_told(
    tmp_path: Path,
) -> None:
    mine = archive(tmp_path / "mine.npz", 1, 3, 0)
    sides = "--members", mine, "--nonmembers", archive(tmp_path / "out.npz", 26, 3, 1)
    row = run(*sides, "--plan")
    one = row["one_subject"]
    assert row["smallest_auc"] is row["images_needed"] is None
    assert (one["name"], one["others"], one["tests"]) == ("mine-0", 24, 1)
    assert one["others_needed"] == 19 and one["beside"] == 24
    assert list(one["images"]) == ["1", "3", "4", "20"]  # its own number among them
    told = [each["smallest_auc"] for each in one["images"].values()]
    assert told == sorted(told, reverse=True)
    assert one["chance_unused"] == pytest.approx(1 / 25, abs=1e-5)
    assert "similarity" in row["not_run"] and row["images"]["known_members"] == 0


def test_plan__of_subjects_scores_whole_ones_in_a_pilot(
    tmp_path: Path,
) -> None:
    """A dozen a side; a line a finding, each of which has its numbers."""
    sides = ("--members", archive(tmp_path / "in.npz", 20, 3, 0))
    sides += ("--nonmembers", archive(tmp_path / "out.npz", 24, 1, 1))
    flags = *sides, "--known", "6", "--attacks", "similarity,dataset-inference", "--plan", "0.7"
    row = run(*flags)
    assert row["subjects"]["pilot"] == [12, 16]  # subjects, and 16 images
    shown = fedmia([*FIXED, *flags])
    assert shown.code == 0
    said = shown.out
    of, one = row["subjects"], row["one_subject"]
    numbers = [one["tests"], one["others_needed"], of["needed"], of["scored_members"]]
    assert all(f"{number:,} " in said for number in numbers)
    assert "None" not in said and said.count("80 of 100") == 2
