"""Numbers of an audit by hand: how many images play each role, the attacker's views, the probes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.data.base import AugmentLimits
from fedmia.data.cast import Cast
from fedmia.data.images import ImageSet
from fedmia.evaluation.audits.images import (
    MOST_KNOWN,
    order_by_content,
    role_sizes,
    unify_classes,
    unlike_classes,
)
from fedmia.evaluation.audits.utility import health, probe_images
from fedmia.evaluation.encoder import audit_augmentation
from fedmia.probes import utility as made
from fedmia.report.words.notes import sentences
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.ssl.augment import Augment
from fedmia.testing import material


def audit(**options: Any) -> Any:
    return from_tree(Audit, {"encoder": "x", **options})


@pytest.mark.parametrize(
    ("members", "others", "options", "wanted"),
    [
        (40, 101, {}, (10, (30, 91))),  # a quarter of the smaller side is known, of both
        (101, 43, {}, (10, (91, 33))),
        (4000, 4004, {}, (MOST_KNOWN, (3500, 3504))),
        (40, 101, {"known": 3}, (3, (37, 98))),
        (40, 101, {"limit": 31}, (10, (30, 31))),
        (40, 101, {"limit": 20}, (10, (20, 20))),
        (40, 101, {"shadows": 2}, (10, (30, 45))),  # half of what is left trains the shadows
        (40, 101, {"shadows": 2, "limit": 44}, (10, (30, 44))),
        (40, 101, {"shadows": 2, "shadow_data": "x"}, (10, (30, 91))),
        (8, 9, {}, (2, (6, 7))),
        (9, 5, {"known": 3}, (3, (6, 2))),
    ],
)
def test_sizes__of_the_roles(
    members: int, others: int, options: dict[str, Any], wanted: tuple[int, tuple[int, int]]
) -> None:
    assert role_sizes(audit(**options), members, others) == wanted


@pytest.mark.parametrize(
    ("members", "others", "options"),
    [(7, 100, {}), (100, 7, {}), (9, 5, {"known": 4}), (5, 9, {"known": 4})],
)
def test_sizes__too_few_are_refused(members: int, others: int, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{members} members and {others} non-members"):
        role_sizes(audit(**options), members, others)


def test_order__the_first_of_equal_images_and_another_order_a_seed() -> None:
    names = [b"c", b"a", b"c", b"b", b"a", *(bytes([i]) for i in range(20))]
    order = order_by_content(3, names)
    assert sorted(order) == [0, 1, 3, *range(5, 25)]
    assert order_by_content(4, names).tolist() != order.tolist()
    turned = order_by_content(3, names[::-1])  # whatever the order of the files
    assert [names[i] for i in order] == [names[::-1][i] for i in turned]


def test_recipe__is_the_encoders_as_far_as_the_images_bear_it() -> None:
    own = Augment(crop_min=0.2, flip=0.5, brightness=0.4, contrast=0.3, saturation=0.2, hue=0.4)
    audit_split: Any = SimpleNamespace(views=AugmentLimits(crop_min=0.5, flip=0.1, jitter=0.5))
    augment = audit_augmentation(audit(), own, audit_split, False)
    assert (augment.crop_min, augment.flip) == (0.5, 0.1)
    got = (augment.brightness, augment.contrast, augment.saturation, augment.hue)
    assert got == pytest.approx((0.2, 0.15, 0.1, 0.2))
    assert audit_augmentation(audit(), own, audit_split, True) == own
    audit_split.views = AugmentLimits(crop_min=0.1, flip=0.9, jitter=2.0)
    augment = audit_augmentation(audit(augment={"flip": 0.3}), own, audit_split, False)
    assert (augment.crop_min, augment.flip, augment.brightness) == (0.2, 0.3, 0.8)
    assert augment.hue == 0.5  # the most that there is


def scored(count: int, labels: Any) -> Cast:
    images = material.textures(count, seed=3).numpy()
    sides = (
        ImageSet(images, np.zeros(count, np.int64), "m"),
        ImageSet(images, np.asarray(labels, np.int64), "o"),
    )
    known, every = np.arange(min(3, count)), np.arange(count)
    roles = {"known_members": known, "known_nonmembers": known}
    roles |= {"scored_members": every[:2], "scored_nonmembers": every}
    return Cast(sides, roles, where=(every, 10 + every), spared=4)


def test_without__leaves_out_those_and_keeps_the_others_aligned() -> None:
    audit_split = scored(5, [7, 8, 9, 7, 8])
    remaining = audit_split.without_nonmembers(
        np.array([True, False, False, True, False]), "as was asked"
    )
    assert remaining.ids("scored_nonmembers").tolist() == [11, 12, 14]
    assert remaining.classes("scored_nonmembers").tolist() == [8, 9, 8]
    assert torch.equal(
        remaining.pixels("scored_nonmembers"), audit_split.pixels("scored_nonmembers")[[1, 2, 4]]
    )
    assert sentences(remaining.notes) == ["2 scored non-members are left out, as was asked."]
    assert len(audit_split.without_nonmembers(np.arange(5) > 1, "so").ids("scored_nonmembers")) == 2
    with pytest.raises(InputError, match="1 remain, at least 2 are needed"):
        audit_split.without_nonmembers(np.arange(5) > 0, "so")
    assert remaining.counts() == {
        "members": "m", "nonmembers": "o", "known_members": 3, "known_nonmembers": 3,
        "scored_members": 2, "scored_nonmembers": 3, "spare_nonmembers": 4, "channels": 3,
        "size": 8,
    }  # fmt: skip
    assert len(remaining.attacked()) == 2 + 3 + 3 + 3


def test_one_coding__numbers_the_classes_of_both_sides_together() -> None:
    images = np.zeros((3, 1, 2, 2), np.uint8)
    one = ImageSet(images, np.array([0, 1, 0]), "one", classes=("b", "d"))
    two = ImageSet(images, np.array([1, 0, 1]), "two", classes=("d", "a"))
    found = list(unify_classes(one, two))
    assert [f.labels.tolist() for f in found] == [[1, 2, 1], [0, 2, 0]]
    assert {f.classes for f in found} == {("a", "b", "d")}
    assert unlike_classes(one, two) == unlike_classes(one, one) == []
    (note,) = sentences(unlike_classes(one, replace(two, classes=("x", "a"))))
    assert "(b, d)" in note and "(a, x)" in note
    (note,) = sentences(unlike_classes(one, replace(two, classes=())))
    assert "(b, d)" in note and "(0, 1)" in note
    assert unlike_classes(one, replace(two, classes=("x", "a"), labels=np.zeros(3, int))) == []


def test_probes__fit_on_one_half_of_the_scored_nonmembers_and_test_on_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each feature names its image, so that what a probe gets is known."""
    seen: list[Any] = []

    def knn(fit: Any, ours: Any, test: Any) -> Any:
        seen.append((fit, ours, test, test[:, 0].long() % 2))
        return torch.zeros(len(test))

    def linear(*parts: Any) -> float:
        seen.append(parts)
        return 0.25

    labels = np.arange(9) % 2
    view = SimpleNamespace(embed_plain=lambda images, layer: torch.arange(9.0)[:, None])
    suite: Any = SimpleNamespace(
        plain_view=lambda target: view, attacker=SimpleNamespace(seed=audit().seed), main=None
    )
    monkeypatch.setattr(made, "weighted_knn", knn)
    monkeypatch.setattr(made, "linear_accuracy", linear)
    probes = probe_images(suite, scored(9, labels), suite.main)
    zeros = float((seen[0][3] == 0).double().mean())  # as which the kNN takes every image
    assert (probes["knn"].value, probes["linear"].value) == (zeros, 0.25)
    assert {p.n for p in probes.values()} == {5} and len(seen) == 2
    for fit, ours, test, theirs in seen:
        assert sorted([*fit[:, 0].tolist(), *test[:, 0].tolist()]) == list(range(9))
        assert len(fit) == 4
        assert torch.equal(ours, fit[:, 0].long() % 2) and torch.equal(
            theirs, test[:, 0].long() % 2
        )
    same = probe_images(suite, scored(9, np.zeros(9, int)), suite.main)
    assert same["knn"].value is None and len(seen) == 2
    assert health(suite, scored(1, [0])) is None
