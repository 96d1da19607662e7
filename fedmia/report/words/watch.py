"""What a watch of a federation sees, and why it stops one, in words: lines of the log."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.report.words.numbers import estimate, number
from fedmia.statistics.auc import AucEstimate, auc_interval

BY_THEMSELVES = "nobody trained this model, so members and others differ by themselves"
NO_BOUND = "rehearsal: without stop_above nothing is stopped"


def look(attack: str, round: int, measured: AucEstimate, decisive: AucEstimate, rest: str) -> str:
    """`round 5: similarity AUC 0.61 [..]`, of a rehearsal what stands in its place, too.

    Args:
        attack: its name.
        round: after which the model was looked at.
        measured: its AUC.
        decisive: the AUC that decides: the same, or a rehearsed one.
        rest: what follows from it.

    Returns:
        The line.
    """
    text = f"AUC {_auc(decisive)}"
    if decisive is not measured:
        text = f"rehearsal: {text} in place of {_auc(measured)}"
    return f"round {round}: {attack} {text}{rest}"


def of_bound(look: int, planned: int, limit: float, bound: float | None) -> str:
    """`; look 2 of 20: at least 0.551, stops above 0.6`."""
    return f"; look {look} of {planned}: at least {number(limit, 3)}, stops above {bound}"


def looks_over(planned: int) -> str:
    """That no further look stops a federation."""
    return f"; the {planned} planned looks are over: nothing is stopped any more"


def stop(attack: str, round: int, bound: float | None, error: float) -> str:
    """Why the federation stops.

    Args:
        attack: its name.
        round: after which it stops.
        bound: over which the lower limit of the AUC lies.
        error: of all looks together.

    Returns:
        The line.
    """
    return (
        f"the federation stops after round {round}: the AUC of {attack} is over {bound} (the error "
        f"of all looks is at most {error:g})"
    )


def rehearsed_stop(
    round: int, measured: AucEstimate, decisive: AucEstimate, limit: float, bound: float | None
) -> str:
    """That a rehearsal stops the federation, and what would have become of it.

    Args:
        round: after which it stops.
        measured: the AUC of the model.
        decisive: the rehearsed one.
        limit: the lower limit of what was measured.
        bound: over which a limit stops.

    Returns:
        The line.
    """
    alone = "stop here, too" if limit > (bound or 0) else "go on"
    return (
        f"rehearsal, AUC {number(decisive.value, 3)} in place of {number(measured.value, 3)}: the "
        f"federation stops after round {round}; without the rehearsal it would {alone} (at least "
        f"{number(limit, 3)}, stops above {bound})"
    )


def rehearsal(auc: float, limits: Sequence[float], stops: int) -> str:
    """At how many of the planned looks a rehearsed AUC would stop the federation.

    Args:
        auc: the rehearsed one.
        limits: its lower limit at each planned look.
        stops: how many of these lie over the bound.

    Returns:
        The line.
    """
    few = ": they are too few; take more images, or plan fewer looks"
    return (
        f"rehearsal: with so many images an AUC of {number(auc, 3)} stops the federation at "
        f"{stops} of the {len(limits)} planned looks (at least {number(limits[0], 3)} at the "
        f"first, {number(limits[-1], 3)} at the last){few * (stops < len(limits))}"
    )


def none_looked_at(every: int, rounds: int) -> str:
    """That the first look was never due.

    Args:
        every: a look after every so many rounds.
        rounds: whose models were seen.

    Returns:
        The line.
    """
    return (
        f"every={every} is more than the {rounds} rounds whose models were seen: no trained model "
        "was looked at"
    )


def _auc(one: AucEstimate) -> str:
    """The AUC with its interval."""
    return estimate(one.value, auc_interval(one), 3)
