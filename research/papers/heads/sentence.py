"""What a reader of the trial takes home: whether heads leak, and what it costs to stop that."""

from __future__ import annotations

from fedmia.records.attack_rows import Interval
from fedmia.records.privacy import MEANINGFUL
from fedmia.report.words.bounds import SHOUT
from fedmia.report.words.numbers import estimate, number
from fedmia.study.points import group_by_key
from research.papers.cells import Row, Rows

TOLERABLE = 0.05  # utility loss that the paper calls small


def leaks(row: Row) -> list[Row]:
    """Attacks whose simultaneous interval lies over 0.5."""
    return [a for a in row["attacks"] if (ci := a["auc_ci_simultaneous"]) and ci[0] > 0.5]


def sentence(head_rows: Rows, heads: int) -> str:
    """What a head leaks without noise, and what each mechanism takes to stop it.

    Args:
        head_rows: without noise first.
        heads: how many.

    Returns:
        The sentence.
    """
    plain, noised = head_rows[0], head_rows[1:]
    wrong = [r for r in noised if (bound := r["lower_bound"]) and bound["refuted"]]
    names = ", ".join(f"{r['mechanism']} at {r['epsilon']:g}" for r in wrong)
    parts = [f"{SHOUT} by canaries: {names}."] if wrong else []
    cheapest = [_cheapest(name, rows) for name, rows in by_mechanism(noised).items()]
    parts += [_sentence_without_noise(plain, heads), *cheapest, _sentence_stopped(noised)]
    return " ".join(parts)


def _sentence_without_noise(plain: Row, heads: int) -> str:
    naive = plain["attacks"][0]
    leaking = "the heads leak" if leaks(plain) else "no leak is established"
    return (
        f"Without noise the attack has AUC {number(naive['auc']['mean'])} "
        f"{_ci(naive['auc_ci_simultaneous'])}, accuracy "
        f"{estimate(naive['accuracy']['mean'], naive['accuracy']['ci'])}, mean over {heads} heads: "
        f"{leaking}."
    )


def _ci(ci: Interval | None) -> str:
    return "(no interval)" if ci is None else f"[{ci[0]:.2f}, {ci[1]:.2f}] (simultaneous)"


def _cheapest(name: str, head_rows: Rows) -> str:
    """The least epsilon at which a mechanism costs at most TOLERABLE of utility."""
    tolerable = [r for r in head_rows if (r["utility_loss"]["mean"] or 0.0) <= TOLERABLE]
    if not tolerable:
        return f"{name} costs over {TOLERABLE:.0%} of utility at every epsilon tried."
    least = min(tolerable, key=lambda r: r["epsilon"] or 0.0)
    worst = max((a["auc"]["mean"] or 0.0) for a in least["attacks"])
    doubt = "" if least["meaningful"] else ", no meaningful guarantee"
    return (
        f"{name} keeps utility within {TOLERABLE:.0%} from epsilon {least['epsilon']:g} on{doubt}; "
        f"the best attack there has AUC {worst:.2f}."
    )


def _sentence_stopped(noised: Rows) -> str:
    """Whether any epsilon that means something leaves a leak, and the utility it costs."""
    small = [r for r in noised if r["meaningful"]]
    if not small:
        return ""
    best = min(small, key=lambda r: r["utility_loss"]["mean"] or 0.0)
    who = f"{best['mechanism']} at {best['epsilon']:g}"
    names = ", ".join(f"{r['mechanism']} at {r['epsilon']:g}" for r in small if leaks(r))
    left = f"a leak remains under {names}" if names else "no leak is established at these settings"
    return (
        f"Of all settings with epsilon at most {MEANINGFUL:g}, {who} costs least utility: "
        f"{best['utility_loss']['mean'] or 0.0:.0%}; {left}."
    )


def by_mechanism(noised: Rows) -> dict[str, list[Row]]:
    """The rows of each mechanism."""
    return group_by_key((str(row["mechanism"]), row) for row in noised)
