"""Attack against attack on planted scores, and a view from outside."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from fedmia import open_study
from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.report.codes import VOID
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.statistics.pvalues import holm
from fedmia.study.__main__ import main
from fedmia.study.result import StudyResult
from fedmia.study.views.baseline import BaselineView, rows_of
from fedmia.study.words import baseline_sentence
from fedmia.table import COLUMNS
from tests.snapshots import Snapshot
from tests.study.conftest import Studying
from tests.study.outside_view import Worst
from tests.study.planted import study_of_rows

SEEDS, POINTS = range(5), ("a=1", "a=2", "a=3", "a=4")
RATES = (("auc", None), ("tpr_at_fpr", 0.01))


def row(point: str, seed: int, attack: str, value: float, **more: Any) -> Any:
    """An AUC of one attack in one run, unless `more` says otherwise."""
    own = {"point": point, "seed": seed, "run": f"{point}_{seed}", "attack": attack}
    own |= {"subject": "attack", "metric": "auc", "n_members": 20, "n_nonmembers": 30}
    return dict.fromkeys(COLUMNS) | own | {"value": value} | more


def planted(gain: dict[str, float]) -> list[Any]:
    """`combined` lies over `similarity` by the gain of each point, `internal` is as good as it;
    models differ far more than attacks do, and each attack's runs stand in another order."""
    draw = np.random.default_rng(3)
    rows = []
    for point in POINTS:
        models = {seed: draw.uniform(0.2, 0.8) for seed in SEEDS}
        for attack, more in (("similarity", 0.0), ("combined", gain[point]), ("internal", 0.0)):
            for seed in draw.permutation(list(SEEDS)):
                for metric, fpr in RATES:
                    value = round(models[seed] + more + draw.normal(0, 0.004), 6)
                    rate = {"metric": metric, "target_fpr": fpr}
                    rows.append(row(point, int(seed), attack, value, **rate))
    return rows


GAIN = {"a=1": 0.05, "a=2": 0.06, "a=3": 0.04, "a=4": -0.05}


@pytest.fixture(scope="module")
def table() -> list[Any]:
    """The planted table, with rows that are no scores of an attack."""
    controls = [row(p, s, "combined", 0.9, control="untrained") for p in POINTS for s in SEEDS]
    pixels = [row(p, s, None, 0.1, control="pixels") for p in POINTS for s in SEEDS]  # type: ignore[arg-type]
    return [*controls, *planted(GAIN), *pixels]


def study(rows: list[Any], codes: Any = None, baseline: str = "similarity") -> StudyResult:
    return study_of_rows(rows, codes, baseline=baseline)


def test_baseline__is_what_a_naive_twin_finds(table: list[Any]) -> None:
    values = {(r["point"], r["seed"], r["attack"], r["metric"]): r["value"]
              for r in table if r["control"] is None}  # fmt: skip
    naive = {}
    for point in POINTS:
        for attack in ("combined", "internal"):
            for metric, _ in RATES:
                both = [[values[point, s, a, metric] for s in SEEDS]
                        for a in (attack, "similarity")]  # fmt: skip
                test = ttest_rel(*both)
                ends = test.confidence_interval(0.95)
                measure = {"auc": "AUC", "tpr_at_fpr": "TPR at 1 % FPR"}[metric]
                naive[point, attack, measure] = np.subtract(*both).mean(), tuple(ends), test.pvalue
    rows = rows_of(study(table))
    assert {(r.point, r.attack, r.measure) for r in rows} == naive.keys()
    assert len(rows) == len(naive) == 16
    for row in rows:
        mean, ci, p = naive[row.point, row.attack, row.measure]
        assert row.difference.mean == pytest.approx(mean, abs=1e-6)
        assert row.difference.ci == pytest.approx(ci, abs=1e-5)
        assert row.p == pytest.approx(p, rel=1e-3)
    assert [r.p_holm for r in rows] == holm([r.p for r in rows])


def test_compare__is_one_family_of_all_attacks_asked_for(table: list[Any]) -> None:
    whole = study(table)
    both = whole.compare(["combined", "internal"], baseline="similarity")
    assert len(both) == 16 and {*both["baseline"]} == {"similarity"}
    assert list(both["p_holm"]) == holm(list(both["p"]))
    alone = pd.concat([whole.compare(name, "similarity") for name in ("combined", "internal")])
    joined = both.merge(alone, on=["point", "attack", "measure"], suffixes=("", "_alone"))
    assert (joined["p"] == joined["p_alone"]).all()
    assert (joined["p_holm"] >= joined["p_holm_alone"]).all()
    assert (joined["p_holm"] > joined["p_holm_alone"]).any()
    with pytest.raises(InputError, match="unknown attack of this study 'combind'; did you mean"):
        whole.compare(["combind"], "similarity")


def test_baseline__counts_the_points_in_which_an_attack_lies_over_it(
    table: list[Any], snapshot: Snapshot
) -> None:
    view, whole = BaselineView(), study(table)
    snapshot(view.sentence(whole))
    (made,) = view.sections(whole)
    assert len(made.rows) == 16
    assert view.figures(whole)["baseline"]() is not None
    reverse = view.sentence(study(table, baseline="combined"))
    over, _, under = reverse.partition("under it: ")
    assert "similarity (in 1 of 4 points)" in over and "similarity (in 3 of 4 points)" in under


@pytest.mark.parametrize("code", VOID)
def test_compare__leaves_out_void_runs_and_says_so(code: str, table: list[Any]) -> None:
    rows = [one for one in table if one["point"] == POINTS[0]]
    for codes, models, void in (
        (["leaks"] * 4 + [code], 4, f"1 of 5 void: {code}"),
        ([code] * 5, 0, f"5 of 5 void: {code}"), (["leaks"] * 5, 5, ""),
    ):  # fmt: skip
        whole = study(rows, {POINTS[0]: codes})
        frame = whole.compare("combined", "similarity")
        assert {*frame["models"]} == {models} and {*frame["void"]} == {void}
        assert frame["p"].notna().all() == (models > 0) == frame["difference"].notna().all()
        assert (f"({void})" in whole.to_latex()) == bool(void)


def test_baseline__pairs_equal_seeds_of_equal_images() -> None:
    rows = [row("", s, "similarity", 0.5 + s / 10) for s in (0, 1, 2, 3)]
    rows += [row("", s, "combined", 0.51 + s / 10 + s / 1000) for s in (3, 1, 0, 7)]
    rows.append(row("", 2, "combined", 0.9, n_members=19))  # on fewer images
    (made,) = rows_of(study(rows))
    assert made.by_seed == {0: 0.01, 1: 0.011, 3: 0.013}
    assert made.difference.n == 3 and made.p is not None and made.p == made.p_holm < 0.01
    assert made.measure == "AUC"


def test_baseline__one_seed_settles_nothing() -> None:
    one = study([row("", 0, "similarity", 0.5), row("", 0, "combined", 0.9)])
    assert BaselineView().sentence(one).startswith("No difference to similarity")
    assert rows_of(one)[0].difference.mean == 0.4
    assert baseline_sentence([], "similarity").startswith("No difference")


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
def test_bad_input__one_line_before_anything_runs(
    flags: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(flags.format(out=tmp_path / "OUT"))) == 2
    err = capsys.readouterr().err
    assert words in err and flags.split()[-1 if "--out" not in flags else 1] in err
    assert err.count("\n") == 1 and not (tmp_path / "OUT").exists()


@pytest.mark.slow
def test_study__shows_the_views_that_were_asked_for(
    studying: Studying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaselineView, "figures", lambda self, study: {})
    out, outside = tmp_path / "OUT", "tests.study.outside_view:Worst"
    flags = "--attacks similarity,internal --jobs 1 --over strategy=fedavg,fedprox --seeds 2 "
    flags += f"--baseline similarity --view {outside},baseline"
    assert studying(flags) == 0
    about = json.loads((out / "study.json").read_text(encoding="utf-8"))
    assert about["views"] == [outside, "baseline"] and about["sentence"] == "The worst of 2 points."
    study = open_study(out, trust_plugins=True)
    rows = {(row.point, row.attack): row for row in rows_of(study)}
    assert rows["strategy=fedprox", "internal"].by_seed == {0: 0.0, 1: 0.0}
    page = (out / "study.html").read_text(encoding="utf-8")
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert {"Attack against attack", "The worst &lt;case&gt;"} <= {*titles}
    assert all(view.sentence(study) in page for view in study.views.values())
    for text in ("worst AUC", Worst.captions["worst"], "Higher is worse."):
        assert text in page
    assert study.figure("worst") is not None and (out / "figures" / "worst.png").is_file()
    with pytest.raises(InputError, match="from outside: open it with trust_plugins"):
        open_study(out).figure("worst")
    again = parse(STUDY, [str(out / "config.yaml")]).settings  # its file repeats it
    assert again.views == (outside, "baseline") and again.baseline == "similarity"


def test_view__is_a_plugin() -> None:
    assert {"sweep", "encoders", "tradeoff", "baseline"} <= {*registry.names("view")}
    assert registry.load("view", "tests.study.outside_view:Worst") is Worst


@pytest.mark.parametrize(
    ("flags", "views"),
    [
        ("", ("sweep",)),
        ("--attacks similarity,lpla --baseline lpla", ("baseline", "sweep")),
        ("--defenses gaussian", ("tradeoff", "sweep")),
        ("--encoders a.pth,b.pth --members digits --nonmembers digits", ("encoders",)),
        ("--view sweep", ("sweep",)),
    ],
)
def test_views__follow_from_what_is_compared(flags: str, views: tuple[str, ...]) -> None:
    assert parse(STUDY, shlex.split(flags)).settings.views == views


def test_docs__the_view_of_its_own_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "write_a_view.md").read_text(
        encoding="utf-8"
    )
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "worst_view", "exec", dont_inherit=True), names)
    view, rows = names["Worst"](), [row("x", s, "similarity", 0.5 + s / 10) for s in (0, 1, 2)]
    assert view.rows(study(rows)) == [names["WorstRow"](point="x", worst=0.7)]
    (section,) = view.sections(study(rows))
    assert section.brief_rows() == (["point", "AUC"], [["x", "0.700"]])
    assert view.sentence(study(rows)) == "The highest AUC of any point is 0.70."
    assert set(view.captions) == set(section.figures) == set(view.figures(study(rows)))
    assert view.figures(study(rows))["worst"]() is not None
