"""What a verdict means, how sure it is, and what to do: the three boxes under it."""

from __future__ import annotations

import math
from collections.abc import Collection

from fedmia.recording.branches import LAST
from fedmia.records.attack_rows import ends, with_auc
from fedmia.records.client_rows import InferenceRow
from fedmia.records.rows import Report
from fedmia.report.codes import LEAKS, NO_VERDICT, UNTESTED
from fedmia.report.judgement import (
    ScoredRows,
    adds_nothing,
    decisive,
    failed_control,
    highest,
    is_audit,
    is_reversed,
    lacks_control,
    lies_over_half,
    shifted_pixels,
)
from fedmia.report.reach import WEAK, design_effect, has_untried_attacks, images_short, widest
from fedmia.report.words.attacks import count_pairs, strength, tells, who
from fedmia.report.words.numbers import estimate, number, subjects_of
from fedmia.report.words.sets import certainty, statement

TITLES = {"means": "What this means", "sure": "How sure", "todo": "What to do"}

# After what was found: without any control, and with the pixels.
NO_CONTROL = (
    "There is no control: no attack was tried where nothing can leak.",
    "The only control is the pixels, without a model: no attack was tried where nothing can leak.",
)
MEANS = {
    "leaks": "This comes from training: where nothing can leak, the same attack finds less.",
    "leaks-uncontrolled": "This may be a leak, or the two sets of images may differ: no control on "
    "the same images tells which.",
    "as its control": "Where nothing can leak, the same attack may find as much, so this shows no "
    "leak. It does not show that nothing leaks: other attacks or more images may find one.",
    "as the last model": "On the last model, which was trained on both sides, the same attack may "
    "find as much, so something else than membership may tell the sides apart. This shows no leak. "
    "It does not show that nothing leaks.",
    "not-established": "The attacks did not find a leak. This does not show that nothing leaks: "
    "other attacks or more images may find one.",
    "shift": "The two sets of images look different, even without the model. So the attacks cannot "
    "say whether the model leaks.",
    "control-failed": "An attack succeeded where nothing can leak. So its success on this model is "
    "no evidence of a leak.",
    "collapsed": "The model gives nearly the same output for every image. It is of no use, so this "
    "does not show whether its training leaks.",
    UNTESTED: "No attack has scores, so the run says nothing of what the model leaks. This is no "
    "pass.",
    NO_VERDICT: "The run ended before its first round, so there is no trained model to judge.",
}
EARLIER = (
    "Try first to stop training earlier (`--defense early-stopping "
    "--defense.early-stopping.after {}`): it costs least, and guarantees nothing."
)
GUARANTEE = "For a guarantee every client needs `--defense dpsgd`."
# Of a run with dpsgd, whatever its budget was.
BUDGET = "A smaller budget guarantees more (`--defense.dpsgd.epsilon 8` is a usual one)."
MORE = "Try more attacks (`--attacks all`) and other seeds."
# Of one subject in question, where each further attack is a further test.
WEIGH = (
    "More images of it, or more other subjects, tell more. Another attack is another test, which "
    "needs more other subjects, and a seed that is picked by its result proves nothing."
)
SEEDS = "Try other seeds (`--seed 1`)."  # where all attacks were asked for
COMPARE = (
    "`fedmia study RUN/config.yaml --defenses early-stopping,dpsgd --seeds 5 --out DIR` compares "
    "both on your federation."
)
KEEP = "Do not release this model to people who must not know its training images."
BOUGHT = f"{KEEP} Train it for fewer rounds or with `--defense dpsgd`, and audit it again."
# Of an audit without an untrained control: an API, a function, vectors alone.
COMPARE_VECTORS = (
    "Make a control. If you have the encoder's weights, audit the encoder itself: fedmia then "
    "makes an untrained one. Else audit, with the same images, an encoder that never saw the "
    "members, or vectors of it. If the attacks find less there, the encoder "
    "leaks; if they find as much, the sets differ: take non-members from the source of the "
    "members. Until then take it for a leak. Do not give the "
    "encoder, or its answers, to people who must not know its training images."
)
UNTIL_THEN = "Until then do not take the model for safe."
TODO = {
    "leaks-uncontrolled": "Run it with a control (`--federation.placebo true`). Until then take "
    "it for a leak.",
    "may differ": "Run it without `--partition.whole true`. Until then take it for a leak.",
    "shift": "Take non-members from the same source as the members: the same cameras, sites, "
    f"dates and file processing. Then run again. {UNTIL_THEN}",
    "control-failed": "Look for a difference between members and non-members other than training, "
    "such as copies, file processing or order. Draw both at random from one source and run again. "
    f"{UNTIL_THEN}",
    "collapsed": "Mend the training first: a smaller learning rate, larger batches, or more images "
    "a client. Then run again.",
    UNTESTED: f"Run at least one attack (`--attacks all`). {UNTIL_THEN}",
    NO_VERDICT: "Let the run finish at least one round. `--resume RUN` goes on where it stopped.",
}


def explain(report: Report, code: str, used: Collection[str]) -> dict[str, str]:
    """What a code means, how sure that is, and what to do.

    Args:
        report: all else that `report.json` holds.
        code: of the verdict.
        used: names of the defences that every honest client of the run uses.

    Returns:
        `means`, `sure` and `todo`.
    """
    means, sure, todo = MEANS[code], "There is nothing to be sure of.", TODO.get(code, "")
    if code in LEAKS:
        means, sure, todo = _of_leak(report, code, used)
    elif code == "not-established":
        means, (sure, todo) = _of_no_leak(with_auc(report.attacks)), reach(report)
    elif code == "shift" and (pixels := shifted_pixels(report)) is not None:
        means += f" {count_pairs('a classifier on the pixels alone', pixels.auc)}"
        auc = estimate(pixels.auc, ends(pixels))
        sure = f"The classifier on pixels has AUC {auc}; a guess has 0.5."
    elif code == "control-failed" and (failed := failed_control(report)) is not None:
        name, row = failed
        sizes = f"{row.n_members} members and {row.n_nonmembers} non-members"
        sure = (
            f"{row.name} under the {name} control has AUC {estimate(row.auc, ends(row))} "
            f"on {sizes}; a guess has 0.5."
        )
    elif code == "collapsed":
        sure = "The model's outputs for different images are almost equal; see Utility below."
    if lacks_control(report) and code in (LEAKS[0], "not-established"):
        means = f"{means} {NO_CONTROL[report.pixels is not None]}"
    return {"means": means, "sure": sure, "todo": todo}


def _of_leak(report: Report, code: str, used: Collection[str]) -> tuple[str, str, str]:
    """`means`, `sure` and `todo` of what leaks by an attack, by one on data sets, or by a claim."""
    strongest, sets, _ = decisive(report)
    means, sure, todo = "", "", TODO.get(code, "")
    if strongest:
        row = strongest[0]
        use = (row.under_attack and report.utility_after_attack) or report.utility
        means, sure = _of_attacks(report, code, strongest), strength(row, use)
    elif sets is not None:
        means, sure = _of_set(sets, code), certainty(sets)
        todo = TODO["may differ"] if code == LEAKS[1] and sets.may_differ else todo
    defences = BOUGHT if is_audit(report) else _defences(report, used)
    todo = COMPARE_VECTORS if todo and is_audit(report) else f"{todo} {defences}".strip()
    return means, sure, todo


def _of_set(row: InferenceRow, code: str) -> str:
    """Who can tell that a whole set was used for training."""
    text = f"{who(row)}, and has a whole set of images, can tell whether the set was "
    return f"{text}used for training. {MEANS[code] * (code == LEAKS[1])}".strip()


def _of_attacks(report: Report, code: str, strongest: ScoredRows) -> str:
    """Who can do what was found, each from the own row of the attack."""
    first, *others = strongest
    parts = [tells(first), MEANS[code], count_pairs(f"the attack {first.name}", first.auc)]
    if adds_nothing(report, first):
        parts.append("The crafted updates add nothing measurable: without them it may be as much.")
    parts += [
        text
        for row in others
        for text in (f"{who(row)} can do so, too.", count_pairs(f"the attack {row.name}", row.auc))
    ]
    return " ".join(parts)


def _of_no_leak(scored: ScoredRows) -> str:
    """What the highest of attacks may do all the same."""
    if not scored:
        return MEANS["not-established"]
    row = highest(scored)
    pairs = count_pairs(f"the attack {row.name}", row.auc)
    if lies_over_half(row):
        over = row.over_control
        last = over is not None and over.control == LAST
        return f"{tells(row)} {MEANS['as the last model' if last else 'as its control']} {pairs}"
    chance = "" if is_reversed(row) else " This may be chance."
    return f"{MEANS['not-established']} {pairs}{chance}"


def _defences(report: Report, used: Collection[str]) -> str:
    """What a federation that leaks should try, beside what it does already."""
    failed = f"{' and '.join(sorted(used))} did not stop it at these settings." if used else ""
    third = max(1, len(report.rounds) // 3)
    earlier = "" if "early-stopping" in used else EARLIER.format(third)
    guarantee = BUDGET if "dpsgd" in used else GUARANTEE
    return " ".join(filter(None, [KEEP, failed, earlier, guarantee, COMPARE]))


def reach(report: Report) -> tuple[str, str]:
    """How sure a run without an established leak is, and how it could be surer.

    Args:
        report: with its family of tests and its `smallest_leak`.

    Returns:
        The smallest leak that so many images would have shown; what to do.
    """
    todo = MORE if has_untried_attacks(report) else SEEDS
    if not (scored := with_auc(report.attacks)):
        sets = report.dataset_inference
        alone = any(row.n_nonmember_subjects is not None for row in sets)
        return " ".join(f"{statement(row)}." for row in sets), WEIGH if alone else todo
    row, least = widest(scored), report.smallest_leak
    sizes = f"{row.n_members} members and {row.n_nonmembers} non-members"
    sizes += f" of {of} subjects" if (of := subjects_of(row)) else ""
    sure = f"Not even a perfect attack would have been established with {sizes}."
    if least is not None:
        sure = (
            f"The smallest leak that {sizes} would have shown has AUC {number(least)} "
            "(0.5: guessing, 1: certain). A smaller one may be there."
        )
    if (more := images_short(report, scored)) is not None:
        todo += f" To show a leak of AUC {WEAK}, score about {more:,} members and as many others"
        if design_effect(scored) != 1:
            subjects = math.ceil(more * (row.n_member_subjects or 1) / row.n_members)
            todo += f": about {subjects:,} subjects a side, with as many images each"
        todo += "."
    return sure, todo
