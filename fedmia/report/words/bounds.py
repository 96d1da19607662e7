"""What defences promise and what is shown of it, in words: epsilons, their lower bounds, groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedmia.records.attack_rows import ends
from fedmia.records.defence_rows import DefencePart, DefenceRow
from fedmia.records.group_rows import GroupRow
from fedmia.records.privacy import MEANINGFUL, CanaryBoundRow
from fedmia.records.rows import Report
from fedmia.report.defended import DEFENDED, UNDEFENDED
from fedmia.report.judgement import (
    ALIKE,
    LESS,
    MORE,
    is_refuted_by_attacks,
    judge_group,
    refuted_claims,
)
from fedmia.report.selection import has_many_clients
from fedmia.report.words.numbers import estimate, number

SHOUT = "CLAIM REFUTED"
DEFENDED_LEAK = {
    MORE: "Images of defended clients still leak",
    ALIKE: "Images of defended clients score no higher than posing non-members",
    LESS: "No leak of defended clients' images is established",
}
EMPIRICAL = (
    "It is empirical: all images share one training run, and the binomial limits hold only as far "
    "as their scores are independent"
)


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
    extremes = [number(end(b.value for _, b in audited)) for end in (min, max)]
    _, first = audited[0]
    text = f", at least {' to '.join(dict.fromkeys(extremes))} by {first.canaries:,} canaries"
    if refuted := sum(b.refuted for _, b in audited):
        return f"{text} ({'' if len(audited) == 1 else f'{refuted} of {len(audited)} '}REFUTED)"
    beyond = any(claim is not None and claim > b.most for claim, b in audited)
    return f"{text}, an audit that can show at most {first.most:.1f}" if beyond else text


def defended_lines(report: Report) -> list[str]:
    """Clients of one defence and one epsilon share a line; of many clients, those of one defence,
    standing, unit and delta. A client with several statements has a line for each."""
    if (counted := report.client_counts) is not None and counted.defended:
        return [*counted.defended]  # a caller adds to it
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


def bound_sentence(report: Report) -> str | None:
    """The lower bound by the run's attacks beside what clients claim."""
    if (bound := report.lower_bound) is None:
        return None
    sentence = (
        f"Clients claim an epsilon of at most {bound.claim:.3g} (delta {bound.delta:g}); the "
        f"attacks show at least {number(bound.value)}"
    )
    end = ": REFUTED" if bound.refuted else ", which neither refutes nor proves it"
    by = f"{bound.attack}, {bound.rate:.0%} false alarms; " * (bound.value > 0)
    more = f"{bound.n_members} members, 95 %, corrected for {bound.tried} tested bounds"
    return f"{sentence}{end} ({by}{more}). {EMPIRICAL}."


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


def refutation_sentence(report: Report, code: str) -> str | None:
    """The sentence that shouts, None where no claim lies under its lower bound.

    Args:
        report: with its clients, its server's rule, and the bound by the run's attacks.
        code: of the verdict: whether a bound by attacks says anything.

    Returns:
        The sentence, which begins with SHOUT, without its final stop.
    """
    if claims := refuted_claims(report):
        client, part = claims[0]
        who = "the server" if client is None else f"client {client}"
        more = f", and {len(claims) - 1} more claims likewise" if len(claims) > 1 else ""
        return f"{SHOUT}: {who} {_refuted_part(part)}{more}"
    bound = report.lower_bound
    if bound is not None and is_refuted_by_attacks(report, code):
        return (
            f"{SHOUT}: clients claim epsilon {bound.claim:.3g} at most, yet "
            f"{bound.attack} shows more than {bound.value_simultaneous:.3g} at delta "
            f"{bound.delta:g}"
        )
    return None


def _refuted_part(part: DefencePart) -> str:
    spent = part.epsilon
    assert spent is not None and spent.lower_bound is not None
    bound: CanaryBoundRow = spent.lower_bound
    return (
        f"claims epsilon {spent.value:.3g} by {part.name}, yet {bound.canaries:,} canaries show "
        f"more than {bound.value_simultaneous:.3g} at delta {spent.delta:g}"
    )


def defended_sentence(groups: Sequence[GroupRow]) -> str | None:
    """Whether images of defended clients leak through the common model all the same, by the attack
    that groups are compared by.

    Args:
        groups: rows of the defended and the undefended clients.

    Returns:
        The sentence; None where no client defends itself.
    """
    if not groups:
        return None
    rows = {g.group: next((r for r in g.leakage if r.attack == g.attack), None) for g in groups}
    if (row := rows[DEFENDED]) is None or row.auc is None:
        return "No image of a defended client has scores, so what these leak is not known."
    finding, together = DEFENDED_LEAK[judge_group(row)], ends(row) or (0.0, 1.0)
    sentence = f"{finding}: {row.attack} AUC {estimate(row.auc, together)}"
    if (other := rows.get(UNDEFENDED)) is not None:
        of = estimate(other.auc, ends(other) or (0.0, 1.0))
        sentence += f", of undefended clients {of}"
    return f"{sentence}."
