"""The three answers at the head of a report: what it means, how sure it is, what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedmia.records.attack_rows import AttackRow
from fedmia.records.client_rows import InferenceRow, KnownAuc, rows_with_auc
from fedmia.records.rows import Controls, EncoderRow, Utility
from fedmia.report.format import estimate, interval, model_of
from fedmia.report.verdict import LEAKS, NO_VERDICT, detecting, failed_control, strongest_leak
from fedmia.statistics.intervals import ONE_SIDED
from fedmia.statistics.power import images_needed, smallest_detectable_auc

WEAK = 0.55  # the AUC of a leak for which the images needed are counted
TITLES = {"means": "What this means", "sure": "How sure", "todo": "What to do"}
MEANS = {
    "leaks": "Someone who has this model can tell, better than by guessing, whether an image was "
    "used to train it.",
    "updates": "Someone who sees the clients' updates can tell, better than by guessing, whether "
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
    NO_VERDICT: "The run ended before its first round, so there is no trained model to judge.",
}
EARLIER = (
    "Try first to stop training earlier (`--defense early-stopping "
    "--defense.early-stopping.after 10`), which costs least and promises nothing."
)
GUARANTEE = "For a guarantee use `--defense dpsgd`."
# Of a run with dpsgd, whatever its budget was.
BUDGET = "A smaller budget guarantees more (`--defense.dpsgd.epsilon 8` is a usual one)."
COMPARE = (
    "`fedmia study --defenses early-stopping,dpsgd --seeds 5 --out DIR` compares both on "
    "your federation."
)
BOUGHT = (
    "Do not release this model to people who must not know its training images. Train it for fewer "
    "rounds or with `--defense dpsgd`, and audit it again."
)
TODO = {
    "leaks-uncontrolled": "Run it with a control: a simulation with `--federation.placebo true`, "
    "an audit on a network whose weights fedmia can draw anew. Until then take it for a leak.",
    "shift": "Take non-members from the same source as the members: the same cameras, sites, "
    "dates and file processing. Then run again.",
    "control-failed": "Look for a difference between members and non-members other than training, "
    "such as copies, file processing or order. Draw both at random from one source and run again.",
    "collapsed": "Mend the training first: a smaller learning rate, larger batches, or more images "
    "a client. Then run again.",
    NO_VERDICT: "Let the run finish at least one round. `--resume RUN` goes on where it stopped.",
}
AFFECTED = {
    "client": "Affected: the owners of the images, towards every client that takes part.",
    "outsider": "Affected: the owners of the images, towards everyone who can use the model.",
    "server": "Affected: the owners of the images, towards the server.",
}


def answers(
    code: str,
    attacks: Sequence[AttackRow],
    inferences: Sequence[InferenceRow],
    controls: Controls,
    utility: Utility,
    family: int,
    encoder: EncoderRow | None = None,
    used: Collection[str] = (),
) -> dict[str, str]:
    """The texts of the three boxes: `means`, `sure` and `todo`.

    Args:
        code: the verdict's.
        attacks: rows of the attacks.
        inferences: rows of the attacks on whole data sets.
        controls: rows of the controls.
        utility: probes of the model.
        family: number of tests for a leak.
        encoder: of an audit, None of a run.
        used: names of the defences that every honest client of the run uses.

    Returns:
        Text by name.
    """
    scored = rows_with_auc(attacks)
    if code in LEAKS:
        strongest, sets = strongest_leak(scored), detecting(inferences)
        vantage, means, sure = "outsider", "leaks", ""
        if strongest is not None:
            row, auc = strongest
            vantage = row["threat"]["vantage"]
            means = "updates" if vantage == "server" else "leaks"
            sure = f"{_shares(row)} {_model(row, auc, utility)}"
        elif sets is not None:
            means, sure = "sets", f"{sets['statement']}."
        defences = _defences(used) if encoder is None else BOUGHT
        advice = filter(None, [TODO.get(code), AFFECTED.get(vantage), defences])
        means = code if code in TODO else means
        return {"means": MEANS[means], "sure": sure, "todo": " ".join(advice)}
    if code == "not-established":
        paired = encoder is not None and bool(controls["untrained"])
        sure, todo = _reach(scored, family, paired)
        return {"means": MEANS[code], "sure": sure, "todo": todo}
    return {"means": MEANS[code], "sure": _unsound(code, controls), "todo": TODO[code]}


def _defences(used: Collection[str]) -> str:
    """What a federation that leaks should try, beside what it does already."""
    failed = f"{' and '.join(sorted(used))} did not stop it at these settings." if used else ""
    earlier = "" if "early-stopping" in used else EARLIER
    guarantee = BUDGET if "dpsgd" in used else GUARANTEE
    return " ".join(filter(None, [failed, earlier, guarantee, COMPARE]))


def _shares(row: AttackRow) -> str:
    """Members of 100 that are found at the lowest rate of false alarms that the images resolve."""
    for rate, alarms in (("0.01", 1), ("0.1", 10)):
        tpr, ci = row["tpr_at_fpr"][rate], row["tpr_at_fpr_ci"][rate]
        if tpr is not None and ci is not None:
            s = "" if alarms == 1 else "s"
            return (
                f"Of 100 members, at {alarms} false alarm{s} in 100, {100 * tpr:.0f} are found "
                f"(95 % interval {100 * ci[0]:.0f} to {100 * ci[1]:.0f})."
            )
    return "There are too few non-members to count the members found at few false alarms."


def _model(row: AttackRow, auc: KnownAuc, utility: Utility) -> str:
    """AUC of the strongest attack, and the use of the very model that it read."""
    use = (row["under_attack"] and utility["after_attack"]) or utility
    text = f"The strongest attack, {row['name']}, has AUC {estimate(auc.value, auc.together)}"
    text += f" {model_of(row)}" if model_of(row) else ""
    if use["knn"] is not None:
        whose = "the same model" if use["round"] is None else f"the model of round {use['round']}"
        text += f"; kNN accuracy of {whose}: {estimate(use['knn'], use['knn_ci'])}"
    return f"{text}."


def _reach(
    scored: Sequence[tuple[AttackRow, KnownAuc]], family: int, paired: bool
) -> tuple[str, str]:
    """How sure a run without an established leak is, and how it could be surer; `paired`: a leak
    must also lie over its control."""
    if not scored:
        return "No attack was scored.", "Run at least one attack: see the section Not run."
    row = max((row for row, _ in scored), key=lambda r: min(r["n_members"], r["n_nonmembers"]))
    n, m = row["n_members"], row["n_nonmembers"]
    least = smallest_detectable_auc(n, m, family, level=ONE_SIDED, over_control=paired)
    more = images_needed(WEAK, family, level=ONE_SIDED, over_control=paired)
    sizes = f"{n} members and {m} non-members"
    sure = f"Not even a perfect attack would have been established with {sizes}."
    if least is not None:
        sure = (
            f"The smallest leak that {sizes} would have shown has AUC {least:.2f} "
            "(0.5: guessing, 1: certain). A smaller one may be there."
        )
    enough = more is not None and min(n, m) >= more
    todo = "Try more attacks (`--attacks all`) and other seeds."
    if more is not None and not enough:
        todo += f" To show a leak of AUC {WEAK}, score about {more:,} members and as many others."
    return sure, todo


def _unsound(code: str, controls: Controls) -> str:
    """What a verdict without a statement about leakage rests on."""
    pixels = controls["pixels"]
    if code == "shift" and pixels is not None and pixels["auc"] is not None:
        ci = interval(pixels["auc_ci_simultaneous"])
        return f"A classifier on the pixels alone has AUC {pixels['auc']:.2f} {ci}."
    if code == "control-failed" and (failed := failed_control(controls)) is not None:
        name, row, auc = failed
        sizes = f"{row['n_members']} members and {row['n_nonmembers']} non-members"
        return (
            f"{row['name']} under the {name} control has AUC {estimate(auc.value, auc.together)} "
            f"on {sizes}; a guess has 0.5."
        )
    if code == "collapsed":
        return "The model's outputs for different images are almost equal; see Utility below."
    return "Nothing was measured on a trained model."
