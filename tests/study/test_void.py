"""Whatever voids a run voids its cells everywhere; where models are equal no interval stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedmia import StudyResult
from tests.fake_runs import Studies, golden, tables

FLAGS = (
    "--defenses gaussian --strengths gaussian=0.1 --attacks similarity,internal --seeds 3 "
    "--baseline internal --view sweep,baseline,tradeoff"
)
AUCS = (0.911, 0.922, 0.933)  # of the runs of one point, which no other number has
CODES = ("shift", "control-failed", "collapsed", "untested", "no-verdict")


def study(studies: Studies, aucs: tuple[float, ...], code: str, out: Path) -> StudyResult:
    """Two points of three runs; those of the second have these AUCs, and are void where a code
    says so."""

    def planted(name: str) -> Any:
        seed, defended = int(name[-1]), "gaussian" in name
        report = golden() | {"paired": [], "controls": {}, "pixels": None}
        rows = {row["name"]: row for row in report["attacks"]}
        auc = aucs[seed] if defended else 0.7 + seed / 100
        report["attacks"] = [rows["similarity"] | {"auc": auc},
                             rows["internal"] | {"auc": auc - 0.097}]  # fmt: skip
        return report | ({"verdict_code": code} if defended and code else {})

    return studies.plant(FLAGS, planted, out)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("code", CODES)
def test_void__no_number_of_an_attack_stands_anywhere(
    code: str, studies: Studies, tmp_path: Path
) -> None:
    void = study(studies, AUCS, code, tmp_path / "OUT")
    (place,) = {cell.point for cell in void.cells if cell.void}
    shown, said = [void.sentence, void._repr_html_()], f"3 of 3 void: {code}"
    for view in ("sweep", "baseline", "tradeoff"):
        texts = [str(tables(void, view)), void.to_latex(view)]
        assert all(said in text for text in texts)
        shown += [*texts, void.views[view].sentence(void)]
    for auc in AUCS:
        for number in (f"{auc:.3f}", f"{auc - 0.097:.3f}"):
            assert not any(number in text for text in shown), number
    assert f"3 of 6 runs, which are left out ({code} 3)." in void.sentence
    frame = void.compare("similarity", "internal").set_index("point")
    assert frame.loc[place, "models"].max() == 0 and frame.loc["no defence", "models"].max()
    assert {*frame.loc[[place], "void"]} == {said}
    assert frame.loc[[place], ["difference", "low", "high", "p", "p_holm"]].isna().all(axis=None)


def test_equal_models__have_no_interval(studies: Studies, tmp_path: Path) -> None:
    equal = study(studies, (0.911,) * 3, "", tmp_path / "OUT")
    assert "left out" not in equal.sentence and "void" not in equal.to_latex()
    for view in ("sweep", "tradeoff"):
        (line,) = [one for one in equal.to_latex(view).splitlines() if "similarity & 0.911" in one]
        assert "0.911 (3 equal)" in line and not re.search(r"0\.911 \[", str(tables(equal, view)))
    frame = equal.compare("similarity", "internal").set_index("point")
    assert frame[["low", "high", "p"]].isna().all(axis=None) and (frame["difference"] > 0).all()
