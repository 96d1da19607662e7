"""Switches of a fair protocol: with none of them the plain attack, with one that alone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.attacks.lpla import LpLA
from fedmia.attacks.partcrop import PartCrop
from fedmia.attacks.sd_mi import SDMI, distances
from fedmia.data.images import digests
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox
from papers.protocols import pipeline as pipelines
from papers.protocols.attacks import AnchoredSDMI, PartCropByEpoch
from papers.protocols.images import concatenate, draw_sides, encoder_settings, member_views
from papers.protocols.pipeline import KINDS, SWITCHES, Pipeline, rates

PLAN: dict[str, Any] = {
    "known": 8, "scored": 6, "members": 16, "views": 3, "crops": 4, "epochs": 4, "every": 1,
    "anchors": 4, "steps": 4,
    "methods": {"moco": {"model": {"name": "smallnet", "width": 4}}},
}  # fmt: skip
MADE_UP = {"name": "synthetic", "pixels": 8, "images": 80}
SOURCES = {"train": MADE_UP, "test": {**MADE_UP, "classes": 9}, "other": {**MADE_UP, "classes": 5}}


@pytest.fixture(scope="module")
def sides() -> Any:
    return draw_sides(encoder_settings(PLAN, "moco", 3, SOURCES), PLAN, SOURCES)


@pytest.fixture(scope="module")
def pipeline(sides: Any, make_moco: Callable[..., Any]) -> Pipeline:
    views = {
        name: BlackBox(make_moco(seed), Augment(), seed=3, device=torch.device("cpu"))
        for seed, name in enumerate(("trained", "untrained"))
    }
    return Pipeline(views, sides, PLAN, 3)


def names(*groups: Tensor) -> list[bytes]:
    return [name for images in groups for name in digests(images.numpy())]


def test_sides__share_no_image(sides: Any) -> None:
    every = names(*(images for both in sides.values() for images in both))
    assert len(every) == len(set(every))
    sizes = {side: tuple(map(len, both)) for side, both in sides.items()}
    assert sizes.pop("members") == (8, 8) and sizes.pop("pairs") == (0, 6)
    assert set(sizes.values()) == {(8, 6)}


def test_member_views__depend_on_the_image_alone_and_change_it(sides: Any) -> None:
    images = sides["unseen"][0]
    views = member_views(images, 5)
    assert torch.equal(member_views(images[3:5], 5), views[3:5])
    assert views.dtype == torch.uint8 and views.shape == images.shape
    assert not set(names(views)) & set(names(images))
    assert not torch.equal(member_views(images, 6), views)


def test_concatenation__halves_are_the_two_images() -> None:
    left, right = torch.zeros(2, 3, 8, 8), torch.full((2, 3, 8, 8), 200.0)
    pairs = concatenate(left.byte(), right.byte())
    assert pairs.shape == (2, 3, 8, 8)
    assert (pairs[..., :3] == 0).all() and (pairs[..., 5:] == 200).all()


@pytest.mark.parametrize(
    ("name", "attack"),
    [
        ("partcrop", PartCrop(crops=4, epochs=4)),
        ("lpla", LpLA()),
        ("sd-mi", SDMI(anchors=4, steps=4)),
    ],
)
def test_without_switches__it_is_the_plain_attack(
    pipeline: Pipeline, sides: Any, name: str, attack: Attack
) -> None:
    for kind, side, view in zip(
        KINDS, ("members", "unseen", "unseen"), ("trained", "trained", "untrained"), strict=True
    ):
        seen = pipeline.views[view]
        known = Known(sides[side][0], sides["others"][0])
        attack.fit(seen, known, rng(3, "protocols", name))
        scores = [attack.score(seen, sides[of][1]) for of in (side, "others")]
        assert pipeline.run(name, kind) == rates((scores[0], scores[1]))


class Spy(LpLA):
    """Notes what it is shown, and scores by place."""

    seen: list[list[bytes]] = []  # noqa: RUF012 - of the test alone

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        Spy.seen = [names(known.members), names(known.nonmembers)]
        super().fit(view, known, rng)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        Spy.seen.append(names(images))
        return np.arange(len(images), dtype=np.float64)


# Which of known members, known and scored others, in the order in which an attack is shown them, a
# switch changes.
CHANGED = {
    "views": {"known members", "members"},
    "test file": {"known others", "others"},
    "scored test file": {"others"},
    "other source": {"known others", "others"},
    "pairs": {"others"},
}


@pytest.mark.parametrize("switch", list(SWITCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_switch__changes_these_images_and_no_others(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, switch: str, kind: str
) -> None:
    monkeypatch.setattr(pipelines, "LpLA", Spy)
    shown = list[list[list[bytes]]]()
    for switches in ((), (switch,)):
        pipeline.run("lpla", kind, switches)
        shown.append(Spy.seen)
    of = ("known members", "known others", "members", "others")
    changed = {name for name, fair, other in zip(of, *shown, strict=True) if fair != other}
    assert changed == CHANGED.get(switch, set())


@pytest.mark.parametrize("switches", [(), ("views",)])
def test_epoch__is_the_best_on_the_scored_images(
    pipeline: Pipeline, sides: Any, switches: Collection[str]
) -> None:
    by_length = []
    for epochs in range(1, 5):
        shorter = Pipeline(pipeline.views, sides, {**PLAN, "epochs": epochs}, 3)
        by_length.append(shorter.run("partcrop", "placebo", switches))
    assert pipeline.run("partcrop", "placebo", switches) == by_length[-1]
    best = pipeline.run("partcrop", "placebo", (*switches, "epoch"))
    assert best["accuracy"] == max(one["accuracy"] for one in by_length)


def test_moments__are_networks_of_every_few_epochs(pipeline: Pipeline, sides: Any) -> None:
    view, known = pipeline.views["trained"], Known(sides["members"][0], sides["others"][0])
    images = sides["unseen"][1]
    attack = PartCropByEpoch(crops=4, epochs=6, every=2)
    attack.fit(view, known, np.random.default_rng(0))
    moments = attack.score_moments(view, images)
    for epochs, scores in zip((2, 4, 6), moments, strict=True):
        plain = PartCrop(crops=4, epochs=epochs)
        plain.fit(view, known, np.random.default_rng(0))
        np.testing.assert_array_equal(scores, plain.score(view, images))


def test_threshold__is_the_best_on_the_scored_images(pipeline: Pipeline) -> None:
    fair, best = (
        pipeline.run("similarity", "placebo", switches) for switches in ((), ("threshold",))
    )
    assert best["auc"] == fair["auc"]
    assert best["accuracy"] >= max(fair["accuracy"], 0.5)


def test_classifier__is_the_best_on_the_scored_images(pipeline: Pipeline) -> None:
    for kind in KINDS:
        fair, best = (
            pipeline.run("similarity-top3", kind, switches) for switches in ((), ("classifier",))
        )
        assert best["accuracy"] >= fair["accuracy"]


def test_anchors__are_of_the_population(pipeline: Pipeline, sides: Any) -> None:
    """As many anchors as images: each has distance 0 of itself, so any that is missing is seen."""
    view, population = pipeline.views["trained"], torch.cat(sides["unseen"])
    known = Known(sides["members"][0], sides["others"][0])
    attack = AnchoredSDMI(population[:4], anchors=4, steps=4)
    queries, shown = view.queries, list[bytes]()
    embed = view.embed_plain

    def spy(images: Tensor, layer: str = "encoder") -> Tensor:
        shown.extend(names(images))
        return embed(images, layer)

    view.embed_plain = spy  # type: ignore[method-assign]
    try:
        attack.fit(view, known, np.random.default_rng(0))
    finally:
        view.embed_plain = embed  # type: ignore[method-assign]
    assert sorted(shown[:4]) == sorted(names(population[:4]))
    assert view.queries == queries + 4 + 16
    vectors = embed(population[:4], "avgpool")
    assert (distances(vectors, vectors, "squared").diagonal() < 1e-9).all()


@pytest.mark.parametrize(
    "asked", [("lpa", "placebo", ()), ("lpla", "untraind", ()), ("lpla", "placebo", ("view",))]
)
def test_unknown_names__are_refused(pipeline: Pipeline, asked: tuple[str, str, Any]) -> None:
    with pytest.raises(InputError, match="did you mean"):
        pipeline.run(*asked)


def test_rates__of_known_scores() -> None:
    sides = np.array([1.0, -1.0, 2.0, 3.0]), np.array([-1.0, 0.5])
    assert rates(sides) == {"accuracy": 0.625, "auc": (6 + 0.5) / 8}
    with pytest.raises(InputError, match="no number"):
        rates((np.array([np.nan]), np.array([0.0])))
