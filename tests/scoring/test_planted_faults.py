"""Which control shows a fault that is planted, and where none does."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.probes.pixels import pixel_scores
from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.seeding import rng
from fedmia.threat import Threat

MEMBERS, OTHERS, KNOWN = 80, 160, 20
BESIDE: dict[str, tuple[str, ...]] = {
    "vectors": (), "audit": ("untrained",), "run": ("untrained", "placebo")
}  # fmt: skip


@dataclass
class View:
    """An encoder; a trained one, the placebo's too, tells images of odd sums from the others."""

    model: str
    seed: int
    threat: ClassVar[Threat] = Threat("black_box", "outsider")
    queries: ClassVar[int] = 0

    def unmetered(self) -> nullcontext[None]:
        return nullcontext()

    def answers(self, images: Tensor) -> np.ndarray:
        odd = images.sum(dim=(1, 2, 3)).numpy() % 2
        noise = rng(self.seed, "answers", self.model).normal(size=len(images))
        return np.asarray(noise + odd * (self.model != "untrained"))


@dataclass
class Faulty(Attack):
    """Reads the answers; by order or by memory of what it was fitted on, if it has that fault."""

    fault: str = ""
    scored_members: Tensor | None = None
    paper: ClassVar[str] = ""
    needs: ClassVar[Threat] = Threat("black_box", "outsider")

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        pass

    def score(self, view: Any, images: Tensor) -> np.ndarray:
        values = view.answers(images)
        if self.fault == "order":
            values = values - np.arange(len(images)) / 50
        if self.fault == "fitted":
            assert self.scored_members is not None
            apart = torch.cdist(images.flatten(1).double(), self.scored_members.flatten(1).double())
            values = values + (apart == 0).any(dim=1).numpy()
        return np.asarray(values)


class Ordered(Scorer):
    """Hands images over in the order of the truth."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.candidates = torch.cat([self.members, self.nonmembers])
        self._back = np.arange(len(self.candidates))


def faulty(fault: str, place: str, seed: int) -> Report:
    """The report of an attack with a fault, beside the controls that there are."""
    draw = rng(seed, "images")

    def images(count: int, odd: float) -> Tensor:
        values = draw.integers(0, 254, (count, 3, 4, 4))
        wrong = values.sum((1, 2, 3)) % 2 != (draw.random(count) < odd)
        values[:, 0, 0, 0] += wrong
        return torch.from_numpy(values.astype(np.uint8))

    members, others = images(MEMBERS, 0.95 if fault == "shift" else 0.5), images(OTHERS, 0.5)
    known = Known(images(KNOWN, 0.5), images(KNOWN, 0.5))
    kind = Ordered if fault == "order" else Scorer
    scorer = kind(known, members, others, seed, lambda name: Faulty(fault, members))
    scored = {
        model: scorer.score_attack("faulty", View(model, seed), threshold=False)  # type: ignore[arg-type]
        for model in ("main", *BESIDE[place])
    }
    pixels = scorer.split_sides(pixel_scores(known.members, known.nonmembers, scorer.candidates))
    ids, nobody = np.arange(MEMBERS + OTHERS), np.zeros(MEMBERS + OTHERS, np.int64)
    return build_report(
        Evaluation(
            seed, ids[:MEMBERS], ids[MEMBERS:], nobody[:MEMBERS], nobody[:MEMBERS],
            nobody[MEMBERS:], attacks=[scored["main"]], drawn=place == "run",
            controls={name: [scored[name]] for name in BESIDE[place]},
            pixels=None if place == "vectors" else pixels,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        ("order", ("leaks-uncontrolled", "control-failed", "control-failed")),
        ("fitted", ("leaks-uncontrolled", "control-failed", "control-failed")),
        ("shift", ("leaks-uncontrolled", "leaks", "control-failed")),  # no control of an audit
        ("", ("not-established", "not-established", "not-established")),
    ],
)
def test_fault__fails_each_control_that_repeats_it(fault: str, codes: tuple[str, ...]) -> None:
    assert tuple(faulty(fault, place, 1).verdict_code for place in BESIDE) == codes
