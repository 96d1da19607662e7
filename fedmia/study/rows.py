"""The rows of a study's tables: numbers over the models of a point, one a seed.

Each field is declared once (`fedmia.records.fields`): heads of columns with what they say, digits
and signs are made of the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmia.records.attack_rows import Interval
from fedmia.records.fields import (
    COUNT,
    PURE,
    P,
    fact,
    interval,
    nested,
    number,
)

SeedValues = Mapping[int, float | str]  # a number; of a void run the reason
DIGITS = 3  # behind the point, of numbers over models
SPREAD_BY, TEST_BY = "statistics.spread.spread", "statistics.spread.p_value"
KNN = "Accuracy of a nearest-neighbour probe, near images counted more"
EXCESS = "its difference to the undefended federation, at equal seeds"


@dataclass(frozen=True, kw_only=True)
class OverModels:
    """A number over the models of a point that count; of one encoder over its audits."""

    n: int = number("trained models that have it, one a seed", COUNT, head="models")
    mean: float | None = number("over these models; null: none has it", PURE, SPREAD_BY)
    ci: Interval | None = interval("mean")
    ci_simultaneous: Interval | None = interval(
        "mean", help="95 % interval that holds together with others; null where there is none"
    )
    sd: float | None = number("standard deviation between models", PURE, SPREAD_BY)
    least: float | None = number(
        "smallest value of the models", PURE, SPREAD_BY, head="least", digits=DIGITS
    )
    greatest: float | None = number(
        "largest value of the models", PURE, SPREAD_BY, head="greatest", digits=DIGITS
    )
    void: str = fact("how many models are left out, and why: `1 of 3 void: collapsed`; or empty")


@dataclass(frozen=True, kw_only=True)
class PointRow:
    """One combination of the options that vary."""

    point: str = fact("one combination of the options that vary", head="point")
    verdicts: dict[str, int] = fact("how many runs have which verdict", head="verdicts")
    finished: int = number("trained models, one a seed", COUNT, head="models")
    failed: int = number("runs that failed", COUNT, head="failed")
    void: str = fact("how many finished runs say nothing, and why; or empty")
    knn: OverModels = nested(KNN, head="weighted kNN, 95 %", digits=DIGITS)
    linear: OverModels = nested(
        "accuracy of a linear classifier on the encoder's outputs",
        head="linear probe, 95 %",
        digits=DIGITS,
    )
    knn_after_attack: OverModels = nested(
        "kNN accuracy of the last model, after the crafted updates",
        head="kNN after the attack, 95 %",
        digits=DIGITS,
    )


@dataclass(frozen=True, kw_only=True)
class AttackPointRow:
    """An attack at a point."""

    point: str = fact("one combination of the options that vary", head="point")
    attack: str | None = fact(
        "a method that guesses whether an image was used for training; null: none", head="attack"
    )
    auc: OverModels = nested(
        "how often it ranks a random member over a random non-member (0.5: guessing): mean over "
        "models, with its 95 % interval",
        head="mean AUC, 95 %",
        digits=DIGITS,
    )
    by_seed: SeedValues = fact("the AUC of each model, one a seed", head="by seed", digits=DIGITS)
    tpr: OverModels = nested(
        "share of members found where 1 of 100 non-members is taken for a member; guessing: 0.01",
        head="TPR at 1 % FPR, 95 %",
        digits=DIGITS,
    )
    verdicts: dict[str, int] = fact("how many runs have which verdict", head="verdicts")
    knn: OverModels = nested(KNN, head="weighted kNN, 95 %", digits=DIGITS)
    choices: dict[str, int] = fact(
        "options that the attack chose for itself, and on how many models", head="chosen"
    )
    controls: dict[str, OverModels] = nested(
        "mean AUC of the same attack where nothing, or less, can leak, by control", digits=DIGITS
    )
    last: str | None = fact("the encoder that it is compared with; null: none")
    difference: OverModels | None = nested(
        "the AUC less that on the last encoder, with its intervals alone and together with those "
        "of all differences of the page; null: it is the last, or has no images in common",
        head="minus the last encoder, 95 %",
        digits=DIGITS,
        signed=True,
    )


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """What an attack has over another one, or over a control of it, at equal seeds."""

    point: str = fact("one combination of the options that vary", head="point")
    attack: str = fact(
        "a method that guesses whether an image was used for training", head="attack"
    )
    other: str | None = fact("what the attack is compared with; null: nothing", head="control")
    measure: str = fact("AUC, or TPR at a false-positive rate", head="measure")
    judged: str | None = fact(
        "how a set of images gets one score: the `mean` of its images' scores, or `alone`, from "
        "an ascent on it by itself; null: no sets",
        head="score of a set",
    )
    size: int | None = number("images of each set; null: no sets", COUNT, head="images a set")
    auc: OverModels | None = nested(
        "of the attack on the sets; null: no sets", head="mean AUC, 95 %", digits=DIGITS
    )
    by_seed: SeedValues = fact("difference of each model")
    difference: OverModels = nested(
        "the attack's less that of the other: mean over models at equal seeds, with its 95 % "
        "interval",
        head="difference, 95 %",
        digits=DIGITS,
        signed=True,
    )
    p: float | None = number(
        "chance of so large a difference if there were none; null: no test", P, TEST_BY, head="p"
    )
    p_holm: float | None = number(
        "the p-value, corrected for all that are tested together; null: no test",
        P,
        "statistics.pvalues.holm",
        head="p, Holm",
    )


@dataclass(frozen=True, kw_only=True)
class OptionRow:
    """Two points that differ in one option, at equal seeds: the second less the first."""

    option: str = fact("the option in which the two points differ", head="option")
    first: str = fact("its value at the first of the two", head="from")
    second: str = fact("its value at the second of the two", head="to")
    where: str = fact("what both points have in common", head="where")
    measure: str = fact("what was measured", head="of")
    attack: str = fact(
        "a method that guesses whether an image was used for training; empty: of no attack",
        head="attack",
    )
    difference: OverModels = nested(
        "mean over models of the second less the first, at equal seeds, with its 95 % interval",
        head="mean difference, 95 %",
        digits=DIGITS,
        signed=True,
    )


@dataclass(frozen=True, kw_only=True)
class EncoderPointRow(PointRow):
    """An encoder over the seeds of its audits."""

    point: str = fact("the encoder that was audited", head="encoder")
    run: str = fact("the run, or the file, that it is of")
    round: int | None = fact("of the run; null: of no run")
    n_members: int | None = number("scored members", COUNT, head="members")
    n_nonmembers: int | None = number("scored non-members", COUNT, head="non-members")
    n_probe: int | None = number("images on which the probe was tested", COUNT, head="test images")
    knn_untrained: OverModels = nested(
        "kNN accuracy of the encoder before training", head="untrained kNN, 95 %", digits=DIGITS
    )
    sets: str = fact(
        "chance of so high a score without training on the data set, corrected for all tests",
        head="data set, p",
    )
    attacks: dict[str, AttackPointRow] = nested("the attacks by name")


@dataclass(frozen=True, kw_only=True)
class DefencePointRow(PointRow):
    """A defence at one strength: what leaks, what use is left, and whether it is chosen."""

    point: str = fact(
        "what the clients, or the server, do against leakage, and how strongly", head="defence"
    )
    defense: str = fact("its name, `none` of the undefended federation")
    strength: Any = fact("in its own unit; null: it has none")
    epsilon: float | None = number("the largest of any defended client", PURE)
    standing: str | None = fact("`guaranteed`, `heuristic`, ..; null: no epsilon is stated")
    unit: str | None = fact("for what it holds: `image`, `client`")
    guarantee: str = fact(
        "limit of leakage over the whole run; smaller is stronger, over 20 means little",
        head="epsilon at most",
    )
    attacks: dict[str, AttackPointRow] = nested("the attacks by name")
    best: str | None = fact("the attack with the largest mean AUC; null: none", head="best attack")
    leak: AttackPointRow = nested("of the best attack")
    knn_by_seed: SeedValues = fact("weighted kNN of each model")
    auc_change: OverModels | None = nested(
        f"the AUC of the best attack: {EXCESS}; null: it is the undefended one",
        head="AUC minus undefended, 95 %",
        digits=DIGITS,
        signed=True,
    )
    knn_change: OverModels | None = nested(
        f"weighted kNN: {EXCESS}; null: it is the undefended one",
        head="kNN minus undefended, 95 %",
        digits=DIGITS,
        signed=True,
    )
    knn_over_untrained: OverModels = nested(
        "weighted kNN less that of the untrained encoder, at equal seeds",
        head="kNN minus untrained, 95 %",
        digits=DIGITS,
        signed=True,
    )
    defended: OverModels | None = nested(
        "AUC of the best attack on the images of clients that defend themselves; null where all "
        "or none do",
        head="mean AUC of defended clients, 95 %",
        digits=DIGITS,
    )
    undefended: OverModels | None = nested(
        "AUC on the images of clients that do not; likewise",
        head="mean AUC of undefended clients, 95 %",
        digits=DIGITS,
    )
    group_difference: OverModels | None = nested(
        "the first less the second, at equal seeds; likewise",
        head="difference, 95 %",
        digits=DIGITS,
        signed=True,
    )
    front: bool = fact("whether no other point leaks less and is of more use", head="Pareto front")
    candidate: bool = fact(
        "whether it keeps enough kNN, and no run of it failed or is void, so that it may be chosen"
    )
    choice: str = fact(
        "`least`: of the candidates it leaks least; `alike`: it cannot be told from that one; or "
        "empty"
    )
    chosen: bool = fact("whether it is one of these, and seeds tell all of them from no defence")
    spare: OverModels | None = nested(
        "kNN of the least leaking one over the least that is kept, at equal seeds; null of others"
    )
