"""Static ascent asked of a set: climbed alone, compared with known members, beside its twin."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.ascent_static import AscentStatic, attack_losses
from fedmia.attacks.base import Attack, Known, NotFitted
from fedmia.attacks.similarity import Similarity
from fedmia.ssl.augment import Augment
from fedmia.threat import WhiteBox

AUGMENT = Augment(hue=0.1)
OPTIONS: dict[str, Any] = {"steps": 2, "pairs": 1, "lr": 0.05, "negatives": "queue"}


def white(method: Any, held: Tensor | None = None) -> WhiteBox:
    return WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=torch.device("cpu"), held=held)


def fitted(view: WhiteBox, known: Known, **options: Any) -> AscentStatic:
    attack = AscentStatic(**OPTIONS | options)
    attack.fit(view, known, np.random.default_rng(0))
    return attack


def test_score_sets__is_the_rise_of_known_members_sets_minus_its_own(
    make_moco: Any, images: Tensor, known: Known
) -> None:
    """Sec. V-B4 transcribed: climb a batch, take its rise off that of member data."""
    method = make_moco()
    view, sets = white(method), images[:20].view(4, 5, *images.shape[1:])

    def climbed(batch: Tensor) -> tuple[float, float]:
        model, (a, b) = copy.deepcopy(method), view.view_pixels(batch, 2)
        first = float(attack_losses(model, a, b, "training").detach().mean())
        for _ in range(2):
            model.zero_grad()
            attack_losses(model, a, b, "training").mean().backward()
            for weight in model.encoder.parameters():
                weight.data += 0.05 * weight.grad
        return first, float(attack_losses(model, a, b, "training").detach().mean()) - first

    got = fitted(view, known).score_sets(view, sets, known)
    members = np.mean([climbed(known.members[at : at + 5]) for at in (0, 5)], axis=0)
    want = [members - climbed(batch) for batch in sets]
    np.testing.assert_allclose(got, np.array(want)[:, ::-1], atol=2e-5)


@pytest.mark.parametrize("negatives", ["queue", "held"])
def test_score_sets__no_set_knows_of_another(
    make_moco: Any, images: Tensor, known: Known, negatives: str
) -> None:
    view = white(make_moco(), torch.cat(known.both()[:1]))
    attack, sets = fitted(view, known, negatives=negatives), images.view(4, 5, *images.shape[1:])
    whole = attack.score_sets(view, sets, known)
    assert whole.shape == (4, 2) and np.isfinite(whole).all() and np.ptp(whole[:, 0]) > 0
    one = attack.score_sets(view, sets[[2]], known)
    np.testing.assert_allclose(one[0], whole[2], atol=1e-6)
    turned = attack.score_sets(view, sets.flip(0), known)
    np.testing.assert_allclose(turned, whole[::-1], atol=1e-6)


def test_score_sets__is_not_the_mean_of_a_mixed_climb(
    make_moco: Any, images: Tensor, known: Known
) -> None:
    view = white(make_moco())
    attack, sets = fitted(view, known, batch=20), images.view(4, 5, *images.shape[1:])
    alone = attack.score_sets(view, sets, known)[:, 0]
    mixed = attack.score(view, images).reshape(4, 5).mean(axis=1)
    assert np.abs((alone - alone.mean()) - (mixed - mixed.mean())).max() > 1e-3


def test_score_sets__too_few_known_members_for_a_set_are_not_compared(
    make_moco: Any, images: Tensor, known: Known
) -> None:
    view, few = white(make_moco()), Known(known.members[:3], known.nonmembers)
    sets = images.view(4, 5, *images.shape[1:])
    attack = fitted(view, known)
    apart = attack.score_sets(view, sets, few) - attack.score_sets(view, sets, known)
    assert np.isfinite(apart).all() and np.ptp(apart, axis=0).max() < 1e-6


def test_score_sets__other_attacks_judge_by_the_mean_alone(
    make_moco: Any, images: Tensor, known: Known
) -> None:
    view, attack = white(make_moco()), Similarity()
    sets = images.view(4, 5, *images.shape[1:])
    attack.fit(view, known, np.random.default_rng(0))
    assert attack.score_sets(view, sets, known) is None
    assert Similarity.score_sets is Attack.score_sets
    with pytest.raises(NotFitted, match="call fit before score"):
        AscentStatic().score_sets(view, sets, known)
