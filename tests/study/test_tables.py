"""Tables and figures of studies: an attack a row, whole words at 80 columns, labels apart."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fedmia.study.columns import WIDTH, screen
from fedmia.study.drawing import forest
from fedmia.study.result import StudyResult
from fedmia.study.rows import AttackPointRow, ComparisonRow
from fedmia.study.views import sweep, tradeoff
from fedmia.study.views.baseline import BaselineView
from tests.study.planted import golden, study_of
from tests.study.test_sweep import made as made_sweep
from tests.study.test_tradeoff import made as made_tradeoff

MANY = [f"an-attack-of-a-long-name-{i}" for i in range(20)]
REPORT = golden()


def study_with(points: int, better: tuple[int, ...] = (), seeds: int = 5) -> StudyResult:
    """Twenty attacks and the baseline at so many points; some lie over the baseline."""
    draw, runs = np.random.default_rng(4), list[Any]()
    for point in range(points):
        grid = {"partition.alpha": point, "strategy": "fedavg"} if points > 1 else {}
        name = ", ".join(f"{path}={value}" for path, value in grid.items())
        for seed in range(seeds):
            model, own = float(draw.normal(0.55, 0.02)), REPORT["attacks"][0]
            aucs = {"similarity": model} | {
                attack: model + 0.1 * (i in better) + float(draw.normal(0, 0.004))
                for i, attack in enumerate(MANY)
            }
            rows = [own | {"name": n, "auc": round(v, 6)} for n, v in aucs.items()]
            runs.append((name, grid, seed, REPORT | {"attacks": rows}))
    return study_of(runs, ("baseline", "sweep"), baseline="similarity")


@pytest.fixture(scope="module")
def single() -> StudyResult:
    return study_with(1, better=(3, 11))


# -- one point -------------------------------------------------------------------------------------


def test_one_point__is_a_table_by_attack(single: StudyResult) -> None:
    """No column says the same in each row, and no row is named "the experiment"."""
    for view in single.views.values():
        for section in view.sections(single):
            heads = [head.text for head in section.columns]
            assert "point" not in heads, section.title
            assert "the experiment" not in str(section.table())
    attacks, *_, use = [s for s in sweep.SweepView().sections(single) if s.rows]
    assert attacks.title == "Attacks" and len(attacks.rows) == 21
    heads, lines = attacks.brief_rows()
    assert heads == ["attack", "mean AUC, 95 %", "models"] and lines[0][0] in MANY
    assert "verdicts" in [head.text for head in use.columns]
    several = sweep.SweepView().sections(study_with(2, seeds=2))[0]
    assert several.title == "Attacks, by point" and several.brief_rows()[0][0] == "point"


def test_sentence__is_one_of_all_attacks(single: StudyResult) -> None:
    sentence, few = BaselineView().sentence, "AUC; Holm's p at most 0.05"
    none = study_with(1)
    assert sentence(none) == f"None of 20 attacks lies over similarity ({few})."
    both = f"{MANY[3]}, {MANY[11]}"
    assert sentence(single) == f"2 of 20 attacks lie over similarity: {both} ({few})."
    assert f"{MANY[3]} (in 2 of 2 points)" in sentence(study_with(2, better=(3,)))


# -- the terminal ----------------------------------------------------------------------------------


def check_whole(heads: list[str], lines: list[list[str]], width: int = WIDTH) -> list[str]:
    """Every word of every cell stands whole in the table, which is no wider than the terminal."""
    text = screen(heads, lines, width).plain
    words = text.split()
    words += [word.removesuffix(":") for word in words]
    for cell in [*heads, *(cell for line in lines for cell in line)]:
        assert {*cell.split()} <= {*words}, cell
    assert max(map(len, text.splitlines())) <= width
    return text.splitlines()


@pytest.mark.parametrize("width", [80, 60])
def test_screen__cuts_no_word_of_any_view(single: StudyResult, width: int) -> None:
    studies = (single, made_sweep(verdict_code="control-failed"), study_with(2, (3,), seeds=2))
    shown = [
        section.brief_rows(2)
        for study in (*studies, made_tradeoff(seeds=2))
        for view in study.views.values()
        for section in view.sections(study)
        if section.brief and section.rows
    ]
    assert len(shown) >= 8
    for heads, lines in shown:
        check_whole(heads, lines, width)


def test_screen__puts_a_long_first_column_above_its_rows() -> None:
    """Where not even that fits, each cell has a line."""
    heads = ["point", "attack", "AUC, 95 %", "verdicts"]
    cells = ["0.61 [0.59, 0.63] (1 of 3 void: control-failed)", "leaks 1, not-established 2"]
    long = "partition.of_a_path_that_does_not_end=0.1"
    lines = [[long, "an-attack", *cells], [long, "another-attack", *cells]]
    (first, second, *rest) = check_whole(heads, lines)
    assert (first, second.split()[0]) == ("point", "attack") and long in rest
    wider = [[one, f"{attack}-{'x' * 45}", *rest] for one, attack, *rest in lines]
    shown = check_whole(heads, wider)
    assert shown[0] == f"point: {long}" and shown[2] == f"  AUC, 95 %: {cells[0]}"


# -- LaTeX -----------------------------------------------------------------------------------------


def test_latex__says_for_what_its_limits_hold(single: StudyResult) -> None:
    tests = sum(row.p is not None for row in single.views["baseline"].sections(single)[0].rows)
    text = single.to_latex("baseline")
    assert "95 \\% limits of each difference over models, each for itself." in text
    assert f"corrected for {tests} tests together" in text
    study = made_tradeoff(seeds=3)
    family = sum(len(point.attacks) for point in tradeoff.point_rows(study))
    assert f"hold for all {family} AUCs together" in study.to_latex()
    assert study.to_latex().index("\\bottomrule") < study.to_latex().index("\\multicolumn{5}")


def test_rows__declare_each_head_once() -> None:
    columns = sweep.columns_of(ComparisonRow)
    assert all(head.text and head.title for head in columns)
    assert [head.text for head in sweep.columns_of(AttackPointRow, "auc")] == ["mean AUC, 95 %"]


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


@pytest.mark.parametrize("points", [1, 3])
def test_figure__labels_of_twenty_attacks_do_not_overlap(points: int, single: StudyResult) -> None:
    study = single if points == 1 else study_with(points, seeds=2)
    for name in ("baseline", "attacks"):
        figure = study.figure(name)
        check_apart(figure)
        assert bool(figure.legends) == (points > 1)
        (axes,) = figure.axes
        assert len(axes.get_yticklabels()) == (points if points > 1 else 20 + (name == "attacks"))
        bottom, top = (axes.get_window_extent().y0, axes.get_window_extent().y1)
        assert (top - bottom) / figure.dpi > 0.1 * 20 * min(points, 2)


def test_figure__is_as_high_as_the_names_of_its_points() -> None:
    few = [("a\nb\nc\nd", {"x": [0.5, 0.6]}) for _ in range(6)]
    figure = forest([(f"{name}{i}", lines) for i, (name, lines) in enumerate(few)], "AUC", 0.5)
    assert figure is not None
    check_apart(figure)


def test_figure__strengths_of_points_at_one_place_do_not_overlap() -> None:
    points = tradeoff.point_rows(made_tradeoff(seeds=2))
    same = [tradeoff.replace(p, knn=points[1].knn, leak=points[1].leak) for p in points[1:]]
    figure = tradeoff.draw([points[0], *same, *same])
    assert figure is not None and len(figure.axes[0].texts) == 10
    check_apart(figure)
