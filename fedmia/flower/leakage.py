"""How much one attack finds in a model that passes by: scored where the images are."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, DatasetAttack, Known
from fedmia.data.images import ImageSet
from fedmia.encoders.base import LoadOptions
from fedmia.encoders.memory import Network, build_network, load_module
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.rounds.attacker import Attacker
from fedmia.rounds.kept import KeptRounds
from fedmia.runtime.numerics import default_numerics
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.settings.commands.audit_attacks import outside_reason
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.statistics.auc import AucEstimate, auc_estimate
from fedmia.threat import Threat


class Leakage:
    """Scores one attack on models of a network, on the same images each time.

    Args:
        net: the network whose weights the messages carry, or a function that makes it.
        members: images that clients train on, uint8 (N, C, H, W), array or tensor.
        others: images of the same distribution that none trains on, likewise.
        attack: an attack on a released encoder, by name.
        options: of the attack.
        mean: of each channel, pixels in [0, 1], by which the network wants them normalised.
        std: likewise; a network that normalises by itself has mean 0 and std 1.
        augment: augmentation of the attacker's views; None: the usual one of a module.
        device: where the network runs.
        seed: of all that is drawn.

    Raises:
        InputError: images or an attack that cannot be used, or a network that takes no such images.
    """

    def __init__(
        self, net: Network, members: Any, others: Any, attack: str = "similarity",
        options: Mapping[str, Any] = {}, mean: Any = None, std: Any = None,
        augment: Augment | None = None, device: str = "cpu", seed: int = 0,
    ) -> None:  # fmt: skip
        self.attack, self._seed = attack, seed
        self._attack: Attack = registry.build("attack", attack, options)
        built = self._attack
        reason = outside_reason(attack)
        if reason is None and (isinstance(built, DatasetAttack) or built.asks_shadows()):
            reason = "scores no single images, or trains encoders of its own"
        if reason is not None:
            raise InputError(f"attack '{attack}': {reason}")
        sides = [_images(*side) for side in (("members", members), ("others", others))]
        if both := len({*sides[0].digests()} & {*sides[1].digests()}):
            raise InputError(f"members and others share {both} images; an image cannot be both")
        known = min(map(len, sides)) // 4 if built.learns else 0
        parts = [self._deal(one, known) for one in sides]
        self.known = Known(parts[0][0], parts[1][0])
        channels, size = sides[0].channels, sides[0].size
        load_options = LoadOptions.from_user(size=size, mean=mean, std=std, device=device)
        self._released = load_module(build_network(net), load_options, channels=channels)
        self._scorer = Scorer(self.known, parts[0][1], parts[1][1], seed, self._build)
        self._attacker = Attacker(
            threat=Threat(self._released.access, "outsider"),
            known=self.known,
            seed=seed,
            augment=augment or self._released.augment,
            device=load_options.device,
        )

    @default_numerics()
    def measure(self, round: int, state: State) -> AucEstimate:
        """The AUC of the attack on the model of a round.

        Args:
            round: 0: before the first, 1, 2, ..
            state: weights by name, or numbered in the order of the network's.

        Returns:
            The AUC, with its variance.

        Raises:
            InputError: weights of another network.
            ValueError: the attack gives scores that are not finite.
        """
        rounds = KeptRounds(where="the messages", states={max(round, 1): state}, digest="")
        method = rounds.fit(self._released, strict=True).with_state(max(round, 1)).eval()
        if len(self._attacker.known.both()[0]) and self._released.access == "white_box":
            self._attacker.fill_bank(method)
        view = self._attacker.view(method)
        scored = self._scorer.score_attack(self.attack, view, threshold=False)
        return auc_estimate(*scored.sides)

    def _build(self, name: str) -> Attack:
        return copy.deepcopy(self._attack)

    def _deal(self, images: ImageSet, known: int) -> tuple[Tensor, Tensor]:
        """The images that the attack learns from, and those that it scores."""
        order = rng(self._seed, "watch", len(images)).permutation(len(images))
        pixels = torch.from_numpy(np.asarray(images.images))
        return pixels[order[:known]], pixels[order[known:]]


def _images(name: str, values: Any) -> ImageSet:
    images = np.asarray(values)
    one = ImageSet(images, np.zeros(len(images), np.int64), name)
    if len(one) < 2:
        raise InputError(f"{name}: {len(one)} images, must be at least 2")
    return one
