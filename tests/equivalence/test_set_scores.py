"""Sets of an active attack: each is scored on the round that it had to itself, by known numbers."""

from __future__ import annotations

import numpy as np
import pytest
from torch import Tensor

from fedmia.data.images import IntArray, digests
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.evaluation.federated.trajectories import Trajectories
from fedmia.records import ScoredAttack

from .conftest import FederationResult

ACTIVE = "--attacker active --attacks ascent "
FIRST = 3  # the first attacked round of the tiny experiment


@pytest.mark.slow
def test_with_sets__scores_each_set_on_its_own_round(finished: FederationResult) -> None:
    """Minus its images' mean rise in it, and beside that the same where nothing was climbed."""
    run = finished(ACTIVE)
    book = run.trajectory_recorder()
    before = book.readings[f"received.main.{FIRST}"]
    climbed, idle = np.sqrt(np.arange(len(before))), np.cos(np.arange(len(before)))
    place = {name: i for i, name in enumerate(digests(book.targets.numpy()))}
    own = {"sent": before + 99, "after": before + climbed, "idle": before + idle}
    book.readings |= {f"sets.main.{FIRST}.{side}": values for side, values in own.items()}
    trajectories = Trajectories(Evaluation(run, {"ascent": {}}), "ascent", book)
    scorer, nothing = trajectories.evaluation.scorer, np.zeros(0)
    found = trajectories.with_sets(ScoredAttack("ascent", "", "", "", nothing, nothing))

    def rises(images: Tensor, sets: IntArray) -> list[list[float]]:
        rows = [[place[name] for name in digests(images[one].numpy())] for one in sets]
        return [[-climbed[row].mean(), -idle[row].mean()] for row in rows]

    members, nonmembers = found.sets_members, found.sets_nonmembers
    assert members is not None and nonmembers is not None
    np.testing.assert_allclose(members, rises(scorer.members, scorer.sets.members))
    np.testing.assert_allclose(nonmembers, rises(scorer.nonmembers, scorer.sets.nonmembers))
