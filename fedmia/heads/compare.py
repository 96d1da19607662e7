"""From heads to numbers with intervals between heads, and what they say in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedmia.config.head import Head
from fedmia.heads.release import Setting, audited
from fedmia.heads.rows import AttackRow, HeadRow
from fedmia.heads.trial import CONFIDENCE, KNOWING, NAIVE, Measured, Rates, Trial
from fedmia.options.seeding import rng
from fedmia.records import MEANINGFUL
from fedmia.report.format import estimate, number
from fedmia.report.lowerbounds import SHOUT, by_canaries
from fedmia.report.rows import Interval
from fedmia.statistics.spread import spread, t_interval, within

TOLERABLE = 0.05  # utility loss that the paper calls small
ATTACKS: Mapping[str, str] = {
    NAIVE: "fitted on shadow heads without noise",
    KNOWING: "fitted on shadow heads under the same noise",
    CONFIDENCE: "probability of the true label",
}


def tried(settings: int) -> int:
    """AUCs that one file tells: of all attacks without noise, at each setting, and of controls."""
    return 3 * settings + 3 * len((NAIVE, CONFIDENCE))


def rows(trials: Sequence[Trial], asked: Head, settings: Sequence[Setting]) -> list[HeadRow]:
    """Heads without noise, then at each setting in order."""
    family = tried(len(settings))
    found = [row(None, [t.plain for t in trials], asked, family)]
    for s in settings:
        found.append(row(s, [t.noised[s] for t in trials], asked, family))
        if asked.canaries:
            sensitivity, scale = trials[0].sensitivity, trials[0].noised[s].scale
            draw = rng(asked.seed, "head", "canaries", s.mechanism, repr(s.epsilon))
            audit = audited(s, asked.delta, sensitivity, scale, asked.canaries, draw)
            found[-1]["lower_bound"] = by_canaries(audit, len(settings))
    return found


def row(setting: Setting | None, measured: Sequence[Measured], asked: Head, family: int) -> HeadRow:
    """Heads at one setting, None: without noise."""
    mechanism, epsilon = (setting.mechanism, setting.epsilon) if setting else (None, None)
    return {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": asked.delta if mechanism == "gaussian" else 0.0,
        "standing": None if setting is None else "empirical",
        "meaningful": epsilon is not None and epsilon <= MEANINGFUL,
        "unit": "image",
        "lower_bound": None,
        "scale": spread((m.scale for m in measured), high=math.inf),
        "utility": spread(m.utility for m in measured),
        "utility_loss": spread((m.loss for m in measured), -1.0),
        "attacks": attack_rows([m.attacks for m in measured], family),
    }


def attack_rows(heads: Sequence[Mapping[str, Rates]], family: int) -> list[AttackRow]:
    """Each attack over the heads."""
    return [attack_row(name, [h[name] for h in heads], family) for name in heads[0]]


def attack_row(name: str, rates: Sequence[Rates], family: int) -> AttackRow:
    """One attack over the heads. `family`: AUCs whose intervals hold together."""
    aucs = [r.auc for r in rates]
    return {
        "name": name,
        "auc": spread(aucs),
        "auc_ci_simultaneous": within(t_interval(aucs, family)),
        "accuracy": spread(r.accuracy for r in rates),
        "tpr_at_1_percent_fpr": spread(r.tpr for r in rates),
    }


def leaks(row: HeadRow) -> list[AttackRow]:
    """Attacks whose simultaneous interval lies over 0.5."""
    return [a for a in row["attacks"] if (ci := a["auc_ci_simultaneous"]) and ci[0] > 0.5]


def sentence(found: Sequence[HeadRow], heads: int) -> str:
    """What a head leaks without noise, and what each mechanism takes to stop it."""
    plain, noised = found[0], found[1:]
    wrong = [r for r in noised if (bound := r["lower_bound"]) and bound["refuted"]]
    names = ", ".join(f"{r['mechanism']} at {r['epsilon']:g}" for r in wrong)
    parts = [f"{SHOUT} by canaries: {names}."] if wrong else []
    parts += [_plain(plain, heads), *_by_mechanism(noised, _cheapest), _stopped(noised)]
    return " ".join(parts)


def _plain(plain: HeadRow, heads: int) -> str:
    naive = plain["attacks"][0]
    said = (
        f"Without noise the attack has AUC {number(naive['auc']['mean'])} "
        f"{_ci(naive['auc_ci_simultaneous'])}, accuracy "
        f"{estimate(naive['accuracy']['mean'], naive['accuracy']['ci'])}, mean over {heads} heads"
    )
    return said + (": the heads leak." if leaks(plain) else ": no leak is established.")


def _ci(ci: Interval | None) -> str:
    return "(no interval)" if ci is None else f"[{ci[0]:.2f}, {ci[1]:.2f}] (simultaneous)"


def _by_mechanism(
    noised: Sequence[HeadRow], say: Callable[[str, Sequence[HeadRow]], str]
) -> Iterable[str]:
    for name in dict.fromkeys(str(row["mechanism"]) for row in noised):
        yield say(name, [row for row in noised if row["mechanism"] == name])


def _cheapest(name: str, found: Sequence[HeadRow]) -> str:
    """The least epsilon at which a mechanism costs at most TOLERABLE of utility."""
    kept = [r for r in found if (r["utility_loss"]["mean"] or 0.0) <= TOLERABLE]
    if not kept:
        return f"{name} costs over {TOLERABLE:.0%} of utility at every epsilon tried."
    least = min(kept, key=lambda r: r["epsilon"] or 0.0)
    worst = max((a["auc"]["mean"] or 0.0) for a in least["attacks"])
    doubt = "" if least["meaningful"] else ", no meaningful guarantee"
    return (
        f"{name} keeps utility within {TOLERABLE:.0%} from epsilon {least['epsilon']:g} on{doubt}; "
        f"the best attack there has AUC {worst:.2f}."
    )


def _stopped(noised: Sequence[HeadRow]) -> str:
    """Whether any epsilon that means something leaves a leak, and the utility it costs."""
    small = [r for r in noised if r["meaningful"]]
    if not small:
        return ""
    left = [r for r in small if leaks(r)]
    best = min(small, key=lambda r: r["utility_loss"]["mean"] or 0.0)
    who = f"{best['mechanism']} at {best['epsilon']:g}"
    said = f"Of epsilons of at most {MEANINGFUL:g}, {who} costs least, "
    said += f"{best['utility_loss']['mean'] or 0.0:.0%} of utility; "
    names = ", ".join(f"{r['mechanism']} at {r['epsilon']:g}" for r in left)
    return said + (f"a leak is left under {names}." if left else "no leak is established there.")
