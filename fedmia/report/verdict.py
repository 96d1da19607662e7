"""What a report says first: its verdict, what that means, how sure it is, and what to do.

Every judgement rests on simultaneous intervals. That anything leaks is one family of one-sided
tests: attacks, each against 0.5 and against its own control, and attacks on whole data sets. The
least p-value decides, so Holm's correction gives the code that Bonferroni's limits, which stand in
the report, give. Controls, pixels and paired differences are a second family, of two-sided
intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedmia.records import LOSS_BEFORE
from fedmia.records.attack_rows import AttackRow, ends, with_auc
from fedmia.records.client_rows import InferenceRow
from fedmia.records.rows import Report
from fedmia.report.attacker import (
    ScoredRows,
    adds_nothing,
    failed_control,
    highest,
    is_reversed,
    lacks_control,
    lies_over_half,
    model_of,
    pairs_of,
    shifted_pixels,
    strongest_leaks,
    what_leaks,
    who,
)
from fedmia.report.codes import LEAKS, NO_VERDICT, UNSOUND, UNTESTED
from fedmia.report.datasets import detected
from fedmia.report.datasets import statement as sets_statement
from fedmia.report.format import auc_and_limits, estimate, group_by_reason
from fedmia.report.health import health_sentence
from fedmia.report.lowerbounds import SHOUT, refutation_sentence
from fedmia.report.paired import pair_sentence, statement
from fedmia.report.reach import is_audit, reach

TITLES = {"means": "What this means", "sure": "How sure", "todo": "What to do"}

# First of all under the verdict: without any control, and with the pixels.
NO_CONTROL = (
    "No attack was tried where nothing can leak: there is no control.",
    "No attack was tried where nothing can leak: the only control is the pixels, without a model.",
)
UNCONTROLLED = "No control on the same images rules out that the images differ by themselves"
MEANS = {
    "leaks": "This comes from training: where nothing can leak, the same attack finds less.",
    "leaks-uncontrolled": "This may be a leak, or the two sets of images may differ: no control on "
    "the same images tells which.",
    "as its control": "Where nothing can leak, the same attack may find as much, so this shows no "
    "leak. It does not show that nothing leaks: other attacks or more images may find one.",
    "not-established": "The attacks did not find a leak. This does not show that nothing leaks: "
    "other attacks or more images may find one.",
    "shift": "The two sets of images look different, even without the model. So the attacks cannot "
    "say whether the model leaks.",
    "control-failed": "An attack succeeded where nothing can leak. So its success on this model is "
    "no evidence of a leak.",
    "collapsed": "The model gives nearly the same output for every image. It is of no use, and "
    "that it leaks nothing says nothing about its training.",
    UNTESTED: "No attack has scores, so the run says nothing of what the model leaks. This is no "
    "pass.",
    NO_VERDICT: "The run ended before its first round, so there is no trained model to judge.",
}
REFUTED = "the run shows more leakage than a guarantee allows."
EARLIER = (
    "Try first to stop training earlier (`--defense early-stopping "
    "--defense.early-stopping.after {}`), which costs least and promises nothing."
)
GUARANTEE = "For a guarantee use `--defense dpsgd`."
# Of a run with dpsgd, whatever its budget was.
BUDGET = "A smaller budget guarantees more (`--defense.dpsgd.epsilon 8` is a usual one)."
COMPARE = (
    "`fedmia study RUN/config.yaml --defenses early-stopping,dpsgd --seeds 5 --out DIR` compares "
    "both on your federation."
)
BOUGHT = (
    "Do not release this model to people who must not know its training images. Train it for fewer "
    "rounds or with `--defense dpsgd`, and audit it again."
)
# Of an audit without an untrained control: an API, a function, vectors alone.
COMPARE_VECTORS = (
    "Look for a control. If you have the encoder's weights, audit the encoder itself: fedmia then "
    "makes an untrained one. Else audit, with the same images, an encoder that never saw the "
    "members, or vectors of it. If the attacks find as much there, the sets differ: take "
    "non-members from the source of the members. Until then take it for a leak. Do not give the "
    "encoder, or its answers, to people who must not know its training images."
)
TODO = {
    "leaks-uncontrolled": "Run it with a control (`--federation.placebo true`). Until then take "
    "it for a leak.",
    "may differ": "Run it without `--partition.whole true`. Until then take it for a leak.",
    "shift": "Take non-members from the same source as the members: the same cameras, sites, "
    "dates and file processing. Then run again.",
    "control-failed": "Look for a difference between members and non-members other than training, "
    "such as copies, file processing or order. Draw both at random from one source and run again.",
    "collapsed": "Mend the training first: a smaller learning rate, larger batches, or more images "
    "a client. Then run again.",
    UNTESTED: "Run at least one attack. The section Not run says why others did not.",
    NO_VERDICT: "Let the run finish at least one round. `--resume RUN` goes on where it stopped.",
}


def words(report: Report, pretrain: str, used: Collection[str] = ()) -> dict[str, str]:
    """The `verdict` in numbers, its `verdict_code`, and `means`, `sure` and `todo`.

    Codes: `no-verdict` (the run ended before its first round, so its model is untrained),
    `untested` (no attack has scores), `shift` (pixels alone tell members apart), `control-failed`,
    `leaks`, `leaks-uncontrolled` (a leak for which no attack has a control on the same images),
    `collapsed` (no leak, of an encoder that gives all images one output), `not-established`, tried
    in this order.

    Args:
        report: all else that `report.json` holds.
        pretrain: how the encoder was pre-trained; `pooled` showed the server all images.
        used: names of the defences that every honest client of the run uses.

    Returns:
        Text by name.
    """
    sentence, code = _sentence(report, pretrain)
    texts = _explain(report, code, used)
    if shout := refutation_sentence(report, code not in UNSOUND):
        alone = ""
        if code in (UNTESTED, "not-established"):  # what refutes a guarantee is a leak
            code, alone = LEAKS[0], "By the attacks alone: "
            texts = {**_explain(report, code, used), "sure": f"{shout}."}
        sentence = f"{shout}. {alone}{sentence}"
        texts["means"] = f"{SHOUT}: {REFUTED} {texts['means']}".strip()
    texts["means"] = " ".join([texts["means"], *_circumstances(report, code, pretrain)])
    return {"verdict": sentence, "verdict_code": code, **texts}


def _circumstances(report: Report, code: str, pretrain: str) -> list[str]:
    """What else a reader must know of the run, whatever its verdict."""
    health, last = report.health, report.interrupted
    useless = health is not None and health.collapsed and code != "collapsed"
    facts = {
        "The model gives nearly the same output for every image, so it is of no use.": useless,
        "The server had seen all private images before, in pre-training.": pretrain == "pooled",
        f"The run ended early, after round {last}.": last,
    }
    turned = [row.name for row in with_auc(report.attacks) if is_reversed(row)]
    reverse = f"By {', '.join(turned)}, members score lower than other images, not higher."
    return [sentence for sentence, holds in {**facts, reverse: turned}.items() if holds]


def _sentence(report: Report, pretrain: str) -> tuple[str, str]:
    """The verdict, and its code, before a guarantee is refuted."""
    last, failure, health = report.interrupted, report.failure, report.health
    how = "was interrupted" if failure is None else "ended"
    why = "" if failure is None else f", since {failure}"
    if last == 0:
        sentence = f"No verdict: the run {how} before its first round was finished{why}"
        return f"{sentence}; the model is untrained.", NO_VERDICT
    core, code = decide(report)
    if health is not None and health.collapsed:
        collapsed = health_sentence(report)
        if code == "not-established":
            code, begin = "collapsed", "The encoder has collapsed, so the result says nothing about"
            core = f"{begin} its training: {collapsed}. {core}"
        else:
            core += f"; the encoder has collapsed: {collapsed}"
    if pretrain == "pooled":
        core += "; pre-training was pooled, so the server had seen all private images"
    if last is not None:
        core += f"; the run {how} after round {last}"
    return f"{core}{why}.", code


def decide(report: Report) -> tuple[str, str]:
    """What attacks and controls say, without a final stop, and its code."""
    sentence, code = _judge(report)
    return sentence + _reversed_clause(with_auc(report.attacks)), code


def _judge(report: Report) -> tuple[str, str]:
    """What was found, then what controls say of it."""
    scored = with_auc(report.attacks)
    inferences = report.dataset_inference
    sets_tested = any(c.p_value is not None for row in inferences for c in row.clients)
    if not scored and not sets_tested:
        return f"Nothing was tested: {_why_untested(report)}", UNTESTED
    if (pixels := shifted_pixels(report)) is not None:
        return (
            "Shift between the sets; leakage not established: a classifier on raw pixels, without "
            "the model, separates members from non-members with "
            f"{auc_and_limits(pixels, of='controls')}",
            "shift",
        )
    if (failed := failed_control(report)) is not None:
        name, row = failed
        return (
            f"Control failed; leakage not established: {row.name} under the {name} control, "
            "where there is nothing to leak, has "
            f"{auc_and_limits(row, of='controls')}, which excludes 0.5",
            "control-failed",
        )
    strongest, sets, code = decisive(report)
    controlled = code == LEAKS[0]
    if strongest:
        row = strongest[0]
        second = f"{what_leaks(row)}: {_over_control(row)}" if controlled else UNCONTROLLED
        return f"The attack {_separates(row)}. {second}{_under_attack(report, strongest)}", code
    if sets is not None:
        second = "The encoder leaks membership" if controlled else UNCONTROLLED
        return f"By {sets.attack}: {sets_statement(sets)}. {second}", code
    if not scored:
        return "No leakage established: no attack detected a data set", "not-established"
    return _no_leak_sentence(scored), "not-established"


def _why_untested(report: Report) -> str:
    """Why no attack has scores; of several reasons the first."""
    if empty := [row.name for row in report.attacks]:
        return f"no attack has scores of members and of non-members ({', '.join(empty)} has not)"
    reasons = group_by_reason(report)
    if not reasons:
        return "no attack was named"
    names, reason = next(iter(reasons.items()))
    others = len(report.not_run) - names.count(",") - 1
    more = f"; {others} more for other reasons" if others else ""
    return f"no attack has scores ({names}: {reason.rstrip('.')}{more})"


def _separates(row: AttackRow) -> str:
    """What was found, whatever a control says of it."""
    values = auc_and_limits(row, model_of(row))
    return f"{row.name} separates members from non-members with {values}"


def _over_control(row: AttackRow) -> str:
    """What an attack adds to its own control on the same images; empty where it has none."""
    if (over := row.over_control) is None:
        return ""
    control = f"its {over.control} control on the same images"
    apart, limit = ends(over) or (0.0, 0.0), over.lower_limit
    return statement(row.name, control, over.difference, apart, limit)


def _under_attack(report: Report, strongest: ScoredRows) -> str:
    """The sentence on models that received crafted updates, beside those that did not."""
    crafted = next((row for row in strongest if row.under_attack), None)
    rows = [crafted] if crafted else [r for r in report.attacks if r.under_attack]
    pairs = [p for row in rows for p in pairs_of(report, row)]
    idle = crafted is not None and adds_nothing(report, crafted)
    adds = [pair_sentence(p, report.paired) for p in pairs if idle or p.control != LOSS_BEFORE][:1]
    parts = [_separates(crafted)] if crafted and crafted is not strongest[0] else []
    return f". Under attack, {'; '.join([*parts, *adds])}" if parts or adds else ""


def decisive(report: Report) -> tuple[list[AttackRow], InferenceRow | None, str]:
    """What says that a run leaks; nothing where nothing does.

    Args:
        report: with its attacks.

    Returns:
        The attacks that a verdict names, the one that decides first, or the attack on whole data
        sets; and the code.
    """
    strongest, inferences = strongest_leaks(report), report.dataset_inference
    sets = detecting(inferences)
    controlled = any(row.over_control is not None for row in strongest[:1])
    if not controlled and any(
        c.p_value_untrained is not None
        for row in inferences
        if not row.may_differ
        for c in detected(row)
    ):
        strongest, controlled = [], True  # the attacks have no control, the one on sets has
    return strongest, sets, LEAKS[not controlled]


def detecting(inferences: Sequence[InferenceRow]) -> InferenceRow | None:
    """The first attack on whole data sets that detects one."""
    return next((row for row in inferences if detected(row)), None)


def _no_leak_sentence(scored: ScoredRows) -> str:
    row = highest(scored)
    values = auc_and_limits(row, model_of(row))
    if lies_over_half(row):
        return f"The attack {_separates(row)}. No leakage established: {_over_control(row)}"
    if len(scored) == 1:
        return f"No leakage established: {row.name} has {values}, not over 0.5"
    return (
        f"No leakage established: of {len(scored)} attacks no lower limit lies over 0.5; "
        f"{row.name} is the highest, with {values}"
    )


def _reversed_clause(scored: ScoredRows) -> str:
    turned = [row.name for row in scored if is_reversed(row)]
    if not turned:
        return ""
    verb = "is" if len(turned) == 1 else "are"
    return f"; {', '.join(turned)} {verb} reversed (AUC under 0.5: members score lower)"


def _explain(report: Report, code: str, used: Collection[str]) -> dict[str, str]:
    """What the code means, how sure that is, and what to do."""
    scored = with_auc(report.attacks)
    means, sure, todo = MEANS[code], "Nothing was measured on a trained model.", TODO.get(code, "")
    if code in LEAKS:
        strongest, sets, _ = decisive(report)
        means, sure = "", ""
        if strongest:
            means, sure = _means(report, code, strongest), _strength(report, strongest[0])
        elif sets is not None:
            means = f"{who(sets)}, and has a whole set of images, can tell whether the set was "
            means += f"used for training. {MEANS[code] * (code == LEAKS[1])}".strip()
            sure = f"{sets_statement(sets)}."
            todo = TODO["may differ"] if code == LEAKS[1] and sets.may_differ else todo
        defences = BOUGHT if is_audit(report) else _defences(report, used)
        todo = COMPARE_VECTORS if todo and is_audit(report) else f"{todo} {defences}".strip()
    elif code == "not-established":
        if scored:
            row = highest(scored)
            if lies_over_half(row):
                means = f"{_tells(row)} {MEANS['as its control']} {count_pairs(row.name, row.auc)}"
            else:
                chance = "" if is_reversed(row) else " This may be chance."
                means += f" {count_pairs(row.name, row.auc)}{chance}"
        sure, todo = reach(report, scored)
    elif code == "shift" and (pixels := shifted_pixels(report)) is not None:
        auc = pixels.auc or 0.0
        means += f" {count_pairs('a classifier on the pixels alone', auc)}"
        sure = f"It has AUC {estimate(auc, ends(pixels))}; a guess has 0.5."
    elif code == "control-failed" and (failed := failed_control(report)) is not None:
        name, row = failed
        sizes = f"{row.n_members} members and {row.n_nonmembers} non-members"
        sure = (
            f"{row.name} under the {name} control has AUC {estimate(row.auc, ends(row))} "
            f"on {sizes}; a guess has 0.5."
        )
    elif code == UNTESTED:
        sure = "No attack has scores of members and of non-members."
    elif code == "collapsed":
        sure = "The model's outputs for different images are almost equal; see Utility below."
    if lacks_control(report) and code in (*LEAKS, "not-established"):
        means = f"{NO_CONTROL[report.pixels is not None]} {means}"
    return {"means": means, "sure": sure, "todo": todo}


def _tells(row: AttackRow) -> str:
    """Who can tell members apart, whatever a control says of it."""
    return f"{who(row)} can tell the training images from others, better than by guessing."


def _means(report: Report, code: str, strongest: ScoredRows) -> str:
    """Who can do what was found, each from the own row of the attack."""
    first, *others = strongest
    parts = [_tells(first), MEANS[code], count_pairs(first.name, first.auc)]
    if adds_nothing(report, first):
        parts.append("The crafted updates add nothing measurable: without them it may be as much.")
    parts += [
        text
        for row in others
        for text in (f"{who(row)} can do so, too.", count_pairs(row.name, row.auc))
    ]
    return " ".join(parts)


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
        f"Of a member and a non-member, {name} picks the member {auc * whole:,.0f} times of "
        f"{whole:,}; guessing: {whole // 2}."
    )


def _defences(report: Report, used: Collection[str]) -> str:
    """What a federation that leaks should try, beside what it does already."""
    failed = f"{' and '.join(sorted(used))} did not stop it at these settings." if used else ""
    third = max(1, len(report.rounds) // 3)
    earlier = "" if "early-stopping" in used else EARLIER.format(third)
    guarantee = BUDGET if "dpsgd" in used else GUARANTEE
    return " ".join(filter(None, [failed, earlier, guarantee, COMPARE]))


def _strength(report: Report, row: AttackRow) -> str:
    """Members of 100 that the strongest attack finds at the lowest rate of false alarms that the
    images resolve; its AUC, and the use of the very model that it read."""
    shares = "There are too few non-members to count the members found at few false alarms."
    for rate, alarms in (("0.1", 10), ("0.01", 1)):
        tpr, ci = row.tpr_at_fpr[rate], row.tpr_at_fpr_ci[rate]
        if tpr is not None and ci is not None:
            shares = (
                f"Of 100 members, at {alarms} false alarm{'s' * (alarms > 1)} in 100, "
                f"{100 * tpr:.0f} are found (95 % interval {100 * ci[0]:.0f} to {100 * ci[1]:.0f}; "
                f"guessing: {alarms})."
            )
    use = (row.under_attack and report.utility_after_attack) or report.utility
    text = f"{shares} The attack {row.name} has AUC "
    text += f"{estimate(row.auc, ends(row))} {model_of(row)}".rstrip()
    if use.knn is not None:
        whose = "the same model" if use.round is None else f"the model of round {use.round}"
        text += f"; kNN accuracy of {whose}: {estimate(use.knn, use.knn_ci)}"
    return f"{text}."


def is_alarming(report: Report) -> bool:
    """Whether the run leaks, or contradicts a guarantee: no other verdict is good news."""
    return report.verdict_code == LEAKS[0] or report.verdict.startswith(SHOUT)
