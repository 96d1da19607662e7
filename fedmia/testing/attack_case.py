"""An attack under check: fitted on tiny material, its scores and what passes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.seeding import rng
from fedmia.ssl.base import Encoder
from fedmia.testing.material import (
    Case,
    everything,
    global_seed,
    least_view,
    small_moco,
    small_shadows,
    some_known,
    textures,
)
from fedmia.threat.signals import Signals

# Networks hardly trained keep the same promises.
BRIEF = {"steps": 2, "epochs": 1, "crops": 6, "downstream_images": 20, "views": 8, "pairs": 1}


class AttackTrial(NamedTuple):
    """A fitted attack and its view, the scores, what they cost and how many images passed.

    Attributes:
        attack: the fitted attack.
        view: its view.
        scores: of the images, `(N,)`.
        queries: that the scores cost.
        passed: number of images that passed through the encoder.
    """

    attack: Attack
    view: Any
    scores: Scores
    queries: int
    passed: int


class AttackCase(Case):
    """An attack (of a class one trained briefly) with a tiny MoCo, images and views."""

    def __init__(self, attack: Attack | type[Attack]) -> None:
        super().__init__(attack, Attack, BRIEF)
        self.images, self.held = textures(20), textures(14, seed=2)
        least = self.cls.least_known
        self.known, self.swapped = (some_known(least, swap) for swap in (False, True))
        self.method = small_moco()
        self._usual: dict[str, AttackTrial] = {}

    @cached_property
    def shadows(self) -> Any:
        """The attacker's own encoders, for attacks that read them."""
        return small_shadows()

    def view(self, **more: Any) -> Any:
        """A new view, the least that the attack says is enough."""
        own = {"held": self.held, "shadows": self.shadows}
        return least_view(self.new(), self.method, self.images, **own, **more)

    def run(
        self, known: Known | None = None, seed: int = 1, refit: bool = False, others: bool = False,
        attack: Attack | None = None, **more: Any,
    ) -> AttackTrial:  # fmt: skip
        """Scores of the images under test by a new attack that is fitted with the usual seed.

        Args:
            known: images to fit on; None: the usual ones.
            seed: of the global generators.
            refit: fit on other images first.
            others: score some of the images first, on a view of their own.
            attack: the instance to run; None: a new one.
            more: of the view.

        Returns:
            the fitted attack, its scores and its cost.
        """
        attack, view = attack or self.new(), self.view(**more)
        with self.watch_passes(view) as passed, global_seed(seed):
            if refit:
                attack.fit(view, self.swapped, rng(1, "fit"))
            attack.fit(view, known or self.known, rng(0, "fit"))
            if others:
                attack.score(self.view(), self.images.flip(0)[:9])
            scores = attack.score(view, self.images)
        kind = type(scores).__name__
        text = f"score returns a {kind}, not a NumPy array; of a tensor return .numpy()"
        self.must(kind == "ndarray", text)
        return AttackTrial(attack, view, np.array(scores), view.queries, sum(passed))

    def usual(self, **options: Any) -> AttackTrial:
        """That of a new attack on a new view, made once."""
        attack = self.new(**options)
        if repr(attack) not in self._usual:
            self._usual[repr(attack)] = self.run(attack=attack)
        return self._usual[repr(attack)]

    def same(self, got: Scores, want: Scores, text: str, atol: float = 0.0, way: str = "") -> None:
        """Refuse scores further than `atol` from others; says by how much.

        Args:
            got: scores, `(N,)`.
            want: scores to compare with, `(N,)`.
            text: sentence of the error.
            atol: largest absolute difference allowed.
            way: what to change, the end of the error.
        """
        got_shape, want_shape = np.shape(got), np.shape(want)
        shapes = f"scores are of shape {got_shape}, not {want_shape}"
        self.must(got_shape == want_shape, f"{shapes}; return one number an image")
        gap = float(np.abs(np.asarray(got) - want).max())
        self.must(gap <= atol, f"{text} (largest change {gap:.2g}){way and '; '}{way}")

    @contextmanager
    def watch_passes(self, view: Any) -> Iterator[list[int]]:
        """Counts the images that pass through encoders meanwhile, batch by batch, and refuses what
        changes the target or the images."""
        images, before = self.images.clone(), everything(view._method)
        passed, normalise = list[int](), Encoder.normalise

        def counted(encoder: Encoder, pixels: Tensor) -> Tensor:
            if bool(pixels.any()):  # `features` asks for widths with one black image: no query
                passed.append(len(pixels))
            return normalise(encoder, pixels)

        with patch.object(Encoder, "normalise", counted):
            yield passed
        way = "work on a copy, of a white box view.copy_method()"
        text = f" changes its target: {{}} differs after score; {way}"
        self.require_equal(before, everything(view._method), text)
        gradients = [n for n, w in view._method.named_parameters() if w.grad is not None]
        text = f" changes its target: it leaves a gradient in {gradients[:1]}; {way}"
        self.must(not gradients, text)
        text = " changes the images that it scores; work on images.clone()"
        self.must(torch.equal(images, self.images), text)


class UncachedSignals(Signals):
    """Rows that are computed again whenever they are asked for."""

    def grow(
        self,
        key: tuple[object, ...],
        images: Tensor,
        columns: int,
        compute: Callable[[Tensor, int, int], Tensor],
    ) -> Tensor:
        return compute(images, 0, columns)
