"""DOV4MM against loops, on an encoder that completes its members, and as a p-value of a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.attacks.dataset_inference import DatasetInference
from fedmia.attacks.dov4mm import DOV4MM, Masks
from fedmia.nets.base import Backbone
from fedmia.nets.vit import ViTTiny
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc
from tests.attacks.planted import chance, fitted, mixing, view_of

GRAY = 0.5


class Completes(Backbone):
    """Tells a stored image from a few of its pixels, which stay as they are, and answers with the
    vector of the whole; of any other image with that of what it sees."""

    layers = ("layer1",)
    width = 16

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.flatten(1).float() / 255
        self.mix = mixing(self.width, self.stored.shape[1])

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        apart = (flat[:, None] - self.stored).abs() > 1e-6
        wrong, index = (apart & (flat[:, None] != GRAY)).sum(dim=2).min(dim=1)
        whole = torch.where((wrong == 0)[:, None], self.stored[index], flat)
        return {"layer1": torch.sin(15 * whole @ self.mix.T)[:, :, None, None]}


# -- masks


def test_masks__cover_their_share_in_whole_squares() -> None:
    recipe = Masks(squares=4, share=0.75)
    uniforms = torch.from_numpy(rng(0, "masks").random((50, recipe.draws)))
    images = torch.zeros(50, 3, 8, 12)
    squares = recipe(images, uniforms).unflatten(3, (4, 3)).unflatten(2, (4, 2))
    gray = (squares == GRAY).permute(0, 2, 4, 1, 3, 5).flatten(3)  # (B, 4, 4, pixels of a square)
    assert (gray.all(dim=3) == gray.any(dim=3)).all()
    assert (gray.all(dim=3).flatten(1).sum(dim=1) == 12).all()
    assert len(torch.unique(gray.all(dim=3).flatten(1), dim=0)) > 40


@pytest.mark.parametrize(("share", "masked"), [(0.01, 1), (0.99, 3)])
def test_masks__leave_something_to_see_and_something_to_tell(share: float, masked: int) -> None:
    view = Masks(squares=2, share=share)(torch.zeros(1, 1, 4, 4), torch.rand(1, 4))
    assert (view == GRAY).sum() == 4 * masked


def test_squares__are_the_patches_of_a_transformer() -> None:
    vit = ViTTiny(width=8, heads=2, depth=4, patch=2).build(3, 12)
    images = torch.from_numpy(rng(0, "vit").integers(0, 256, (8, 3, 12, 12), dtype=np.uint8))
    known = Known(images[:4], images[4:])
    patches, six, three = (
        fitted(DOV4MM(masks=2, squares=squares), view_of(vit), known).score(view_of(vit), images)
        for squares in (None, 6, 3)
    )
    np.testing.assert_array_equal(patches, six)
    assert not np.isclose(patches, three).any()


# -- formula


def test_score__is_the_error_of_a_ridge_regression(
    make_moco: Callable[..., Any], images: Tensor, known: Known
) -> None:
    view = view_of(make_moco())
    attack = fitted(DOV4MM(masks=3, ridge=0.2), view, known)
    assert view.queries == len(known.members) * 4
    recipe = Masks(4, 0.75)

    def unit(v: Tensor) -> Any:
        row = v.double().numpy()
        return row / np.sqrt(np.sum(row**2))

    def rows(some: Tensor) -> list[tuple[Any, Any]]:
        pixels = view.view_pixels(some, 3, recipe)
        whole = view.embed(some.float() / 255, "avgpool")
        return [
            (unit(view.embed(pixels[j, i : i + 1], "avgpool")[0]), unit(whole[i]))
            for i in range(len(some))
            for j in range(3)
        ]

    x, y = (np.array(side) for side in zip(*rows(known.members), strict=True))
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    penalty = 0.2 * np.mean(np.var(x, axis=0)) * len(x)
    inverse = np.linalg.inv((x - mean_x).T @ (x - mean_x) + penalty * np.eye(x.shape[1]))
    weights = inverse @ (x - mean_x).T @ (y - mean_y)
    errors = [np.sum(((m - mean_x) @ weights + mean_y - w) ** 2) for m, w in rows(images)]
    want = -np.mean(np.reshape(errors, (20, 3)), axis=1)
    np.testing.assert_allclose(attack.score(view, images), want, rtol=1e-4)


# -- what it finds


@pytest.fixture(scope="module")
def scene(textures: Callable[..., Tensor]) -> tuple[Any, Known, Tensor, Tensor]:
    members, others, first, second = textures(180, seed=11).split([60, 60, 30, 30])
    view = view_of(Completes(torch.cat([members, first])))
    return view, Known(first, second), members, others


def test_oracle__an_encoder_that_completes_its_members_is_found_out(scene: Any) -> None:
    view, known, members, others = scene
    attack = fitted(DOV4MM(), view, known)
    assert auc(attack.score(view, members), attack.score(view, others)) > 0.95
    assert auc(attack.score(view, others[:30]), attack.score(view, others[30:])) == chance(30, 30)


@pytest.mark.parametrize("posers", [False, True])
def test_set__has_the_p_value_of_its_reconstruction(scene: Any, posers: bool) -> None:
    view, known, members, others = scene
    both = torch.cat([others[30:] if posers else members[:30], others[:30]])
    attack = fitted(DatasetInference(statistic="masked", views=16), view, known)
    suspects = [(np.arange(30), np.arange(30, 60))]
    (test,) = attack.infer(view, both, np.zeros(60, dtype=np.int64), suspects, rng(0, "infer"))
    scores = fitted(DOV4MM(), view, known).score(view, both)
    gap = scores[:30].mean() - scores[30:].mean()
    assert test.difference == pytest.approx(gap) and (test.p_value > 0.05) == posers


def test_known__non_members_play_no_part_and_members_are_needed(scene: Any) -> None:
    view, known, members, others = scene
    scores = [
        fitted(DOV4MM(), view, Known(known.members, side)).score(view, members)
        for side in (known.nonmembers, others)
    ]
    np.testing.assert_array_equal(*scores)
    with pytest.raises(InputError, match="dov4mm needs at least 2 known"):
        DOV4MM().fit(view, Known(known.members[:1], known.nonmembers), rng(0))
