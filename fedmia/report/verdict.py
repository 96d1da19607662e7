"""One plain sentence and its code. Every judgement rests on simultaneous intervals."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records import LOSS_BEFORE
from fedmia.records.attack_rows import AttackRow, AucRow, PairedRow
from fedmia.records.client_rows import KnownAuc, known_auc, rows_with_auc
from fedmia.records.rows import Controls, control_sets
from fedmia.report.format import model_of

NO_VERDICT = "no-verdict"  # of a run that ended before its first round
UNSOUND = ("shift", "control-failed")  # codes under which no attack says a thing of training
ScoredRows = Sequence[tuple[AttackRow, KnownAuc]]  # attacks whose AUC is known


def verdict(
    attacks: Sequence[AttackRow],
    controls: Controls,
    paired: Sequence[PairedRow],
    pretrain: str,
    interrupted: int | None,
    collapsed: str | None = None,
    failure: str | None = None,
) -> tuple[str, str]:
    """(sentence, code) of a run.

    Codes: `no-verdict` (the run ended before its first round, so its model is untrained), `shift`
    (pixels alone tell members apart), `control-failed`, `leaks`, `collapsed` (no leak, of an
    encoder that gives all images one output), `not-established`, tried in this order.

    Args:
        attacks: rows of the attacks.
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
    core, code = _decide(rows_with_auc(attacks), controls, paired)
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


def _decide(scored: ScoredRows, controls: Controls, paired: Sequence[PairedRow]) -> tuple[str, str]:
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
    if not scored:
        return "No leakage established: no attack was scored", "not-established"
    strongest = strongest_leak(scored)
    if strongest is None:
        return _no_leak_sentence(scored) + _reversed_clause(scored), "not-established"
    row, auc = strongest
    server = row["threat"]["vantage"] == "server"
    what = "The clients' updates leak" if server else "The encoder leaks"
    return (
        f"{what} membership: {row['name']} separates members from non-members "
        f"with {numbers(row, auc, model_of(row))}"
        + _paired_clause(paired)
        + _reversed_clause(scored),
        "leaks",
    )


def numbers(row: AucRow, auc: KnownAuc, model: str = "") -> str:
    """`AUC 0.64 [0.55, 0.72] (simultaneous 95 % interval; 112 members, 500 non-members)`.

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
    return f"AUC {auc.value:.2f} [{low:.2f}, {high:.2f}] (simultaneous 95 % interval; {n})"


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
    """The attack of highest AUC whose simultaneous interval lies over 0.5."""
    leaks = [(row, auc) for row, auc in scored if auc.together[0] > 0.5]
    return max(leaks, key=lambda f: f[1].value, default=None)


def _no_leak_sentence(scored: ScoredRows) -> str:
    row, auc = max(scored, key=lambda f: f[1].value)
    values = numbers(row, auc, model_of(row))
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
