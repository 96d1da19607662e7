"""The coverage simulations run, and their cells say what the committed ones say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from fedmia.seeding import rng
from fedmia.statistics.auc import auc

MEASUREMENTS = Path(__file__).parents[2] / "research" / "measurements"
COMMITTED = MEASUREMENTS.parent / "results" / "coverage.json"
with pytest.MonkeyPatch.context() as patched:
    patched.syspath_prepend(str(MEASUREMENTS))
    SCRIPT = runpy.run_path(str(MEASUREMENTS / "_coverage.py"))
PARTS, SPREADS, ScoreDistribution, cells, names, summary = (
    SCRIPT[name] for name in ("PARTS", "SPREADS", "ScoreDistribution", "cells", "names", "summary")
)
SETTING = (
    "shape", "sizes", "members", "nonmembers", "subjects", "correlation", "auc", "attacks",
    "difference", "fpr", "mean", "tpr", "known", "best",
)  # fmt: skip


@pytest.mark.parametrize("name", SPREADS)
def test_shape__has_the_auc_that_it_was_asked_for(name: str) -> None:
    members, others = ScoreDistribution(name, 0.7).draw(4000, 4000, rng(0, "shape"))
    assert auc(members, others) == pytest.approx(0.7, abs=0.02)


def test_summary__counts_what_holds_and_what_lies_to_either_side() -> None:
    row = summary([(0.4, 0.6), (0.6, 0.7), (0.1, 0.3), (0.5, 0.9)], 0.5)
    assert row == {"coverage": 0.5, "over": 0.25, "under": 0.25, "width": pytest.approx(0.225)}


@pytest.mark.parametrize("part", PARTS)
def test_cells__are_those_of_the_committed_simulation(part: str) -> None:
    name = list(names(part))[1]
    rows = [{k: row[k] for k in SETTING if k in row} for row in cells(part, name, 2, 0)]
    simulation = json.loads(COMMITTED.read_text(encoding="utf-8"))[part]
    same = [row for row in simulation if name in (row.get("shape"), row.get("sizes"))]
    assert rows == [{k: row[k] for k in SETTING if k in row} for row in same]
    assert cells("paired", "rounded", 2, 0) == []  # of normal scores alone
