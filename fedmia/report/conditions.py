"""The conditions under which a report fails a build, as `--fail-on` names them.

They err to the safe side: one passes only where the report has the number that it asks for, and
where something follows from that number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedmia.records.attack_rows import with_auc
from fedmia.records.client_rows import CLIENT
from fedmia.records.defence_rows import DefencePart
from fedmia.records.privacy import UNITS
from fedmia.records.rows import BROKEN, Report
from fedmia.report.codes import LEAKS, VOID
from fedmia.report.judgement import is_alarming, is_reversed
from fedmia.report.metrics import FPR_TARGETS
from fedmia.report.words import gate as words
from fedmia.report.words.bounds import refutation_sentence, statements
from fedmia.settings.errors import InputError, suggest_nearest

FAILING = (*LEAKS, *VOID)  # verdicts that are no pass
NOT = "not:"  # before a verdict that fails no condition
MEASURE = re.compile(r"(auc|tpr@([0-9.]+)|smallest|epsilon|epsilon\[heuristic\])>([0-9.]+)")
MEASURES = ("auc>X", "tpr@FPR>X", "smallest>X", "epsilon>X", "epsilon[heuristic]>X")
Judgement = tuple[bool, str]  # whether the report fails, and why or why not, in one line


@dataclass(frozen=True)
class Condition:
    """What fails a report.

    Attributes:
        text: as the user wrote it.
        codes: verdicts that fail it, whatever the numbers.
        judge_rest: judges a report of another verdict; None: it passes.
    """

    text: str
    codes: Sequence[str]
    judge_rest: Callable[[Report], Judgement] | None = None

    def judge(self, report: Report) -> Judgement:
        """Whether the report fails, and why or why not, in one line."""
        if report.verdict_code in self.codes:
            return True, report.verdict
        if self.judge_rest is None:
            return False, words.verdict_is(report)
        return self.judge_rest(report)


def read_conditions(text: str) -> tuple[Condition, ...]:
    """Conditions as `--fail-on` says them: `leaks,not:shift,auc>0.6,tpr@0.01>0.05,epsilon>8`.

    Raises:
        InputError: an unknown one, a number out of its range, or an exemption without effect.
    """
    parts = [part.strip() for part in text.split(",")]
    exempt = [part.removeprefix(NOT) for part in parts if part.startswith(NOT)]
    conditions = [_read_condition(part) for part in parts if not part.startswith(NOT)]
    for code in exempt:
        if code not in FAILING[1:]:
            near = suggest_nearest(code, FAILING[1:])
            known = ", ".join(FAILING[1:])
            raise InputError(f"--fail-on: '{NOT}{code}' exempts no verdict{near} (known: {known})")
        if code in parts or not any(code in condition.codes for condition in conditions):
            raise InputError(f"--fail-on: '{NOT}{code}' exempts it from no condition beside it")
    return tuple(
        replace(condition, codes=[code for code in condition.codes if code not in exempt])
        for condition in conditions
    )


def _read_condition(text: str) -> Condition:
    if text == LEAKS[0]:
        return Condition(text, FAILING, _judge_verdict)
    if text in FAILING:
        return Condition(text, (text,))
    if (match := MEASURE.fullmatch(text)) is None:
        known = ", ".join((*FAILING, *MEASURES, f"{NOT}CODE"))
        near = suggest_nearest(text, FAILING)
        raise InputError(f"--fail-on: unknown condition '{text}'{near} (known: {known})")
    try:
        limit, fpr = float(match[3]), match[2] and f"{float(match[2]):g}"
    except ValueError:
        raise InputError(f"--fail-on: '{text}' holds no number") from None
    if fpr is not None and fpr not in FPR_TARGETS:
        raise InputError(f"--fail-on: '{text}', must be at one of {', '.join(FPR_TARGETS)}")
    if match[1].startswith("epsilon"):
        standings = ("guaranteed", *["heuristic"] * ("[" in text))
        return Condition(text, (), partial(_judge_epsilon, limit, standings))
    least = 0.5 * (fpr is None)  # a guess has an AUC of 0.5
    if not least <= limit < 1:
        raise InputError(f"--fail-on: '{text}', must be at least {least:g} and less than 1")
    if match[1] == "smallest":
        return Condition(text, VOID, partial(_judge_smallest, limit))
    return Condition(text, VOID, partial(_judge_attacks, limit, fpr))


def _judge_verdict(report: Report) -> Judgement:
    """Of a report whose verdict alone passes."""
    # Whoever sees that members score lower turns the scores round.
    if is_alarming(report) or any(map(is_reversed, with_auc(report.attacks))):
        return True, report.verdict
    return _broken(report) or (False, words.verdict_is(report) + words.not_run(report))


def _judge_attacks(limit: float, fpr: str | None, report: Report) -> Judgement:
    """By the attack of the largest AUC or, at `fpr`, of the largest true-positive rate."""
    if (judgement := _broken(report)) is not None:
        return judgement
    numbers = {
        row.name: row.auc if fpr is None else row.tpr_at_fpr.get(fpr) for row in report.attacks
    }
    if not numbers:
        return True, words.NO_SCORES
    known = {name: number for name, number in numbers.items() if number is not None}
    if unknown := [name for name in numbers if name not in known]:
        return True, words.unresolved(unknown)
    sizes = known if fpr else {name: max(auc, 1 - auc) for name, auc in known.items()}
    name = max(sizes, key=lambda name: sizes[name])
    return sizes[name] > limit, words.largest(name, known[name], sizes[name], report)


def _judge_smallest(limit: float, report: Report) -> Judgement:
    """By the smallest leak that the images would have shown."""
    if (least := report.smallest_leak) is None:
        return True, words.NO_PERFECT_ATTACK
    return least > limit, words.smallest(least)


def _judge_epsilon(limit: float, standings: Sequence[str], report: Report) -> Judgement:
    """By the largest epsilon of an honest client that has such a standing.

    Of a client's statements of one unit and one delta the least holds. Those of two units or deltas
    are never compared, so each must hold. A refuted one fails, whatever the verdict says.
    """
    if (shout := refutation_sentence(report, LEAKS[0])) is not None:
        return True, shout
    for_all: list[DefencePart] = []
    if (server := report.aggregation) is not None:
        for_all.append(server)
    own = {
        words.client(row.id): statements(row.defence) if row.defence else []
        for row in report.clients
        if row.whose == CLIENT and row.role == "honest"
    }
    if not own:
        return True, words.NO_EPSILON
    if report.client_counts is not None:
        own[words.UNLISTED] = []
    largest, why = -1.0, ""
    for client, defences in own.items():
        counted, others = _split_epsilons([*defences, *for_all], standings)
        if not counted:
            return True, words.lacks_epsilon(client, standings, others)
        value, text = max(counted)
        if value > largest:
            largest, why = value, words.has_epsilon(client, text)
    return largest > limit, why


def _split_epsilons(
    defences: Sequence[DefencePart], standings: Sequence[str]
) -> tuple[list[tuple[float, str]], list[str]]:
    """The least epsilon of each unit and delta, with a text; and texts of what does not count."""
    least: dict[tuple[str, float], tuple[float, str]] = {}
    others = []
    for one in defences:
        if (spent := one.epsilon) is None or (value := spent.value) is None:
            continue
        text = words.epsilon_text(one, spent)
        if spent.standing in standings and spent.unit in UNITS:
            kind = spent.unit, spent.delta
            least[kind] = min(least.get(kind, (value, text)), (value, text))
        else:
            others.append(text)
    return [*least.values()], others


def _broken(report: Report) -> Judgement | None:
    """A failure where an attack broke: what it would find is not known."""
    names = [name for name, reason in report.not_run.items() if reason.startswith(BROKEN)]
    return (True, words.broke(names)) if names else None
