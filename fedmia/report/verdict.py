"""What a report says first: its verdict, what that means, how sure it is, and what to do.

Every judgement rests on simultaneous intervals. That anything leaks is one family of one-sided
tests: attacks, each against 0.5 and against its own control, and attacks on whole data sets. The
least p-value decides, so Holm's correction gives the code that Bonferroni's limits, which stand in
the report, give. Controls, pixels and paired differences are a second family, of two-sided
intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedmia.records import LOSS_BEFORE
from fedmia.records.attack_rows import AttackRow, AucRow, ends, with_auc
from fedmia.records.client_rows import InferenceRow
from fedmia.records.rows import Controls, Report, control_sets
from fedmia.report.codes import LEAKS, NO_VERDICT, UNSOUND, UNTESTED
from fedmia.report.datasets import detected
from fedmia.report.format import estimate, group_by_reason, model_of, subjects_of
from fedmia.report.health import health_sentence
from fedmia.report.lowerbounds import SHOUT, refutation_sentence
from fedmia.report.paired import statement
from fedmia.report.reach import ScoredRows, is_audit, reach

TITLES = {"means": "What this means", "sure": "How sure", "todo": "What to do"}

UNCONTROLLED = "no control on the same images rules out that the images differ by themselves"
MEANS = {
    "leaks": "Someone who has this model can tell, better than by guessing, whether an image was "
    "used to train it.",
    "server": "Someone who sees the clients' updates can tell, better than by guessing, whether "
    "an image was used for training.",
    "leaks-uncontrolled": "The attacks tell members from other images better than by guessing. "
    "Without a control on the same images this may be a leak, or the two sets may differ.",
    "sets": "Someone who has this model and a whole set of images can tell whether the set was "
    "used to train it.",
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
WHO = {
    "client": "Every client that takes part can do this.",
    "outsider": "Everyone who can use the model can do this.",
    "server": "The server can do this.",
}
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
    """The `verdict` in one sentence, its `verdict_code`, and `means`, `sure` and `todo`.

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
        core = _lower(sentence)
        if code in (UNTESTED, "not-established"):  # what refutes a guarantee is a leak
            code, core = LEAKS[0], f"by the attacks alone, {core}"
            texts = {**_explain(report, code, used), "sure": f"{shout}."}
        sentence = f"{shout}; {core}"
        texts["means"] = f"{SHOUT}: {REFUTED} {texts['means']}"
    texts["means"] = " ".join([texts["means"], *_circumstances(report, code, pretrain)])
    return {"verdict": sentence, "verdict_code": code, **texts}


def _circumstances(report: Report, code: str, pretrain: str) -> list[str]:
    """What else a reader must know of the run, whatever its verdict."""
    health, last = report["health"], report["interrupted"]
    useless = health is not None and health["collapsed"] and code != "collapsed"
    facts = {
        "The model gives nearly the same output for every image, so it is of no use.": useless,
        "The server had seen all private images before, in pre-training.": pretrain == "pooled",
        f"The run ended early, after round {last}.": last,
    }
    return [sentence for sentence, holds in facts.items() if holds]


def _sentence(report: Report, pretrain: str) -> tuple[str, str]:
    """The verdict, and its code, before a guarantee is refuted."""
    last, failure, health = report["interrupted"], report["failure"], report["health"]
    how = "was interrupted" if failure is None else "ended"
    why = "" if failure is None else f", since {failure}"
    if last == 0:
        sentence = f"No verdict: the run {how} before its first round was finished{why}"
        return f"{sentence}; the model is untrained.", NO_VERDICT
    core, code = decide(report)
    if health is not None and health["collapsed"]:
        collapsed = health_sentence(health, report["utility"])
        if code == "not-established":
            code, begin = "collapsed", "The encoder has collapsed, so the result says nothing about"
            core = f"{begin} its training: {collapsed}; {_lower(core)}"
        else:
            core += f"; the encoder has collapsed: {collapsed}"
    if pretrain == "pooled":
        core += "; pre-training was pooled, so the server had seen all private images"
    if last is not None:
        core += f"; the run {how} after round {last}"
    return f"{core}{why}.", code


def decide(report: Report) -> tuple[str, str]:
    """What attacks and controls say, without a final stop, and its code."""
    scored, controls = with_auc(report["attacks"]), report["controls"]
    inferences = report["dataset_inference"]
    sets_tested = any(c["p_value"] is not None for row in inferences for c in row["clients"])
    if not scored and not sets_tested:
        return f"Nothing was tested: {_why_untested(report)}", UNTESTED
    if (pixels := shifted_pixels(controls)) is not None:
        return (
            "Shift between the sets; leakage not established: a classifier on raw pixels, without "
            f"the model, separates members from non-members with {numbers(pixels)}",
            "shift",
        )
    if (failed := failed_control(controls)) is not None:
        name, row = failed
        return (
            f"Control failed; leakage not established: {row['name']} under the {name} control, "
            f"where there is nothing to leak, has {numbers(row)}, which excludes 0.5",
            "control-failed",
        )
    strongest, sets = strongest_leak(scored), detecting(inferences)
    controlled = (
        strongest is not None
        and "over_control" in strongest
        or any(c["p_value_untrained"] is not None for row in inferences for c in detected(row))
    )
    code = LEAKS[not controlled]
    doubt = "" if controlled else f", but {UNCONTROLLED}"
    if strongest is not None:
        server = strongest["threat"]["vantage"] == "server"
        what = "The clients' updates leak" if server else "The encoder leaks"
        paired = [
            f"; {p['statement']}"
            for p in report["paired"]
            if p["difference"] is not None and p["control"] != LOSS_BEFORE
        ]
        return (
            f"{what} membership{doubt}: {strongest['name']} separates members from non-members "
            f"with {numbers(strongest, model_of(strongest))}{''.join(paired[:1])}"
            + _reversed_clause(scored),
            code,
        )
    if sets is not None:
        answer = _lower(sets["statement"])
        return f"The encoder leaks membership{doubt}: by {sets['attack']}, {answer}", code
    if not scored:
        return "No leakage established: no attack detected a data set", "not-established"
    return _no_leak_sentence(scored) + _reversed_clause(scored), "not-established"


def _why_untested(report: Report) -> str:
    """Why no attack has scores; of several reasons the first."""
    if empty := [row["name"] for row in report["attacks"]]:
        return f"no attack has scores of members and of non-members ({', '.join(empty)} has not)"
    reasons = group_by_reason(report)
    if not reasons:
        return "no attack was named"
    names, reason = next(iter(reasons.items()))
    others = len(report["not_run"]) - names.count(",") - 1
    more = f"; {others} more for other reasons" if others else ""
    return f"no attack has scores ({names}: {reason.rstrip('.')}{more})"


def _lower(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:]}"


def excludes_half(row: AucRow) -> bool:
    """Whether the simultaneous interval of an AUC leaves out 0.5, on either side."""
    low, high = ends(row) or (0.0, 1.0)
    return not low <= 0.5 <= high


def leaks(row: AttackRow) -> bool:
    """Whether an attack's AUC lies over 0.5 and over that of its own control, where it has one."""
    over = row.get("over_control")
    return (row["low"] or 0) > 0.5 and (over is None or (over["low"] or 0) > 0)


def detecting(inferences: Sequence[InferenceRow]) -> InferenceRow | None:
    """The first attack on whole data sets that detects one."""
    return next((row for row in inferences if detected(row)), None)


def numbers(row: AucRow, model: str = "") -> str:
    """`AUC 0.64 [0.55, 0.72] (simultaneous 95 % limits; 112 members, 500 non-members)`.

    Args:
        row: of the attack or control.
        model: which model was scored, in words.

    Returns:
        The text.
    """
    n = f"{row['n_members']} members, {row['n_nonmembers']} non-members"
    n += f" of {of} subjects" if (of := subjects_of(row)) else ""
    n += model and f"; {model}"
    return f"AUC {estimate(row['auc'], ends(row))} (simultaneous 95 % limits; {n})"


def shifted_pixels(controls: Controls) -> AucRow | None:
    """The classifier on pixels where it tells members apart, else None."""
    pixels = controls["pixels"]
    return pixels if pixels is not None and excludes_half(pixels) else None


def failed_control(controls: Controls) -> tuple[str, AttackRow] | None:
    """(set name, row) of the control farthest from 0.5 among those that exclude it."""
    failed = [
        (name, row)
        for name, rows in control_sets(controls).items()
        for row in rows
        if excludes_half(row)
    ]
    return max(failed, key=lambda f: abs((f[1]["auc"] or 0.0) - 0.5), default=None)


def strongest_leak(scored: ScoredRows) -> AttackRow | None:
    """The attack of highest AUC among those that leak, one with a control before one without."""
    leaking = [row for row in scored if leaks(row)]
    return max(leaking, key=lambda row: ("over_control" in row, row["auc"]), default=None)


def _no_leak_sentence(scored: ScoredRows) -> str:
    row = max(scored, key=lambda row: (row["low"] > 0.5, row["auc"]))
    values = numbers(row, model_of(row))
    if row["low"] > 0.5:
        over = row["over_control"]
        control = f"its {over['control']} control on the same images"
        added = statement(row["name"], control, over["difference"], ends(over) or (0.0, 0.0))
        return f"No leakage established: {row['name']} has {values}, but {added}"
    if len(scored) == 1:
        return f"No leakage established: {row['name']} has {values}, which does not lie over 0.5"
    return (
        f"No leakage established: none of the simultaneous intervals of {len(scored)} attacks lies "
        f"over 0.5; {row['name']} is the highest, with {values}"
    )


def _reversed_clause(scored: ScoredRows) -> str:
    turned = [row["name"] for row in scored if row["high"] < 0.5]
    if not turned:
        return ""
    verb = "is" if len(turned) == 1 else "are"
    return f"; {', '.join(turned)} {verb} reversed (interval under 0.5: members score lower)"


def _explain(report: Report, code: str, used: Collection[str]) -> dict[str, str]:
    """What the code means, how sure that is, and what to do."""
    scored = with_auc(report["attacks"])
    means, sure, todo = MEANS[code], "Nothing was measured on a trained model.", TODO.get(code, "")
    if code in LEAKS:
        strongest, sets = strongest_leak(scored), detecting(report["dataset_inference"])
        vantage, kind = "outsider", "sets" if sets else "leaks"
        sure = f"{sets['statement']}." if sets else ""
        counted = ""
        if strongest is not None:
            vantage = strongest["threat"]["vantage"]
            kind = "server" if vantage == "server" else "leaks"
            counted, sure = count_pairs(strongest), _strength(report, strongest)
        texts = means if todo else MEANS[kind], WHO.get(vantage, ""), counted
        means = " ".join(filter(None, texts))
        defences = BOUGHT if is_audit(report) else _defences(report, used)
        todo = COMPARE_VECTORS if todo and is_audit(report) else f"{todo} {defences}".strip()
    elif code == "not-established":
        if scored:
            row = max(scored, key=lambda row: row["auc"])
            doubt = "This may be chance."
            if row["high"] < 0.5:
                doubt = "It picks the non-member more often than a guess would."
            elif row["low"] > 0.5:
                doubt = "Its control, where nothing leaks, may do as well."
            means += f" {count_pairs(row)} {doubt}"
        sure, todo = reach(report, scored)
    elif code == "shift" and (pixels := shifted_pixels(report["controls"])) is not None:
        auc = pixels["auc"] or 0.0
        means += f" {count_pairs({'name': 'a classifier on the pixels alone', 'auc': auc})}"
        sure = f"It has AUC {estimate(auc, ends(pixels))}; a guess has 0.5."
    elif code == "control-failed" and (failed := failed_control(report["controls"])) is not None:
        name, row = failed
        sizes = f"{row['n_members']} members and {row['n_nonmembers']} non-members"
        sure = (
            f"{row['name']} under the {name} control has AUC {estimate(row['auc'], ends(row))} "
            f"on {sizes}; a guess has 0.5."
        )
    elif code == UNTESTED:
        sure = "No attack has scores of members and of non-members."
    elif code == "collapsed":
        sure = "The model's outputs for different images are almost equal; see Utility below."
    return {"means": means, "sure": sure, "todo": todo}


def count_pairs(attack: Mapping[str, Any]) -> str:
    """An AUC as the share of pairs that the attack orders right; of 1,000 where a count of 100
    would hide the difference.

    Args:
        attack: its name, and its AUC in [0, 1].

    Returns:
        The sentence, with the count beside that of a guess.
    """
    name, auc = attack["name"], attack["auc"]
    whole = 1000 if abs(auc - 0.5) < 0.05 or not 0.01 <= auc <= 0.99 else 100
    return (
        f"Of a member and a non-member, {name} picks the member {auc * whole:,.0f} times of "
        f"{whole:,}; guessing: {whole // 2}."
    )


def _defences(report: Report, used: Collection[str]) -> str:
    """What a federation that leaks should try, beside what it does already."""
    failed = f"{' and '.join(sorted(used))} did not stop it at these settings." if used else ""
    third = max(1, len(report["rounds"]) // 3)
    earlier = "" if "early-stopping" in used else EARLIER.format(third)
    guarantee = BUDGET if "dpsgd" in used else GUARANTEE
    return " ".join(filter(None, [failed, earlier, guarantee, COMPARE]))


def _strength(report: Report, row: AttackRow) -> str:
    """Members of 100 that the strongest attack finds at the lowest rate of false alarms that the
    images resolve; its AUC, and the use of the very model that it read."""
    shares = "There are too few non-members to count the members found at few false alarms."
    for rate, alarms in (("0.1", 10), ("0.01", 1)):
        tpr, ci = row["tpr_at_fpr"][rate], row["tpr_at_fpr_ci"][rate]
        if tpr is not None and ci is not None:
            shares = (
                f"Of 100 members, at {alarms} false alarm{'s' * (alarms > 1)} in 100, "
                f"{100 * tpr:.0f} are found (95 % interval {100 * ci[0]:.0f} to {100 * ci[1]:.0f}; "
                f"guessing: {alarms})."
            )
    use = (row["under_attack"] and report["utility"]["after_attack"]) or report["utility"]
    text = f"{shares} The strongest attack, {row['name']}, has AUC "
    text += f"{estimate(row['auc'], ends(row))} {model_of(row)}".rstrip()
    if use["knn"] is not None:
        whose = "the same model" if use["round"] is None else f"the model of round {use['round']}"
        text += f"; kNN accuracy of {whose}: {estimate(use['knn'], use['knn_ci'])}"
    return f"{text}."


def is_alarming(report: Report) -> bool:
    """Whether the run leaks, or contradicts a guarantee: no other verdict is good news."""
    return report["verdict_code"] == LEAKS[0] or report["verdict"].startswith(SHOUT)
