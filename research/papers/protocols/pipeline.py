"""One attack on one encoder by a fair protocol, and with departures from it.

Fair: members and non-members are drawn from one source, both are shown whole, the attack is fitted
on known images, and what decides (threshold, last epoch, classifier) is fixed without the images
that are scored. Each switch of SWITCHES changes one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.attacks.encodermi import EncoderMIV
from fedmia.attacks.lpla import LpLA
from fedmia.attacks.sd_mi import SDMI
from fedmia.attacks.similarity import Similarity
from fedmia.seeding import rng
from fedmia.settings.errors import InputError, unknown_name
from fedmia.statistics.auc import auc
from fedmia.statistics.thresholds import best_threshold, decide_at_threshold
from fedmia.threat import BlackBox
from research.papers.protocols.attacks import AnchoredSDMI, PartCropByEpoch
from research.papers.protocols.images import Images, member_views

# Which attack a switch belongs to, if to one alone; what it changes.
SWITCHES: Mapping[str, str] = {
    "views": "members are shown through a random crop and a flip, non-members whole, in fit and "
    "evaluation",
    "epoch": "the epoch of best accuracy on the scored images, in place of the last one",
    "test file": "non-members come from the official test file, known and scored",
    "scored test file": "the scored non-members alone come from the official test file",
    "other source": "non-members come from another data set, known and scored",
    "pairs": "each scored non-member is two images side by side",
    "threshold": "the threshold of best accuracy on the scored images, in place of the known ones",
    "classifier": "the best of three classifiers on the scored images, in place of the first one",
    "anchors": "anchors are drawn from all images that are attacked, in place of known ones",
    "random pixels": "the non-members fitted on are random pixels",
}
KINDS = ("trained", "placebo", "untrained")
CLASSIFIERS = ("lda", "lr", "svm")  # Table IV of the federated paper; the first is the fair choice
Sides = tuple[Scores, Scores]  # of members and of non-members


class Pipeline:
    """The protocols of one encoder.

    Args:
        views: the encoder as `trained`, and before its first step as `untrained`.
        images: of `draw_sides`.
        plan: of the scale; `views` of an image, `crops` of PartCrop, its `epochs`, of which `every`
            so many are looked at; `anchors` and `steps` of SD-MI.
        seed: of the attacks' choices, the same under all switches.
    """

    def __init__(
        self, views: Mapping[str, BlackBox], images: Images, plan: Mapping[str, int], seed: int
    ) -> None:
        self.views, self.images, self.plan, self.seed = views, images, plan, seed
        self._scores_by_epoch = cache(self._partcrop_epochs)
        self._fitted_encodermi = cache(self._fit_encodermi)
        self._attacks: Mapping[str, Callable[..., Sides]] = {
            "partcrop": self._partcrop, "lpla": self._lpla, "sd-mi": self._sd_mi,
            "encodermi-v": self._encodermi, "similarity": self._similarity,
            "similarity-top3": self._top3,
        }  # fmt: skip

    def run(self, attack: str, kind: str, switches: Collection[str] = ()) -> dict[str, float]:
        """Balanced accuracy and AUC of an attack.

        Args:
            attack: one of the attacks of the five papers.
            kind: `trained`: its members against others; `placebo`: the same encoder on images
                that it never saw on both sides; `untrained`: the placebo's images on the encoder
                before its first step.
            switches: of SWITCHES; none: the fair protocol.

        Returns:
            `accuracy` and `auc`.

        Raises:
            InputError: an unknown attack, kind or switch.
        """
        for what, name, names in (
            ("attack", attack, self._attacks), ("kind", kind, KINDS),
            *(("switch", one, SWITCHES) for one in switches),
        ):  # fmt: skip
            if name not in names:
                raise unknown_name(what, name, names)
        sides = self._attacks[attack](kind, frozenset(switches))
        return rates(sides)

    def _sides(self, kind: str, switches: Collection[str]) -> tuple[Known, Tensor, Tensor]:
        """Known images, scored members and scored non-members."""
        known, scored = self.images["members" if kind == "trained" else "unseen"]
        if "views" in switches:
            known, scored = (member_views(side, self.seed) for side in (known, scored))
        source = next((s for s in ("test file", "other source") if s in switches), "others")
        known_others, others = self.images[source]
        if "scored test file" in switches:
            others = self.images["test file"][1]
        if "pairs" in switches:
            others = self.images["pairs"][1]
        return Known(known, known_others[: len(known)]), scored, others

    def _view(self, kind: str) -> BlackBox:
        return self.views["untrained" if kind == "untrained" else "trained"]

    def _draw(self, attack: str) -> np.random.Generator:
        return rng(self.seed, "protocols", attack)

    def _fit_and_score(self, attack: Attack, kind: str, switches: Collection[str]) -> Sides:
        known, members, others = self._sides(kind, switches)
        view = self._view(kind)
        attack.fit(view, known, self._draw(attack.name))
        return attack.score(view, members), attack.score(view, others)

    def _partcrop(self, kind: str, switches: frozenset[str]) -> Sides:
        by_epoch = self._scores_by_epoch(kind, switches - {"epoch"})
        if "epoch" not in switches:
            return by_epoch[-1]
        return max(by_epoch, key=lambda sides: rates(sides)["accuracy"])

    def _partcrop_epochs(self, kind: str, switches: frozenset[str]) -> list[Sides]:
        attack = PartCropByEpoch(
            crops=self.plan["crops"], epochs=self.plan["epochs"], every=self.plan["every"]
        )
        known, members, others = self._sides(kind, switches)
        view = self._view(kind)
        attack.fit(view, known, self._draw("partcrop"))
        both = [attack.score_moments(view, side) for side in (members, others)]
        return list(zip(*both, strict=True))

    def _lpla(self, kind: str, switches: frozenset[str]) -> Sides:
        fitted_on = "random-pixels" if "random pixels" in switches else "held-out"
        return self._fit_and_score(LpLA(nonmembers=fitted_on), kind, switches)

    def _sd_mi(self, kind: str, switches: frozenset[str]) -> Sides:
        attack = SDMI(anchors=self.plan["anchors"], steps=self.plan["steps"])
        if "anchors" in switches:
            known, members, others = self._sides(kind, switches)
            attacked = torch.cat([known.members, known.nonmembers, members, others])
            attack = AnchoredSDMI(attacked, anchors=self.plan["anchors"], steps=self.plan["steps"])
        return self._fit_and_score(attack, kind, switches)

    def _encodermi(self, kind: str, switches: frozenset[str]) -> Sides:
        """Fitted on true members of the trained encoder, whatever it is applied to, as the paper's
        classifiers are fitted on a shadow's."""
        attack = self._fitted_encodermi()
        _, members, others = self._sides(kind, switches)
        return attack.score(self._view(kind), members), attack.score(self._view(kind), others)

    def _fit_encodermi(self) -> EncoderMIV:
        attack = EncoderMIV(views=self.plan["views"], fit_on="known", scale="standard")
        attack.fit(self.views["trained"], self._sides("trained", ())[0], self._draw(attack.name))
        return attack

    def _similarity(self, kind: str, switches: frozenset[str]) -> Sides:
        """Mean cosine less a threshold, which is of the known images in the fair protocol."""
        attack = Similarity(views=self.plan["views"])
        known, members, others = self._sides(kind, switches)
        view = self._view(kind)
        attack.fit(view, known, self._draw("similarity"))
        scored = attack.score(view, members), attack.score(view, others)
        fitted_on = attack.score(view, known.members), attack.score(view, known.nonmembers)
        threshold = best_threshold(*(scored if "threshold" in switches else fitted_on))
        assert threshold is not None
        return scored[0] - threshold, scored[1] - threshold

    def _top3(self, kind: str, switches: frozenset[str]) -> Sides:
        names = CLASSIFIERS if "classifier" in switches else CLASSIFIERS[:1]
        attacks = (
            Similarity(views=self.plan["views"], pairs="top3", classifier=name) for name in names
        )
        results = [self._fit_and_score(attack, kind, switches) for attack in attacks]
        return max(results, key=lambda sides: rates(sides)["accuracy"])


def rates(sides: Sides) -> dict[str, float]:
    """Balanced accuracy of `score > 0`, and the AUC.

    Args:
        sides: scores of members (n,) and non-members (m,).

    Returns:
        `accuracy` and `auc`, in [0, 1].

    Raises:
        InputError: a score is not finite.
    """
    if not all(np.isfinite(side).all() for side in sides):
        raise InputError("an attack gave a score that is no number")
    return {"accuracy": float(decide_at_threshold(*sides, 0.0)["accuracy"]), "auc": auc(*sides)}
