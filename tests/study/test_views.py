"""Attack against attack on planted scores, a view from outside, and the one table of a study."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from fedmia.cli.command import parse
from fedmia.cli.commands import SWEEP
from fedmia.options import registry
from fedmia.statistics.pvalues import holm
from fedmia.study.points import group_by_key
from fedmia.study.simulations import sections
from fedmia.study.views.baseline import Baseline, BaselineReport
from fedmia.sweep import main
from fedmia.table import COLUMNS
from tests.snapshots import Snapshot
from tests.study import outside_view
from tests.study.conftest import Sweeping
from tests.study.outside_view import Worst

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


def compared(rows: list[Any], baseline: str = "similarity", **more: Any) -> BaselineReport:
    """What the view makes of these rows."""
    study: Any = SimpleNamespace(**{"table": rows, "cells": (), "finished": {}} | more)
    return Baseline(baseline).report(study)


def test_baseline__is_what_a_naive_twin_finds(table: list[Any]) -> None:
    report = compared(table)
    held = {(r["point"], r["seed"], r["attack"], r["metric"]): r["value"]
            for r in table if r["control"] is None}  # fmt: skip
    naive = []
    for point in POINTS:
        for attack in ("combined", "internal"):
            for metric, _ in RATES:
                both = [[held[point, s, a, metric] for s in SEEDS] for a in (attack, "similarity")]
                test = ttest_rel(*both)
                ends = test.confidence_interval(0.95)
                naive.append((point, attack, np.subtract(*both).mean(), tuple(ends), test.pvalue))
    rows = report["comparisons"]
    assert [(r["point"], r["attack"]) for r in rows] == [one[:2] for one in naive]
    for mine, (_, _, mean, ci, p) in zip(rows, naive, strict=True):
        assert mine["difference"]["mean"] == pytest.approx(mean, abs=1e-6)
        assert mine["difference"]["ci"] == pytest.approx(ci, abs=1e-5)
        assert mine["p"] == pytest.approx(p, rel=1e-3)
    assert [r["p_holm"] for r in rows] == holm([r["p"] for r in rows])
    assert report["method"].startswith("Holm over 16 comparisons")


def test_baseline__counts_the_points_in_which_an_attack_lies_over_it(
    table: list[Any], snapshot: Snapshot
) -> None:
    view, report = Baseline("similarity"), compared(table)
    snapshot(report["sentence"])
    (made,) = view.tables(report).values()
    assert "over all 16" in made.head[-2].small  # type: ignore[union-attr]
    assert view.figures(report)["baseline"][:8] == b"\x89PNG\r\n\x1a\n"
    assert (
        "similarity lies over combined in 1 of 4 points, under it in 3"
        in (compared(table, "combined")["sentence"])
    )


def test_baseline__marks_points_with_unsound_runs(table: list[Any]) -> None:
    cells = [SimpleNamespace(grid={"alpha": 1}, key=k) for k in "ab"]
    points = [{**one, "point": "alpha=1"} for one in table if one["point"] == POINTS[0]]
    finished = {"a": ("", {"verdict_code": "leaks"}), "b": ("", {"verdict_code": "shift"})}
    for done, name in ((finished, "alpha=1 ‡"), ({"a": finished["a"]}, "alpha=1")):
        report = compared(points, cells=cells, finished=done)
        (made,) = Baseline("similarity").tables(report).values()
        assert {row.cells[0] for row in made.rows} == {name}


def test_baseline__pairs_equal_seeds_of_equal_images() -> None:
    rows = [row("", s, "similarity", 0.5 + s / 10) for s in (0, 1, 2, 3)]
    rows += [row("", s, "combined", 0.51 + s / 10 + s / 1000) for s in (3, 1, 0, 7)]
    rows.append(row("", 2, "combined", 0.9, n_members=19))  # on fewer images
    (made,) = compared(rows)["comparisons"]
    assert made["by_seed"] == {"0": 0.01, "1": 0.011, "3": 0.013}
    assert made["difference"]["n"] == 3 and made["p"] == made["p_holm"] < 0.01  # type: ignore[operator]
    assert made["measure"] == "AUC"


def test_baseline__one_seed_settles_nothing() -> None:
    report = compared([row("", 0, "similarity", 0.5), row("", 0, "combined", 0.9)])
    assert report["sentence"].startswith("No difference to similarity")
    assert report["comparisons"][0]["difference"]["mean"] == 0.4


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--attacks similarity,combined --baseline similarty", "did you mean 'similarity'?"),
        ("--attacks similarity --baseline similarity", "no other attack runs"),
        ("--views sweep --out {out}", "a command or a flag of its own"),
        ("--views baseline --out {out}", "a command or a flag of its own"),
        ("--views baselin --out {out}", "did you mean 'baseline'?"),
        ("--views fedmia.sweep:main --out {out}", "is not a View"),
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
def test_sweep__shows_the_sections_that_were_asked_for(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Baseline, "figures", lambda self, report: {})
    out = tmp_path / "OUT"
    flags = "--attacks similarity,internal --jobs 1 --grid strategy=fedavg,fedprox --seeds 2 "
    flags += "--baseline similarity --views tests.study.outside_view:Worst"
    assert sweeping(flags) == 0
    report = json.loads((out / "sweep.json").read_text(encoding="utf-8"))
    views = report["views"]
    assert list(views) == ["tests.study.outside_view:Worst", "baseline"]
    assert views["baseline"]["baseline"] == report["config"]["baseline"] == "similarity"
    compared = {(r["point"], r["attack"]): r["by_seed"] for r in views["baseline"]["comparisons"]}
    assert compared["strategy=fedprox", "internal"] == {"0": 0.0, "1": 0.0}
    page = (out / "sweep.html").read_text(encoding="utf-8")
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert {"Attack against attack", "The worst &lt;case&gt;"} <= {*titles}
    assert all(view["sentence"] in page for view in views.values())
    assert "worst AUC" in page and Worst.captions["worst"] in page
    again = parse(SWEEP, [str(out / "config.yaml")]).settings  # its file repeats it
    assert list(sections(again)) == list(views) and again.baseline == "similarity"


def test_view__is_a_plugin() -> None:
    assert {"sweep", "encoders", "tradeoff", "baseline"} <= {*registry.names("view")}
    assert registry.load("view", "tests.study.outside_view:Worst") is Worst


def test_docs__the_view_of_its_own_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "compare_attacks.md").read_text(
        encoding="utf-8"
    )
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names = {**vars(outside_view), "group_by_key": group_by_key}
    exec(compile(code, "compare_attacks.md", "exec"), names)
    rows = [row("x", s, "similarity", 0.5 + s / 10) for s in (0, 1, 2)]
    report = (view := names["Worst"]()).report(SimpleNamespace(table=rows, cells=(), finished={}))
    assert report["rows"] == [{"point": "x", "worst": 0.7}]
    assert view.tables(report)["worst"].rows[0].cells == ["x", "0.700"]
