"""A paragraph for a model card: a report in English for readers who test no models."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.attack_rows import AttackRow, with_auc
from fedmia.records.privacy import MEANINGFUL
from fedmia.records.rows import BROKEN, Report
from fedmia.report.codes import LEAKS, UNSOUND, UNTESTED, VOID
from fedmia.report.judgement import decisive, highest
from fedmia.report.words.attacks import not_run_by_reason, recall
from fedmia.report.words.bounds import (
    aggregation_sentence,
    defended_lines,
    refutation_sentence,
    statements,
)
from fedmia.report.words.meaning import reach
from fedmia.report.words.sets import statement
from fedmia.report.words.verdict import without_refutation
from fedmia.settings.vantages import VANTAGES

ACCESS = {
    "black_box": "get the model's output for images of their choice",
    "white_box": "have the model's weights",
}
NO_CONCLUSION = "The test allows no conclusion on whether the model leaks."
AUC = "AUC is the share of pairs of a member and a non-member in which an attack picks the member."
NO_GUARANTEE = "No formal guarantee is claimed."
UNTRIED = (
    "Not tested: other attacks than these, attackers with more images or computing power, other "
    "trainings of the same model, and whether images can be reconstructed or attributes of people "
    "inferred."
)
OUTPUTS_ALONE = "These attacks saw the model's outputs alone: who has its weights may find more."


def untried(report: Report) -> str:
    """What was not tested, whatever the result: attacks of other kinds, and of other attackers.

    Args:
        report: what `report.json` holds.

    Returns:
        One sentence, or two where no attack read the weights.
    """
    if report.attacks and all(row.access == "black_box" for row in report.attacks):
        return f"{UNTRIED} {OUTPUTS_ALONE}"
    return UNTRIED


def model_card(report: Report) -> str:
    """What a model card may say of a report: what was tested, what an attacker would need, the
    result, the least leak that would have shown, guarantees, and what was not tested.

    It claims no more than the verdict: where that allows no conclusion, it gives no result.

    Args:
        report: what `report.json` holds.

    Returns:
        Paragraphs of plain English, an empty line between them.
    """
    code, scored = report.verdict_code, with_auc(report.attacks)
    means = without_refutation(report.means)
    parts = [_scope(report, scored)]
    if code in VOID:
        parts.append(f"{NO_CONCLUSION} {means} {report.sure if code in UNSOUND else ''}".strip())
    else:
        strongest, sets, _ = decisive(report)
        if scored and code not in LEAKS:
            strongest = [highest(scored)]
        row = next(iter(strongest), None)
        parts += [
            *([] if row is None else [_needs(report, row)]),
            means if row is None else f"{means} {recall(row)}",
        ]
        if sets is not None:
            parts.append(f"By {sets.attack}: {statement(sets)}.")
        least = "" if code in LEAKS else reach(report)[0]
        parts += [f"{least} {AUC}".strip()] if scored else []
    return "\n\n".join([*parts, _guarantees(report), _limits(report)])


def tested_with(report: Report) -> str:
    """`fedmia 0.1.0 (commit 3eae3514c703)`: the version that made a report."""
    versions = report.versions
    version = f"fedmia {versions.get('fedmia', '')}".strip()
    return version + (f" (commit {commit[:12]})" if (commit := versions.get("commit")) else "")


def _scope(report: Report, scored: Sequence[AttackRow]) -> str:
    """Which attacks were tried, on how many images, with which version."""
    names = [row.name for row in report.attacks]
    if whole := [row.attack for row in report.dataset_inference]:
        names.append(f"on whole sets {' and '.join(whole)}")
    subject = f"{report.subject[0].upper()}{report.subject[1:]}"
    text = (
        "Membership inference: can somebody tell whether an image was used for training? "
        f"{subject} was {'tested' if report.verdict_code != UNTESTED else 'not tested'} with "
        f"{tested_with(report)}"
    )
    if scored:
        members = max(row.n_members for row in scored)
        others = max(row.n_nonmembers for row in scored)
        text += f" on {members:,} training images (members) and {others:,} other images"
        text += " (non-members)"
    count = len(report.attacks) + len(report.dataset_inference)
    listed = f" ({', '.join(names)})" if names else ""
    return f"{text}. Attacks that ran: {count}{listed}."


def _needs(report: Report, row: AttackRow) -> str:
    """What an attack takes."""
    known = report.split.get("known_members")
    needs = [
        ACCESS.get(row.access, row.access),
        VANTAGES[row.vantage].must,
        "send crafted updates" if row.under_attack else "",
        f"know {known:,} of the training images and as many others" if known else "",
        "train similar models on images of their own" * (row.threshold_source == "shadow"),
    ]
    queries = f"The attack sent {row.queries:,} images through the model."
    return (
        f"For the attack {row.name}, somebody must {', and '.join(filter(None, needs))}. {queries}"
    )


def _guarantees(report: Report) -> str:
    """What is guaranteed, on which assumptions, and what the test refutes."""
    server = report.aggregation
    clients = [
        one.epsilon
        for row in report.clients
        for one in (statements(row.defence) if row.defence else ())
        if one.epsilon
    ]
    texts = defended_lines(report) if clients else []
    texts += dict.fromkeys(epsilon.assumptions for epsilon in clients)
    if server and server.epsilon:
        clients.append(server.epsilon)
        texts.append(aggregation_sentence(report) or "")
    formal = any(
        e.standing == "guaranteed" and e.value is not None and e.value <= MEANINGFUL
        for e in clients
    )
    begin = "Guarantees, with what they rest on:" if formal else NO_GUARANTEE
    if shout := refutation_sentence(report, report.verdict_code):
        begin = f"A guarantee does not hold. {shout}. What is stated:"
    return " ".join([begin, *texts])


def _limits(report: Report) -> str:
    reasons = not_run_by_reason(report).items()
    texts = [f"{names} ({reason.removeprefix(BROKEN)})" for names, reason in reasons]
    return untried(report) + (f" Not run: {'; '.join(texts)}." if texts else "")
