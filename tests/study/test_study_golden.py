"""Studies of planted reports as a whole: every table, sentence, figure and frame is the committed
one, and a study under other names is the same study.

`python -m tests.study.test_study_golden` writes tests/golden/studies.json anew; the commit that
does so says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from fedmia import StudyResult
from tests.auditing.conftest import sides
from tests.fake_runs import GOLDEN, Studies, golden, tables
from tests.golden.test_golden import differences

WANTED = GOLDEN / "studies.json"
FLAGS = {
    "defences": "--defenses gaussian,dpsgd --strengths gaussian=0.1,1 --attacker active --attacks "
    "ascent,similarity --seeds 3 --baseline similarity --view tradeoff,baseline",
    "options": "--over strategy=fedavg,fedprox --over partition.alpha=0.1,1 --attacks "
    "similarity,ascent --attacker active --baseline similarity --seeds 3 --view sweep,baseline",
    "encoders": "--encoders tests.auditing.brought:tiny,"
    "tests.auditing.brought:rigid --members npz:{sides}/members.npz --nonmembers "
    "npz:{sides}/nonmembers.npz --attacks similarity,lpla --seeds 3",
}
# Runs that do not count: a failed one, one that has not run, and every kind that is void.
STATES = {
    "defences": {2: "shift", 5: "collapsed", 7: "failed", 10: "control-failed"},
    "options": {1: "no-verdict", 4: "absent", 6: "failed", 8: "untested"},
    "encoders": {2: "control-failed", 5: "shift"},
}
# Every name that the study of defences or of options has, another of the same length.
NAMES = {
    "defences": {"gaussian": "Gaussian", "similarity": "simil@rity", "ascent": "asc@nt",
                 "no defence": "n@ defence", "dpsgd": "dpsg@"},
    "options": {"fedavg": "fed@vg", "partition.alpha": "partition@alpha", "0.1": "l@w",
                "similarity": "simil@rity", "ascent": "asc@nt"},
}  # fmt: skip


def report_of(kind: str, at: int, name: str) -> Any:
    """The report of a run: no two of its numbers are equal, nor those of two runs."""
    state, draw, seed = STATES[kind].get(at), np.random.default_rng(at), int(name[-1])
    if state in ("failed", "absent"):
        return "no <images>" if state == "failed" else None

    def number(low: float, high: float) -> float:
        return round(float(draw.uniform(low, high)), 6)

    report = golden("audit" if kind == "encoders" else "active")
    rows = {row["name"]: row for row in report["attacks"]}
    names = [name for name in ("similarity", "ascent", "internal", "lpla") if name in rows]
    lower = 0.3 if "dpsgd" in name else 0.55  # of a point whose attacks rank backwards

    def row(own: Mapping[str, Any], low: float = 0.5) -> dict[str, Any]:
        auc = number(low, low + 0.1)
        rates = {k: number(0, 0.3) for k in own["tpr_at_fpr"]}
        return {**own, "auc": auc, "auc_ci": [number(low - 0.1, low), number(low + 0.1, 1)],
                "tpr_at_fpr": rates}  # fmt: skip

    report["attacks"] = [row(rows[n], lower + 0.05 * (n == "ascent")) for n in names]
    for one in report["attacks"][:: 1 + seed % 2]:
        one["choices"] = {"steps": 2 + seed % 2}
    report["controls"] = {"untrained": [row(rows[n], 0.45) for n in names[:2]]}
    report |= {one: [] for one in ("exposed", "overlaps", "rounds", "dataset_inference", "sweep")}
    report["pixels"], report["not_run"] = None, {"lira": "no <shadows>"} if seed % 2 else {}
    for probed in ("utility", "utility_untrained", "utility_after_attack"):
        if report.get(probed):
            report[probed] |= {k: number(0.7, 0.8) for k in ("knn", "linear")}
    report["paired"], report["sets"] = report["paired"][:2], report["sets"][:2]
    for one in report["paired"]:
        one["difference"] = number(-0.1, 0.2)
    for one in report["sets"]:
        one |= {"auc": number(0.5, 0.9)}
        for control in one["controls"]:
            control["difference"] = number(-0.1, 0.2)
    for side in report["defended"]:
        side["leakage"] = side["leakage"][:4]
        for found in side["leakage"]:
            found["auc"] = number(0.4, 0.7)
    for client in report["clients"]:
        if client["defence"] and client["defence"]["epsilon"]:
            client["defence"]["epsilon"] |= {"value": number(1, 9), "standing": "guaranteed"}
    report["verdict"] = f"Sentence of {plain(name)}."
    report["verdict_code"] = state or ("leaks" if seed == 1 else "not-established")
    report["versions"] |= {"commit": f"{seed % 2}"}
    return report


def write_scores(cell: Path, report: Mapping[str, Any], seed: int) -> None:
    """Scores of as many images as the report says, of each attack; two runs of one seed scored the
    same images."""
    draw, attacks = np.random.default_rng([len(report["verdict"]), seed]), report["attacks"]
    n, m = attacks[0]["n_members"], attacks[0]["n_nonmembers"]
    lines = ["image,truth,label," + ",".join(one["name"] for one in attacks)]
    for at in range(n + m):
        own = ",".join(f"{0.4 * (at < n) + draw.normal():.4f}" for _ in attacks)
        lines.append(f"{100 * seed + at},{int(at < n)},0,{own}")
    (cell / "scores.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def planted(studies: Studies, kind: str, folder: Path) -> StudyResult:
    """The study of this kind."""
    sides(folder)
    out = folder / "OUT"

    def report(name: str) -> Any:
        one = report_of(kind, order[name], name)
        if kind == "encoders":
            write_scores(out / "cells" / name, one, int(name[-1]))
        return one

    flags = FLAGS[kind].format(sides=folder)
    names = sorted(cell.name for cell in (studies.folder(flags) / "cells").iterdir())
    order = {name: i for i, name in enumerate(sorted(names, key=plain))}
    return studies.plant(flags, report, out)


def plain(text: str) -> str:
    """Without the hash of a folder that is temporary."""
    return re.sub("_[0-9a-f]{8}(?=_seed)", "", text)


# -- what a study says -----------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    """Numbers to four digits, as JSON has them; of NaN nothing."""
    if isinstance(value, Mapping):
        return {plain(str(key)): rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(one) for one in value]
    if isinstance(value, float | np.floating):
        return None if value != value else round(float(value), 4)
    if isinstance(value, str):
        return plain(value)
    return int(value) if isinstance(value, np.integer) else value


def drawn(figure: Any) -> list[Any]:
    """What a figure shows: every text, and the places of its lines and dots."""
    found: list[Any] = []
    for axes in figure.axes:
        texts = [axes.xaxis.label, axes.yaxis.label, *axes.get_yticklabels(), *axes.texts]
        found += [[text.get_text() for text in texts]]
        found += [
            [line.get_label().lstrip("_"), *line.get_xydata().tolist()]
            for line in axes.lines
            if not line.get_label().startswith("_child")
        ]
        found += [
            [
                line.get_xydata().tolist()
                for line in axes.lines
                if line.get_label().startswith("_child")
            ]
        ]
        found += [dots.get_offsets().tolist() for dots in axes.collections]
    found += [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]
    return found


def whole(study: StudyResult) -> dict[str, Any]:
    """All that a study says, of every view and frame."""
    views = {}
    for name, view in study.views.items():
        sections = [
            {"title": one.title, "bold": one.table().marked, "brief": one.brief_rows(),
             "limits": one.limits, "figures": one.figures}
            for one in view.sections(study)
        ]  # fmt: skip
        figures = {}
        for figure in view.figures(study):
            try:
                figures[figure] = drawn(study.figure(figure))
            except Exception as error:
                figures[figure] = str(error)
        views[name] = {
            "sentence": view.sentence(study), "notes": view.notes(study), "sections": sections,
            "tables": {t: [[*r.values()] for r in rows] for t, rows in tables(study, name).items()},
            "latex": study.to_latex(name).splitlines(), "figures": figures,
        }  # fmt: skip
    means = study.points
    means = means[means["metric"].isin(["auc", "knn"])]
    kinds = ["auc", "tpr_at_fpr", "n_members"]
    found = {
        "views": views,
        "points": [[*row] for row in means.dropna(axis=1, how="all").astype(object).to_numpy()],
        "by point": {point: [[c.name, c.outcome, c.state] for c in cells]
                     for point, cells in study.by_point().items()},
        "verdicts": {p: [study.verdicts(p), study.void(p)] for p in study.by_point()},
        "values": [[*k, v] for kind in kinds for k, v in study.values(kind, "attack").items()],
        "cells": [
            [{k: str(v) for k, v in c.grid.items()}, dict(c.choices), dict(c.not_run),
             c.under_attack, c.epsilon] for c in study.cells
        ],
        "shown": study._repr_html_(), "sentence": study.sentence, "notes": study.about["notes"],
        "place": study.place, "failed": study.failed,
    }  # fmt: skip
    if "baseline" in study.views:
        over = str(study.settings["baseline"])
        others = [name for name in study.table["attack"].dropna().unique() if name != over]
        rows = study.compare(others, over).astype(object).to_numpy()
        found["compare"] = [[*row] for row in rows]
    whole: dict[str, Any] = rounded(found)
    return whole


@pytest.mark.parametrize(
    "kind", ["defences", "encoders", pytest.param("options", marks=pytest.mark.slow(seconds=5))]
)
def test_study__is_the_golden_one_by_any_names(kind: str, studies: Studies, tmp_path: Path) -> None:
    study = planted(studies, kind, tmp_path)
    found = json.loads(json.dumps(whole(study)))
    want = json.loads(WANTED.read_text(encoding="utf-8"))[kind]
    assert not list(differences(found, want))[:20]
    if kind in NAMES:
        again = json.loads(json.dumps(whole(study.rename(NAMES[kind]))))
        assert not list(differences(again, renamed(found, NAMES[kind])))[:20]


def renamed(said: Any, names: Mapping[str, str]) -> Any:
    """What was said, in other names; runs keep theirs."""
    if isinstance(said, Mapping):
        return {renamed(key, names): renamed(value, names) for key, value in said.items()}
    if isinstance(said, list):
        return [renamed(one, names) for one in said]
    return re.sub(OLD, lambda m: names.get(m[0], m[0]), said) if isinstance(said, str) else said


OLD = r"\S+_seed=\d+|no defence|partition\.alpha|[a-z]+(?:-[a-z]+)*|\d\.\d+"

if __name__ == "__main__":
    with TemporaryDirectory() as root:
        said = {}
        for kind in FLAGS:
            (Path(root) / kind).mkdir()
            said[kind] = whole(planted(Studies(Path(root) / f"{kind}-studies"), kind,
                                       Path(root) / kind))  # fmt: skip
        WANTED.write_text(json.dumps(said, ensure_ascii=False) + "\n", encoding="utf-8")
