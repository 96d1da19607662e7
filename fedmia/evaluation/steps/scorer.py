"""One attack through one view: fitted on known images, scored on others in an order of content."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import FOLDS, Attack, Known
from fedmia.data.images import digests, rank_digests
from fedmia.data.sets import ImageSets, form_sets
from fedmia.records import ScoredAttack
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.threat import BlackBox, WhiteBox, require

Sides = tuple[np.ndarray, np.ndarray]  # of members, of non-members


class Scorer:
    """Fits and scores attacks on one set of images.

    Args:
        known: images whose membership the attacker knows, apart from the others.
        members, nonmembers: uint8 (N, C, H, W), (M, C, H, W) images to score.
        seed: root of the fits and the folds.
        build: name -> a fresh attack.
        formed: sets of the images, where they were formed before.
        subjects: of members and of non-members, such as patients; None: each image is its own.
    """

    def __init__(
        self, known: Known, members: Tensor, nonmembers: Tensor, seed: int,
        build: Callable[[str], Attack], formed: ImageSets | None = None,
        subjects: Sides | None = None,
    ) -> None:  # fmt: skip
        self.known, self.seed, self.build, self.subjects = known, seed, build, subjects
        self.members, self.nonmembers, self._formed = members, nonmembers, formed
        both = torch.cat([members, nonmembers])
        # The order is the same whoever is a member: of a shuffle by a seed the sides can be told.
        order = rank_digests(digests(both.numpy()))
        self._back = np.argsort(order)
        self.candidates = both[order]

    def with_known(self, known: Known | None) -> Scorer:
        """The same for an attacker that knows `known`; None: all that is known."""
        if known is None or known is self.known:
            return self
        other = copy.copy(self)
        other.known = known
        return other

    def with_build(self, build: Callable[[str], Attack]) -> Scorer:
        """The same on attacks that `build` makes of their names."""
        other = copy.copy(self)
        other.build = build
        return other

    def split_sides(self, values: np.ndarray) -> Sides:
        """Values of the candidates as (members', non-members')."""
        ordered = values[self._back]
        return ordered[: len(self.members)], ordered[len(self.members) :]

    @cached_property
    def sets(self) -> ImageSets:
        """Sets of the members and of the non-members."""
        return self._formed or form_sets(len(self.members), len(self.nonmembers), self.seed)

    def score_attack(
        self,
        name: str,
        view: BlackBox,
        sets: ImageSets | None = None,
        threshold: bool = True,
        **more: Any,
    ) -> ScoredAttack:
        """One attack through one view; its queries are those it needs by itself, for images and
        for its threshold.

        Args:
            name: name of the attack, as in the registry.
            view: what the attacker holds of the model.
            sets: to be judged as wholes, where the attack can.
            threshold: also score the known images, to choose a threshold on.
            more: arguments of `ScoredAttack` that are set by the caller.

        Returns:
            The scores of members and of non-members, in the order of the images.

        Raises:
            InputError: the view does not grant what the attack needs, or lacks what it reads.
            BudgetError: its queries exceed the view's budget.
            ValueError: scores that are not finite.
        """
        began = time.perf_counter()
        attack, before = self.build(name), view.queries
        require(view.threat, attack.needs)
        attack.fit(view, self.known, rng(self.seed, "fit", name))
        fitted, fit_queries = time.perf_counter(), view.queries
        scores = attack.score(view, self.candidates)
        scoring = {
            "scoring_queries": view.queries - fit_queries,
            "scoring_seconds": time.perf_counter() - fitted,
        }
        known = np.zeros(0), np.zeros(0)
        threshold = threshold and len(self.known.members) > 0
        # What learns has asked for the known images already, and shadows need none of them.
        with nullcontext() if threshold_asks(attack) else view.unmetered():
            if threshold:
                known = self._known_scores(name, attack, view, scores)
        shared = {
            "paper": attack.paper,
            "access": attack.needs.access,
            "vantage": attack.needs.vantage,
            "act": attack.act,
            "choices": attack.choices,
            "shadow_threshold": attack.shadow_threshold,
            "fitted_on": len(self.known.both()[0]) if attack.learns else 0,
            "queries": view.queries - before,
            "seconds": time.perf_counter() - began,
            **scoring,
            **more,
        }
        if self.subjects is not None:
            shared |= side_fields("subjects", self.subjects)
        label = shared.pop("label", name)
        own = self._row(scores, known)
        own["reading"] = getattr(attack, "reading", "") if attack.readings else ""
        with view.unmetered():
            if (features := attack.features(view, self.candidates)) is not None:
                own |= side_fields("features", self.split_sides(features[1])) | {
                    "feature_names": features[0]
                }
            if (by_client := attack.by_client(view, self.candidates)) is not None:
                ids, columns = by_client[0], self.split_sides(by_client[1].T)  # (K,), (n, K) each
                own |= side_fields("by_client", columns) | {"client_ids": ids}
                own["named_members"] = ids[columns[0].argmax(axis=1)]
            if (without := attack.score_without(view, self.candidates)) is not None:
                shared |= side_fields("twin", self.split_sides(without))
                shared |= {"twins": attack.without}
            set_scores = None if sets is None else self._score_sets(attack, view, sets)
            if set_scores is not None:
                own |= side_fields("sets", set_scores)
            also = []
            for reading, other in attack.other_readings().items():
                read = other.score(view, self.candidates)
                if threshold:
                    known = self._known_scores(name, other, view, read, reading)
                row = self._row(read, known)
                also.append(ScoredAttack(f"{label}-{reading}", reading=reading, **row, **shared))
        return ScoredAttack(label, also=also, **shared, **own)

    def score_layers(
        self, view: WhiteBox, internal: Attack, threshold: bool = True
    ) -> dict[str, ScoredAttack]:
        """Score the `internal` attack on each layer alone, from one pass over all layers.

        Args:
            view: of the model.
            internal: the attack.
            threshold: whether to choose a threshold on the known images.

        Returns:
            The scored attack on each layer, by the layer's name.
        """
        scores = {}
        with view.unmetered():
            for images in (self.known.both()[0], self.candidates):
                view.features(images, view.layers)
        for layer in view.layers:
            one: Any = copy.deepcopy(internal)
            one.layers = (layer,)
            alone = self.with_build(partial(_copy, one))
            scores[layer] = alone.score_attack("internal", view, threshold=threshold)
        return scores

    def _row(self, scores: np.ndarray, known: Sides) -> dict[str, Any]:
        """Fields of the scores of the candidates (N,) and of the known images, all finite."""
        row = side_fields("scores", self.split_sides(scores)) | side_fields("known", known)
        for which, values in row.items():
            bad = int(np.count_nonzero(~np.isfinite(values)))
            if bad:
                raise ValueError(f"{bad} of {len(values)} {which} are not finite")
        return row

    def _score_sets(self, attack: Attack, view: BlackBox, sets: ImageSets) -> Sides | None:
        """What `score_sets` says of the sets of members (S, 2) and of the others (T, 2)."""
        ours, theirs = self.members[sets[0]], self.nonmembers[sets[1]]
        both = torch.cat([ours, theirs])
        for at, one in enumerate(both):
            both[at] = one[rank_digests(digests(one.numpy()))]
        order = rank_digests([digests(one[:1].numpy())[0] for one in both])
        scores = attack.score_sets(view, both[order], self.known)
        if scores is None:
            return None
        ordered = scores[np.argsort(order)]
        return ordered[: len(ours)], ordered[len(ours) :]

    def _known_scores(
        self,
        name: str,
        fitted: Attack,
        view: BlackBox,
        candidate_scores: np.ndarray,
        reading: str = "",
    ) -> Sides:
        """Scores of the known images that choose the threshold: cross-fitted where it learns.

        A refit on fewer images scores on a scale of its own. Its scores of the images left out are
        brought to that of `fitted` at equal quantiles of the candidates, which both have scored,
        `candidate_scores` (N,), without their truth. `reading` is that of `fitted`, where it is not
        the one asked for.
        """
        images, truth = self.known.both()
        if not fitted.learns:
            scores = fitted.score(view, images)
            return scores[truth == 1], scores[truth == 0]
        scores = np.empty(len(images))
        # The deal is by position within each side, so every fold holds both; subjects stay whole.
        alone = tuple(np.arange(n) for n in np.bincount(truth)[::-1])
        of = (np.unique(one, return_inverse=True)[1] for one in self.known.subjects or alone)
        fold = np.concatenate([numbers % FOLDS for numbers in of])
        for k in range(fold.max() + 1):  # fewer known images than folds fill fewer of them
            rest = fold != k
            attack = self.build(name)
            part = Known(images[rest & (truth == 1)], images[rest & (truth == 0)])
            try:
                attack.fit(view, part, rng(self.seed, "fit", name, k))
            except InputError as error:
                raise InputError(
                    f"{error}, with a part of {int(truth.sum())} and "
                    f"{int((truth == 0).sum())} left out to choose the threshold"
                ) from None
            attack = attack.other_readings()[reading] if reading else attack
            own = attack.score(view, self.candidates)
            scores[~rest] = match_scale(attack.score(view, images[~rest]), own, candidate_scores)
        return scores[truth == 1], scores[truth == 0]


def _copy(attack: Attack, name: str) -> Attack:
    """A fresh copy of an attack, whatever it is called."""
    return copy.deepcopy(attack)


def side_fields(name: str, values: Sides) -> dict[str, Any]:
    """The two fields of `ScoredAttack` that hold values of members and of non-members."""
    return {f"{name}_members": values[0], f"{name}_nonmembers": values[1]}


def threshold_asks(attack: Attack) -> bool:
    """Whether the known images are embedded for the sake of the attack's threshold alone."""
    return not attack.learns and attack.shadow_threshold is None


def match_scale(values: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`values` (K,) brought from the scale of `own` (N,) to that of `other` (N,), at equal
    quantiles: ties stay together, in the middle of theirs, and no order is reversed."""
    ends = [np.searchsorted(np.sort(own), values, side=side) for side in ("left", "right")]
    return np.interp(sum(ends) / 2, np.arange(len(other)) + 0.5, np.sort(other))
