"""Numbers as readers see them, the same in the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedmia.records.attack_rows import AttackRow, AucRow, Interval, ends, with_auc
from fedmia.records.client_rows import ClientDistribution, ClientRow, CohortRow
from fedmia.records.defence_rows import DefencePart, DefenceRow
from fedmia.records.privacy import MEANINGFUL
from fedmia.records.rows import Report
from fedmia.report.defended import statement
from fedmia.report.fits import fits_sentence
from fedmia.report.health import health_sentence
from fedmia.report.lowerbounds import EMPIRICAL
from fedmia.report.regime import regime_sentence
from fedmia.report.selection import has_many_clients, unit_of
from fedmia.report.suspects import suspects_sentence
from fedmia.statistics.matching import OVER

DASH = "–"
FIRST = 3  # subjects that a sentence names
TOGETHER = "at 95 % for all {} together"  # what [low, high] are
DECIDES = "What decides is the lower limit, one-sided, likewise for all together"
REVERSED = "!: the AUC lies wholly under 0.5, so members score lower"
NEVER = "never"  # the cohort of clients that no round drew


def number(value: float | None, digits: int = 2) -> str:
    """`0.64`, or a dash for what could not be known."""
    return DASH if value is None else f"{value:.{digits}f}"


def interval(value: Interval | None, digits: int = 2) -> str:
    """`[0.55, 0.72]`, or the empty string."""
    return "" if value is None else f"[{value[0]:.{digits}f}, {value[1]:.{digits}f}]"


def format_p(value: float | None) -> str:
    """`0.0005`, or `4.5e-05` of what so few digits would round away."""
    return f"{value:.1e}" if value and value < 5e-4 else number(value, 4)


def estimate(value: float | None, ci: Interval | None, digits: int = 2) -> str:
    """`0.64 [0.55, 0.72]`, or a dash."""
    return f"{number(value, digits)} {interval(ci, digits)}".strip()


def epsilon(defence: DefencePart) -> str:
    """`dpsgd, epsilon 8 for one image (delta 1e-05, 20 rounds): heuristic (noise: seeded)`; where
    it is too large to mean anything, `logistic, no meaningful guarantee (epsilon 1.1e+07 for one
    client, ..)`."""
    name, spent = defence.name, defence.epsilon
    if spent is None:
        return f"{name}, no epsilon stated"
    value, rounds = spent.value, spent.rounds
    rest = f"delta {spent.delta:g}, {rounds} round{'s' * (rounds != 1)}"
    digits = ",.0f" if value is not None and 1000 <= value < 1e6 else ".3g"
    text = "no finite epsilon" if value is None else f"epsilon {value:{digits}}"
    text += f" for one {unit}" if (unit := spent.unit) else ""
    if value is None or value > MEANINGFUL:
        return f"{name}, no meaningful guarantee ({text}, {rest})"
    return f"{name}, {text} ({rest}): {spent.standing} (noise: {spent.noise_source})"


def statements(defence: DefenceRow) -> list[DefenceRow]:
    """A client's defences once for each of their statements, which are never compared."""
    return [defence, *(replace(defence, epsilon=e) for e in defence.beside)]


def lower_bound_text(*defences: DefencePart) -> str:
    """`, at least 0.15 to 1.63 by 1,000 canaries`, or nothing where there was no audit."""
    stated = [d.epsilon for d in defences if d.epsilon]
    audited = [(e.value, b) for e in stated if (b := e.lower_bound) is not None]
    if not audited:
        return ""
    ends = [f"{end(b.value for _, b in audited):.2f}" for end in (min, max)]
    _, first = audited[0]
    text = f", at least {' to '.join(dict.fromkeys(ends))} by {first.canaries:,} canaries"
    if refuted := sum(b.refuted for _, b in audited):
        return f"{text} ({'' if len(audited) == 1 else f'{refuted} of {len(audited)} '}REFUTED)"
    beyond = any(claim is not None and claim > b.most for claim, b in audited)
    return f"{text}, an audit that can show at most {first.most:.1f}" if beyond else text


def defended_lines(report: Report) -> list[str]:
    """Clients of one defence and one epsilon share a line; of many clients, those of one defence,
    standing, unit and delta. A client with several statements has a line for each."""
    if (counted := report.client_counts) is not None and counted.defended:
        return counted.defended
    lines: dict[str, list[tuple[int, DefenceRow]]] = {}
    many = has_many_clients(report)
    for client in report.clients:
        for one in statements(client.defence) if client.defence else ():
            spent = one.epsilon
            kind = (spent.standing, spent.unit, spent.delta) if spent else ()
            key = f"{one.name} {kind}" if many else epsilon(one)
            lines.setdefault(key, []).append((client.id, one))
    bounds = {k: lower_bound_text(*(one for _, one in v)) for k, v in lines.items()}
    if not many:
        who = {text: ", ".join(str(client) for client, _ in v) for text, v in lines.items()}
        return [f"Defended, client {ids}: {text}{bounds[text]}." for text, ids in who.items()]
    return [
        f"Defended, {len(v):,} clients: {epsilons([one for _, one in v])}{bounds[kind]}."
        for kind, v in lines.items()
    ]


def epsilons(rows: Sequence[DefenceRow]) -> str:
    """`dpsgd, epsilon 7.1 (delta 1e-05, 20 rounds): heuristic to epsilon 8 ..`: the least and the
    most that clients of one defence spend."""
    spent = [(row.epsilon, row) for row in rows]
    by_value = sorted(spent, key=lambda t: -1.0 if t[0] is None else t[0].value or math.inf)
    least, most = (epsilon(d) for _, d in (by_value[0], by_value[-1]))
    return least if least == most else f"from {least}, to {most}"


def group_by_reason(report: Report) -> dict[str, str]:
    """Attacks that could not run, those of one reason together: `a, b` -> why."""
    attacks_by_reason: dict[str, list[str]] = {}
    for attack, reason in report.not_run.items():
        attacks_by_reason.setdefault(reason, []).append(attack)
    return {", ".join(names): reason for reason, names in attacks_by_reason.items()}


def auc_and_limits(row: AucRow, model: str = "", of: str = "attacks") -> str:
    """`AUC 0.64 [0.55, 0.72] (at 95 % ..; lower limit 0.561; 112 members, ..)`.

    Args:
        row: of the attack or control; of an attack the one-sided limit, which decides, stands by.
        model: which model was scored, in words.
        of: what its interval holds together with.

    Returns:
        The text.
    """
    n = f"{row.n_members} members, {row.n_nonmembers} non-members"
    n += f" of {subjects} subjects" if (subjects := subjects_of(row)) else ""
    n += model and f"; {model}"
    limit = f"; lower limit {row.lower_limit:.3f}" if row.lower_limit is not None else ""
    return f"AUC {estimate(row.auc, ends(row))} ({TOGETHER.format(of)}{limit}; {n})"


def most_leaking_first(rows: Sequence[AttackRow]) -> list[AttackRow]:
    """Attacks by falling AUC, those without an AUC last."""
    return sorted(rows, key=lambda r: -1.0 if r.auc is None else r.auc, reverse=True)


def sentences(report: Report) -> dict[str, str | None]:
    """What is said beside the tables, by what it is about; None where there is nothing to say."""
    return {
        "fits": fits_sentence(report.attacks),
        "regime": regime_sentence(report.regime),
        "health": collapsed_sentence(report),
        "aggregation": aggregation_sentence(report),
        "clients": clients_sentence(report),
        "bound": bound_sentence(report),
        "defended": f"{statement(report.defended)}." if report.defended else None,
        "named": named_sentence(report),
        "per_client": per_client_sentence(report),
        "suspects": suspects_sentence(report.suspects),
    }


def collapsed_sentence(report: Report) -> str | None:
    """What an encoder that collapsed looks like."""
    health = report.health
    if health is None or not health.collapsed:
        return None
    return f"Collapsed: {health_sentence(report)}."


def clients_sentence(report: Report) -> str | None:
    """What is said of the clients: a ranking where it stands, else the range beside the nulls; of
    many, how they are spread and the ranking."""
    rows = [(c.auc, c) for c in report.clients if c.auc is not None]
    if (spread := report.client_distribution) is not None:
        ranked = report.client_ranking or "No ranking: the simultaneous intervals overlap."
        cohorts = cohort_sentence(report.client_cohorts)
        spreads = distribution_sentence(spread, str(rows[0][1].attack))
        return f"{spreads} {ranked}{cohorts}"
    if not rows or report.client_ranking:
        return report.client_ranking if rows else None
    unit = unit_of(report)
    posers = {"client": "non-members in the place of theirs", "subject": "non-member subjects"}
    aucs, by = [auc for auc, _ in rows], rows[0][1].attack
    nulls = [c.null_ci for _, c in rows if c.null_ci is not None]
    count = f"{len(rows)} {unit}{'s' * (len(rows) > 1)}"
    sentence = f"By {unit}, AUC {min(aucs):.2f} to {max(aucs):.2f} ({by}, {count}"
    if nulls:
        sentence += (
            f"; {posers[unit]} {min(n[0] for n in nulls):.2f} to {max(n[1] for n in nulls):.2f}"
        )
    if unit == "subject":
        return f"{sentence}). {riskiest(report.clients)}"
    return f"{sentence}). No ranking: " + (
        "there is only one client." if len(rows) == 1 else "the simultaneous intervals overlap."
    )


def riskiest(rows: Sequence[ClientRow]) -> str:
    """The first few subjects with their intervals, and how many lie over the range of the null."""
    scored = with_auc(rows)
    first = [f"{row.name} {estimate(row.auc, row.auc_ci)}" for row in scored[:FIRST]]
    text = f"The riskiest (95 % intervals): {', '.join(first)}."
    if nulls := [row for row in scored if row.null_ci is not None]:
        over = sum(row.auc > row.null_ci[1] for row in nulls)
        text += f" {over} of {len(nulls)} lie over the range of non-member subjects"
        text += f" (expected without a leak: {OVER * len(nulls):.1f})."
    return text


def subjects_of(row: AucRow) -> str:
    """`20+31`, the subjects that the images of a row belong to, or nothing."""
    if row.n_member_subjects is None:
        return ""
    return f"{row.n_member_subjects}+{row.n_nonmember_subjects}"


def cohort_sentence(rows: Sequence[CohortRow]) -> str:
    """How many scored members no model was trained on, beside those of clients that trained."""
    never = next((row for row in rows if row.cohort == NEVER), None)
    if never is None:
        return ""
    scored = sum(row.n_members for row in rows)
    return (
        f" {never.n_members:,} of {scored:,} scored members belong to the {never.clients:,} "
        "clients that no round drew, so no model was trained on them."
    )


def bound_sentence(report: Report) -> str | None:
    """The lower bound by the run's attacks beside what clients claim."""
    if (bound := report.lower_bound) is None:
        return None
    sentence = f"The attacks show an epsilon of at least {bound.value:.2f}"
    if bound.value:
        sentence += f" ({bound.attack}, at {bound.rate:g} false alarms"
        sentence += f"; 95 %, corrected for {bound.tried} tested bounds)"
    else:
        sentence += f" (95 %, {bound.tried} tested bounds)"
    sentence += (
        f", on {bound.n_members} members of clients that claim at most {bound.claim:.3g} at "
    )
    sentence += f"delta {bound.delta:g}"
    end = "REFUTED" if bound.refuted else "no contradiction to the claim, but no proof of it"
    return f"{sentence}: {end}. {EMPIRICAL}."


def distribution_sentence(spread: ClientDistribution, by: str) -> str:
    """Median and middle nine tenths of all clients, and how many stand out, beside their nulls.

    Args:
        spread: the report's `client_distribution`.
        by: name of the attack.

    Returns:
        The sentence.
    """

    def middle(p: Sequence[float]) -> str:
        return f"median {p[50]:.2f}, nine in ten {p[5]:.2f} to {p[95]:.2f}"

    sentence = f"By client, AUC {middle(spread.percentiles)} ({by}, {spread.clients:,} clients"
    if spread.null_percentiles is not None:
        null = middle(spread.null_percentiles)
        sentence += f"; non-members in the place of theirs: {null}"
    sentence += f"). Clients with a simultaneous interval over 0.5: {spread.over_half:,}"
    sentence += f", under 0.5: {spread.under_half:,}"
    if spread.with_null:
        sentence += f"; with an AUC over the range of their null: {spread.over_null:,}"
        sentence += f" (expected without a leak: {spread.over_null_expected:,.0f})"
    return f"{sentence}."


def aggregation_sentence(report: Report) -> str | None:
    """The server's rule, its numbers, and all that its epsilon rests on; None of a server that sees
    each update and takes their mean."""
    row = report.aggregation
    if row is None or (row.view == "updates" and not row.epsilon and not row.metrics):
        return None
    metrics = ", ".join(f"{n.replace('_', ' ')} {v:.3g}" for n, v in row.metrics.items())
    spent = row.epsilon
    sentence = f"Server: {epsilon(row) + lower_bound_text(row) if spent else row.name}"
    sentence += f"{f'; {metrics}' if metrics else ''}."
    if row.view == "sums":
        sentence += " The server sees only sums of updates (a simulated view, no encryption)."
    return f"{sentence} {spent.assumptions}" if spent else sentence


def named_sentence(report: Report) -> str | None:
    """How often an attack names the client whose image it was, beside chance and its controls."""
    parts = []
    for row in report.named_clients:
        text = (
            f"{row.attack} names the client of {row.correct} of {row.n} scored members: "
            f"{estimate(row.accuracy, row.ci)}. Always naming the largest client would give "
            f"{number(row.chance)}"
        )
        if row.placebo:
            placebo = estimate(row.placebo.accuracy, row.placebo.ci)
            text += f", and the placebo, clients that never saw these images, {placebo}"
        parts.append(f"{text}.")
        if null := row.null:
            nulls = null, row.placebo and row.placebo.null
            over = [f"{n.difference:+.2f} {interval(n.difference_ci)}" for n in nulls if n]
            like = f"the same {null.alike} are given to that client at a rate of"
            like = f"Non-members of {like} {estimate(null.accuracy, null.ci)}"
            parts.append(f"{like}; the difference is {', and under the placebo '.join(over)}.")
    return " ".join(parts) or None


def per_client_sentence(report: Report) -> str | None:
    """How well an attack tells whether one given client trained on an image, and the placebo."""
    parts = []
    for row in report.named_clients:
        result = row.per_client
        if result is None:
            continue
        text = (
            f"For the question whether one given client trained on an image, {row.attack} "
            f"has AUC {estimate(result.auc, result.auc_ci)} (TPR "
            f"{number(result.tpr_at_fpr['0.01'])} at 1 % FPR; {result.n_members} members, "
            f"{result.n_nonmembers} non-members, {result.clients} clients)"
        )
        placebo = row.placebo and row.placebo.per_client
        if placebo:
            control = estimate(placebo.auc, placebo.auc_ci)
            text += f", and under the placebo, clients that never saw these images, {control}"
        parts.append(
            f"{text}. Each 95 % interval covers one number alone; the verdict does not use it."
        )
    return " ".join(parts) or None
