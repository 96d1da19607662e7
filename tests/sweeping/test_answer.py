"""The benchmark that merges sweeps of the ascent: each row once, one correction for all of them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_1samp

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "ascent.py"))
corrected, markdown, rows = (SCRIPT[name] for name in ("corrected", "markdown", "rows"))


def cell(grid: dict[str, Any], added: float, static: float, alone: float) -> dict[str, Any]:
    results = {
        "attacks": [{"name": n, "auc": 0.6} for n in ("ascent", "ascent-static")],
        "pairs": [
            {"attack": "ascent", "difference": added, "ci": [added - 0.1, added + 0.2]},
            {"attack": "ascent-static", "difference": static, "ci": [static - 1, static + 1]},
        ],
        "sets": [
            {"attack": "ascent", "judged": "alone", "size": 8, "auc": 0.9,
             "control": {"difference": alone, "difference_ci": [alone - 0.3, alone + 0.4]}},
            {"attack": "ascent", "judged": "mean", "size": 8, "auc": 0.9,
             "control": {"difference": 0.5, "difference_ci": [0.4, 0.6]}},
        ],
    }  # fmt: skip
    return {"name": "one", "grid": grid, "state": "finished", "results": results}


def sweep() -> dict[str, Any]:
    values = [0.011, 0.02, 0.015], [0.0, 0.1, -0.1], [0.3, -0.3, 0.0]
    points = [
        cell({"federation.attacked_rate": rate}, added + shift, static, alone + shift)
        for rate, shift in (("schedule", 0.0), ("constant", 0.01))
        for added, static, alone in zip(*values, strict=True)
    ]
    return {"cells": points}


def test_rows__are_what_each_ascent_adds_once() -> None:
    found = corrected(list(rows("digits", sweep())))
    assert [(r["attack"], r["setting"], r["level"]) for r in found] == [
        ("ascent", "attacked_rate schedule", "image"),
        ("ascent-static", "default", "image"),  # the same models at both points
        ("ascent", "attacked_rate schedule", "set of 8"),
        ("ascent", "attacked_rate constant", "image"),
        ("ascent", "attacked_rate constant", "set of 8"),
    ]
    assert found[0]["by_model"] == pytest.approx([0.011, 0.02, 0.015])
    assert found[2]["added"]["mean"] == pytest.approx(0.0)


def test_holm__is_over_all_sweeps() -> None:
    alone = corrected(list(rows("a", sweep())))
    both = corrected([*rows("a", sweep()), *rows("b", sweep())])
    assert len(both) == 10
    p = ttest_1samp([0.021, 0.03, 0.025], 0).pvalue
    assert alone[3]["p_holm"] == pytest.approx(5 * p)
    assert both[3]["p_holm"] == pytest.approx(10 * p)
    assert markdown(both).count("\n") == 12


def test_one_model__its_interval_is_over_images_and_there_is_no_p() -> None:
    single = {"cells": sweep()["cells"][:1]}
    found = corrected([*rows("a", sweep()), *rows("b", single)])
    one = next(r for r in found if r["data"] == "b" and r["level"] == "image")
    assert one["p"] is None and one["p_holm"] is None and one["added"]["ci"] is None
    assert one["over_images"] == pytest.approx([0.011 - 0.1, 0.011 + 0.2])
    assert all(r["over_images"] is None for r in found if r["data"] == "a")
    assert found[3]["p_holm"] == pytest.approx(5 * found[3]["p"])  # of the five that have one
    assert "+0.011 [-0.089, +0.211] (images) | - | - |" in markdown(found)


def test_unfinished_run__is_named() -> None:
    lost = sweep()
    lost["cells"][0] |= {"results": None, "state": "failed"}
    with pytest.raises(SystemExit, match="digits: run one is failed"):
        list(rows("digits", lost))
