"""Tables and figures of studies: an attack a row, whole words on narrow terminals, labels apart."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia import StudyResult
from tests.fake_runs import Studies, compare, golden, tables
from tests.study import test_sweep, test_tradeoff, test_views

MANY = [f"an-attack-of-a-long-name-{i}" for i in range(20)]
ONE = "--attacks similarity,internal --baseline similarity --seeds 5"
LINES: dict[str, Any] = {"controls": {}, "paired": [], "sets": []}


def study_with(
    studies: Studies, out: Path, points: int, better: tuple[int, ...] = (), seeds: int = 5
) -> StudyResult:
    """Twenty attacks and the baseline at so many points; some lie over the baseline."""
    draw = np.random.default_rng(4)

    def planted(name: str) -> Any:
        point, seed = name.rpartition("seed=")[::2]
        if int(seed) >= seeds or not (points == 1 or point[:-1] in test_views.POINTS[:points]):
            return None
        report = golden()
        model, own = float(draw.normal(0.55, 0.02)), report["attacks"][0]
        aucs = {"similarity": model} | {
            attack: model + 0.1 * (i in better) + float(draw.normal(0, 0.004))
            for i, attack in enumerate(MANY)
        }
        rows = [own | {"name": n, "auc": round(v, 6)} for n, v in aucs.items()]
        return report | LINES | {"attacks": rows}

    return studies.plant(ONE if points == 1 else test_views.FLAGS, planted, out)


@pytest.fixture(scope="module")
def single(studies: Studies, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return study_with(studies, tmp_path_factory.mktemp("single") / "OUT", 1, better=(3, 11))


# -- one point -------------------------------------------------------------------------------------


def test_one_point__is_a_table_by_attack(single: StudyResult) -> None:
    """No column says the same in each row, and no row is named "the experiment"."""
    for view in single.views:
        for title, rows in tables(single, view).items():
            assert not any("point" in row for row in rows), title
            assert "the experiment" not in str(rows)
    shown = tables(single, "sweep")
    assert len(shown["Attacks"]) == 21 and "verdicts" not in shown["Attacks"][0]
    assert "verdicts" in shown["Utility and verdicts"][0]
    first = single.to_latex("sweep").partition("\\midrule")
    assert "attack & mean AUC, 95 \\% & models" in first[0]
    assert first[2].split()[0] in MANY


def test_sentence__is_one_of_all_attacks(
    studies: Studies, single: StudyResult, tmp_path: Path
) -> None:
    few = "AUC; Holm's p at most 0.05"
    both = f"{MANY[3]}, {MANY[11]}"
    assert single.sentence == f"2 of 20 attacks lie over similarity: {both} ({few})."
    none = study_with(studies, tmp_path / "NONE", 1, seeds=3)
    assert none.sentence == f"None of 20 attacks lies over similarity ({few})."


def test_latex__says_for_what_its_limits_hold(single: StudyResult) -> None:
    tests = sum(row["p"] != "–" for row in tables(single)["Attack against attack"])
    text = single.to_latex("baseline")
    assert "95 \\% limits of each difference over models, each for itself." in text
    assert f"corrected for {tests} tests together" in text and tests == 20


# -- the terminal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 60])
def test_terminal__cuts_no_word_of_any_view(width: int, studies: Studies, tmp_path: Path) -> None:
    """Every word of every cell stands whole in a table no wider than the terminal; where
    that takes it, a long first column stands above its rows."""

    def planted(name: str) -> Any:
        report = test_sweep.planted(name)
        if isinstance(report, dict) and name.endswith("0"):
            report["verdict_code"] = "control-failed"
        return report

    out = tmp_path / "OUT"
    study = studies.plant(test_sweep.FLAGS, planted, out)
    shown = compare(out, wide=width).out.partition(f"{test_sweep.FAILED} failed")[0]
    words = shown.split()
    words += [word.removesuffix(":") for word in words]
    for rows in [*tables(study).values()][:2]:
        for row in rows:
            for cell in [row["point"], row["attack"]]:
                assert {*cell.split()} <= {*words}, cell
    assert "control-failed)" in words and "(1" in words
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert (test_sweep.LAST in lines) == (width == 60)


# -- figures ---------------------------------------------------------------------------------------


def boxes(figure: Any) -> list[Any]:
    """The boxes of all texts of a figure's axes and legends, as they are drawn."""
    figure.draw_without_rendering()
    texts = [text for axes in figure.axes for text in (*axes.get_yticklabels(),
             *axes.get_xticklabels(), axes.xaxis.label, *axes.texts)]  # fmt: skip
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    return [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]


def check_apart(figure: Any) -> None:
    for one, other in itertools.combinations(boxes(figure), 2):
        assert not one.overlaps(other)


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("points", [1, 3])
def test_figure__labels_of_twenty_attacks_do_not_overlap(
    points: int, single: StudyResult, studies: Studies, tmp_path: Path
) -> None:
    """Nor those of points whose names take four lines."""
    study = single if points == 1 else study_with(studies, tmp_path / "OUT", points, seeds=2)
    for name in ("baseline", "attacks"):
        figure = study.figure(name)
        check_apart(figure)
        assert bool(figure.legends) == (points > 1)
        (axes,) = figure.axes
        assert len(axes.get_yticklabels()) == (points if points > 1 else 20 + (name == "attacks"))
        bottom, top = (axes.get_window_extent().y0, axes.get_window_extent().y1)
        assert (top - bottom) / figure.dpi > 0.1 * 20 * min(points, 2)
    names = {point: f"a{i}, b, c, d" for i, point in enumerate(test_views.POINTS)}
    if points > 1:
        check_apart(study.rename(names).figure("attacks"))


@pytest.mark.slow(seconds=3)
def test_figure__strengths_of_points_at_one_place_do_not_overlap(
    studies: Studies, tmp_path: Path
) -> None:
    same = dict.fromkeys(test_tradeoff.PLANTED, (0.6, 0.6, 0.8))
    figure = test_tradeoff.made(studies, tmp_path / "OUT", same, seeds=2).figure("tradeoff")
    assert [text.get_text() for text in figure.axes[0].texts] == [
        "0.01",
        "0.1",
        "1.0",
        "1.0",
        "9.0",
    ]
    check_apart(figure)
