"""The conditions under which a report fails a build, as `--fail-on` names them.

They err to the safe side: one passes only where the report has the number that it asks for, and
where something follows from that number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedmia.options.errors import InputError, suggest_nearest
from fedmia.records.attack_rows import with_auc
from fedmia.records.client_rows import CLIENT
from fedmia.records.defence_rows import DefencePart
from fedmia.records.privacy import UNITS
from fedmia.records.rows import BROKEN, Report
from fedmia.report.codes import LEAKS, VOID
from fedmia.report.format import statements
from fedmia.report.lowerbounds import refutation_sentence
from fedmia.report.metrics import FPR_TARGETS
from fedmia.report.verdict import is_alarming

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
            return False, f"the verdict is {report.verdict_code}"
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
    reversed_ones = [
        row.name for row in with_auc(report.attacks) if row.high is not None and row.high < 0.5
    ]
    if is_alarming(report) or reversed_ones:
        # Whoever sees that members score lower turns the scores round.
        return True, report.verdict
    return _broken(report) or (False, f"the verdict is {report.verdict_code}{_missing(report)}")


def _judge_attacks(limit: float, fpr: str | None, report: Report) -> Judgement:
    """By the attack of the largest AUC or, at `fpr`, of the largest true-positive rate."""
    if (judgement := _broken(report)) is not None:
        return judgement
    numbers = {
        row.name: row.auc if fpr is None else row.tpr_at_fpr.get(fpr) for row in report.attacks
    }
    if not numbers:
        return True, "no attack has scores"
    known = {name: number for name, number in numbers.items() if number is not None}
    if unknown := [name for name in numbers if name not in known]:
        return True, f"{', '.join(unknown)}: too few non-members for this rate, or none scored"
    sizes = known if fpr else {name: max(auc, 1 - auc) for name, auc in known.items()}
    name = max(sizes, key=lambda name: sizes[name])
    why = f"{name} has {known[name]:.3f}"
    if sizes[name] > known[name]:
        why += f", which is {sizes[name]:.3f} with its scores turned round"
    return sizes[name] > limit, why + _missing(report)


def _judge_smallest(limit: float, report: Report) -> Judgement:
    """By the smallest leak that the images would have shown."""
    if (least := report.smallest_leak) is None:
        return True, "the images would not have shown even a perfect attack"
    return least > limit, f"the smallest leak that the images would have shown has AUC {least:.3f}"


def _judge_epsilon(limit: float, standings: Sequence[str], report: Report) -> Judgement:
    """By the largest epsilon of an honest client that has such a standing.

    Of a client's statements of one unit and one delta the least holds. Those of two units or deltas
    are never compared, so each must hold.
    """
    if (shout := refutation_sentence(report, sound=True)) is not None:
        return True, shout
    for_all: list[DefencePart] = []
    if (server := report.aggregation) is not None:
        for_all.append(server)
    own = {
        f"client {row.id}": statements(row.defence) if row.defence else []
        for row in report.clients
        if row.whose == CLIENT and row.role == "honest"
    }
    if not own:
        return True, "the report states no epsilon"
    if report.client_counts is not None:
        own["a client that the report does not list"] = []
    largest, why = -1.0, ""
    for client, defences in own.items():
        counted, others = _split_epsilons([*defences, *for_all], standings)
        if not counted:
            lacks = f"{client} has no {' or '.join(standings)} epsilon"
            return True, "; ".join([lacks, *others])
        value, text = max(counted)
        if value > largest:
            largest, why = value, f"{client} has {text}"
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
        text = f"epsilon {value:g} for one {spent.unit or 'unit that is not named'}"
        text += f" (delta {spent.delta:g}, {one.name}: {spent.standing})"
        if spent.standing in standings and spent.unit in UNITS:
            kind = spent.unit, spent.delta
            least[kind] = min(least.get(kind, (value, text)), (value, text))
        else:
            others.append(text)
    return [*least.values()], others


def _broken(report: Report) -> Judgement | None:
    """A failure where an attack broke: what it would find is not known."""
    names = [name for name, reason in report.not_run.items() if reason.startswith(BROKEN)]
    if not names:
        return None
    return True, f"not known, since they broke: {', '.join(names)}"


def _missing(report: Report) -> str:
    """Attacks that could not run, to stand behind what the others say."""
    if not report.not_run:
        return ""
    return f"; not run: {', '.join(report.not_run)}"
