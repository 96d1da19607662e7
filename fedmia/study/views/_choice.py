"""Which point leaks least within 5 % of the undefended kNN, and which it cannot be told from.

Each candidate is compared with the least leaking one over models of equal seeds: a one-sided paired
t test of the AUCs of their best attacks. With K candidates each test has level 0.05 / (K - 1); then
those that the tests do not exclude hold the truly least leaking one with 95 % confidence, though
the least one was chosen on the same models (Hsu 1984, Ann. Statist. 12:1136).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedmia.config.defense_points import NONE
from fedmia.records.privacy import MEANINGFUL
from fedmia.report.codes import LEAKS
from fedmia.report.reach import WEAK
from fedmia.report.words.numbers import interval, number
from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import p_value
from fedmia.study.points import SeedValues, change, known, paired_differences

WITHIN = 0.05
COSTS = (
    "Choosing a defence by its result on the members costs privacy that no epsilon here counts "
    "(private selection; Papernot and Steinke, 2022). Choosing it on public images costs none."
)


def choose(points: Sequence[Any]) -> Any:
    """The choice among points, the undefended one first.

    A defence of which a run failed or is void is no candidate: its mean is that of the runs that
    went well. Nothing is chosen where the undefended models do not measurably leak; `chosen` are
    the least leaking point and those like it, where seeds tell all of them from no defence.
    """
    bare = points[0]
    least_use = _floor(bare["knn_by_seed"])
    candidates = [
        point
        for point in points
        if bare["best"] and point["best"]
        if point is bare or not (point["failed"] or point["void"])
        if (spare := known(paired_differences(point["knn_by_seed"], least_use)))
        and fmean(spare) >= 0
    ]
    names = [point["point"] for point in candidates]
    choice: Any = {"candidates": names, "least": None, "alike": [], "chosen": [], "spare": None}
    if len(candidates) > 1 and leaks_measurably(bare):
        # Of points at 0.5 or under it the one of most use.
        least = min(
            candidates,
            key=lambda point: (
                at_least_half(point["leak"]["auc"]["mean"]),
                -fmean(known(point["knn_by_seed"].values())),
            ),
        )
        others = [point for point in candidates if point is not least]
        level = (1 - LEVEL) / len(others)
        alike = [point["point"] for point in others if not _leaks_more(point, least, level)]
        choice |= {"least": least["point"], "alike": alike}
        choice["spare"] = change(least["knn_by_seed"], least_use)
        if bare["point"] not in (both := [least["point"], *alike]):
            choice["chosen"] = both
    return choice


def at_least_half(auc: float) -> float:
    """An AUC under 0.5 counts as 0.5: guessing worse than chance is no less of a leak."""
    return max(auc, 0.5)


def leaks_measurably(point: Any) -> bool:
    """Whether the best attack's simultaneous interval lies over 0.5; where models of one seed give
    no interval, whether the verdict of each run is a leak."""
    if (ci := point["leak"]["auc"]["ci_simultaneous"]) is not None:
        return bool(ci[0] > 0.5)
    leaking, runs = _count_runs(point)
    return 0 < runs == leaking


def _count_runs(point: Any) -> tuple[int, int]:
    """How many runs of a point have the verdict of a leak, and how many have any."""
    codes = point["verdicts"]
    return sum(codes.get(code, 0) for code in LEAKS), sum(codes.values())


def sentence(points: Sequence[Any], choice: Any) -> str:
    """What a reader should take home, its uncertainty with it."""
    bare = points[0]
    knn = number(bare["knn"]["mean"])
    if bare["best"] is None or bare["knn"]["mean"] is None:
        why = f" ({bare['void']})" if bare["void"] else ""
        return f"The undefended federation has no result{why}, so nothing is compared with it."
    leaking, runs = _count_runs(bare)
    verdicts = f"Without a defence {leaking} of {runs} runs establish a leak."
    return f"{verdicts} {_seeds_sentence(points, choice, leaking, knn)}"


def _seeds_sentence(points: Sequence[Any], choice: Any, leaking: int, knn: str) -> str:
    """What the seeds show, beside the verdicts of runs of which `leaking` leak undefended."""
    bare = points[0]
    if not leaks_measurably(bare):
        return _undecided(bare, leaking)
    if choice["least"] is None:
        return f"No tested defence keeps kNN within 5 % of the undefended {knn}."
    least = next(point for point in points if point["point"] == choice["least"])
    if least["defense"] == NONE:
        return (
            "In the mean no tested defence leaks less than no defence and keeps kNN within 5 % of "
            f"the undefended {knn}: {_leak(bare)}."
        )
    text = (
        f"{least['point']} leaks least of the defences that keep kNN within 5 % "
        f"({number(least['knn']['mean'])}, undefended {knn}): {_leak(least)}; undefended, "
        f"{_leak(bare)}. {_alike(choice, bare['point'], least['knn']['n'])}"
    )
    if least["standing"] is not None and not means_something(least["epsilon"]):
        text += " Its epsilon is no meaningful guarantee."
    spare = choice["spare"]
    if spare is not None and (spare["ci"] is None or spare["ci"][0] < 0):
        text += " Its mean loses at most 5 % of kNN, but a larger loss is not excluded."
    return text


def _undecided(bare: Any, leaking: int) -> str:
    """Why nothing is chosen where the seeds do not show that undefended models leak."""
    auc = bare["leak"]["auc"]
    ci, seeds = auc["ci_simultaneous"], auc["n"]
    if ci is not None and ci[1] < WEAK:
        small = f"Over {seeds} seeds {_leak(bare)}, under {WEAK:.2f}"
        if not leaking:
            small += ", so the models do not measurably leak"
        return f"{small}. No defence is chosen: use a federation that leaks."
    if ci is not None:
        why = f"{seeds} seeds are too few to tell whether others would leak: {_leak(bare)}"
    elif seeds == 1:
        why = f"One seed gives no limits for others: {_leak(bare)}"
    else:
        why = f"{seeds} equal seeds give no limits for others: {_leak(bare)}"
    more = "" if leaking else ", more images, or a federation that leaks"
    return f"{why}. No defence is chosen: use more seeds (`--seeds {max(5, 2 * seeds)}`){more}."


def _alike(choice: Any, bare: str, models: int) -> str:
    """What the models cannot tell from the least leaking one."""
    if models < 2:
        return "With one model it is not measurably better than the others or than no defence."
    others = [name for name in choice["alike"] if name != bare]
    over = f"Over {models} models"
    if bare in choice["alike"]:
        more = f" or than {_listed(others)}" if others else ""
        return f"{over} it does not leak measurably less than {bare}{more}."
    if others:
        return f"{over} it leaks less than {bare}, but not measurably less than {_listed(others)}."
    return f"{over} it leaks less than {bare} and than each other defence that keeps kNN."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _leak(point: Any) -> str:
    auc = point["leak"]["auc"]
    ci = f" {interval(auc['ci_simultaneous'])}".rstrip()
    return f"{point['best']} has AUC {number(auc['mean'])}{ci}"


def means_something(epsilon: float | None) -> bool:
    """Whether an epsilon is finite and small enough to guarantee anything."""
    return epsilon is not None and epsilon <= MEANINGFUL


def _floor(undefended: SeedValues) -> SeedValues:
    """The least kNN that is kept, by seed."""
    return {k: (1 - WITHIN) * v for k, v in undefended.items() if not isinstance(v, str)}


def _leaks_more(one: Any, least: Any, level: float) -> bool:
    """Whether models tell that `one` leaks more than the least leaking point."""
    more = known(paired_differences(one["leak"]["by_seed"], least["leak"]["by_seed"]))
    p = p_value(more)
    return p is not None and fmean(more) > 0 and p / 2 <= level
