"""Scores that no number may be made of are refused before any is."""

from __future__ import annotations

import numpy as np

from fedmia.results import FloatArray, RunScores, ScoredAttack


def check(run: RunScores) -> None:
    """Refuse scores that no number may be made of, so that a broken attack cannot pass in silence.

    Raises:
        ValueError: naming the attack: a score that is not finite, a wrong shape, two listed
            attacks of one name, or scores that do not align with the images.
    """
    names = [a.name for a in run.attacks]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"attack '{name}' is listed {names.count(name)} times")
    n, m = len(run.member_ids), len(run.nonmember_ids)
    for what, held, size in (
        ("member_client", len(run.member_client), n),
        ("member_labels", len(run.member_labels), n),
        ("nonmember_labels", len(run.nonmember_labels), m),
    ):
        if held != size:
            raise ValueError(f"{what} holds {held} entries for {size} images")
    for attack in run.attacks:
        _check_attack(attack, f"attack '{attack.name}'", n, m)
    for attack in run.batches:
        _check_attack(attack, f"batches of '{attack.name}'", None, None)
    for label, listed in run.controls.items():
        for attack in listed:
            # A placebo federation is scored on the same images, but need not score every one.
            _check_attack(attack, f"{label} control of attack '{attack.name}'", None, None)
    for pair in run.pairs:
        name = pair.attack.name
        _check_attack(pair.attack, f"attack '{name}'", n, m)
        _check_attack(pair.control, f"control '{pair.control.name}' of attack '{name}'", n, m)
    if run.pixels is not None:
        for side, array in zip(("members", "non-members"), run.pixels, strict=True):
            _check_array(np.asarray(array), f"pixels: scores of {side}", None)


def _check_attack(attack: ScoredAttack, where: str, n: int | None, m: int | None) -> None:
    if attack.unit not in ("image", "batch"):
        raise ValueError(f"{where}: unit must be image or batch, got '{attack.unit}'")
    by_image = attack.unit == "image"
    _check_array(attack.scores_members, f"{where}: scores of members", n if by_image else None)
    _check_array(
        attack.scores_nonmembers, f"{where}: scores of non-members", m if by_image else None
    )
    if attack.named_members is not None and attack.named_members.shape != (
        len(attack.scores_members),
    ):
        raise ValueError(
            f"{where}: {attack.named_members.shape} clients named for "
            f"{len(attack.scores_members)} members"
        )
    _check_by_client(attack, where)
    _check_array(attack.known_members, f"{where}: scores of known members", None)
    _check_array(attack.known_nonmembers, f"{where}: scores of known non-members", None)


def _check_by_client(attack: ScoredAttack, where: str) -> None:
    ids = attack.client_ids
    if ids is not None and (ids.ndim != 1 or len(set(ids.tolist())) != ids.size):
        raise ValueError(f"{where}: client_ids {ids.tolist()} are no list of distinct clients")
    for side, scores, n in (
        ("members", attack.by_client_members, len(attack.scores_members)),
        ("non-members", attack.by_client_nonmembers, len(attack.scores_nonmembers)),
    ):
        if (ids is None) != (scores is None):
            raise ValueError(f"{where}: client_ids and scores of {side} by client go together")
        if ids is None or scores is None:
            continue
        if scores.shape != (n, len(ids)):
            raise ValueError(
                f"{where}: scores of {side} by client: shape {scores.shape}, expected "
                f"({n}, {len(ids)})"
            )
        _check_array(scores.ravel(), f"{where}: scores of {side} by client", None)


def _check_array(array: FloatArray, where: str, size: int | None) -> None:
    if array.ndim != 1 or (size is not None and len(array) != size):
        expected = "(n,)" if size is None else f"({size},)"
        raise ValueError(f"{where}: shape {array.shape}, expected {expected}")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise ValueError(f"{where}: {bad} of {len(array)} are not finite")
