"""`python -m research.papers head` as its users call it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from torch import nn

from fedmia.lowerbounds.gdp import delta_at
from fedmia.lowerbounds.onerun import one_run_bound
from tests.papers.finished import papers
from tests.pictures import painting

EPSILONS = (0.05, 20.0)
SETTINGS = [(m, e) for m in ("laplace", "gaussian-classical", "gaussian") for e in EPSILONS]
FAMILY = 3 * len(SETTINGS) + 6  # AUCs: three attacks a setting, two without noise and of controls
NAIVE, KNOWING, CONFIDENCE = "shadow", "shadow-knowing", "confidence"
HEADS, DELTA = 4, 1e-5
Report = dict[str, Any]


def pixels() -> nn.Module:
    """An encoder whose features are 60 pixels."""
    layer = nn.Linear(3 * 8 * 8, 60)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(60, 3 * 8 * 8))
    return nn.Sequential(nn.Flatten(), layer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads on images that say nothing of their labels: they can only be learnt by heart."""
    root, draw = tmp_path_factory.mktemp("heads"), np.random.default_rng(0)
    images = draw.integers(0, 256, (240, 8, 8, 3), dtype=np.uint8)
    np.savez(root / "noise.npz", x=images, y=draw.integers(0, 2, 240))
    mechanisms, epsilons = (
        ",".join(map(str, dict.fromkeys(each))) for each in zip(*SETTINGS, strict=True)
    )
    flags = (
        f"--encoder {__name__}:pixels --data npz:{root / 'noise.npz'} --size 8 --device cpu "
        f"--images 40 --lr 2 --weight-decay 0 --samples 3 --draws 2 --seeds {HEADS} --threads 1 "
        f"--mechanisms {mechanisms} --epsilons {epsilons}"
    )
    with painting():
        ran = papers(f"head {flags}", root / "OUT")
    assert ran.code == 0, ran.err
    (root / "OUT" / "printed.txt").write_text(ran.out, encoding="utf-8")
    return root / "OUT"


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    content: Report = json.loads((folder / "report.json").read_text("utf-8"))
    return content


def auc(row: Report, name: str) -> float:
    (own,) = (attack["auc"]["mean"] for attack in row["attacks"] if attack["name"] == name)
    return float(own)


def test_rows__of_each_setting_in_order(report: Report) -> None:
    assert (report["heads"], report["n_members"], report["n_nonmembers"]) == (HEADS, 40, 80)
    assert (report["weights"], report["releases"], report["shadows"]) == (61 * 2, 2, 25)
    plain, *noised = report["rows"]
    assert (plain["mechanism"], plain["epsilon"], plain["standing"]) == (None, None, None)
    assert (plain["meaningful"], plain["delta"], plain["lower_bound"]) == (False, 0.0, None)
    assert [attack["name"] for attack in plain["attacks"]] == [NAIVE, CONFIDENCE]
    assert plain["scale"]["mean"] == plain["utility_loss"]["mean"] == 0
    assert [(row["mechanism"], row["epsilon"]) for row in noised] == SETTINGS
    for row in noised:
        assert [attack["name"] for attack in row["attacks"]] == [NAIVE, KNOWING, CONFIDENCE]
        assert (row["standing"], row["meaningful"], row["unit"]) == ("empirical", True, "image")
        assert row["delta"] == (0.0 if row["mechanism"] == "laplace" else DELTA)
        assert row["utility"]["n"] == HEADS


def test_scale__is_the_sensitivity_of_each_head_over_its_epsilon(report: Report) -> None:
    """Classical: sigma = Delta_2 sqrt(2 ln(1.25 / delta)) / epsilon (Sec. 3.2)."""
    one, two = (report["sensitivity"][f"l{order}"] for order in (1, 2))
    for row in report["rows"][1:]:
        for which in ("mean", "least", "greatest"):
            found, epsilon = row["scale"][which], row["epsilon"]
            if row["mechanism"] == "laplace":
                assert found == pytest.approx(one[which] / epsilon, rel=1e-4)
            elif row["mechanism"] == "gaussian":
                assert delta_at(epsilon, two[which] / found) == pytest.approx(DELTA, rel=1e-2)
            else:
                wide = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
                assert found == pytest.approx(two[which] * wide, rel=1e-4)
    assert one["least"] > two["greatest"] > 0


def test_attacks__find_what_is_learnt_by_heart_until_noise_hides_it(report: Report) -> None:
    """And nothing in heads that saw none of the images. The attacker that knows of the noise has
    another classifier than the one that does not."""
    plain, *noised = report["rows"]
    assert report["fitted"]["mean"] == 1.0
    placebo = {row["name"]: row["auc"]["mean"] for row in report["controls"]["placebo"]}
    for name in (NAIVE, CONFIDENCE):
        assert auc(plain, name) > 0.7 and abs(placebo[name] - 0.5) < 0.1
        assert auc(report["controls"]["untrained"], name) > 0.6
    for row in noised:
        found = [auc(row, name) for name in (NAIVE, KNOWING, CONFIDENCE)]
        if row["epsilon"] < 1:
            assert max(abs(one - 0.5) for one in found) < 0.15
        else:
            assert min(found) > 0.53 and max(found) < auc(plain, NAIVE)
    assert sum(auc(row, NAIVE) != auc(row, KNOWING) for row in noised) >= len(noised) - 1
    # The controls are of the same heads' seeds, on another encoder.
    assert report["controls"]["untrained"]["utility"]["n"] == HEADS


def test_intervals__hold_together_over_all_aucs(report: Report) -> None:
    every = [a for row in report["rows"] for a in row["attacks"]]
    every += report["controls"]["untrained"]["attacks"] + report["controls"]["placebo"]
    assert len(every) == FAMILY
    wider = scipy.stats.t.isf(0.025 / FAMILY, HEADS - 1)
    for attack in every:
        mean, sd = attack["auc"]["mean"], attack["auc"]["sd"]
        half = wider * sd / math.sqrt(HEADS)
        want = max(0.0, mean - half), min(1.0, mean + half)
        assert attack["auc_ci_simultaneous"] == pytest.approx(want, abs=1e-4)


def test_lower_bounds__blame_the_classical_gaussian_beyond_its_proof_alone(report: Report) -> None:
    """At 20 it spends 25.4. The bounds hold together."""
    for row in report["rows"][1:]:
        bound = row["lower_bound"]
        broken = (row["mechanism"], row["epsilon"]) == ("gaussian-classical", 20.0)
        assert bound["refuted"] == broken, row["mechanism"]
        assert bound["canaries"] == 1000 and bound["value_simultaneous"] <= bound["value"]
        one_run = row["mechanism"] == "laplace"
        assert bound["audit"] == ("one-run" if one_run else "own-runs-gdp")
        if one_run:
            counts = bound["canaries"], bound["guesses"], bound["correct"], 0.0
            assert bound["value"] == pytest.approx(one_run_bound(*counts, 0.05))
            each = one_run_bound(*counts, 0.05 / len(SETTINGS))
            assert bound["value_simultaneous"] == pytest.approx(each)
    bounds = {r["mechanism"]: r["lower_bound"] for r in report["rows"] if r["epsilon"] == 20}
    assert bounds["gaussian-classical"] != bounds["gaussian"]
    assert report["sentence"].startswith(
        "CLAIM REFUTED by canaries: gaussian-classical at 20. Without noise the attack has AUC"
    )


def test_sentence__least_epsilon_at_a_tolerable_cost_and_what_is_left(report: Report) -> None:
    """5 % of utility is tolerable."""
    plain, *noised = report["rows"]
    leaking = any(a["auc_ci_simultaneous"][0] > 0.5 for a in plain["attacks"])
    said = f"mean over {HEADS} heads: {'the heads leak' if leaking else 'no leak is established'}. "
    assert leaking and said in report["sentence"]
    for mechanism, _ in SETTINGS:
        losses = {r["epsilon"]: r["utility_loss"]["mean"] for r in noised
                  if r["mechanism"] == mechanism}  # fmt: skip
        cheap = [epsilon for epsilon, loss in losses.items() if loss <= 0.05]
        if cheap:
            assert (
                f"{mechanism} keeps utility within 5% from epsilon {min(cheap):g} on"
                in (report["sentence"])
            )
        else:
            assert f"{mechanism} costs over 5% of utility at every" in report["sentence"]
    left = [
        f"{row['mechanism']} at {row['epsilon']:g}" for row in noised
        if any(attack["auc_ci_simultaneous"][0] > 0.5 for attack in row["attacks"])
    ]  # fmt: skip
    end = f"a leak remains under {', '.join(left)}" if left else "no leak is established at these"
    assert end in report["sentence"]
    least = min(noised, key=lambda row: row["utility_loss"]["mean"])
    assert f"{least['mechanism']} at {least['epsilon']:g} costs least utility" in report["sentence"]


def test_page_and_terminal__say_the_same(folder: Path, report: Report) -> None:
    printed, page = ((folder / name).read_text("utf-8") for name in ("printed.txt", "report.html"))
    assert report["sentence"] in printed and str(folder / "report.html") in printed
    for name in ("fig-1", "fig-2"):
        assert (folder / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.count("data:image/png;base64,") == 2 and "<script" not in page
    for row in report["rows"][1:]:
        assert f"{row['epsilon']:g} for one image" in page
        assert f"at least {row['lower_bound']['value']:.2f} by canaries" in page
    assert f"delta {DELTA:g}" in page and "no bound" in page


SMALL = "--encoder tests.auditing.brought:grey --threads 1 --device cpu "


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--data digits", "encoder (--encoder) is missing"),
        (f"{SMALL}--epsilons 0,1", "epsilons (--epsilons): 0.0, must be > 0"),
        (f"{SMALL}--epsilons 1,1", "epsilons (--epsilons): 1.0 is given twice"),
        (f"{SMALL}--mechanisms logistik", "did you mean 'logistic'"),
        (f"{SMALL}--delta 1", "delta (--delta): 1.0, must be < 1"),
        (f"{SMALL}--images 600", "images 600: a head, those asked about"),
        (f"{SMALL}--seeds 1", "seeds (--seeds): 1, must be >= 2"),
        (f"{SMALL}--data nonesuch", "unknown dataset 'nonesuch'"),
        ("--encoder nowhere", "unknown encoder 'nowhere'"),
    ],
)
def test_flags__one_line_names_the_value(flags: str, named: str, tmp_path: Path) -> None:
    ran = papers(f"head {flags}", tmp_path / "new")
    assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1 and named in ran.err
    assert not list(tmp_path.iterdir())
