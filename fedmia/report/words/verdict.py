"""What a report says first: its verdict in numbers, and the texts under it."""

from __future__ import annotations

from collections.abc import Collection

from fedmia.records import LOSS_BEFORE
from fedmia.records.attack_rows import with_auc
from fedmia.records.rows import Report
from fedmia.report.codes import LEAKS, NO_VERDICT, UNTESTED, VOID
from fedmia.report.judgement import (
    ScoredRows,
    adds_nothing,
    code_by_attacks,
    decisive,
    failed_control,
    highest,
    lies_over_half,
    pairs_of,
    shifted_pixels,
)
from fedmia.report.words.attacks import (
    model_of,
    not_run_by_reason,
    over_control,
    pair_sentence,
    prior_sentence,
    reversed_clause,
    reversed_sentence,
    separates,
    what_leaks,
)
from fedmia.report.words.bounds import SHOUT, refutation_sentence
from fedmia.report.words.health import USELESS, health_sentence
from fedmia.report.words.meaning import explain
from fedmia.report.words.numbers import auc_and_limits
from fedmia.report.words.sets import statement, uncontrolled

UNCONTROLLED = "No control on the same images rules out that the images differ by themselves"
BOUNDED = "All lower bounds of this report hold together at 95 %."
REFUTED = f"{SHOUT}: the run shows more leakage than a guarantee allows."


def texts(report: Report, pretrain: str, used: Collection[str] = ()) -> dict[str, str]:
    """The report's `verdict`, and its `means`, `sure` and `todo`.

    Args:
        report: all else that `report.json` holds, its `verdict_code` too.
        pretrain: how the encoder was pre-trained; `pooled` showed the server all images.
        used: names of the defences that every honest client of the run uses.

    Returns:
        Text by name.
    """
    code, by_attacks = report.verdict_code, code_by_attacks(report)
    sentence, boxes = verdict(report, pretrain), explain(report, code, used)
    if shout := refutation_sentence(report, code):
        alone = ""
        if code in LEAKS and by_attacks not in LEAKS:
            alone, boxes["sure"] = "By the attacks alone: ", BOUNDED
        sentence = f"{shout}. {alone}{sentence}"
        boxes["means"] = f"{REFUTED} {boxes['means']}".strip()
    boxes["means"] = " ".join([boxes["means"], *_circumstances(report, pretrain)])
    return {"verdict": sentence, **boxes}


def without_refutation(means: str) -> str:
    """What a verdict means, but for the sentence on a refuted guarantee."""
    return means.removeprefix(REFUTED).strip()


def _circumstances(report: Report, pretrain: str) -> list[str]:
    """What else a reader must know of the run, whatever its verdict."""
    health, last = report.health, report.interrupted
    useless = health is not None and health.collapsed and report.verdict_code != "collapsed"
    facts = {
        USELESS: useless,
        "The server had seen all private images before, in pre-training.": pretrain == "pooled",
        f"The run ended early, after round {last}.": last,
    }
    more = reversed_sentence(with_auc(report.attacks)), _members_at_prior(report)
    return [*(sentence for sentence, holds in facts.items() if holds), *filter(None, more)]


def _members_at_prior(report: Report) -> str:
    """Members among the records that the attack of the verdict names; empty without a prior, and
    where nothing follows from the run."""
    prior, scored = report.config.get("prior"), with_auc(report.attacks)
    if prior is None or not scored or report.verdict_code in VOID:
        return ""
    strongest, _, _ = decisive(report)
    return prior_sentence(strongest[0] if strongest else highest(scored), prior)


def verdict(report: Report, pretrain: str) -> str:
    """What was found, but that a guarantee is refuted.

    Args:
        report: all else that `report.json` holds, its `verdict_code` too.
        pretrain: how the encoder was pre-trained.

    Returns:
        One sentence or more.
    """
    last, failure, health = report.interrupted, report.failure, report.health
    how = "was interrupted" if failure is None else "ended"
    why = "" if failure is None else f", since {failure}"
    if report.verdict_code == NO_VERDICT:
        sentence = f"No verdict: the run {how} before its first round was finished{why}"
        return f"{sentence}; the model is untrained."
    core = _by_attacks(report) + reversed_clause(with_auc(report.attacks))
    if health is not None and health.collapsed:
        collapsed = health_sentence(report)
        if report.verdict_code == "collapsed":
            begin = "The encoder has collapsed, so the result says nothing about its training"
            core = f"{begin}: {collapsed}. {core}"
        else:
            core += f"; the encoder has collapsed: {collapsed}"
    if pretrain == "pooled":
        core += "; pre-training was pooled, so the server had seen all private images"
    if last is not None:
        core += f"; the run {how} after round {last}"
    return f"{core}{why}."


def _by_attacks(report: Report) -> str:
    """What was found, then what controls say of it; without a final stop."""
    scored = with_auc(report.attacks)
    code = code_by_attacks(report)
    if code == UNTESTED:
        return f"Nothing was tested: {_why_untested(report)}"
    if (pixels := shifted_pixels(report)) is not None:
        return (
            "Shift between the sets; leakage not established: a classifier on raw pixels, without "
            "the model, separates members from non-members with "
            f"{auc_and_limits(pixels, of='controls')}"
        )
    if (failed := failed_control(report)) is not None:
        name, row = failed
        return (
            f"Control failed; leakage not established: {row.name} under the {name} control, "
            "where there is nothing to leak, has "
            f"{auc_and_limits(row, of='controls')}, which excludes 0.5"
        )
    strongest, sets, _ = decisive(report)
    controlled = code == LEAKS[0]
    if strongest:
        row = strongest[0]
        second = f"{what_leaks(row)}: {over_control(row)}" if controlled else UNCONTROLLED
        return f"The attack {separates(row)}. {second}{_under_attack(report, strongest)}"
    if sets is not None:
        if not controlled:
            return f"By {sets.attack}: {uncontrolled(sets)}. {UNCONTROLLED}"
        return f"By {sets.attack}: {statement(sets)}. The encoder leaks membership"
    if not scored:
        return "No leakage established: no attack detected a data set"
    return _no_leak(scored)


def _why_untested(report: Report) -> str:
    """Why no attack has scores; of several reasons the first."""
    if empty := [row.name for row in report.attacks]:
        return f"no attack has scores of members and of non-members ({', '.join(empty)} has not)"
    reasons = not_run_by_reason(report)
    if not reasons:
        return "no attack was named"
    names, reason = next(iter(reasons.items()))
    others = len(report.not_run) - names.count(",") - 1
    more = f"; {others} more for other reasons" if others else ""
    return f"no attack has scores ({names}: {reason.rstrip('.')}{more})"


def _under_attack(report: Report, strongest: ScoredRows) -> str:
    """The sentence on models that received crafted updates, beside those that did not."""
    crafted = next((row for row in strongest if row.under_attack), None)
    rows = [crafted] if crafted else [r for r in report.attacks if r.under_attack]
    pairs = [p for row in rows for p in pairs_of(report, row)]
    idle = crafted is not None and adds_nothing(report, crafted)
    adds = [pair_sentence(p, report.paired) for p in pairs if idle or p.control != LOSS_BEFORE][:1]
    parts = [separates(crafted)] if crafted and crafted is not strongest[0] else []
    return f". Under attack, {'; '.join([*parts, *adds])}" if parts or adds else ""


def _no_leak(scored: ScoredRows) -> str:
    row = highest(scored)
    values = auc_and_limits(row, model_of(row))
    if lies_over_half(row):
        return f"The attack {separates(row)}. No leakage established: {over_control(row)}"
    if len(scored) == 1:
        return f"No leakage established: {row.name} has {values}, not over 0.5"
    return (
        f"No leakage established: of {len(scored)} attacks no lower limit lies over 0.5; "
        f"{row.name} is the highest, with {values}"
    )
