"""Numbers of an audit by hand: how many images play each role, the attacker's views, the probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.auditing.attacks import GIVEN, named
from tests.auditing.conftest import Audit, write

MEAN = f"--attacks {named('Mean')} "


def noise(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 8, 8), np.uint8)


def of(folder: Path, members: int, others: int, labels: Any = None) -> str:
    """Flags of so many images of a side, whose classes are the remainder by 3, or these."""
    classes = (np.arange(max(members, others)) % 3,) * 2 if labels is None else labels
    flags = ""
    for side, count, own in zip(("members", "nonmembers"), (members, others), classes, strict=True):
        file = write(folder / f"{side}.npz", noise(count, len(side)), own[:count])
        flags += f"--{side} npz:{file} "
    return flags


@pytest.mark.parametrize(
    ("members", "others", "options", "wanted"),
    [
        (40, 101, "", (10, 10, 30, 91)),  # a quarter of the smaller side is known, of both
        (101, 43, "", (10, 10, 91, 33)),
        (2004, 2008, "", (500, 500, 1504, 1508)),
        (40, 101, "--known 3", (3, 3, 37, 98)),
        (40, 101, "--limit 31", (10, 10, 30, 31)),
        (40, 101, "--limit 20", (10, 10, 20, 20)),
        (8, 9, "", (2, 2, 6, 7)),
        (9, 5, "--known 3", (3, 3, 6, 2)),
        (40, 101, "--knows nonmembers", (0, 10, 30, 91)),
    ],
)
def test_sizes__of_the_roles(
    members: int, others: int, options: str, wanted: tuple[int, ...], audit: Audit, tmp_path: Path
) -> None:
    GIVEN.clear()
    split = audit(f"{MEAN}{of(tmp_path, members, others)}{options}").report["split"]
    known, scored = GIVEN[0].known, GIVEN[0].images
    assert (len(known.members), len(known.nonmembers), len(scored)) == (
        *wanted[:2], sum(wanted[2:])
    )  # fmt: skip
    roles = ("known_members", "known_nonmembers", "scored_members", "scored_nonmembers")
    assert tuple(split[role] for role in roles) == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", (10, 30, 45)),  # half of what is left trains the shadows
        ("--limit 44", (10, 30, 44)),
        ("--shadow-data npz:{}/own.npz", (10, 30, 91)),
    ],
)
def test_sizes__with_shadows(
    options: str, wanted: tuple[int, ...], audit: Audit, tmp_path: Path
) -> None:
    write(tmp_path / "own.npz", noise(20, 5), np.zeros(20))
    flags = "--shadows 1 --shadow.epochs 1 --shadow.knowledge data --shadow.model smallnet "
    flags += "--attacks encodermi-t --attack.encodermi-t.layer avgpool --shadow.model.width 4 "
    split = audit(f"{flags}{of(tmp_path, 40, 101)}{options.format(tmp_path)}").report["split"]
    roles = ("known_members", "scored_members", "scored_nonmembers")
    assert tuple(split[role] for role in roles) == wanted


@pytest.mark.parametrize(
    ("members", "others", "options"),
    [(7, 100, ""), (100, 7, ""), (9, 5, "--known 4"), (5, 9, "--known 4")],
)
def test_sizes__too_few_are_refused(
    members: int, others: int, options: str, audit: Audit, tmp_path: Path
) -> None:
    done = audit(f"{MEAN}{of(tmp_path, members, others)}{options}")
    assert done.code == 2 and f"{members} members and {others} non-members" in done.err


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("", {"crop_min": 0.2, "flip": 0.5, "brightness": 0.4, "hue": 0.1}),
        ("--augment.flip 0.3 --augment.hue 0.5", {"flip": 0.3, "hue": 0.5, "brightness": 0.4}),
        (
            "--members digits --nonmembers npz:{}/gray.npz --channels rgb --limit 12 --known 4",
            {"crop_min": 0.9, "flip": 0.0, "brightness": 0.1, "hue": 0.025},
        ),
    ],
)
def test_views__are_the_encoders_as_far_as_the_images_bear_it(
    flags: str, wanted: dict[str, float], audit: Audit, tmp_path: Path
) -> None:
    write(tmp_path / "gray.npz", noise(40, 1)[:, :1], np.arange(40) % 3)
    done = audit(f"{MEAN}{flags.format(tmp_path)}")
    assert done.code == 0, done.err
    assert wanted.items() <= {n: v for n, v in done.report["config"]["views"].items()}.items()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((("b", "d"), ("d", "a")), ""),
        ((("b", "d"), ("x", "a")), "(b, d) and (a, x)"),
        ((("b", "d"), (0, 1)), "(b, d) and (0, 1)"),
        ((("b", "d"), ("x", "x")), ""),  # of one class nothing is compared
    ],
)
def test_classes__without_a_common_name_are_noted(
    names: tuple[tuple[Any, ...], ...], said: str, audit: Audit, tmp_path: Path
) -> None:
    labels = [np.array([one[i % 2] for i in range(20)]) for one in names]
    notes = audit(f"{MEAN}{of(tmp_path, 20, 20, labels)}").report["notes"]
    told = [note for note in notes if "No class" in note]
    assert bool(told) == bool(said)
    assert not said or all(part in told[0] for part in said.split(" and "))


class Told(nn.Module):
    """The vector of an image says its class, which its first pixel is a hundredth of; its weights,
    which the control permutes, are what it says it by."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.cat([torch.eye(3), torch.zeros(3, 3)]))

    def forward(self, x: Tensor) -> Tensor:
        kind = (x[:, 0, 0, 0] * 2.55).round().long().clamp(0, 2)
        return self.rows[kind] + 0.001 * x.mean(dim=(2, 3))


def test_probes__are_fitted_on_one_half_of_the_scored_nonmembers_and_tested_on_the_other(
    audit: Audit, tmp_path: Path
) -> None:
    """An encoder that tells classes has probes that find them all, its control has not; where
    the classes are dealt anew, none has."""
    found = []
    for shuffled in (False, True):
        flags = ""
        for side, seed in (("members", 1), ("nonmembers", 2)):
            images, labels = noise(60, seed), np.arange(60) % 3
            images[:, 0, 0, 0] = labels * 100
            shown = np.random.default_rng(3).permutation(labels) if shuffled else labels
            flags += f"--{side} npz:{write(tmp_path / f'{side}.npz', images, shown)} "
        line = f"--encoder {__name__}:Told --mean 0 --std 1 {MEAN}{flags} --known 10"
        found.append(audit(line).report)
    for kind in ("knn", "linear"):
        right, chance = (report["utility"][kind] for report in found)
        assert right == 1 and 0.1 < chance < 0.7
        assert found[0]["utility_untrained"][kind] != right
    assert found[0]["utility"]["n"] == found[0]["utility_untrained"]["n"] == 25
