"""Scores that no number may be made of are refused before any is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedmia.records import FloatArray, RunScores, ScoredAttack, SetScores


def check(run: RunScores) -> None:
    """Let no broken attack pass in silence.

    Raises:
        ValueError: naming the attack: a score that is not finite, a wrong shape, two listed
            attacks of one name, or scores that do not align with the images.
    """
    names = [a.name for a in run.attacks]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"attack '{name}' is listed {names.count(name)} times")
    n, m = len(run.member_ids), len(run.nonmember_ids)
    for what, size in (("member_client", n), ("member_labels", n), ("nonmember_labels", m)):
        length = len(getattr(run, what))
        if length != size:
            raise ValueError(f"{what} holds {length} entries for {size} images")
    for where, attack, aligned in _each_attack(run):
        _check_attack(attack, where, n if aligned else None, m if aligned else None)
    for sets in run.sets:
        _check_sets(sets)
    for side, array in zip(("members", "non-members"), run.pixels or (), strict=False):
        _check_array(np.asarray(array), f"pixels: scores of {side}")


def _each_attack(run: RunScores) -> Iterator[tuple[str, ScoredAttack, bool]]:
    """(what it is, scores, whether they align with the images) of all that is scored."""
    for attack in run.attacks:
        yield f"attack '{attack.name}'", attack, True
    for label, listed in run.controls.items():
        for attack in listed:
            # A placebo federation is scored on the same images, but need not score every one.
            yield f"{label} control of attack '{attack.name}'", attack, False
    for pair in run.pairs:
        where = f"attack '{pair.attack.name}'"
        yield where, pair.attack, True
        yield f"control '{pair.control.name}' of {where}", pair.control, True
    for point in run.sweep.points if run.sweep else ():
        if point.scored is not None:
            yield f"attack '{point.attack}' at {point.value}", point.scored, True


def _check_attack(attack: ScoredAttack, where: str, n: int | None, m: int | None) -> None:
    ids, named_clients = attack.client_ids, attack.named_members
    members = len(attack.scores_members)
    if named_clients is not None and named_clients.shape != (members,):
        raise ValueError(f"{where}: {named_clients.shape} clients named for {members} members")
    if ids is not None and (ids.ndim != 1 or len(set(ids.tolist())) != ids.size):
        raise ValueError(f"{where}: client_ids {ids.tolist()} are no list of distinct clients")
    by_client = attack.by_client_members, attack.by_client_nonmembers
    for side, scores, size, known, apart in (
        ("members", attack.scores_members, n, attack.known_members, by_client[0]),
        ("non-members", attack.scores_nonmembers, m, attack.known_nonmembers, by_client[1]),
    ):
        _check_array(scores, f"{where}: scores of {side}", size)
        _check_array(known, f"{where}: scores of known {side}")
        what = f"scores of {side} by client"
        if (ids is None) != (apart is None):
            raise ValueError(f"{where}: client_ids and {what} go together")
        if ids is not None and apart is not None:
            if apart.shape != (expected := (len(scores), len(ids))):
                raise ValueError(f"{where}: {what}: shape {apart.shape}, expected {expected}")
            _check_array(apart.ravel(), f"{where}: {what}")


def _check_sets(sets: SetScores) -> None:
    where = f"sets of '{sets.attack}' judged {sets.judged}"
    for side, scores, size, beside in (
        ("members", sets.members, len(sets.members), sets.control_members),
        ("non-members", sets.nonmembers, len(sets.nonmembers), sets.control_nonmembers),
    ):
        _check_array(scores, f"{where}: scores of {side}")
        if (sets.control is None) != (beside is None):
            raise ValueError(f"{where}: a control and its scores of {side} go together")
        if beside is not None:
            _check_array(beside, f"{where}: its control's scores of {side}", size)


def _check_array(array: FloatArray, where: str, size: int | None = None) -> None:
    if array.ndim != 1 or (size is not None and len(array) != size):
        expected = "(n,)" if size is None else f"({size},)"
        raise ValueError(f"{where}: shape {array.shape}, expected {expected}")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise ValueError(f"{where}: {bad} of {len(array)} are not finite")
