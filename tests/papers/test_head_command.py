"""`python -m papers head` as its users call it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmia.defenses.heads.release import ReleaseSetting
from fedmia.records.privacy import MEANINGFUL
from papers.__main__ import main as command
from papers.heads import attack
from papers.heads import view as compare
from papers.heads.sentence import leaks, sentence
from papers.heads.settings import Head
from papers.heads.trial import CONFIDENCE, NAIVE, AttackRates, HeadTrial, ReleaseResult

BROUGHT = "--encoder tests.auditing.brought:grey --threads 1 --device cpu "
SMALL = BROUGHT + "--images 40 --epochs 4 --seeds 2 --samples 2 --draws 2 --epsilons 2,40 "


def main(arguments: list[str]) -> int:
    return command(["head", *arguments])


@pytest.mark.slow
def test_command__report_figures_and_page(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "PAIRS", 200)
    assert main([*shlex.split(SMALL), "--mechanisms=logistic,gaussian", f"--out={tmp_path}/h"]) == 0
    printed, report = capsys.readouterr().out, json.loads((tmp_path / "h/report.json").read_text())
    assert report["sentence"] in printed and "40 *" in printed
    assert (report["heads"], report["n_members"], report["weights"]) == (2, 40, 60)
    rows = [(r["mechanism"], r["epsilon"], r["meaningful"]) for r in report["rows"]]
    assert rows == [
        (None, None, False), ("logistic", 2.0, True), ("logistic", 40.0, False),
        ("gaussian", 2.0, True), ("gaussian", 40.0, False),
    ]  # fmt: skip
    assert report["rows"][0]["utility_loss"]["mean"] == 0.0
    bounds = [r["lower_bound"] for r in report["rows"]]
    assert bounds[0] is None and [b["audit"] for b in bounds[1::2]] == ["one-run", "own-runs-gdp"]
    assert all(b["value"] > 0 and not b["refuted"] and b["canaries"] == 1000 for b in bounds[1:])
    for name in ("fig-1", "fig-2"):
        assert (tmp_path / f"h/figures/{name}.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "h/report.html").read_text()
    assert f"at least {bounds[1]['value']:.2f} by canaries" in page and "2 for one image" in page
    assert "no meaningful guarantee" in page and "no bound" in page and "<script" not in page


def test_compare__one_correction_for_all_aucs() -> None:
    """Ten heads at AUC .60, of deviation .03: alone over 0.5, and 78 together as well."""
    shifts = (-1.4, -1, -0.7, -0.3, 0, 0, 0.3, 0.7, 1, 1.4)
    rates = [AttackRates(0.6 + 0.03 * d, 0.55, 0.02) for d in shifts]
    measured = [ReleaseResult(0.0, 0.9, 0.0, {NAIVE: r, CONFIDENCE: r}) for r in rates]
    alone, together = (compare.row(None, measured, Head(encoder="x"), n) for n in (1, 78))
    one, many = (r["attacks"][0] for r in (alone, together))
    assert one["auc_ci_simultaneous"] == pytest.approx(one["auc"]["ci"], abs=1e-6)
    assert many["auc_ci_simultaneous"][0] < one["auc_ci_simultaneous"][0]
    assert leaks(together) and compare.count_aucs(24) == 78


def heads_at(epsilon: float | None, aucs: tuple[float, float], loss: float) -> Any:
    """The row of ten heads whose two attacks have the AUCs, .002 apart."""
    setting = None if epsilon is None else ReleaseSetting("gaussian", epsilon)
    measured = []
    for i in range(10):
        low, high = (AttackRates(a + 0.002 * (i % 2), 0.55, 0.02) for a in aucs)
        measured.append(ReleaseResult(0.5, 0.9 - loss, loss, {NAIVE: low, CONFIDENCE: high}))
    return compare.row(setting, measured, Head(encoder="x", delta=1e-6), 12)


@pytest.mark.parametrize(
    ("aucs", "names"),
    [((0.6, 0.4), [NAIVE]), ((0.499, 0.7), [CONFIDENCE]), ((0.499, 0.3), []),
     ((0.7, 0.8), [NAIVE, CONFIDENCE])],
)  # fmt: skip
def test_leaks__are_those_whose_whole_interval_lies_over_a_half(
    aucs: tuple[float, float], names: list[str]
) -> None:
    assert [a["name"] for a in leaks(heads_at(1.0, aucs, 0.1))] == names


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "delta"),
    [("gaussian", 2.0, 1e-6), ("gaussian-classical", 2.0, 1e-6), ("laplace", 20.0, 0.0),
     ("logistic", 20.5, 0.0), (None, None, 0.0)],
)  # fmt: skip
def test_row__states_delta_of_the_gaussian_alone_and_what_means_something(
    mechanism: Any, epsilon: Any, delta: float
) -> None:
    rates = {NAIVE: AttackRates(0.5, None, None)}
    measured = [ReleaseResult(s, 0.9, 0.1, rates) for s in (1.0, 3.0)]
    setting = None if mechanism is None else ReleaseSetting(mechanism, epsilon)
    row = compare.row(setting, measured, Head(encoder="x", delta=1e-6), 6)
    assert (row["delta"], row["standing"]) == (delta, "empirical" if setting else None)
    assert row["meaningful"] == (setting is not None and epsilon <= MEANINGFUL)
    assert row["scale"]["mean"] == 2.0


def test_sentence__least_epsilon_at_a_tolerable_cost_and_what_is_left(snapshot: Any) -> None:
    """5 % of utility is tolerable, and over it is not; leaks are told of small epsilons alone; a
    claim that canaries refute is shouted."""
    rows = [
        heads_at(None, (0.9, 0.6), 0.0), heads_at(1.0, (0.499, 0.3), 0.3),
        heads_at(5.0, (0.7, 0.55), 0.06), heads_at(25.0, (0.6, 0.8), 0.05),
        heads_at(50.0, (0.9, 0.8), 0.01),
    ]  # fmt: skip
    snapshot(sentence(rows, 10))
    snapshot(sentence(rows[:2], 10))
    refuted = {**rows[1], "lower_bound": {"refuted": True}}
    assert sentence([rows[0], refuted], 10).startswith(
        "CLAIM REFUTED by canaries: gaussian at 1. Without noise"
    )


def test_rows__canaries_are_noised_at_the_scale_of_their_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And judged with as many lower bounds as there are settings."""
    settings, calls = [ReleaseSetting("gaussian", 1.0), ReleaseSetting("laplace", 2.0)], list[Any]()
    monkeypatch.setattr(compare, "audit_noise", lambda *given: calls.append(given) or "audit")
    monkeypatch.setattr(compare, "canary_bound", lambda audit, family: (audit, family))
    rates = {NAIVE: AttackRates(0.5, None, None)}
    plain = ReleaseResult(0.0, 0.9, 0.0, rates)
    trials = []
    for n in (1, 2):
        noised = {s: replace(plain, scale=10.0 * n + i) for i, s in enumerate(settings)}
        trials.append(HeadTrial(1.0, {1: 3.0 + n, 2: 2.0 + n}, plain, noised, rates))
    found = compare.rows(trials, Head(encoder="x", delta=1e-6, canaries=300), settings)
    assert [r["lower_bound"] for r in found] == [None, ["audit", 2], ["audit", 2]]
    for i, (call, setting) in enumerate(zip(calls, settings, strict=True)):
        assert call[:5] == (setting, 1e-6, {1: 4.0, 2: 3.0}, 10.0 + i, 300)
    assert calls[0][5].random() != calls[1][5].random()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--data digits", "encoder (--encoder) is missing"),
        (f"{BROUGHT}--epsilons 0,1", "epsilons (--epsilons): 0.0, must be > 0"),
        (f"{BROUGHT}--epsilons 1,1", "epsilons (--epsilons): 1.0 is given twice"),
        (f"{BROUGHT}--mechanisms logistik", "did you mean 'logistic'"),
        (f"{BROUGHT}--delta 1", "delta (--delta): 1.0, must be < 1"),
        (f"{BROUGHT}--images 600", "images 600: a head, those asked about"),
        (f"{BROUGHT}--seeds 1", "seeds (--seeds): 1, must be >= 2"),
        (f"{BROUGHT}--data nonesuch", "unknown dataset 'nonesuch'"),
        ("--encoder nowhere", "unknown encoder 'nowhere'"),
    ],
)
def test_flags__one_line_names_the_value(
    flags: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*shlex.split(flags), "--out", str(tmp_path / "new")]) == 2
    printed, error = capsys.readouterr()
    assert printed == "" and error.count("\n") == 1 and named in error
    assert not list(tmp_path.iterdir())
