"""What is said of a study: a named function of rows for each sentence, the answer first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fedmia.records.privacy import MEANINGFUL
from fedmia.report.codes import LEAKS
from fedmia.report.reach import WEAK
from fedmia.report.words.numbers import DASH, interval, number
from fedmia.report.words.numbers import estimate as mean_and_interval
from fedmia.settings.commands.defense_points import NONE
from fedmia.statistics.intervals import LEVEL
from fedmia.study.cells import CellState
from fedmia.study.points import group_by_key
from fedmia.study.rows import ComparisonRow, DefencePointRow, EncoderPointRow, OverModels

# -- runs ------------------------------------------------------------------------------------------


def notes_on(cells: Sequence[CellState]) -> list[str]:
    """What a reader of the means of these runs must know."""
    finished = [cell for cell in cells if cell.state == "finished"]
    lost = group_by_key(
        (f"{attack}: {why}", cell.name) for cell in finished for attack, why in cell.not_run.items()
    )
    lines = [
        f"Not run{_part(names, finished)}: {attack_and_reason}"
        for attack_and_reason, names in lost.items()
    ]
    if void := [f"{cell.name} ({cell.void})" for cell in finished if cell.void]:
        lines.append(f"Void, and left out of every number of an attack: {', '.join(void)}.")
    if names := [cell.name for cell in cells if cell.state != "finished"]:
        lines.append(f"Left out of every mean: {', '.join(names)}.")
    return lines


def _part(names: Sequence[str], finished: Sequence[CellState]) -> str:
    """Of which of the finished runs something holds; empty where it holds of all."""
    if len(names) == len(finished):
        return ""
    return f" in {len(names)} of {len(finished)} runs (the first is {names[0]})"


def void_sentence(cells: Sequence[CellState]) -> str:
    """How many of the finished runs are void, and why; empty where none is."""
    finished = [cell for cell in cells if cell.state == "finished"]
    reasons = Counter(cell.void for cell in finished if cell.void)
    if not reasons:
        return ""
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    return (
        f"Nothing follows from the attacks of {reasons.total()} of {len(finished)} runs, which are "
        f"left out ({listed})."
    )


def failed_line(cell: CellState) -> str:
    """Why a run failed."""
    return f"{cell.name} failed: {cell.reason}"


def runs_sentence(cells: Sequence[CellState]) -> str:
    """How many runs are finished, and how many of them leak."""
    codes = Counter(cell.outcome for cell in cells if cell.outcome)
    line = f"{codes.total()} of {len(cells)} runs are finished; "
    line += f"{sum(codes[code] for code in LEAKS)} of them leak membership"
    line += f", {doubted} without a control" if (doubted := codes[LEAKS[1]]) else ""
    failed = sum(cell.state == "failed" for cell in cells)
    return line + (f"; failed and left out: {failed}." if failed else ".")


def sweep_notes(cells: Sequence[CellState]) -> list[str]:
    """That one seed gives no interval, and that runs are of several commits."""
    lines = []
    if len({cell.seed for cell in cells}) == 1:
        lines.append(
            "One seed: there is no interval between models. Five or more seeds give one worth "
            "having."
        )
    commits = {cell.commit for cell in cells if cell.path}
    if len(commits) > 1:
        lines.append(f"The runs were made by {len(commits)} commits of fedmia.")
    return lines


def encoder_notes(seeds: int) -> list[str]:
    """What several seeds of one encoder vary."""
    if seeds == 1:
        return []
    return [
        f"{seeds} seeds audit each encoder. Each seed has its own views, and its own known "
        "images unless a run names them. The model is the same, so the seeds do not cover the "
        "variation between trainings."
    ]


# -- attack against attack -------------------------------------------------------------------------


def baseline_sentence(rows: Sequence[ComparisonRow], baseline: str) -> str:
    """Which attacks lie over the baseline, and in how many points, by their corrected AUC.

    Args:
        rows: the comparisons.
        baseline: attack that the others are compared with.

    Returns:
        The sentence.
    """
    rows = [row for row in rows if row.measure == "AUC" and row.difference.n]
    if all(row.p is None for row in rows):
        return (
            f"No difference to {baseline} can be tested: that takes two seeds or more, and models "
            "that differ."
        )
    by_attack = group_by_key((row.attack, row) for row in rows)
    over, under = ([*_settled(by_attack, sign)] for sign in (1, -1))
    how = f"AUC; Holm's p at most {1 - LEVEL:.2f}"
    below = f"; under it: {', '.join(under)}" if under else ""
    many = len(by_attack)
    if many == 1:
        (name,) = by_attack
        text = f"{over[0]} lies over {baseline}" if over else f"{name} does not lie over {baseline}"
    elif over:
        verb = "lies" if len(over) == 1 else "lie"
        text = f"{len(over)} of {many} attacks {verb} over {baseline}: {', '.join(over)}"
    else:
        text = f"None of {many} attacks lies over {baseline}"
    return f"{text}{below} ({how})."


def _settled(by_attack: dict[str, list[ComparisonRow]], sign: int) -> Iterable[str]:
    """Attacks whose corrected difference has a sign, and in how many of their points."""
    for name, rows in by_attack.items():
        tested = [row for row in rows if row.p_holm is not None and row.p_holm <= 1 - LEVEL]
        if count := sum((row.difference.mean or 0.0) * sign > 0 for row in tested):
            yield f"{name} (in {count} of {len(rows)} points)" if len(rows) > 1 else name


# -- encoders --------------------------------------------------------------------------------------


def encoders_sentence(points: Sequence[EncoderPointRow], states: Sequence[str]) -> str:
    """Verdict and strongest attack of each encoder; of the rounds of one run, of the ends alone.

    Args:
        points: the encoders.
        states: of the audits: finished, failed or not run.

    Returns:
        The sentence.
    """
    known = [point for point in points if point.verdicts]
    if are_of_one_run(known):
        known = [known[0], *known[1:][-1:]]
    parts = [_finding(point) for point in known]
    missing = [f"{word}: {states.count(word)}" for word in ("failed", "not run") if word in states]
    return "; ".join([*(parts or ["no audit is finished"]), *missing]) + "."


def are_of_one_run(points: Sequence[EncoderPointRow]) -> bool:
    """Whether all encoders are rounds of one run."""
    runs = {point.run if point.round is not None else None for point in points}
    return len(runs) == 1 and None not in runs


def _finding(point: EncoderPointRow) -> str:
    """An encoder's verdict, its strongest attack, the p-values of its data set, and its kNN."""
    codes = ", ".join(f"{code} {count}" for code, count in point.verdicts.items())
    parts, rows = [codes.removesuffix(" 1")], [*point.attacks.values()]
    if any(row.auc.mean is not None for row in rows):
        best = max(rows, key=lambda row: row.auc.mean or 0.0)
        parts.append(f"{best.attack} AUC {mean_and_interval(best.auc.mean, best.auc.ci)}")
    parts += [point.sets] if point.sets else []
    if point.knn.mean is not None:
        parts.append(f"kNN {mean_and_interval(point.knn.mean, point.knn.ci)}")
    return f"{point.point}: {', '.join(parts)}"


# -- defences --------------------------------------------------------------------------------------

COSTS = (
    "Choosing a defence by its result on the members costs privacy that no epsilon here counts "
    "(private selection; Papernot and Steinke, 2022). Choosing it on public images costs none."
)


def defences_sentence(points: Sequence[DefencePointRow]) -> str:
    """What a reader should take home of a choice among defences, its uncertainty with it: what
    each run found, and what seeds show.

    Args:
        points: as `fedmia.study.views._choice.choose` returns them, the undefended one first.

    Returns:
        The sentence.
    """
    bare = points[0]
    if bare.best is None or bare.knn.mean is None:
        why = f" ({bare.void})" if bare.void else ""
        return f"The undefended federation has no result{why}, so nothing is compared with it."
    leaking, runs = count_runs(bare)
    verdicts = f"Without a defence {leaking} of {runs} runs establish a leak."
    return f"{verdicts} {_seeds_sentence(points, leaking)}"


def count_runs(point: DefencePointRow) -> tuple[int, int]:
    """How many runs of a point have the verdict of a leak, and how many have any."""
    codes = point.verdicts
    return sum(codes.get(code, 0) for code in LEAKS), sum(codes.values())


def leaks_measurably(point: DefencePointRow) -> bool:
    """Whether the best attack's simultaneous interval lies over 0.5; where models of one seed give
    no interval, whether the verdict of each run is a leak."""
    if (ci := point.leak.auc.ci_simultaneous) is not None:
        return bool(ci[0] > 0.5)
    leaking, runs = count_runs(point)
    return 0 < runs == leaking


def _seeds_sentence(points: Sequence[DefencePointRow], leaking: int) -> str:
    """What the seeds show, beside the verdicts of runs of which `leaking` leak undefended."""
    bare, knn = points[0], number(points[0].knn.mean)
    if not leaks_measurably(bare):
        return _undecided(bare, leaking)
    least = next((point for point in points if point.choice == "least"), None)
    if least is None:
        return f"No tested defence keeps kNN within 5 % of the undefended {knn}."
    if least.defense == NONE:
        return (
            "In the mean no tested defence leaks less than no defence and keeps kNN within 5 % of "
            f"the undefended {knn}: {_leak(bare)}."
        )
    text = (
        f"{least.point} leaks least of the defences that keep kNN within 5 % "
        f"({number(least.knn.mean)}, undefended {knn}): {_leak(least)}; undefended, "
        f"{_leak(bare)}. {_alike(points, least.knn.n)}"
    )
    if least.standing is not None and not means_something(least.epsilon):
        text += " Its epsilon is no meaningful guarantee."
    if least.spare is not None and (least.spare.ci is None or least.spare.ci[0] < 0):
        text += " Its mean loses at most 5 % of kNN, but a larger loss is not excluded."
    return text


def _undecided(bare: DefencePointRow, leaking: int) -> str:
    """Why nothing is chosen where the seeds do not show that undefended models leak."""
    auc = bare.leak.auc
    ci, seeds = auc.ci_simultaneous, auc.n
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


def _alike(points: Sequence[DefencePointRow], models: int) -> str:
    """What the models cannot tell from the least leaking point."""
    if models < 2:
        return "With one model it is not measurably better than the others or than no defence."
    bare, *others = points
    names = [point.point for point in others if point.choice == "alike"]
    over = f"Over {models} models"
    if bare.choice == "alike":
        more = f" or than {_listed(names)}" if names else ""
        return f"{over} it does not leak measurably less than {bare.point}{more}."
    if names:
        less = f"{over} it leaks less than {bare.point}"
        return f"{less}, but not measurably less than {_listed(names)}."
    return f"{over} it leaks less than {bare.point} and than each other defence that keeps kNN."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _leak(point: DefencePointRow) -> str:
    auc = point.leak.auc
    ci = f" {interval(auc.ci_simultaneous)}".rstrip()
    return f"{point.best} has AUC {number(auc.mean)}{ci}"


def means_something(epsilon: float | None) -> bool:
    """Whether an epsilon is finite and small enough to guarantee anything."""
    return epsilon is not None and epsilon <= MEANINGFUL


def guarantee(epsilon: float | None, standing: str | None, unit: str | None) -> str:
    """`8.1 for one image, guaranteed`, `1e+06 for one client, no meaningful guarantee`, a dash.

    Args:
        epsilon: the largest of any defended client; None: no finite one.
        standing: `guaranteed`, `heuristic`, ..; None: no epsilon is stated.
        unit: for what it holds.

    Returns:
        The text.
    """
    if standing is None:
        return DASH
    text = "none" if epsilon is None else f"{epsilon:.3g}"
    text += f" for one {unit}" if unit else ""
    return f"{text}, {standing if means_something(epsilon) else 'no meaningful guarantee'}"


# -- for what limits hold, below a table of a paper ------------------------------------------------


def limits_alone(of: str, over: str = "models") -> str:
    """Of intervals that hold each by itself.

    Args:
        of: what they are of.
        over: what they are taken over.

    Returns:
        The sentence.
    """
    return f"[ ]: 95 % limits of {of} over {over}, each for itself."


def limits_together(of: str, values: Iterable[OverModels]) -> str:
    """Of intervals some of which hold together.

    Args:
        of: what they are of.
        values: all whose intervals may hold together.
    """
    family = sum(value.ci_simultaneous is not None for value in values)
    together = f"95 % limits that hold for all {family} AUCs together"
    return f"[ ] of {of}: {together}; else each for itself."


def corrected(tests: int) -> str:
    """For how many tests Holm's p-values hold."""
    return f"p, Holm: corrected for {tests} tests together."
