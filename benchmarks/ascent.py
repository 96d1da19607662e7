"""Does ascent add anything? The answer to what benchmarks/plans/ascent.yaml asks.

    python benchmarks/ascent.py NAME=REGIME=FOLDER .. [--plan FILE] [--short] [--out FOLDER]

Another plan is that of the paper's many steps, plans/static_ascent.yaml.

NAME is the data, REGIME `weak` or `overfit`. The gain of a federation is the AUC of an ascent less
that of its control, or less .5 where the control is under .5. Primary questions have Holm's p over
all of them; everything else is exploratory. Where the plan has a smallest `effect`, each is judged
by the interval of all of them together. A sweep that is not planned, whose seeds are used up,
or that is not finished is refused (`--short` answers with fewer runs, and says so). Several folders
of one sweep, each with seeds of its own, count as one. Writes `answer.json` and `answer.png`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _ascent_plan import PLAN, Planned, Swept, load_plan, read
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold

from fedmia.records import LOSS_BEFORE
from fedmia.runtime.environment import describe
from fedmia.settings.commands.study import label, tree_key
from fedmia.statistics.auc import auc_estimate
from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import clip_interval, p_value, spread, t_interval
from fedmia.storage.runfolder import RunFolder
from fedmia.study.points import group_by_key

RESULTS = Path(__file__).parent / "results" / "ascent"
UNSOUND = ("control-failed", "shift")  # verdicts of a run that stays in and is named
# An attack's rows are of the first that their names begin with.
ASCENTS = ("ascent-static", "ascent-climb", "ascent-algorithm1", "ascent")
# What the picture shows of a question: reading -> attack and control; of others what they ask.
PICTURE = {
    "static": {
        "rise": ("ascent-static", LOSS_BEFORE), "level": ("ascent-static-level", LOSS_BEFORE),
    },
    "federated": {
        "rise": ("ascent", "ascent-zero"), "level": ("ascent-level", "ascent-level-zero"),
    },
}  # fmt: skip
TOGETHER = {"ascent-static": "ascent-static-level", "ascent": "ascent-level"}  # rise -> level
Row = dict[str, Any]
Cell = Mapping[str, Any]


def gain(auc: float, control: float) -> float:
    """What an attack has over its control, or over guessing where the control is worse."""
    return auc - max(control, 0.5)


def measure_row(values: Mapping[int, tuple[float, float]]) -> Row:
    """Numbers of one row from the AUCs of attack and control by seed."""
    gains = {seed: gain(*aucs) for seed, aucs in values.items()}
    return {
        "n": len(gains), "seeds": list(gains), "gain": spread(gains.values(), -1.0),
        "auc": spread(a for a, _ in values.values()),
        "auc_control": spread(c for _, c in values.values()),
        "by_seed": {str(seed): round(g, 6) for seed, g in gains.items()},
        "aucs_by_seed": {str(seed): list(aucs) for seed, aucs in values.items()},
        "p": p_value(list(gains.values())),
    }  # fmt: skip


def judge(gains: Sequence[float], effect: float, together: int) -> Row:
    """Whether a gain is there, by its interval, which holds together with those of all questions.

    Args:
        gains: one a federation.
        effect: the smallest gain that would matter.
        together: number of questions.

    Returns:
        `ci_together`, rounded, and `verdict`: `not held` where it lies under the effect, `held`
        where it lies over 0 and not so, else `undecided`; as `papers.claims.answer`.
    """
    ci = clip_interval(t_interval(gains, together), -1.0)
    low, high = ci or (-1.0, 1.0)
    verdict = "not held" if high < effect else "held" if low > 0 else "undecided"
    return {"ci_together": ci, "verdict": verdict}


def pairs(cells: Iterable[Cell]) -> dict[tuple[str, str], dict[int, tuple[float, float]]]:
    """Seed -> AUCs of the attack and of its control on the same images, by their names."""
    aucs: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for cell in cells:
        for pair in cell["results"]["pairs"]:
            if pair["difference"] is not None:
                own = aucs.setdefault((pair["attack"], pair["control"]), {})
                own[cell["seed"]] = pair["auc"], pair["auc_control"]
    return aucs


def chosen(cells: Iterable[Cell], attack: str) -> dict[str, int]:
    """What an attack chose for its own options -> in how many federations, the most first."""
    rows = [row for cell in cells for row in cell["results"]["attacks"] if row["name"] == attack]
    return dict(Counter(label(row["choices"]) for row in rows if row["choices"]).most_common())


def primary(plan: Mapping[str, Any], swept: Sequence[Swept]) -> list[Row]:
    """The primary questions with Holm's p over all of them, each secondary one after its primary.

    Raises:
        SystemExit: a run that does not answer its question.
    """
    rows = [
        _question(plan["regime"], question, cells_of(swept, plan["regime"], question["data"]))
        for question in plan["questions"]
    ]
    # A question without an answer yet counts as one without an effect.
    adjusted = holm([1.0 if row["p"] is None else row["p"] for row in rows])
    answers = []
    more = plan.get("secondary", {})
    for row, p in zip(rows, adjusted, strict=True):
        own = {"kind": "primary", "p_holm": None if row["p"] is None else p}
        if "effect" in plan:
            own |= judge([*row["by_seed"].values()], plan["effect"], len(rows))
        answers.append(row | own)
        if row["question"] == more.get("question"):
            cells = cells_of(swept, plan["regime"], row["data"])
            beside = _question(plan["regime"], more | {"data": row["data"]}, cells)
            answers.append(beside | {"kind": "secondary", "p_holm": None})
    return answers


def cells_of(swept: Sequence[Swept], regime: str, data: str) -> list[Cell]:
    """The federations of the first point of each sweep of a regime and data that come first: the
    primary ones, or of the first sweep that has runs."""
    own = [s for s in swept if (s.planned.regime, s.planned.data) == (regime, data)]
    sweep = next((s for s in own if s.planned.primary), next((s for s in own if s.cells), None))
    return next(iter(_by_point(sweep).values()), []) if sweep else []


def _by_point(sweep: Swept) -> dict[str, list[Cell]]:
    """The runs of each point of the grid, in order."""
    return group_by_key((tree_key(cell["grid"]), cell) for cell in sweep.cells)


def _question(regime: str, question: Mapping[str, str], cells: Sequence[Cell]) -> Row:
    attack, control = question["attack"], question["control"]
    values = pairs(cells).get((attack, control), {})
    if lost := [cell["name"] for cell in cells if cell["seed"] not in values]:
        raise SystemExit(f"{question['data']}: run {lost[0]} has no {attack} beside {control}")
    aucs = [a["auc"] for c in cells for a in c["results"]["attacks"] if a["name"] == "similarity"]
    return {
        "regime": regime, **question, **measure_row(values), "chosen": chosen(cells, attack),
        "similarity": spread(aucs),
        "knn": spread(c["results"]["knn"] for c in cells),
        "unsound": {str(c["seed"]): c["results"]["verdict_code"] for c in cells
                    if c["results"]["verdict_code"] in UNSOUND},
    }  # fmt: skip


def exploratory(plan: Mapping[str, Any], swept: Sequence[Swept]) -> list[Row]:
    """All else that the sweeps have: pairs, sets, and loss and rise together; each row once."""
    more = [plan["secondary"]] if "secondary" in plan else []
    primary_pairs = {(q["data"], q["attack"], q["control"])
             for q in [*plan["questions"], *({**one, "data": q["data"]}
                                             for q in plan["questions"] for one in more)]
             }  # fmt: skip
    rows = [
        row
        for sweep in swept
        for group in _by_point(sweep).values()
        for row in _point(sweep.planned, group)
        if not (sweep.planned.primary and row["of"] == "image"
                and (row["data"], row["attack"], row["control"]) in primary_pairs)
    ]  # fmt: skip
    once = {(r["regime"], r["data"], r["attack"], r["control"], r["of"], str(r["by_seed"])): r
            for r in reversed(rows)}  # fmt: skip
    return list(reversed(once.values()))


def _point(planned: Planned, cells: Sequence[Cell]) -> Iterator[Row]:
    head = {"regime": planned.regime, "data": planned.data}
    aucs = {(*names, "image"): values for names, values in pairs(cells).items()}
    for rise, level in TOGETHER.items():
        before = aucs.get((rise, LOSS_BEFORE, "image"), {})
        both = {c["seed"]: together(RunFolder(c["path"]), rise, level) for c in cells}
        own = {s: (auc, before[s][1]) for s, auc in both.items() if auc is not None and s in before}
        if own:
            aucs[f"{rise} with its level", LOSS_BEFORE, "image"] = own
    for cell in cells:
        for row in cell["results"]["sets"]:
            for beside in row["controls"] if row["attack"].startswith(ASCENTS) else ():
                names = row["attack"], beside["name"], f"set of {row['size']}, {row['judged']}"
                aucs.setdefault(names, {})[cell["seed"]] = row["auc"], beside["auc"]
    for (attack, control, of), values in aucs.items():
        yield {
            **head, "attack": attack, "control": control, "of": of,
            "setting": setting(cells[0]["grid"], attack),
            **measure_row(values), "chosen": chosen(cells, attack),
        }  # fmt: skip


def setting(grid: Mapping[str, Any], attack: str) -> str:
    """What a point sets for an attack; static ascent climbs after the federation."""
    own = next(name for name in ASCENTS if attack.startswith(name))
    skipped = {"attacks"} | ({"federation.attacked_rate"} if own == "ascent-static" else set())
    others = tuple(f"attack.{name}." for name in ASCENTS if name != own)
    options = {k: v for k, v in grid.items() if k not in skipped and not k.startswith(others)}
    return label({k.removeprefix(f"attack.{own}."): v for k, v in options.items()}) or "default"


def together(run: RunFolder, rise: str, level: str) -> float | None:
    """AUC of a linear discriminant of an image's rise and level, fitted on half of the images and
    read on the other, mean of both; None where the run keeps no such scores."""
    if not run.has_scores():
        return None
    scores = run.scores()
    if not {rise, level} <= {*scores}:
        return None
    scores = scores.sort_values("truth", ascending=False, kind="stable")
    x, truth = scores[[rise, level]].to_numpy(), scores["truth"].to_numpy()
    halves = StratifiedKFold(2, shuffle=True, random_state=0).split(x, truth)
    aucs = []
    for fit, rest in halves:
        read_out = LinearDiscriminantAnalysis().fit(x[fit], truth[fit]).decision_function(x[rest])
        mine, others = read_out[truth[rest] == 1], read_out[truth[rest] == 0]
        aucs.append(auc_estimate(mine, others).value)
    return float(np.mean(aucs))


def missing(swept: Sequence[Swept]) -> int:
    """Planned runs that are not there, of sweeps that the answer rests on."""
    return sum(s.short for s in swept if s.cells or s.planned.primary)


def picture(plan: Mapping[str, Any], swept: Sequence[Swept]) -> Figure:
    """Weak on the left, overfit on the right: a dot a federation, a ring at the mean, a bar over
    its interval."""
    lines = [(q["data"], q["question"], reading, names)
             for q in plan["questions"] for reading, names in PICTURE.get(
                 q["question"], {"rise": (q["attack"], q["control"])}).items()]  # fmt: skip
    figure = Figure(figsize=(11, 1.4 + 0.42 * len(lines)), layout="constrained")
    regimes = sorted({sweep["regime"] for sweep in plan["sweeps"]}, reverse=True)
    panels: Sequence[Axes] = figure.subplots(
        1, len(regimes), sharex=True, sharey=True, squeeze=False
    )[0]
    for axes, regime in zip(panels, regimes, strict=True):
        for place, (data, _, reading, names) in enumerate(lines):
            values = measure_row(pairs(cells_of(swept, regime, data)).get(names, {}))
            _line(axes, place, values, "#b2442f" if reading == "rise" else "#2f6db2")
        axes.axvline(0, color="#777777", linewidth=1, linestyle="--", zorder=0)
        axes.grid(axis="x", alpha=0.3)
        axes.set_title(regime)
        axes.set_xlabel("gain in AUC over the control, or over 0.5")
    panels[0].set_yticks(range(len(lines)), [", ".join(line[:3]) for line in lines], fontsize=9)
    panels[0].set_ylim(len(lines) - 0.5, -0.5)
    return figure


def _line(axes: Axes, place: int, values: Row, colour: str) -> None:
    gains, whole = list(values["by_seed"].values()), values["gain"]
    if not gains:
        axes.text(0, place, " not run", color="#777777", fontsize=8, va="center")
        return
    if whole["ci"]:
        axes.plot(whole["ci"], [place] * 2, color=colour, linewidth=5, alpha=0.35)
    axes.plot(gains, [place] * len(gains), ".", color=colour, markersize=4)
    axes.plot([whole["mean"]], [place], "o", color=colour, markersize=8, markerfacecolor="none")


def main(argv: Sequence[str] | None = None) -> None:
    """Hold the sweeps against the plan, answer, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sweeps", nargs="+", metavar="NAME=REGIME=FOLDER")
    parser.add_argument("--plan", type=Path, default=PLAN)
    parser.add_argument("--short", action="store_true", help="answer with fewer runs than planned")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    plan = load_plan(arguments.plan)
    swept = read(plan, arguments.sweeps, arguments.short)
    rows, more = primary(plan, swept), exploratory(plan, swept)
    about = describe()
    answer = {
        "plan": {"file": arguments.plan.name, "federations": plan["federations"],
                 "sha256": hashlib.sha256(arguments.plan.read_bytes()).hexdigest()},
        "short": missing(swept), "primary": rows, "exploratory": more,
        "sweeps": [_about(sweep) for sweep in swept if sweep.cells],
        "versions": about["versions"], "hardware": about["hardware"],
    }  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "answer.json").write_text(json.dumps(answer, indent=1) + "\n")
    picture(plan, swept).savefig(arguments.out / "answer.png", dpi=120)
    print(f"{answer['short']} planned runs are missing")
    for row in rows:
        numbers = f"{row['gain']}, p {row['p_holm']}{', ' * ('verdict' in row)}"
        print(f"{row['kind']} {row['question']}, {row['data']}: {numbers}{row.get('verdict', '')}")


def _about(sweep: Swept) -> Row:
    seeds = sorted({cell["seed"] for cell in sweep.cells})
    commits = {cell["results"]["commit"] for cell in sweep.cells}
    one = sweep.planned
    return {
        "config": one.config, "data": one.data, "regime": one.regime, "primary": one.primary,
        "runs": len(sweep.cells), "seeds": seeds, "commits": sorted(filter(None, commits)),
    }  # fmt: skip


if __name__ == "__main__":
    main()
