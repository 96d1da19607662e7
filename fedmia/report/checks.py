"""Scores that no number may be made of are refused before any is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedmia.records import Evaluation, ScoredAttack

Expected = tuple[str, Any, tuple[int, ...]]  # what it is, an array, the shape that it must have


def check(run: Evaluation) -> None:
    """Let no broken attack pass in silence.

    Raises:
        ValueError: naming the attack: a score that is not finite, a wrong shape, two listed
            attacks of one name, or scores that do not align with the images.
    """
    names = [a.name for a in run.attacks]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"attack '{name}' is listed {names.count(name)} times")
    for what, array, shape in _arrays(run):
        if array.shape != shape:
            raise ValueError(f"{what}: shape {array.shape}, expected {shape}")
        if bad := int(np.count_nonzero(~np.isfinite(array))):
            raise ValueError(f"{what}: {bad} of {array.size} are not finite")


def _arrays(run: Evaluation) -> Iterator[Expected]:
    """Truth and scores of all that is scored."""
    n, m = len(run.member_ids), len(run.nonmember_ids)
    yield "member_client", run.member_client, (n,)
    yield "member_labels", run.member_labels, (n,)
    yield "nonmember_labels", run.nonmember_labels, (m,)
    for attack in run.attacks:
        yield from _of_attack(attack, f"attack '{attack.name}'", n, m)
    for label, listed in run.controls.items():
        for attack in listed:
            # A placebo federation is scored on the same images, but need not score every one.
            where = f"{label} control of attack '{attack.name}'"
            yield from _of_attack(attack, where, *map(len, attack.sides))
    for pair in run.pairs:
        where = f"attack '{pair.attack.name}'"
        yield from _of_attack(pair.attack, where, n, m)
        yield from _of_attack(pair.control, f"control '{pair.control.name}' of {where}", n, m)
    for point in run.sweep:
        if point.scored is not None:
            yield from _of_attack(point.scored, f"attack '{point.attack}' at {point.value}", n, m)
    for sets in run.sets:
        where = f"sets of '{sets.attack}' judged {sets.judged}: scores of"
        for side in ("members", "nonmembers"):
            scores = getattr(sets, side)
            yield f"{where} {side}", scores, (len(scores),)
            for name, both in sets.controls.items():
                yield f"{where} {side}, by {name}", both[side == "nonmembers"], (len(scores),)
    for side, scores in zip(("members", "nonmembers"), run.pixels or (), strict=False):
        yield f"pixels: scores of {side}", scores, (len(scores),)


def _of_attack(attack: ScoredAttack, where: str, n: int, m: int) -> Iterator[Expected]:
    """Its scores of `n` members and `m` non-members, and what it says of clients."""
    ids = np.zeros(0) if attack.client_ids is None else attack.client_ids
    yield f"{where}: distinct client_ids", np.unique(ids), ids.shape
    if attack.named_members is not None:
        yield f"{where}: clients named", attack.named_members, (n,)
    for side, size in (("members", n), ("nonmembers", m)):
        scores, known, by_client = (
            getattr(attack, f"{name}_{side}") for name in ("scores", "known", "by_client")
        )
        yield f"{where}: scores of {side}", scores, (size,)
        yield f"{where}: scores of known {side}", known, (len(known),)
        if by_client is not None:
            yield f"{where}: scores of {side} by client", by_client, (size, len(ids))
