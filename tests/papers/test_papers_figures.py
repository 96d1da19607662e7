"""Figures 5 to 13 on planted data: what is drawn, without its pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.attacks.classifier import decide, fit_classifier
from fedmia.records.rows import RoundRow
from fedmia.report.figures import canvas
from fedmia.settings.choices import PluginChoice
from fedmia.storage.results import from_npz, to_npz
from papers.federated import curves, feature_pairs
from papers.federated import view as make
from papers.federated.gather import PaperResults, numbers
from papers.federated.reading import configured_attack
from papers.federated.static_ascent import by_threshold
from tests.made_up_runs import made_up
from tests.papers.planted import (
    MEMBERS,
    NONMEMBERS,
    Evaluation,
    climb,
    judged,
    loss_curves,
    reading,
)

HISTORY = [
    made_up(RoundRow, round=1, under_attack=False),
    made_up(RoundRow, round=2, under_attack=True),
]


@pytest.fixture(scope="module")
def results() -> PaperResults:
    """Rounds 0 and 2; the first is scored."""
    evaluation = Evaluation()
    readings = [reading(evaluation, r) for r in (0, 2)]
    return PaperResults(
        at=0,
        features=readings,
        scores=[judged(evaluation, r) for r in readings],
        static_ascents=[climb(0), climb(2)],
        history=HISTORY,
        curves=loss_curves(),
        strategy="fedavg",
    )


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Figures as they are drawn."""
    figures: list[Any] = []
    monkeypatch.setattr(canvas, "encode", lambda figure: figures.append(figure) or b"png")
    yield figures


def drawn(axes: Any, label: str) -> list[list[float]]:
    """(x, y) of each point of the line with that label."""
    (line,) = [one for one in axes.lines if one.get_label() == label]
    points: list[list[float]] = line.get_xydata().tolist()
    return points


def close(points: list[list[float]], want: list[tuple[float, Any]]) -> bool:
    return np.allclose(points, want, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_figures__say_what_a_run_did_not_do(
    results: PaperResults, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (curves, "thresholds"), (feature_pairs, "confidences"), (feature_pairs, "combined"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda _: b"png")
    one = {name: getattr(results, name)[:1] for name in ("features", "scores", "static_ascents")}
    drawings = make.figures(replace(results, curves=None, **one))
    assert list(drawings) == list(make.CAPTIONS) == [f"fig-{i}" for i in range(5, 14)]
    late = [name for name, why in drawings.items() if why == make.ONE_ROUND]
    assert late == ["fig-5", "fig-6", "fig-8"]
    assert drawings["fig-13"] == make.NO_CURVES and drawings["fig-9"] == b"png"


def test_write__names_what_was_not_drawn(results: PaperResults, tmp_path: Path) -> None:
    config = {"run": "<mine>", "data": "digits", **numbers(results)}
    make.write(tmp_path, config, {"fig-5": b"png", "fig-13": make.NO_CURVES})
    page, text = ((tmp_path / name).read_text() for name in ("paper.html", "tables.md"))
    assert f"Not drawn: {make.NO_CURVES}." in page and "&lt;mine&gt;" in page
    assert page.count("<table") == 4 and page.count("data:image/png;base64,") == 1
    assert f"- Fig. 13: {make.NO_CURVES}" in text and "Fig. 5" not in text
    assert "| Fig. 10 | " in text and "## What the paper says" in text
    assert [p.name for p in tmp_path.glob("*.png")] == ["fig-5.png"]


def test_overfitting__means_of_loss_and_similarity(
    results: PaperResults, figures: list[Any]
) -> None:
    curves.overfitting(results.features, HISTORY)
    for axes, column in zip(figures[0].axes, (1, 0), strict=True):
        for i, label in enumerate(("members", "non-members")):
            want = [(r.round, r.scored("combined")[i][:, column].mean()) for r in results.features]
            assert close(drawn(axes, label), want)


def test_by_round__accuracy_beside_auc(results: PaperResults, figures: list[Any]) -> None:
    rows = results.layers()
    curves.by_round(rows, HISTORY, "By layer", "feature")
    for axes, key in zip(figures[0].axes, ("accuracy", "auc"), strict=True):
        for name, rounds in rows.items():
            assert close(drawn(axes, name), [(r, row[key]) for r, row in rounds])
    assert [a.get_ylabel() for a in figures[0].axes] == ["balanced accuracy", "AUC"]
    assert rows["feature"] == results.methods()["similarity"]
    assert list(rows) == ["layer1", "layer2", "avgpool", "encoder", "feature"]


def test_by_step__mean_loss_and_its_rise_after_each_step(figures: list[Any]) -> None:
    """On a log scale where the rise goes over decades."""
    flat: Any = climb(7)
    curves.by_step(flat)
    axes, rise = figures[0].axes
    for label, losses in (("members", [1, 2, 3]), ("non-members", [1, 3, 5])):
        assert drawn(axes, label) == [[step, loss] for step, loss in enumerate(losses)]
        assert drawn(rise, label) == [[step, loss - 1] for step, loss in enumerate(losses)]
    assert "round 7" in figures[0].get_suptitle()
    curves.by_step(replace(flat, nonmembers=1 + 40 * (flat.nonmembers - 1)))
    scales = [[one.get_yscale() for one in figure.axes] for figure in figures]
    assert scales == [["linear"] * 2, ["symlog"] * 2]


def test_before_and_after__first_and_last_step(figures: list[Any]) -> None:
    """On a log scale where losses lie over decades."""
    flat: Any = climb()
    losses = flat.nonmembers * np.geomspace(0.01, 100, NONMEMBERS)
    for one, scale in ((flat, "linear"), (replace(flat, nonmembers=losses), "log")):
        make.before_and_after(one)
        assert [axes.get_xscale() for axes in figures[-1].axes] == [scale] * 2
    titles = [axes.get_title(loc="left") for axes in figures[0].axes]
    assert titles == [f"{MEMBERS} members", f"{NONMEMBERS} non-members"]


def test_thresholds__own_threshold_and_accuracy(figures: list[Any]) -> None:
    """Rises over decades share a log scale."""
    curves.thresholds([climb(0), climb(9)])
    (axes,) = figures[0].axes
    curve = np.array(drawn(axes, "round 9"))
    assert curve[:, 1].max() == 1  # all members rise by 2, all others by about 4
    dots = [one for one in axes.lines if one.get_marker() == "o"]
    assert [d.get_xydata().tolist() for d in dots] == [[[3, 1]], [[3, 1]]]
    assert drawn(axes, "the paper: over 0.80") == [[0, 0.8], [1, 0.8]]
    assert axes.get_ylim()[1] > 0.8 and axes.get_xscale() == "linear"
    rises = np.geomspace(0.001, 100, NONMEMBERS)
    curves.thresholds([replace(climb(), scored=replace(climb().scored, scores_nonmembers=-rises))])
    (axes,) = figures[1].axes
    assert axes.get_xscale() == "symlog" and axes.get_xlim()[1] > 50


def test_by_threshold__accuracy_where_fewer_or_more_rise_less() -> None:
    """All 20 members rise by about 2, all 30 others by about 4: a share of .4 parts them."""
    rows = by_threshold(climb().scored)
    assert list(rows) == ["0.1", "0.25", "0.5", "0.75", "0.9"]
    shares = {name: row["accuracy"] for name, row in rows.items()}
    under = {"0.1": (5 / 20, 0), "0.25": (13 / 20, 0), "0.5": (1, 5 / 30), "0.9": (1, 25 / 30)}
    for name, (of_members, of_others) in under.items():
        assert shares[name] == pytest.approx((of_members + 1 - of_others) / 2), name
    assert 2 < rows["0.25"]["threshold"] < rows["0.5"]["threshold"] < 4


@pytest.mark.parametrize("own, pairs", [({}, "top3"), ({"similarity": {"pairs": "mean"}}, "mean")])
def test_similarity__reads_the_papers_pairs_or_the_runs(own: Any, pairs: str) -> None:
    evaluation: Any = Evaluation()
    evaluation.attacks = {name: PluginChoice(name, options) for name, options in own.items()}
    assert configured_attack(evaluation, "similarity").pairs == pairs


def test_federated__before_the_attack_right_after_the_climb_and_by_round(
    figures: list[Any],
) -> None:
    curves.federated(loss_curves(), "fedavg")
    (ours, means), known = figures[0].axes, [2.5] * NONMEMBERS
    assert drawn(ours, "members") == drawn(means, "fedavg, ascent") == [[3, 1], [4, 2]]
    assert drawn(ours, "non-members") == [[3, 3], [4, 4]]
    assert drawn(means, "fedavg, no ascent") == [[3, 9], [4, 9]]
    assert ours.get_legend_handles_labels()[1] == ["non-members", "members"]
    uploads = np.full(MEMBERS, 200.0), np.full(NONMEMBERS, 300.0)
    whole = replace(
        loss_curves(), before_nonmembers=np.array(known), after_members=uploads[0],
        after_nonmembers=uploads[1],
    )  # fmt: skip
    curves.federated(whole, "fedavg")
    ours, _ = figures[1].axes
    before, upload = (
        [line.get_xydata().tolist() for line in ours.lines if line.get_marker() == marker]
        for marker in ("D", "*")
    )
    assert before == [[[2, (MEMBERS - 1) / 4]], [[2, 2.5]]]
    assert upload == [[[3, 200]], [[3, 300]]]
    labels = ours.get_legend_handles_labels()[1]
    assert labels == ["non-members", "members", "before the attack", "first upload"]
    assert ours.get_yscale() == "symlog"


def scattered(axes: Any) -> dict[str, np.ndarray]:
    """(N, 2) points of each side of a scatter plot."""
    return {one.get_label(): np.asarray(one.get_offsets()) for one in axes.collections}


def test_confidences__a_row_a_layer_two_at_a_time(
    results: PaperResults, figures: list[Any]
) -> None:
    feature_pairs.confidences(results.features[0])
    axes = figures[0].axes
    assert [one.get_title(loc="left") for one in axes[::3]] == ["encoder", "avgpool", "layer2"]
    assert {one.name for one in axes} == {"rectilinear"} and len(axes) == 9
    want = np.log10([0.5, 0.25, 0.125])
    for panel, pair in zip(axes[:3], [(0, 1), (0, 2), (1, 2)], strict=True):
        points = scattered(panel)
        assert len(points["members"]) == MEMBERS and len(points["non-members"]) == NONMEMBERS
        assert points["members"][0] == pytest.approx(want[list(pair)])


def test_combined__pairs_the_line_and_the_scores(results: PaperResults, figures: list[Any]) -> None:
    features = results.features[0]
    sides = features.scored("combined")
    model = fit_classifier("lda", *features.known_features("combined"))
    feature_pairs.combined(features)
    *pairs, scores = figures[0].axes
    middle = np.concatenate(sides).mean(axis=0)
    for panel, pair in zip(pairs, ([0, 1], [0, 2], [1, 2]), strict=True):
        points = scattered(panel)
        for label, side in zip(("members", "non-members"), sides, strict=True):
            assert np.array_equal(points[label], side[:, pair])
        assert len(panel.get_xticks()) <= 5  # no room for more long numbers
        ends = np.tile(middle, (2, 1))
        (line,) = (one for one in panel.lines if one.get_label() == feature_pairs.UNDECIDED)
        ends[:, pair] = line.get_xy1(), line.get_xy2()
        assert decide(model, ends) == pytest.approx(0, abs=1e-9)
    members, others = (decide(model, side) for side in sides)
    limits = min(*members, *others), max(*members, *others)
    for patch, values in zip(scores.patches, (others, members), strict=True):
        share = 100 * np.histogram(values, 30, limits)[0].max() / len(values)
        assert patch.get_xy()[:, 1].max() == pytest.approx(share)
    assert "over 0: member" in scores.get_xlabel()


@pytest.mark.parametrize("classifier", ["lda", "lr"])
def test_plane__where_the_classifier_is_undecided(classifier: str) -> None:
    draw, truth = np.random.default_rng(0), np.repeat([1, 0], 40)
    features = draw.normal(size=(80, 3)) * [0.01, 5, 0.3] + truth[:, None] * [0.01, -4, 0.2]
    model = fit_classifier(classifier, features, truth)
    normal, offset = feature_pairs.plane(model)
    some = draw.normal(size=(200, 3)) * [0.02, 8, 0.5]
    assert decide(model, some) == pytest.approx(some @ normal - offset, abs=1e-9)


def test_numbers__rounds_steps_and_tables(results: PaperResults) -> None:
    content = numbers(results)
    first, second = content["rounds"]
    assert [(r["round"], r["under_attack"]) for r in (first, second)] == [(0, False), (2, True)]
    assert content["mean_loss_by_step"] == {"members": [1, 2, 3], "nonmembers": [1, 3, 5]}
    assert first["ascent_static"]["accuracy"] == 1 and content["round"] == 0
    assert first["methods"]["similarity"] == content["table_2"]
    assert [c["verdict"] for c in content["claims"]] == ["held", "held", *["not run"] * 3]


def test_curves__survive_their_file(tmp_path: Path) -> None:
    file, before = tmp_path / "curves.npz", loss_curves()
    file.write_bytes(to_npz(before))
    after = from_npz(file)
    for name in ("rounds", "members", "before_members"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    assert after.act == "ascent" and after.after_members is None
    assert to_npz(before) == to_npz(after)
