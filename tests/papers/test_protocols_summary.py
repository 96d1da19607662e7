"""What follows of protocols over encoders: numbers made by hand, and those of the stored run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from papers.protocols.summary import markdown, row_name, summarise

STORED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "protocols.json"
ROWS = [{"attack": "lpla", "switches": ["pairs"]},
        {"attack": "lpla", "switches": ["views", "epoch"], "kinds": ["placebo"]}]  # fmt: skip
PLAN = {"effect": 0.02, "rows": ROWS}
FAIR = (0.50, 0.52, 0.48, 0.51)


def encoders(gains: tuple[float, ...]) -> list[dict[str, Any]]:
    one = []
    for nth, (fair, gain) in enumerate(zip(FAIR, gains, strict=True)):
        numbers = {
            row_name("lpla"): {"accuracy": fair, "auc": fair + 0.01},
            row_name("lpla", ["pairs"]): {"accuracy": fair + gain, "auc": fair},
            row_name("lpla", ["views", "epoch"]): {"accuracy": 0.5, "auc": 0.5},
        }
        kinds = dict.fromkeys(("trained", "placebo", "untrained"), numbers)
        one.append({"method": ("moco", "dino")[nth % 2], "seed": nth, "numbers": kinds})
    return one


def row(results: dict[str, Any], switch: str, kind: str) -> dict[str, Any]:
    (own,) = (r for r in results["rows"] if (r["switch"], r["kind"]) == (switch, kind))
    return own


def test_gain__with_its_simultaneous_interval() -> None:
    gains = (0.05, 0.06, 0.04, 0.07)
    results = summarise(PLAN, encoders(gains))
    assert results["primary"] == 3 and results["n"] == {"moco": 2, "dino": 2}
    assert [(r["switch"], r["kind"]) for r in results["rows"]][-1] == ("views + epoch", "placebo")
    own = row(results, "pairs", "placebo")
    half = scipy.stats.t.isf(0.025 / 3, 3) * np.std(gains, ddof=1) / 2
    assert own["gain"]["mean"] == pytest.approx(0.055)
    assert own["gain"]["ci"] == pytest.approx((0.055 - half, 0.055 + half), abs=1e-6)
    assert own["gain_auc"]["mean"] == pytest.approx(-0.01)
    assert own["fair"]["mean"] == pytest.approx(np.mean(FAIR))
    assert own["switched"]["mean"] == pytest.approx(np.mean(FAIR) + 0.055)
    assert {m: g["mean"] for m, g in own["by_method"].items()} == pytest.approx(
        {"moco": 0.045, "dino": 0.065}
    )
    assert own["verdict"] == "gives" and "verdict" not in row(results, "pairs", "trained")
    wider = row(results, "pairs", "trained")["gain"]["ci"]
    assert wider[0] < own["gain"]["ci"][0]  # of the larger family


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.05, 0.06, 0.04, 0.07), "gives"),
        ((0.001, 0.002, 0.0, -0.001), "gives less"),
        ((0.1, -0.1, 0.05, -0.02), "undecided"),
        ((0.05, 0.05, 0.05, 0.05), "undecided"),
    ],
)
def test_verdict(gains: tuple[float, ...], verdict: str) -> None:
    assert row(summarise(PLAN, encoders(gains)), "pairs", "placebo")["verdict"] == verdict


def test_single_encoder__lies_farther_from_the_mean_than_the_mean_of_all() -> None:
    single = summarise(PLAN, encoders((0.0,) * 4))["single"]
    assert [(one["switch"], one["kind"]) for one in single][::3] == [
        ("", "trained"), ("pairs", "trained"), ("views + epoch", "placebo"),
    ]  # fmt: skip
    own = single[1]
    assert (own["kind"], own["least"], own["greatest"]) == ("placebo", 0.48, 0.52)
    sd, mean = np.std(FAIR, ddof=1), np.mean(FAIR)
    half = scipy.stats.t.isf(0.025, 3) * sd * np.sqrt(1 + 1 / 4)
    assert own["sd"] == pytest.approx(sd, abs=1e-6)
    assert own["next"] == pytest.approx((mean - half, mean + half), abs=1e-6)


def test_table__has_a_line_a_row() -> None:
    results = summarise(PLAN, encoders((0.05, 0.06, 0.04, 0.07)))
    lines = [line for line in markdown(results).splitlines() if line.startswith("| `")]
    assert len(lines) == len(results["rows"]) == 4
    assert "| `lpla` | pairs | placebo |" in lines[1] and lines[1].endswith("| gives |")


def test_stored_numbers__are_recomputed_from_those_by_seed() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    again = json.loads(json.dumps(summarise(stored["plan"], stored["encoders"])))
    assert again == {name: stored[name] for name in again}
    assert all(one["seed"] >= stored["plan"]["seed"] for one in stored["encoders"])
