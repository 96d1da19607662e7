"""What follows from the rows of a report: its code, and the rows that decide. No words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmia.recording.branches import BRANCHES
from fedmia.records.attack_rows import AttackRow, AucRow, PairedRow, ends, with_auc
from fedmia.records.client_rows import ClientInferenceRow, InferenceRow
from fedmia.records.defence_rows import DefencePart, DefenceRow
from fedmia.records.group_rows import GroupLeakRow
from fedmia.records.rows import Report
from fedmia.report.codes import LEAKS, NO_VERDICT, UNSOUND, UNTESTED

ScoredRows = Sequence[Any]  # of attacks whose AUC is known

ASKS = ("black_box", "outsider")
MORE, LESS, ALIKE = "more", "less", "alike"
SIGNIFICANCE = 0.05  # of the p-values that Holm corrected


def verdict_code(report: Report) -> str:
    """The report's `verdict_code`.

    Every judgement rests on simultaneous intervals. That anything leaks is one family of one-sided
    tests: attacks, each against 0.5 and against its own control, and attacks on whole data sets.
    The least p-value decides, so Holm's correction gives the code that Bonferroni's limits, which
    stand in the report, give. Controls, pixels and paired differences are a second family, of
    two-sided intervals.

    Args:
        report: all else that `report.json` holds.

    Returns:
        `no-verdict` (the run ended before its first round, so its model is untrained), `untested`
        (no attack has scores), `shift` (pixels alone tell members apart), `control-failed`,
        `leaks`, `leaks-uncontrolled` (a leak for which no attack has a control on the same
        images), `collapsed` (no leak, of an encoder that gives all images one output) or
        `not-established`, tried in this order.
    """
    if report.interrupted == 0:
        return NO_VERDICT
    code, health = code_by_attacks(report), report.health
    if code == "not-established" and health is not None and health.collapsed:
        return "collapsed"
    if code in (UNTESTED, "not-established") and is_refuted(report, code):
        return LEAKS[0]  # what refutes a guarantee is a leak
    return code


def code_by_attacks(report: Report) -> str:
    """The code that attacks and controls alone give, whatever else is known of the run."""
    scored = with_auc(report.attacks)
    tested = any(c.p_value is not None for row in report.dataset_inference for c in row.clients)
    if not scored and not tested:
        return UNTESTED
    if shifted_pixels(report) is not None:
        return "shift"
    if failed_control(report) is not None:
        return "control-failed"
    strongest, sets, code = decisive(report)
    return code if strongest or sets is not None else "not-established"


def decisive(report: Report) -> tuple[list[AttackRow], InferenceRow | None, str]:
    """What says that a run leaks; nothing where nothing does.

    Args:
        report: with its attacks.

    Returns:
        The attacks that a verdict names, the one that decides first, or the attack on whole data
        sets; and the code.
    """
    strongest, inferences = strongest_leaks(report), report.dataset_inference
    sets = next((row for row in inferences if detected(row)), None)
    controlled = any(row.over_control is not None for row in strongest[:1])
    if not controlled and any(
        c.p_value_untrained is not None
        for row in inferences
        if not row.may_differ
        for c in detected(row)
    ):
        strongest, controlled = [], True  # the attacks have no control, the one on sets has
    return strongest, sets, LEAKS[not controlled]


def is_alarming(report: Report) -> bool:
    """Whether the run leaks, or contradicts a guarantee: no other verdict is good news."""
    return report.verdict_code == LEAKS[0] or is_refuted(report, report.verdict_code)


def is_refuted(report: Report, code: str) -> bool:
    """Whether a claimed epsilon lies under its lower bound. One by attacks counts where members and
    non-members differ in nothing but membership, as the code of the verdict says."""
    return bool(refuted_claims(report)) or is_refuted_by_attacks(report, code)


def is_refuted_by_attacks(report: Report, code: str) -> bool:
    """Whether the run's attacks show more than clients claim."""
    bound = report.lower_bound
    return bound is not None and bound.refuted and code not in UNSOUND


def refuted_claims(report: Report) -> list[tuple[int | None, DefencePart]]:
    """The statements that canaries refute, the one exceeded furthest first.

    Args:
        report: with its clients and its server's rule.

    Returns:
        Number of the client, None of the server, and its defence.
    """
    parts = [(row.id, part) for row in report.clients for part in parts_of(row.defence)]
    excess: list[tuple[float, int | None, DefencePart]] = []
    for who, part in [(None, report.aggregation), *parts]:
        if part is not None and exceeds_claim(part):
            spent = part.epsilon
            assert spent is not None and spent.lower_bound is not None
            over = spent.lower_bound.value_simultaneous / max(spent.value or 0.0, 1e-9)
            excess.append((over, who, part))
    excess.sort(key=lambda one: -one[0])
    return [(who, part) for _, who, part in excess]


def exceeds_claim(part: DefencePart) -> bool:
    """Whether canaries show more than a defence claims."""
    spent = part.epsilon
    return spent is not None and spent.lower_bound is not None and spent.lower_bound.refuted


def parts_of(defence: DefenceRow | None) -> Sequence[DefencePart]:
    """The defences of a client, each with its own claim."""
    return [] if defence is None else defence.parts or [defence]


def is_audit(report: Report) -> bool:
    """Whether the report is of an encoder, or of its vectors, that was trained elsewhere."""
    return report.encoder is not None or "member_embeddings" in report.config


def detected(row: InferenceRow) -> list[ClientInferenceRow]:
    """The sets on which the encoder was trained; none where a control failed, or where the least
    p-value is no leak beside the other tests of the report."""
    if row.void or row.p_value is None or row.p_value > SIGNIFICANCE:
        return []
    return [c for c in row.clients if is_clean(c) and (c.p_value_holm or 0) <= SIGNIFICANCE]


def is_clean(row: ClientInferenceRow) -> bool:
    """Whether a set was tested, and the untrained encoder does not tell it as well."""
    null = row.p_value_untrained
    return row.p_value_holm is not None and (null is None or null > SIGNIFICANCE)


def excludes_half(row: AucRow) -> bool:
    """Whether the limits of an AUC leave out 0.5, on either side."""
    low, high = ends(row) or (0.0, 1.0)
    return not low <= 0.5 <= high


def lies_over_half(row: AucRow) -> bool:
    """Whether the one-sided limit of an attack's AUC lies over 0.5."""
    return (row.lower_limit or 0.0) > 0.5


def is_reversed(row: AucRow) -> bool:
    """Whether an AUC lies wholly under 0.5."""
    return row.high is not None and row.high < 0.5


def shifted_pixels(report: Report) -> AucRow | None:
    """The classifier on pixels where it tells members apart, else None."""
    pixels = report.pixels
    return pixels if pixels is not None and excludes_half(pixels) else None


def failed_control(report: Report) -> tuple[str, AttackRow] | None:
    """(set name, row) of the control farthest from 0.5 among those that exclude it, though nothing
    can leak there."""
    failed = [
        (name, row)
        for name, rows in report.controls.items()
        if name not in BRANCHES or not BRANCHES[name].leaks
        for row in rows
        if excludes_half(row)
    ]
    return max(failed, key=lambda f: abs((f[1].auc or 0.0) - 0.5), default=None)


def leaks(row: AttackRow) -> bool:
    """Whether an attack's AUC lies over 0.5 and over that of its own control, where it has one."""
    over = row.over_control
    return lies_over_half(row) and (over is None or over.lower_limit > 0)


def lacks_control(report: Report) -> bool:
    """Whether no attack, on images or on whole data sets, was tried where nothing can leak."""
    tests = [c.p_value_untrained for row in report.dataset_inference for c in row.clients]
    beside = [row.over_control is not None for row in with_auc(report.attacks)]
    return not any(beside) and all(p is None for p in tests)


def pairs_of(report: Report, row: AttackRow) -> list[PairedRow]:
    """What an attack adds to itself without its act, those to which it adds nothing first."""
    own = [p for p in report.paired if p.attack == row.name and p.low is not None]
    return sorted(own, key=lambda p: (p.low or 0.0) > 0)


def judge_difference(ci: tuple[float, float], limit: float | None = None) -> str:
    """Whether an attack finds MORE than what it is compared with, LESS, or no telling (ALIKE).

    Args:
        ci: simultaneous interval of the difference of the AUCs.
        limit: one-sided lower limit, which decides; None: the interval does.

    Returns:
        One of the three.
    """
    if (ci[0] if limit is None else limit) > 0:
        return MORE
    return LESS if ci[1] < 0 else ALIKE


def judge_group(row: GroupLeakRow) -> str:
    """Whether images of a group leak: MORE than those that pose as them; ALIKE: they score over 0.5
    as those do; LESS: they do not lie over 0.5."""
    low, _ = ends(row) or (0.0, 1.0)
    alike = row.null_ci is not None and row.auc is not None and row.auc <= row.null_ci[1]
    return LESS if low <= 0.5 else ALIKE if alike else MORE


def adds_nothing(report: Report, row: AttackRow) -> bool:
    """Whether crafted updates found no more than a control without them did."""
    return row.under_attack and any((p.low or 0.0) <= 0 for p in pairs_of(report, row))


def strongest_leaks(report: Report) -> list[AttackRow]:
    """The attack that decides that the run leaks; then what leaks under attack alone, and to whom
    the model's answers suffice. None where no attack leaks.

    One with a control comes before one without. A model that trained as all others did comes before
    one under attack, and crafted updates that add nothing come last.

    Args:
        report: with the attacks and their paired controls.

    Returns:
        Rows of its attacks.
    """
    leaking = [row for row in with_auc(report.attacks) if leaks(row)]
    if not leaking:
        return []

    def rank(row: AttackRow) -> tuple[bool, bool, bool, float]:
        idle = adds_nothing(report, row)
        return row.over_control is not None, not row.under_attack, not idle, row.auc or 0.0

    first = max(leaking, key=rank)
    alike = [
        row for row in leaking if (row.over_control is not None) == (first.over_control is not None)
    ]
    crafted = [row for row in alike if row.under_attack and not adds_nothing(report, row)]
    asking = [row for row in alike if (row.access, row.vantage) == ASKS and not row.under_attack]
    others = [crafted] * (not first.under_attack) + [asking] * (first not in asking)
    return [first, *(max(rows, key=rank) for rows in others if rows)]


def highest(scored: ScoredRows) -> AttackRow:
    """The attack of highest AUC, one that lies over 0.5 before one that may not."""
    row: AttackRow = max(scored, key=lambda row: (lies_over_half(row), row.auc))
    return row


def names_in_verdict(report: Report) -> set[str]:
    """Names of the attacks that the report's sentences name; each is a row of its table."""
    scored = with_auc(report.attacks)
    rows = strongest_leaks(report) or ([highest(scored)] if scored else [])
    rows += [row for row in scored if is_reversed(row)]
    failed = failed_control(report)
    return {row.name for row in rows} | ({failed[1].name} if failed else set())
