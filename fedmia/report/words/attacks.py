"""What attacks do and find, in words: who can run one, on which model, and what it adds."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.attack_rows import AttackRow, PairedRow, ends
from fedmia.records.client_rows import InferenceRow
from fedmia.records.rows import RegimeRow, Report, UtilityRow
from fedmia.report.judgement import (
    ALIKE,
    LESS,
    MORE,
    ScoredRows,
    is_reversed,
    judge_difference,
)
from fedmia.report.regime import BY
from fedmia.report.selection import is_reading
from fedmia.report.words.numbers import TOGETHER, auc_and_limits, estimate, number, signed
from fedmia.settings import registry
from fedmia.settings.vantages import VANTAGES

OUTSIDER = {"black_box": "can use", "white_box": "has the weights of"}
DECIDES = "The verdict goes by a lower limit of its own, one-sided, likewise for all together"
ONE_SCORE = "=: gave every image, or nearly every one, the same score: no answer for these"
REVERSED = "!: the AUC lies wholly under 0.5, so members score lower"


def rounds_of(row: AttackRow) -> str:
    """`24`, or `25-30` of an attack that acted in several; empty of a model of no run."""
    rounds = row.rounds
    return "-".join(str(r) for r in sorted({*rounds[:1], *rounds[-1:]}))


def model_read(row: AttackRow) -> str:
    """`the model of round 24`, `the models under attack of rounds 25-30`, or nothing."""
    several = "-" in (rounds := rounds_of(row))
    if row.under_attack:
        what = f"the model{'s' * (several or not rounds)} under attack"
        return f"{what} of round{'s' * several} {rounds}" if rounds else what
    if not rounds:
        return ""
    return f"{VANTAGES[row.vantage].whole} round{'s' * several} {rounds}"


def model_of(row: AttackRow) -> str:
    """`on the model of round 24`, or nothing of a model of no run."""
    return f"on {model}" if (model := model_read(row)) else ""


def who(row: AttackRow | InferenceRow) -> str:
    """`Someone who can use the model of round 24`: the least that an attack takes.

    Args:
        row: of the attack, or of one on whole data sets.

    Returns:
        Words that begin a sentence.
    """
    vantage, crafts, model = row.vantage, False, ""
    if isinstance(row, AttackRow):
        crafts, model = row.under_attack, model_read(row)
    if crafts and vantage == "outsider":
        vantage = "client"  # nobody else sends updates
    does = VANTAGES[vantage].does
    if not does:
        does = f"{OUTSIDER[row.access]} {model or 'this model'}"
    return f"Someone who {does}{' and sends crafted updates' * crafts}"


def tells(row: AttackRow) -> str:
    """Who can tell members apart, whatever a control says of it."""
    return f"{who(row)} can tell the training images from others, better than by guessing."


def separates(row: AttackRow) -> str:
    """What was found, whatever a control says of it; without its final stop."""
    values = auc_and_limits(row, model_of(row))
    return f"{row.name} separates members from non-members with {values}"


def what_leaks(row: AttackRow) -> str:
    """`The encoder leaks membership`: of what the attack read."""
    if row.under_attack:
        return "The models under attack leak membership"
    vantage = VANTAGES[row.vantage]
    of_rounds = bool(row.rounds) or bool(vantage.keeps)
    return f"{(vantage if of_rounds else VANTAGES['outsider']).leaks} membership"


def count_pairs(name: str, auc: float | None) -> str:
    """An AUC as the share of pairs that the attack orders right; of 1,000 where a count of 100
    would hide the difference.

    Args:
        name: of the attack.
        auc: its AUC, in [0, 1].

    Returns:
        The sentence, with the count beside that of a guess.
    """
    auc = auc or 0.0
    whole = 1000 if abs(auc - 0.5) < 0.05 or not 0.01 <= auc <= 0.99 else 100
    return (
        f"Of an image used for training and one that was not, {name} picks the right one "
        f"{auc * whole:,.0f} times of {whole:,}; guessing: {whole // 2}."
    )


def strength(row: AttackRow, use: UtilityRow) -> str:
    """Members of 100 that an attack finds at the lowest rate of false alarms that the images
    resolve; its AUC, and the use of the very model that it read.

    Args:
        row: of the attack.
        use: probes of that model.

    Returns:
        Sentences.
    """
    shares = "There are too few non-members to count the members found at few false alarms."
    for rate, alarms in (("0.1", 10), ("0.01", 1)):
        tpr, ci = row.tpr_at_fpr[rate], row.tpr_at_fpr_ci[rate]
        if tpr is not None and ci is not None:
            shares = (
                f"Of 100 training images {100 * tpr:.0f} are found where {alarms} of 100 others "
                f"{'is' if alarms == 1 else 'are'} accused falsely (95 % interval "
                f"{100 * ci[0]:.0f} to {100 * ci[1]:.0f}; guessing: {alarms})."
            )
    text = f"{shares} The attack {row.name} has AUC "
    text += f"{estimate(row.auc, ends(row))} {model_of(row)}".rstrip()
    text += " (0.5: guessing, 1: certain)"
    if use.knn is not None:
        whose = "the same model" if use.round is None else f"the model of round {use.round}"
        text += f"; kNN accuracy of {whose}: {estimate(use.knn, use.knn_ci)}"
    return f"{text}."


def recall(row: AttackRow) -> str:
    """Training images that an attack names at one false accusation in 100."""
    rate, ci = row.tpr_at_fpr["0.01"], row.tpr_at_fpr_ci["0.01"]
    if rate is None or ci is None:
        return "There are too few images to count those named at one false accusation in 100."
    return (
        f"Where it accuses one of 100 non-members falsely, it names {100 * rate:.0f} of 100 "
        f"training images (95 % limits: {100 * ci[0]:.0f} and {100 * ci[1]:.0f}; guessing: 1)."
    )


def percent(share: float) -> str:
    """`0.27 %` of 0.00266; three digits from 10 % on."""
    return f"{float(f'{100 * share:.{2 if share < 0.1 else 3}g}'):g} %"


def prior_sentence(row: AttackRow, prior: float) -> str:
    """Members among the records that an attack names, at one false accusation in 100.

    Args:
        row: of the attack, with its precision at the prior.
        prior: share of members among the records that are asked about.

    Returns:
        The sentence.
    """
    right = (row.precision_at_prior or {}).get("0.01")
    ci = (row.precision_at_prior_ci or {}).get("0.01")
    share = f"{100 * prior:g} %"
    begin = f"If {share} of the images that somebody asks about were used for training"
    if right is None or ci is None:
        return f"{begin}: there are too few non-members to say how many of those named were used."
    return (
        f"{begin}, then of the images that the attack {row.name} names {percent(right)} were used, "
        f"and {percent(1 - right)} are accused wrongly (95 % limits of the used: {percent(ci[0])} "
        f"and {percent(ci[1])}; guessing: {share}), where it accuses 1 of 100 others falsely."
    )


def reversed_clause(scored: ScoredRows) -> str:
    """Attacks by which members score lower, to stand behind the verdict in numbers, or nothing."""
    turned = [row.name for row in scored if is_reversed(row)]
    if not turned:
        return ""
    verb = "is" if len(turned) == 1 else "are"
    return f"; {', '.join(turned)} {verb} reversed (AUC under 0.5: members score lower)"


def reversed_sentence(scored: ScoredRows) -> str:
    """The same as a sentence, or nothing."""
    turned = [row.name for row in scored if is_reversed(row)]
    begin = f"By {', '.join(turned)}"
    return f"{begin}, members score lower than other images, not higher." if turned else ""


def over_control(row: AttackRow) -> str:
    """What an attack adds to its own control on the same images; empty where it has none."""
    if (over := row.over_control) is None:
        return ""
    control = f"its {over.control} control on the same images"
    apart, limit = ends(over) or (0.0, 0.0), over.lower_limit
    return adds(row.name, control, over.difference, apart, limit)


def pair_sentence(row: PairedRow, paired: Sequence[PairedRow]) -> str:
    """What an attack adds to a paired control; where it adds to one, those of its others to which
    it does not are named.

    Args:
        row: of the pair.
        paired: all pairs of the report.

    Returns:
        The sentence, without its final stop.
    """
    if row.difference is None or row.low is None or row.high is None:
        return f"{row.attack}: no pairs of members and non-members to compare"
    text = adds(row.attack, row.over, row.difference, (row.low, row.high))
    idle = [p.over for p in paired if p.attack == row.attack and p.low is not None and p.low <= 0]
    return f"{text}, but not over {' nor '.join(idle)}" if idle and row.low > 0 else text


def adds(
    attack: str, over: str, difference: float, ci: tuple[float, float], limit: float | None = None
) -> str:
    """What the interval of the difference says, in words: adds, adds nothing measurable, less.

    Args:
        attack: its name.
        over: what the control is, in words.
        difference: of the AUCs, in [-1, 1].
        ci: simultaneous interval of the difference.
        limit: one-sided lower limit, which decides; None: the interval does.

    Returns:
        The sentence, without its final stop.
    """
    numbers = f"{signed(difference, ci)} AUC"
    if limit is not None:
        numbers += f" (lower limit {signed(limit, digits=3)})"
    return {
        MORE: f"{attack} adds {numbers} over {over}",
        LESS: f"{attack} finds less than {over}: {numbers}",
        ALIKE: f"{attack} adds nothing measurable over {over}: {numbers}",
    }[judge_difference(ci, limit)]


def fits_sentence(rows: Sequence[AttackRow]) -> str | None:
    """Attacks by the number of known images that they learnt from; None where none did."""
    by_size: dict[int, list[str]] = {}
    for row in rows:
        if (size := row.fitted_on) is not None:
            by_size.setdefault(size, []).append(row.name)
    if not by_size:
        return None
    fitted = "; ".join(f"{', '.join(names)} on {size:,}" for size, names in by_size.items())
    return (
        f"Fitted on known images: {fitted}. Intervals are of these fits: another draw of the "
        "known images gives other AUCs, which they need not hold."
    )


def regime_sentence(row: RegimeRow | None) -> str | None:
    """`Regime: weak (similarity has AUC 0.621; overfit means over 0.85).`"""
    if row is None:
        return None
    auc = number(row.auc, 3)
    return f"Regime: {row.name} ({BY} has AUC {auc}; overfit means over {row.bound})."


def not_run_by_reason(report: Report) -> dict[str, str]:
    """Attacks that could not run, those of one reason together: `a, b` -> why."""
    attacks_by_reason: dict[str, list[str]] = {}
    for attack, reason in report.not_run.items():
        attacks_by_reason.setdefault(reason, []).append(attack)
    return {", ".join(names): reason for reason, names in attacks_by_reason.items()}


def not_run_line(names: str, reason: str) -> str:
    """`not run: lira, rmia: needs shadows`."""
    return f"not run: {names}: {reason}"


def not_run_lines(report: Report) -> list[str]:
    """The same with a capital, a line a reason."""
    lines = [not_run_line(*one) for one in not_run_by_reason(report).items()]
    return [f"N{line[1:]}" for line in lines]


def legend(report: Report, *, whole: bool = False) -> str:
    """What the signs of the table of attacks mean, as far as they occur.

    Args:
        report: of the attacks.
        whole: whether all readings of the attacks stand below; else the page has them.

    Returns:
        Sentences; empty without attacks.
    """
    if not report.attacks:
        return ""
    shadows = any(r.threshold_source == "shadow" for r in report.attacks)
    source = "known images or shadows" if shadows else "known images"
    attacked = any(r.under_attack for r in report.attacks)
    of = any(r.n_member_subjects is not None for r in report.attacks)
    further = not whole and any(is_reading(report, row) for row in report.attacks)
    controls: dict[str, dict[str, None]] = {}
    for row in report.paired:
        controls.setdefault(row.over, {})[row.control] = None
    without = [f" {', '.join(names)}: {over}." for over, names in controls.items()]
    return (
        f"low, high: {TOGETHER.format('attacks')}. {DECIDES}. n: scored members + non-members"
        f"{', of so many subjects' * of}. Accuracy: at a threshold from {source}."
        + " *: scored on the model under attack." * attacked
        + "".join(without)
        + f" {ONE_SCORE}." * any(row.one_score is not None for row in report.attacks)
        + f" {REVERSED}." * any(is_reversed(row) for row in report.attacks)
        + " Other readings of these attacks: on the page." * further
    )


def attack_terms(report: Report) -> dict[str, str]:
    """What the attacks of a report do, in the words of their own help; of others' attacks nothing.

    Args:
        report: of the attacks.

    Returns:
        Name -> the first line of its help.
    """
    own = registry.names("attack")
    ran = {row.name for row in report.attacks} | {row.attack for row in report.dataset_inference}
    names = sorted(ran & {*own})
    return {name: registry.summary(registry.load("attack", name)) for name in names}
