"""One attack on one encoder has one score, at the doors of an audit and of a bench."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia import audit_encoder
from fedmia.bench.scoring import Entrant, score_target, score_together
from fedmia.bench.targets import (
    ROLE_NAMES,
    SHADOWS,
    Images,
    bench_folder,
    find_images,
    read_targets,
)
from fedmia.data.images import digests

LIMIT, KNOWN = 40, 10  # images a side, and those that are known
OPTIONS: dict[str, Any] = {"threads": 1, "device": "cpu", "known": KNOWN}


def sides(images: Images) -> list[np.ndarray]:
    """Members and non-members (N, C, H, W)."""
    roles = TARGET.roles
    of = [roles["known_members"] + roles["members"], roles["nonmembers"]]
    return [np.stack([images[name] for name in one[:LIMIT]]) for one in of]


TARGET = read_targets(bench_folder("encoders-v1"), ["moco-digits-overfitted"])[0]


@pytest.mark.parametrize("attack", [
    "grad-norm", *(pytest.param(one, marks=pytest.mark.slow) for one in ("similarity", "combined")),
])  # fmt: skip
def test_score__is_that_of_an_audit(attack: str, tmp_path: Path) -> None:
    images = find_images([TARGET], ())
    files: dict[str, Any] = {}
    for name, side in zip(("members", "nonmembers"), sides(images), strict=True):
        np.savez(tmp_path / f"{name}.npz", x=side.transpose(0, 2, 3, 1), y=np.zeros(len(side), int))
        files[name] = f"npz:{tmp_path / name}.npz"
    run = audit_encoder(
        str(TARGET.folder), *files.values(), attacks=[attack], quiet=True, **OPTIONS
    )
    scores = run.scores
    audited = [scores[attack][scores["truth"] == side].to_numpy() for side in (True, False)]
    split = run.images
    of = "known_members", "known_nonmembers", "scored_members", "scored_nonmembers", "spare"
    roles = {role: [d.hex() for d in digests(split.pixels(one).numpy())]
             for role, one in zip(ROLE_NAMES, of, strict=True)}  # fmt: skip
    roles[SHADOWS] = TARGET.roles[SHADOWS][:1]
    benched = score_target(Entrant.of(attack), replace(TARGET, unwritten=roles), images)
    assert not isinstance(benched, str)
    for one, other in zip((benched.members, benched.nonmembers), audited, strict=True):
        assert np.abs(one - other).max() < 1e-6


def test_score_together__gives_each_attack_the_scores_that_it_has_alone() -> None:
    images = find_images([TARGET], ())
    roles = {role: names[:LIMIT] for role, names in TARGET.roles.items()}
    target = replace(TARGET, unwritten=roles)
    names = ("internal", "similarity", "combined", "ascent", "dov4mm")  # of two kinds of attackers
    entrants = [Entrant.of({"name": name}) for name in names]
    together = score_together(entrants, target, images)
    for entrant, result in zip(entrants, together, strict=True):
        alone = score_target(entrant, target, images)
        if isinstance(alone, str):
            assert result == alone and entrant.name == "ascent"
        else:
            assert not isinstance(result, str)
            assert result.seconds is not None and alone.seconds is not None
            assert result.queries == alone.queries
            assert np.array_equal(result.members, alone.members)
            assert np.array_equal(result.nonmembers, alone.nonmembers)
