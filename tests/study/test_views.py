"""Attack against attack on planted scores, and views: those asked for, and one from outside."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from fedmia import InputError, StudyResult, open_study
from fedmia.settings import registry
from fedmia.statistics.pvalues import holm
from tests.commands import fedmia
from tests.fake_runs import Studies, about, golden, tables
from tests.study.conftest import Studying

FLAGS = (
    "--attacks similarity,internal --baseline similarity --seeds 5 --over partition.alpha=1,2,3,4"
)
SEEDS, POINTS = (
    range(5),
    tuple(f"partition.alpha={alpha}" for alpha in ("1.0", "2.0", "3.0", "4.0")),
)
GAIN = dict(zip(POINTS, (0.05, 0.06, 0.04, -0.05), strict=True))
MEASURES = {"AUC": "auc", "TPR at 1 % FPR": "tpr"}
Values = dict[tuple[str, int, str, str], float]  # point, seed, attack and measure -> its value


def drawn() -> Values:
    """`combined` lies over `similarity` by the gain of each point, `internal` is as good as it;
    models differ far more than attacks do."""
    draw, values = np.random.default_rng(3), {}
    for point in POINTS:
        for seed in SEEDS:
            model = draw.uniform(0.2, 0.8)
            for attack, more in (("similarity", 0.0), ("combined", GAIN[point]), ("internal", 0.0)):
                for measure in MEASURES.values():
                    values[point, seed, attack, measure] = round(
                        model + more + draw.normal(0, 0.004), 6
                    )
    return values


VALUES = drawn()


def report_of(name: str, values: Values = VALUES) -> dict[str, Any]:
    """The report of a run in which each attack has its values; their order goes by the seed, and a
    control of one of them has others."""
    point, _, seed = name.rpartition("_seed=")
    report, at = golden(), int(seed)
    rows = {row["name"]: row for row in report["attacks"]}
    attacks = ["similarity", "combined", "internal"]
    report["attacks"] = [
        rows[attack]
        | {"auc": values[point, at, attack, "auc"],
           "tpr_at_fpr": {"0.01": values[point, at, attack, "tpr"]},
           "tpr_at_fpr_ci": {"0.01": None}, "fpr_achieved": {"0.01": 0.01}}
        for attack in attacks[at % 3 :] + attacks[: at % 3]
    ]  # fmt: skip
    control = {**rows["combined"], "auc": 0.9}
    return report | {"controls": {"untrained": [control]}, "paired": []}


@pytest.fixture(scope="module")
def whole(studies: Studies, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return studies.plant(FLAGS, report_of, tmp_path_factory.mktemp("views") / "OUT")


def test_baseline__is_what_a_naive_twin_finds(whole: StudyResult) -> None:
    """In the frame of `compare` to its digits, and in the table of the page."""
    assert [*whole.views] == ["baseline", "sweep"]
    frame = whole.compare(["combined", "internal"], "similarity")
    found = {(r.point, r.attack, r.measure): r for r in frame.itertuples()}
    shown = {(r["point"], r["attack"], r["measure"]): r
             for r in tables(whole)["Attack against attack"]}  # fmt: skip
    assert len(found) == len(frame) == len(shown) == 16 and {*frame["baseline"]} == {"similarity"}
    for (point, attack, measure), row in found.items():
        both = [[VALUES[point, s, a, MEASURES[measure]] for s in SEEDS]
                for a in (attack, "similarity")]  # fmt: skip
        test = ttest_rel(*both)
        low, high = test.confidence_interval(0.95)
        mean = np.subtract(both[0], both[1]).mean()
        assert row.difference == pytest.approx(mean, abs=1e-6) and row.models == 5
        assert (row.low, row.high) == pytest.approx((low, high), abs=1e-5)
        assert row.p == pytest.approx(test.pvalue, rel=1e-3)
        cells = shown[point, attack, measure]
        text = f"{row.difference:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
        assert cells["minus similarity, 95 %"] == text
        assert cells["least"] == f"{np.subtract(both[0], both[1]).min():.3f}"
    assert list(frame["p_holm"]) == holm(list(frame["p"]))


def test_sweep__beside_it_has_the_means_of_auc_and_of_tpr(whole: StudyResult) -> None:
    rows = tables(whole, "sweep")["Attacks, by point"]
    assert len(rows) == 12
    for row in rows:
        place = row["point"], row["attack"]
        for head, measure in (("mean AUC, 95 %", "auc"), ("TPR at 1 % FPR, 95 %", "tpr")):
            mean = np.mean([VALUES[place[0], s, place[1], measure] for s in SEEDS])
            assert float(row[head].split()[0]) == pytest.approx(mean, abs=6e-4)
        control = "0.900" if row["attack"] == "combined" else "–"
        assert row["untrained control"] == control


def test_compare__is_one_family_of_all_attacks_asked_for(whole: StudyResult) -> None:
    both = whole.compare(["combined", "internal"], baseline="similarity")
    alone = pd.concat([whole.compare(name, "similarity") for name in ("combined", "internal")])
    joined = both.merge(alone, on=["point", "attack", "measure"], suffixes=("", "_alone"))
    assert (joined["p"] == joined["p_alone"]).all()
    assert (joined["p_holm"] >= joined["p_holm_alone"]).all()
    assert (joined["p_holm"] > joined["p_holm_alone"]).any()
    with pytest.raises(InputError, match="unknown attack of this study 'combind'; did you mean"):
        whole.compare(["combind"], "similarity")


def test_sentence__counts_the_points_in_which_an_attack_lies_over_the_baseline(
    whole: StudyResult,
) -> None:
    assert whole.sentence == (
        "1 of 2 attacks lies over similarity: combined (in 3 of 4 points); under it: combined "
        "(in 1 of 4 points) (AUC; Holm's p at most 0.05)."
    )
    assert whole.figure("baseline").axes[0].get_xlabel() == "AUC minus AUC of similarity"


def test_baseline__pairs_equal_seeds_of_equal_images_and_one_seed_settles_nothing(
    studies: Studies, tmp_path: Path
) -> None:
    """Of the first point `combined` lacks in one run and scored fewer images in another; of the
    second one run is there."""

    def planted(name: str) -> Any:
        point, _, seed = name.rpartition("_seed=")
        if point not in POINTS[:2] or (point == POINTS[1] and seed != "0"):
            return None
        at, report = int(seed), report_of(name)
        rows = {row["name"]: row for row in report["attacks"]}
        base = rows["similarity"] | {"auc": 0.5 + at / 10, "tpr_at_fpr": {}}
        ours = rows["combined"] | {"auc": 0.51 + at / 10 + at / 1000, "tpr_at_fpr": {}}
        ours |= {"n_members": 15} if at == 2 else {}
        return report | {"attacks": [base, ours][: 1 + (at != 4)]}

    study = studies.plant(FLAGS, planted, tmp_path / "OUT")
    (first, second) = tables(study)["Attack against attack"]
    assert (first["measure"], first["models"], first["least"], first["greatest"]) == (
        "AUC", "3", "0.010", "0.013",
    )  # fmt: skip
    assert first["p"] == first["p, Holm"] != "–"
    assert (second["minus similarity, 95 %"], second["p"]) == ("+0.010", "–")
    assert study.sentence.startswith("combined (in 1 of 2 points) lies over similarity (AUC")
    only = studies.plant(FLAGS, lambda n: planted(n) if POINTS[1] in n else None, tmp_path / "ONE")
    assert only.sentence.startswith("No difference to similarity can be tested: that takes two")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--attacks similarity,combined --baseline similarty", "did you mean 'similarity'?"),
        ("--attacks similarity --baseline similarity", "no other attack runs"),
        ("--view tradeoff --out {out}", "is of defenses (--defenses), which is not given"),
        ("--view baseline --out {out}", "is of baseline (--baseline), which is not given"),
        ("--view baselin --out {out}", "did you mean 'baseline'?"),
        ("--view fedmia.audit:main --out {out}", "is not a StudyView"),
    ],
)
def test_bad_input__one_line_before_anything_runs(flags: str, words: str, tmp_path: Path) -> None:
    ran = fedmia(["study", *shlex.split(flags.format(out=tmp_path / "OUT"))])
    assert ran.code == 2 and words in ran.err
    assert flags.split()[-1 if "--out" not in flags else 1] in ran.err
    assert ran.err.count("\n") == 1 and not (tmp_path / "OUT").exists()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The view of the documentation, in a module of its own, with a title that must be escaped."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "write_a_view.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    code = code.replace("The worst case", "The worst <case>")
    (tmp_path / "worst_view.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "worst_view:Worst"
    sys.modules.pop("worst_view", None)


def test_study__shows_the_views_that_were_asked_for(
    studying: Studying, tmp_path: Path, outside: str
) -> None:
    out = tmp_path / "OUT"
    flags = "--attacks similarity,internal --jobs 1 --over strategy=fedavg,fedprox --seeds 2 "
    flags += f"--seed 3 --baseline similarity --view {outside},baseline"
    ran = studying(flags)
    assert ran.code == 0, ran.err
    said = "The highest AUC of any point is 0.64."
    assert (about(out)["views"], about(out)["sentence"]) == ([outside, "baseline"], said)
    study = open_study(out, trust_plugins=True)
    assert tables(study, outside) == {
        "The worst <case>": [{"point": "strategy=fedavg", "AUC": "0.540"},
                             {"point": "strategy=fedprox", "AUC": "0.640"}]
    }  # fmt: skip
    page = (out / "study.html").read_text(encoding="utf-8")
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert {"Attack against attack", "The worst &lt;case&gt;"} <= {*titles}
    assert all(view.sentence(study) in page for view in study.views.values())
    for text in ("The highest AUC of each point.", "Over all attacks and seeds."):
        assert text in page
    assert study.figure("worst") is not None and (out / "figures" / "worst.png").is_file()
    with pytest.raises(InputError, match="from outside: open it with trust_plugins"):
        open_study(out).figure("worst")
    # Its file repeats it, and so does the command: all views are there, the first one speaks.
    again = studying(str(out / "config.yaml"))
    assert again.code == 0 and json.loads((out / "study.json").read_text())["sentence"] == said


def test_view__is_a_plugin() -> None:
    assert {"sweep", "encoders", "tradeoff", "baseline"} <= {*registry.names("view")}
