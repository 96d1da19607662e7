"""Reports of made-up scores and what their figures draw, committed: whatever moves in the code, no
number of theirs does.

`python -m tests.report.test_report_golden` writes them anew; the commit that does so says why.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.records import Evaluation
from fedmia.report.build import build_report
from fedmia.report.figures.draw import figures
from fedmia.report.publish import json_text
from tests.golden.test_golden import differences
from tests.report.conftest import (
    claim,
    defence,
    guessed,
    make_everything,
    make_run,
    placed,
    server,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FILE, DRAWN = GOLDEN / "made_up.json", GOLDEN / "drawn.json"
LAST = 46  # of fifty rounds, the first that is kept


def short(run: Evaluation) -> Evaluation:
    return replace(run, rounds=run.rounds[LAST:])


def patients(run: Evaluation) -> Evaluation:
    """An audit of images of patients from two scanners, with a prior."""
    n, m = len(run.member_ids), len(run.nonmember_ids)
    groups = np.resize(["CT", "MR"], n), np.resize(["CT", "CT", "MR"], m)
    of = np.arange(n) % 14, 14 + np.arange(m) % 40
    attacks = [
        replace(one, subjects_members=of[0], subjects_nonmembers=of[1]) for one in run.attacks
    ]
    return replace(
        short(run), clients=(), drawn=False, config={"prior": 0.05}, groups=groups, subjects=of,
        attacks=attacks, subject_names=tuple(f"patient {i}" for i in range(54)), curves=None,
    )  # fmt: skip


def claiming(run: Evaluation) -> Evaluation:
    """Some clients, and the server, promise what canaries and attacks bound from below."""
    audits = [guessed(1000, (50, 350, 700), one) for one in ((49, 315, 520), (26, 180, 355))]
    stated = [
        claim(1.0, lower_bound=audits[0]),
        claim(4.0, delta=1e-3, unit="image", standing="guaranteed", lower_bound=audits[1]),
        claim(90.0, unit="client"),
    ]
    own = [defence(epsilon=stated[0]), defence("gaussian", stated[1], beside=stated[2:])]
    clients = [replace(c, defence=[*own, None][min(c.id, 2)]) for c in run.clients]
    audit = guessed(1000, (1000,), (820,), "own-runs-gdp")
    rule = server("dp-fedavg", epsilon=claim(2.0, unit="client", lower_bound=audit))
    attacks = [*run.attacks, placed("strong", 0.97)]
    return replace(short(run), clients=clients, aggregation=rule, attacks=attacks, pixels=None)


def crowded(run: Evaluation) -> Evaluation:
    """More attacks than a figure draws, the most leaking ones neither first nor last, and one that
    leads in the first round alone."""
    aucs = (0.52, 0.93, 0.41, 0.88, 0.6, 0.97, 0.56, 0.91)
    more = [placed(f"attack {i}", auc) for i, auc in enumerate(aucs)]
    fading = {min(run.leakage): 0.95, max(run.leakage): 0.51}
    leakage = {at: {**of, "fading": placed("fading", fading[at])} if at in fading else of
               for at, of in run.leakage.items()}  # fmt: skip
    return replace(run, attacks=[*more[:5], *run.attacks, *more[5:]], leakage=leakage)


MADE = {
    "everything": lambda: short(make_everything(make_run())),
    "patients": lambda: patients(make_run()),
    "claiming": lambda: claiming(make_run()),
}


def reported(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(json_text(build_report(MADE[name]())))
    return report


@pytest.mark.parametrize("name", MADE)
def test_report__of_made_up_scores_is_the_golden_one(name: str) -> None:
    want = json.loads(FILE.read_text(encoding="utf-8"))[name]
    assert not list(differences(reported(name), want))[:20]


def numbers(values: Any) -> list[Any]:
    """How many, the ends, the extremes and the mean of what is drawn; names as they are."""
    flat = np.ma.filled(np.ma.asarray(values), np.nan).ravel()
    if flat.dtype.kind not in "fiub":
        return [str(one) for one in flat]
    flat = flat.astype(float)
    known = flat[np.isfinite(flat)]
    if not len(known):
        return [len(flat), 0]
    some = (flat[0], flat[-1], known.min(), known.max(), known.mean())
    return [len(flat), len(known), *(float(f"{one:.5g}") if one == one else None for one in some)]


def shown(axes: Any) -> dict[str, Any]:
    """What one pair of axes says and draws."""
    legend = axes.get_legend()
    boxes = [(box.get_x(), box.get_y(), box.get_width(), box.get_height())
             for box in axes.patches if hasattr(box, "get_width")]  # fmt: skip
    points = [np.asarray(one.get_offsets()) for one in axes.collections]
    return {
        "words": [axes.get_title(), axes.get_title(loc="left"), axes.get_xlabel(),
                  axes.get_ylabel(), *(text.get_text() for text in axes.texts)],
        "legend": [text.get_text() for text in legend.get_texts()] if legend else [],
        "names": [text.get_text() for one in (axes.xaxis, axes.yaxis)
                  for text in one.get_ticklabels() if re.match("[a-z]", text.get_text())],
        "lines": [[str(line.get_label()).lstrip("_")[:30], str(line.get_color()),
                   numbers(line.get_xdata()), numbers(line.get_ydata())] for line in axes.lines],
        "boxes": [numbers(column) for column in zip(*boxes, strict=True)],
        "points": [[numbers(one[:, 0]), numbers(one[:, 1])] for one in points if len(one)],
        "images": [numbers(one.get_array()) for one in axes.images],
    }  # fmt: skip


def drawn() -> dict[str, Any]:
    """Of a run with too many attacks and clients for a figure: each figure's words and data."""
    run = crowded(make_everything(make_run()))
    found = dict[str, Any]()
    for name, one in figures(build_report(run), run).items():
        if (figure := one.draw()) is not None:
            figure.canvas.draw()
            found[name] = {
                "title": figure.get_suptitle(), "caption": one.caption(), "alt": one.alt(),
                "legends": [t.get_text() for one in figure.legends for t in one.get_texts()],
                "axes": [*map(shown, figure.axes)],
            }  # fmt: skip
    return found


def test_figures__of_made_up_scores_draw_the_golden_numbers() -> None:
    want = json.loads(DRAWN.read_text(encoding="utf-8"))
    assert not list(differences(drawn(), want))[:20]


if __name__ == "__main__":
    text = json.dumps({name: reported(name) for name in MADE}, indent=0, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")
    text = json.dumps(drawn(), indent=0, ensure_ascii=False)
    DRAWN.write_text(text + "\n", encoding="utf-8")
