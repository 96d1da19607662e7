"""EncoderMI against loops transcribed from the paper, and on leaks planted in shadow and target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks import _cosine
from fedmia.attacks._cosine import pairwise
from fedmia.attacks._fitted import best_threshold
from fedmia.attacks._mlp import logits, mlp, train_logits
from fedmia.attacks.base import Known
from fedmia.attacks.encodermi import DeepSets
from fedmia.nets.base import Backbone
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox, Shadow
from tests.attacks.loops import naive_pairs
from tests.attacks.planted import MILD, auc_of, fitted, method_of, mixing, view_of

NAMES = ("encodermi-v", "encodermi-s", "encodermi-t")
QUICK = {"epochs": 40, "rate": 1e-3, "batch_size": 32}
every_kind = pytest.mark.parametrize("name", NAMES)


# -- a planted leak


class Remembers(Backbone):
    """Knows stored images by the nearest one in pixel space; other images' views all differ.

    Its leak: `similarity`, all views of a stored image give one vector; `norm`, a stored image's
    vectors are three times as long and as different as any image's.
    """

    layers = ("layer1",)
    width = 24

    def __init__(self, stored: Tensor, leak: str, seed: int) -> None:
        super().__init__()
        self.stored, self.leak = stored.flatten(1).float() / 255, leak
        self.mix = mixing(self.width, self.stored.shape[1], seed)

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        far, index = torch.cdist(flat, self.stored).min(dim=1)
        known = (far < 1.2)[:, None]
        varied = torch.sin(15 * flat) @ self.mix.T
        if self.leak == "norm":
            out = torch.where(known, 3 * varied, varied)
        else:
            out = torch.where(known, torch.sin(15 * self.stored[index]) @ self.mix.T, varied)
        return {"layer1": out[:, :, None, None]}


def remembering(stored: Tensor, leak: str = "similarity", seed: int = 0, **more: Any) -> Any:
    return view_of(method_of(Remembers(stored, leak, seed), seed), **more)


Planted = Callable[..., tuple[BlackBox, Tensor, Any]]


@pytest.fixture
def planted(textures: Callable[..., Tensor]) -> Planted:
    """`planted(leak, shadows=1)`: the view of a target, the images to score and their truth; each
    shadow encoder stores images of its own, none of them the target's."""
    pool = textures(400, seed=21)

    def make(leak: str = "similarity", shadows: int = 1) -> Any:
        own = []
        for i in range(shadows):
            members, others = pool[120 + 80 * i : 200 + 80 * i].chunk(2)
            own.append(Shadow(remembering(members, leak, seed=i + 1), members, others))
        view = remembering(pool[:60], leak, shadows=own)
        return view, pool[:120], np.repeat([1, 0], 60)

    return make


def build(name: str, **options: Any) -> Any:
    quick = {} if name == "encodermi-t" else QUICK
    return registry.build("attack", name, {**quick, **options})


@every_kind
def test_planted_similarity__is_found_through_shadows(name: str, planted: Planted) -> None:
    view, images, truth = planted()
    scores = fitted(build(name), view).score(view, images)
    assert view.queries == 10 * len(images)  # the fit costs none
    assert roc_auc_score(truth, scores) > 0.95
    assert ((scores >= 0) == truth).mean() > 0.9  # the sign decides, on a target never fitted on


@every_kind
def test_planted_norm__is_seen_by_euclidean_distances(name: str, planted: Planted) -> None:
    """The longer vectors lie further apart. Cosines do not see it: test_oracles.py."""
    view, images, truth = planted("norm")
    far = {"similarity": "euclidean"} | ({} if name == "encodermi-t" else {"scale": "standard"})
    value = roc_auc_score(truth, fitted(build(name, **far), view).score(view, images))
    assert value < 0.1 if name == "encodermi-t" else value > 0.9


@every_kind
def test_fit__known_images_of_the_target_in_place_of_shadows(name: str, planted: Planted) -> None:
    _, images, _ = planted()
    alone = remembering(images[:60])  # it has no shadows
    attack = build(name, fit_on="known")
    assert attack.learns and not build(name).learns
    assert (attack.shadow_threshold, build(name).shadow_threshold) == (None, 0)
    known = Known(images[:30], images[60:90])
    assert auc_of(attack, alone, known, images[30:60], images[90:]) > 0.95
    assert alone.queries == 120 * 10
    with pytest.raises(InputError, match=f"{name} needs at least 2 .*, got 1 and 60"):
        attack.fit(alone, Known(images[:1], images[60:]), rng(0, "fit"))


def test_fit__pools_the_features_of_several_shadows(planted: Planted) -> None:
    view, images, _ = planted(shadows=2)
    attack = fitted(build("encodermi-v", views=4, epochs=3), view)
    rows, truth = [], []
    for shadow in view.shadows:
        for side, label in ((shadow.members, 1), (shadow.nonmembers, 0)):
            for one in shadow.view.embed_views(side, 4):
                rows.append(sorted(naive_pairs(one), reverse=True))
                truth.append(label)
    model = train_logits(
        mlp((6, 256, 256)), torch.tensor(rows), np.array(truth), rng(0, "fit"),
        optimizer=lambda w: torch.optim.Adam(w, lr=1e-3), epochs=3, batch=32,
    )  # fmt: skip
    inputs = attack.inputs(view, images)
    np.testing.assert_allclose(attack.score(view, images), logits(model, inputs.float()), atol=1e-3)
    threshold = best_threshold(np.mean(rows, axis=1), np.array(truth))
    scores = fitted(build("encodermi-t", views=4), view).score(view, images)
    np.testing.assert_allclose(scores, inputs.mean(dim=1) - threshold)


# -- features


@pytest.mark.parametrize("similarity", _cosine.SIMILARITIES)
def test_pairwise__is_the_loop_over_pairs(similarity: str) -> None:
    """Also of more images than one block has."""
    vectors = torch.randn(1030, 3, 4, generator=torch_rng(0, "pairs")) + 1
    want = [naive_pairs(one, similarity) for one in vectors]
    np.testing.assert_allclose(pairwise(vectors, similarity).numpy(), want, atol=1e-9)


@pytest.mark.parametrize("similarity", _cosine.SIMILARITIES)
def test_pairwise__closer_is_higher_and_zeros_are_finite(similarity: str) -> None:
    a = torch.tensor([1.0, 2.0, 4.0])
    similarities = pairwise(torch.stack([a, a + 0.01 * a.flip(0), -a])[None], similarity)[0]
    assert similarities[0] > similarities[1] and similarities[0] > similarities[2]
    assert torch.isfinite(pairwise(torch.zeros(1, 3, 4), similarity)).all()


def test_inputs__vector_set_and_mean(planted: Planted) -> None:
    view, images, _ = planted()
    some = images[:4]
    want = [naive_pairs(one) for one in view.embed_views(some, 10)]
    v, s, t = (registry.build("attack", name, {}) for name in NAMES)
    assert v.inputs(view, some).shape == (4, 45)
    np.testing.assert_allclose(v.inputs(view, some), -np.sort(-np.array(want)), atol=1e-6)
    np.testing.assert_allclose(s.inputs(view, some), want, atol=1e-6)
    np.testing.assert_allclose(t.inputs(view, some)[:, 0], np.mean(want, axis=1), atol=1e-6)


def test_operations__are_those_of_the_attackers_views(planted: Planted) -> None:
    """The inferrer of Fig. 3 views images by its own list, whatever the target trained with."""
    view, images, _ = planted()
    some, blurred = images[:3], Augment(operations=("blur",), blur_p=0.5, hue=0.1)
    attack = build("encodermi-s", operations=("gray", "crop", "flip", "jitter"))
    view.augment = Augment(hue=0.1)  # the whole list at the recipe's strengths, without the blur
    want = build("encodermi-s").pairs(view, some)
    view.augment = blurred
    np.testing.assert_allclose(attack.pairs(view, some), want, atol=1e-6)
    assert (build("encodermi-s").pairs(view, some) - want).abs().max() > 0.01
    with pytest.raises(InputError, match=r"operations: it has no gray to be done"):
        view.augment = MILD
        attack.pairs(view, some)


def test_layer__is_what_the_view_is_asked_for(make_moco: Any, images: Tensor) -> None:
    view = view_of(make_moco())
    for layer in ("encoder", "avgpool"):
        got = registry.build("attack", "encodermi-s", {"layer": layer}).inputs(view, images[:2])
        torch.testing.assert_close(got, pairwise(view.embed_views(images[:2], 10, layer)))


def test_defaults__are_the_papers() -> None:
    v, s = (registry.build("attack", name, {}) for name in NAMES[:2])
    for one in (v, s):
        assert (one.views, one.similarity, one.epochs, one.rate) == (10, "cosine", 300, 1e-4)
    widths = [layer.out_features for layer in v.network(45) if isinstance(layer, nn.Linear)]
    assert widths == [256, 256, 1]


# -- EncoderMI-T's threshold


@pytest.mark.parametrize("seed", range(20))
def test_threshold__no_other_is_more_accurate(seed: int) -> None:
    draw = rng(seed, "threshold")
    truth = (draw.random(25) < draw.random()).astype(np.int64)
    values = np.round(draw.normal(size=25) + draw.normal() * truth, 1)  # with ties
    threshold = best_threshold(values, truth)
    each = np.unique(values)
    tried = [each[0] - 1, *each, *((each[1:] + each[:-1]) / 2), each[-1] + 1]
    least = min(((values >= t) != truth).sum() for t in tried)  # alpha + beta
    assert ((values >= threshold) != truth).sum() == least


def test_threshold__at_the_edges() -> None:
    two = np.array([0.2, 0.4])
    assert best_threshold(two, np.array([0, 1])) == pytest.approx(0.3)
    assert best_threshold(two, np.array([1, 1])) == 0.2
    assert 0.4 < best_threshold(two, np.array([0, 0])) < 0.4 + 1e-9
    near = np.array([1.0, np.nextafter(1.0, 2)])
    assert best_threshold(near, np.array([0, 1])) == near[1]


# -- DeepSets


def test_deepsets__does_not_see_the_order() -> None:
    draw = torch_rng(0, "sets")
    sets = torch.rand(50, 45, generator=draw)
    mixed = torch.stack([row[torch.randperm(45, generator=draw)] for row in sets])
    model = DeepSets()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw) / 3)
        np.testing.assert_allclose(model(sets), model(mixed), atol=1e-5, rtol=1e-6)
        exact = model.double()
        np.testing.assert_allclose(exact(sets.double()), exact(mixed.double()), atol=1e-12)
        assert exact(sets.double()).std() > 0.01
        assert (exact(sets.double()) - exact(sets.double() ** 2)).abs().max() > 0.1


def test_scaling__of_a_set_is_one_for_all_its_elements() -> None:
    inputs = torch.rand(20, 6, generator=torch_rng(0), dtype=torch.float64) * torch.arange(1, 7)
    v, s = (registry.build("attack", name, {"scale": "standard"}) for name in NAMES[:2])
    np.testing.assert_allclose(v.scaled(inputs, *v.scaling(inputs)).std(dim=0), np.ones(6))
    np.testing.assert_allclose(
        s.scaled(inputs, *s.scaling(inputs)), (inputs - inputs.mean()) / inputs.std(), atol=1e-12
    )
    flat = torch.full((4, 2), 3.0)
    assert (v.scaled(flat, *v.scaling(flat)) == 0).all()
