"""A paragraph for a model card: a report in English for readers who test no models."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.options.vantages import VANTAGES
from fedmia.records.attack_rows import AttackRow, with_auc
from fedmia.records.privacy import MEANINGFUL
from fedmia.records.rows import BROKEN, Report
from fedmia.report.attacker import highest
from fedmia.report.codes import LEAKS, UNSOUND, UNTESTED, VOID
from fedmia.report.datasets import statement
from fedmia.report.format import aggregation_sentence, defended_lines, group_by_reason, statements
from fedmia.report.lowerbounds import SHOUT, refutation_sentence
from fedmia.report.reach import reach
from fedmia.report.verdict import REFUTED, decisive

ACCESS = {
    "black_box": "get the model's output for images of their choice",
    "white_box": "have the model's weights",
}
NO_CONCLUSION = "The test allows no conclusion on whether the model leaks."
AUC = "AUC is the share of pairs of a member and a non-member in which an attack picks the member."
NO_GUARANTEE = "No formal guarantee is claimed."
UNTRIED = (
    "Not tested: other attacks than these, attackers with more images or computing power, other "
    "trainings of the same model, and whether images can be reconstructed."
)


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
    means = report.means.removeprefix(f"{SHOUT}: {REFUTED}").strip()
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
            f"{means} {_recall(row)}".strip(),
        ]
        if sets is not None:
            parts.append(f"By {sets.attack}: {statement(sets)}.")
        least = "" if code in LEAKS else reach(report, scored)[0]
        parts += [f"{least} {AUC}".strip()] if scored else []
    return "\n\n".join([*parts, _guarantees(report), _limits(report)])


def _scope(report: Report, scored: Sequence[AttackRow]) -> str:
    """Which attacks were tried, on how many images, with which version."""
    versions = report.versions
    names = [row.name for row in report.attacks]
    names += [row.attack for row in report.dataset_inference]
    subject = f"{report.subject[0].upper()}{report.subject[1:]}"
    version = f"fedmia {versions.get('fedmia', '')}".strip()
    version += f" (commit {commit[:12]})" if (commit := versions.get("commit")) else ""
    text = (
        "Membership inference: can somebody tell whether an image was used for training? "
        f"{subject} was {'tested' if report.verdict_code != UNTESTED else 'not tested'} with "
        f"{version}"
    )
    if scored:
        members = max(row.n_members for row in scored)
        others = max(row.n_nonmembers for row in scored)
        text += f" on {members:,} training images (members) and {others:,} other images"
        text += " (non-members)"
    listed = f" ({', '.join(names)})" if names else ""
    return f"{text}. Attacks that ran: {len(names)}{listed}."


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
    return f"For the attack {row.name}, somebody must {'; '.join(filter(None, needs))}. {queries}"


def _recall(row: AttackRow | None) -> str:
    """Training images that an attack names at one false accusation in 100."""
    if row is None:
        return ""
    rate, ci = row.tpr_at_fpr["0.01"], row.tpr_at_fpr_ci["0.01"]
    if rate is None or ci is None:
        return "There are too few images to count those named at one false accusation in 100."
    return (
        f"Where it accuses one of 100 non-members falsely, it names {100 * rate:.0f} of 100 "
        f"training images (95 % limits: {100 * ci[0]:.0f} and {100 * ci[1]:.0f}; guessing: 1)."
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
    if report.verdict.startswith(SHOUT):
        shout = refutation_sentence(report, report.verdict_code not in UNSOUND)
        begin = f"A guarantee does not hold. {shout}. What is stated:"
    return " ".join([begin, *texts])


def _limits(report: Report) -> str:
    reasons = group_by_reason(report).items()
    texts = [f"{names} ({reason.removeprefix(BROKEN)})" for names, reason in reasons]
    return f"{UNTRIED} Not run: {'; '.join(texts)}." if texts else UNTRIED
