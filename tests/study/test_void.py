"""Whatever voids a run voids its cells everywhere; where models are equal no interval stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedmia.report.codes import VOID
from fedmia.study.result import StudyResult
from fedmia.study.words import add_words
from tests.study.planted import golden, study_of

VIEWS = ("sweep", "baseline", "tradeoff", "encoders")
AUCS = (0.911, 0.922, 0.933)  # of the runs of one point, which no other number has


def study(view: str, aucs: tuple[float, ...], void: str, folder: Path) -> StudyResult:
    """Two points of three runs; those of the second have these AUCs and are void."""
    runs: list[Any] = []
    for point, defence in (("no defence", None), ("gaussian", "gaussian")):
        for seed, auc in enumerate(aucs):
            report = golden() | {"paired": [], "sets": []}
            own, other = report["attacks"][:2]
            changed = auc if defence else 0.7 + seed / 100
            report["attacks"] = [own | {"name": "a", "auc": changed},
                                 other | {"name": "b", "auc": changed - 0.1}]  # fmt: skip
            if defence and void:
                report["verdict_code"] = void
            runs.append((point, {"defense": defence}, seed, report))
    return study_of(runs, (view,), folder, baseline="b", encoders=["no defence", "gaussian"])


def attack_numbers(aucs: tuple[float, ...]) -> list[str]:
    """How the AUCs, their mean and their ends would read."""
    each = [f"{auc:.3f}" for auc in aucs]
    return [*each, *(f"{auc - 0.1:.3f}" for auc in aucs)]


@pytest.mark.parametrize(
    ("view", "code"),
    [*((view, "collapsed") for view in VIEWS), *(("tradeoff", one) for one in VOID)],
)
def test_void__no_number_of_an_attack_stands_anywhere(view: str, code: str, tmp_path: Path) -> None:
    void, sound = (study(view, AUCS, one, tmp_path) for one in (code, ""))
    for one in (void, sound):
        vars(one)["runs"] = {}  # no scores by image
        add_words(one)
    tables = "".join(str(section.table()) for section in void.views[view].sections(void))
    everywhere = [void.to_latex(), tables, void.sentence, void._repr_html_()]
    for number in attack_numbers(AUCS):
        assert not any(number in text for text in everywhere), number
    assert f"3 of 6 runs, which are left out ({code} 3)." in void.sentence
    assert f"3 of 3 void: {code}" in void.to_latex() and f"3 of 3 void: {code}" in tables
    frame = void.compare("a", "b").set_index("point")
    assert frame.loc["gaussian", "models"].max() == 0 and frame.loc["no defence", "models"].max()
    assert {*frame.loc[["gaussian"], "void"]} == {f"3 of 3 void: {code}"}
    assert frame.loc["gaussian", ["difference", "low", "high", "p", "p_holm"]].isna().all(axis=None)
    assert "left out" not in sound.sentence and "void" not in sound.to_latex()


@pytest.mark.parametrize("view", ["sweep", "tradeoff"])
def test_equal_models__have_no_interval(view: str, tmp_path: Path) -> None:
    equal = study(view, (0.911,) * 3, "", tmp_path)
    (line,) = [one for one in equal.to_latex().splitlines() if "gaussian & a " in one]
    assert "0.911 (3 equal)" in line
    assert not re.search(r"0\.911 \[", str(equal.views[view].sections(equal)[0].table()))
    frame = equal.compare("a", "b")
    assert frame[["low", "high", "p"]].isna().all(axis=None) and (frame["difference"] > 0).all()
