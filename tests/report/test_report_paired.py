"""Paired differences: DeLong's parts, known answers and coverage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedmia.records import Pair, ScoredAttack
from fedmia.report.paired import paired_row

Make = Callable[..., ScoredAttack]
OVER = "the same rounds without ascent"


def test_paired_row__an_attack_adds_nothing_over_itself(scored: Make) -> None:
    attack = scored("ascent", 0.7, 40, 60, 0)
    row = paired_row(Pair(attack, replace(attack, name="ascent-zero"), OVER), 5)
    assert row["difference"] == 0 and row["ci"] == pytest.approx((0, 0), abs=0.02)
    assert "adds nothing measurable over the same rounds without ascent" in row["statement"]


def test_paired_row__says_adds_and_tells_less(scored: Make) -> None:
    strong, weak = scored("ascent", 0.9, 150, 300, 0), scored("ascent-zero", 0.5, 150, 300, 1)
    adds = paired_row(Pair(strong, weak, OVER), 5)["statement"]
    assert adds.startswith("ascent adds +0.") and adds.endswith(f"AUC over {OVER}")
    turned = paired_row(Pair(weak, strong, "other"), 5)
    assert turned["statement"].startswith("ascent-zero finds less than other: -0.")


def test_paired_row__statement_rests_on_the_simultaneous_interval(scored: Make) -> None:
    attack, zero = scored("ascent", 0.62, 100, 300, 4), scored("ascent-zero", 0.5, 100, 300, 5)
    row = paired_row(Pair(attack, zero, OVER), 10_000)
    assert row["ci"][0] > 0 > row["ci_simultaneous"][0]
    assert "nothing measurable" in row["statement"]


def test_paired_row__refuses_other_images(scored: Make) -> None:
    with pytest.raises(ValueError, match="ascent-zero"):
        pair = scored("ascent", 0.7, 40, 60, 0), scored("ascent-zero", 0.5, 39, 60, 1)
        paired_row(Pair(*pair, OVER), 1)
