"""One plain sentence and its code. Every judgement rests on simultaneous intervals.

That anything leaks is one family of one-sided tests: attacks, each against 0.5 and against its own
control, and attacks on whole data sets. The least p-value decides, so Holm's correction gives the
code that Bonferroni's limits, which stand in the report, give. Controls, pixels and paired
differences are a second family, of two-sided intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records import LOSS_BEFORE
from fedmia.records.attack_rows import AttackRow, AucRow, PairedRow
from fedmia.records.client_rows import InferenceRow, KnownAuc, known_auc, rows_with_auc
from fedmia.records.rows import Controls, control_sets
from fedmia.report.datasets import detected
from fedmia.report.format import model_of
from fedmia.report.paired import statement

NO_VERDICT = "no-verdict"  # of a run that ended before its first round
UNCONTROLLED = "no control on the same images rules out that the images differ by themselves"
LEAKS = ("leaks", "leaks-uncontrolled")  # codes under which attacks tell members apart
UNSOUND = ("shift", "control-failed")  # codes under which no attack says a thing of training
ScoredRows = Sequence[tuple[AttackRow, KnownAuc]]  # attacks whose AUC is known


def verdict(
    attacks: Sequence[AttackRow],
    inferences: Sequence[InferenceRow],
    controls: Controls,
    paired: Sequence[PairedRow],
    pretrain: str,
    interrupted: int | None,
    collapsed: str | None = None,
    failure: str | None = None,
) -> tuple[str, str]:
    """(sentence, code) of a run.

    Codes: `no-verdict` (the run ended before its first round, so its model is untrained), `shift`
    (pixels alone tell members apart), `control-failed`, `leaks`, `leaks-uncontrolled` (a leak for
    which no attack has a control on the same images), `collapsed` (no leak, of an encoder that
    gives all images one output), `not-established`, tried in this order.

    Args:
        attacks: rows of the attacks.
        inferences: rows of the attacks on whole data sets.
        controls: rows of the controls.
        paired: rows of the paired differences.
        pretrain: how the encoder was pre-trained; `pooled` showed the server all images.
        interrupted: last round of a run that did not end; None of a finished one.
        collapsed: how it shows that the encoder has collapsed, None where it has not.
        failure: why the run ended after round `interrupted`, None where the user ended it.

    Returns:
        The sentence and its code.
    """
    if interrupted == 0:
        how = "was interrupted" if failure is None else "ended"
        why = "" if failure is None else f", since {failure}"
        sentence = f"No verdict: the run {how} before its first round was finished{why}"
        return f"{sentence}; the model is untrained.", NO_VERDICT
    core, code = _decide(rows_with_auc(attacks), inferences, controls, paired)
    if collapsed is not None and code == "not-established":
        sentence = (
            f"The encoder has collapsed, so the result says nothing about its training: {collapsed}"
        )
        core, code = f"{sentence}; {core[0].lower()}{core[1:]}", "collapsed"
    tail = ""
    if collapsed is not None and code != "collapsed":
        tail += f"; the encoder has collapsed: {collapsed}"
    if pretrain == "pooled":
        tail += "; pre-training was pooled, so the server had seen all private images"
    if interrupted is not None:
        how = "was interrupted" if failure is None else "ended"
        tail += f"; the run {how} after round {interrupted}"
    if failure is not None:
        tail += f", since {failure}"
    return f"{core}{tail}.", code


def excludes_half(auc: KnownAuc) -> bool:
    """Whether the simultaneous interval of this AUC leaves out 0.5, on either side."""
    return not auc.together[0] <= 0.5 <= auc.together[1]


def leaks(row: AttackRow) -> bool:
    """Whether an attack's AUC lies over 0.5 and over that of its own control, where it has one."""
    ci, over = row["auc_ci_simultaneous"], row.get("over_control")
    return ci is not None and ci[0] > 0.5 and (over is None or over["ci"][0] > 0)


def detecting(inferences: Sequence[InferenceRow]) -> InferenceRow | None:
    """The first attack on whole data sets that detects one."""
    return next((row for row in inferences if detected(row)), None)


def _decide(
    scored: ScoredRows, inferences: Sequence[InferenceRow], controls: Controls,
    paired: Sequence[PairedRow],
) -> tuple[str, str]:  # fmt: skip
    pixels = controls["pixels"]
    alone = None if pixels is None else known_auc(pixels)
    if pixels is not None and alone is not None and excludes_half(alone):
        return (
            "Shift between the sets; leakage not established: a classifier on raw pixels, without "
            f"the model, separates members from non-members with {numbers(pixels, alone)}",
            "shift",
        )
    failed = failed_control(controls)
    if failed is not None:
        name, row, auc = failed
        return (
            f"Control failed; leakage not established: {row['name']} under the {name} control, "
            f"where there is nothing to leak, has {numbers(row, auc)}, which excludes 0.5",
            "control-failed",
        )
    strongest, sets = strongest_leak(scored), detecting(inferences)
    controlled = (
        strongest is not None
        and "over_control" in strongest[0]
        or any(c["p_value_untrained"] is not None for row in inferences for c in detected(row))
    )
    code = LEAKS[not controlled]
    doubt = "" if controlled else f", but {UNCONTROLLED}"
    if strongest is not None:
        row, auc = strongest
        server = row["threat"]["vantage"] == "server"
        what = "The clients' updates leak" if server else "The encoder leaks"
        return (
            f"{what} membership{doubt}: {row['name']} separates members from non-members "
            f"with {numbers(row, auc, model_of(row))}"
            + _paired_clause(paired)
            + _reversed_clause(scored),
            code,
        )
    if sets is not None:
        answer = f"{sets['statement'][0].lower()}{sets['statement'][1:]}"
        return f"The encoder leaks membership{doubt}: by {sets['attack']}, {answer}", code
    if not scored:
        what = "detected a data set" if inferences else "was scored"
        return f"No leakage established: no attack {what}", "not-established"
    return _no_leak_sentence(scored) + _reversed_clause(scored), "not-established"


def numbers(row: AucRow, auc: KnownAuc, model: str = "") -> str:
    """`AUC 0.64 [0.55, 0.72] (simultaneous 95 % limits; 112 members, 500 non-members)`.

    Args:
        row: of the attack or control.
        auc: its AUC and intervals.
        model: which model was scored, in words.

    Returns:
        The text.
    """
    low, high = auc.together
    sizes = f"{row['n_members']} members, {row['n_nonmembers']} non-members"
    n = f"{sizes}; {model}" if model else sizes
    return f"AUC {auc.value:.2f} [{low:.2f}, {high:.2f}] (simultaneous 95 % limits; {n})"


def failed_control(controls: Controls) -> tuple[str, AttackRow, KnownAuc] | None:
    """(set name, row, AUC) of the control farthest from 0.5 among those that exclude it."""
    failed = [
        (name, row, auc)
        for name, rows in control_sets(controls).items()
        for row, auc in rows_with_auc(rows)
        if excludes_half(auc)
    ]
    return max(failed, key=lambda f: abs(f[2].value - 0.5), default=None)


def strongest_leak(scored: ScoredRows) -> tuple[AttackRow, KnownAuc] | None:
    """The attack of highest AUC among those that leak, one with a control before one without."""
    leaking = [(row, auc) for row, auc in scored if leaks(row)]
    return max(leaking, key=lambda f: ("over_control" in f[0], f[1].value), default=None)


def _no_leak_sentence(scored: ScoredRows) -> str:
    row, auc = max(scored, key=lambda f: (f[1].together[0] > 0.5, f[1].value))
    values = numbers(row, auc, model_of(row))
    if auc.together[0] > 0.5:
        over = row["over_control"]
        control = f"its {over['control']} control on the same images"
        added = statement(row["name"], control, over["difference"], over["ci"])
        return f"No leakage established: {row['name']} has {values}, but {added}"
    if len(scored) == 1:
        return f"No leakage established: {row['name']} has {values}, which does not lie over 0.5"
    return (
        f"No leakage established: none of the simultaneous intervals of {len(scored)} attacks lies "
        f"over 0.5; {row['name']} is the highest, with {values}"
    )


def _reversed_clause(scored: ScoredRows) -> str:
    turned = [row["name"] for row, auc in scored if auc.together[1] < 0.5]
    if not turned:
        return ""
    verb = "is" if len(turned) == 1 else "are"
    return f"; {', '.join(turned)} {verb} reversed (interval under 0.5: members score lower)"


def _paired_clause(paired: Sequence[PairedRow]) -> str:
    rows = [p for p in paired if p["difference"] is not None and p["control"] != LOSS_BEFORE]
    return f"; {rows[0]['statement']}" if rows else ""
