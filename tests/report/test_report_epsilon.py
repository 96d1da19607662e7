"""How an epsilon is printed: with its standing, or as none that means anything."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from fedmia.records.privacy import MEANINGFUL, Epsilon
from fedmia.report.format import epsilon


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("dpsgd", 8.0, "dpsgd, epsilon 8 (delta 1e-05, 20 rounds): guaranteed (noise: entropy)"),
        ("dpsgd", MEANINGFUL,
         "dpsgd, epsilon 20 (delta 1e-05, 20 rounds): guaranteed (noise: entropy)"),
        ("dpsgd", 2440.0,
         "dpsgd, no meaningful guarantee (epsilon 2.44e+03, delta 1e-05, 20 rounds)"),
        ("logistic", 21.0,
         "logistic, no meaningful guarantee (epsilon 21, delta 1e-05, 20 rounds)"),
        ("logistic", None,
         "logistic, no meaningful guarantee (no finite epsilon, delta 1e-05, 20 rounds)"),
    ],
)  # fmt: skip
def test_epsilon__over_20_is_no_meaningful_guarantee(name: str, value: Any, said: str) -> None:
    claim = Epsilon(value, 1e-5, 20, "guaranteed", "The client.", noise_source="entropy")
    spent: Any = asdict(claim)
    assert epsilon({"name": name, "epsilon": spent, "metrics": {}}) == said


def test_epsilon__says_its_unit() -> None:
    spent: Any = asdict(Epsilon(8.0, 1e-5, 20, "guaranteed", "", unit="image"))
    row: Any = {"name": "dpsgd", "epsilon": spent, "metrics": {}}
    assert epsilon(row).startswith("dpsgd, epsilon 8 for one image (delta 1e-05")
    spent["value"] = 90.0
    assert "no meaningful guarantee (epsilon 90 for one image, delta" in epsilon(row)
