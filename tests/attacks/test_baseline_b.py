"""Baseline-B: a classifier that is surer of members, by hand, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

from fedmia.data.images import IntArray, digests
from fedmia.nets.base import Backbone
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.threat import Labels, Shadow, WhiteBox
from tests.attacks.planted import NOBODY, auc_of, fitted, mixing, view_of

QUICK = {"epochs": 60, "rate": 1e-3, "batch_size": 32}
MILD = Augment(
    crop_min=0.9, ratio_min=1, ratio_max=1, flip=0.5, brightness=0.05, contrast=0.05,
    saturation=0, hue=0, jitter_p=1, gray_p=0,
)  # fmt: skip


def coloured(count: int, seed: int) -> Tensor:
    """uint8 (count, 3, 8, 8): one colour each, with a fine texture."""
    draw = rng(seed, "colours")
    pixels = draw.uniform(0.2, 0.8, (count, 3, 1, 1)) + draw.normal(0, 0.05, (count, 3, 8, 8))
    return torch.from_numpy((np.clip(pixels, 0, 1) * 255).astype(np.uint8))


def strongest(images: Tensor) -> IntArray:
    return images.float().mean(dim=(2, 3)).argmax(dim=1).numpy()


def named(images: Tensor) -> Any:
    return strongest(images).astype(str)


class Surer(Backbone):
    """The class of a stored image stands out in its vector; another's is lost in its texture."""

    layers = ("layer1",)
    width = 12

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = self.colour(stored.float() / 255)
        self.mix = mixing(self.width, 192) * 192**0.5

    @staticmethod
    def colour(x: Tensor) -> Tensor:
        return x[..., 2:6, 2:6].mean(dim=(2, 3))

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        own = self.colour(x)
        stored = (torch.cdist(own, self.stored).min(dim=1).values < 0.04)[:, None]
        shown = F.one_hot(own.argmax(dim=1), self.width).float()
        noise = torch.sin(9 * x.flatten(1) @ self.mix.T)  # of every pixel: each view its own
        vectors = torch.where(stored, 6 * shown, 0.8 * shown + noise)
        return {"layer1": vectors[:, :, None, None]}


def knowing(members: Tensor, **more: Any) -> Any:
    return view_of(Surer(members), MILD, **more)


@pytest.fixture
def planted() -> tuple[WhiteBox, Tensor, Tensor]:
    """A target with two shadows, its members, and other images."""
    pool = coloured(240, seed=3)
    labels = Labels([(pool, named(pool))])
    shadows = [
        Shadow(knowing(some[:60], labels=labels), some[:60], some[60:])
        for some in (pool[120:], pool[120:].flip(0))
    ]
    return knowing(pool[:60], shadows=shadows, labels=labels), pool[:60], pool[60:120]


def build(**options: Any) -> Any:
    return registry.build("attack", "baseline-b", QUICK | options)


def test_baseline_b__finds_members_by_what_is_right(planted: Any) -> None:
    view, members, others = planted
    assert auc_of(build(), view, NOBODY, members, others) > 0.9


def test_baseline_b__vector_by_hand(planted: Any) -> None:
    """b_0 is the image's, b_i its i-th view's; the task is half of the first shadow's rest."""
    view, members, _ = planted
    attack = fitted(build(views=4), view)
    assert view.queries == 30  # the target's own task
    rest = view.shadows[0].nonmembers
    ranked = sorted(range(60), key=digests(rest.numpy()).__getitem__)
    task = rest[ranked[:30]]
    scaler = StandardScaler()
    features = scaler.fit_transform(view.embed_plain(task, "avgpool").double().numpy())
    model = LogisticRegression(max_iter=1000).fit(features, strongest(task))
    want = []
    for image in members[:7]:
        row = [view.embed_plain(image[None], "avgpool")[0]]
        row += list(view.embed_views(image[None], 4, "avgpool")[0])
        said = model.predict(scaler.transform(torch.stack(row).double().numpy()))
        want.append((said == strongest(image[None])[0]).astype(float))
    view.queries = 0
    np.testing.assert_array_equal(attack.inputs(view, members[:7]), want)
    assert view.queries == 7 * 5


@pytest.mark.parametrize("filed", [False, True])
def test_baseline_b__task_is_apart_from_what_is_fitted_on(
    planted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: bool
) -> None:
    """That of a file is the same for all, and leaves out the shadows' images."""
    view, _, _ = planted
    first, second = view.shadows
    own = coloured(30, seed=9)
    mixed = torch.cat([own, first.members[:9], second.nonmembers[:9]])
    np.savez(tmp_path / "task.npz", x=mixed.permute(0, 2, 3, 1).numpy(), y=strongest(mixed))
    calls, embed = list[tuple[Any, set[bytes]]](), WhiteBox.embed_plain

    def noted(self: WhiteBox, images: Tensor, layer: str) -> Tensor:
        calls.append((self, set(digests(images.numpy()))))
        return embed(self, images, layer)

    monkeypatch.setattr(WhiteBox, "embed_plain", noted)
    file = {"downstream_file": str(tmp_path / "task.npz")} if filed else {}
    fitted(build(share=0.25, epochs=1, **file), view)
    assert [over for over, _ in calls] == [first.view, first.view, second.view, second.view, view]
    for shadow, (_, task), (_, images) in zip(
        (first, second), calls[::2], calls[1::2], strict=False
    ):
        assert not task & images and len(images) == (120 if filed else 90)
        assert len(images & set(digests(shadow.members.numpy()))) == len(images) / 2
        assert task == set(digests(own.numpy())) if filed else len(task) == 15
    assert view.queries == (30 if filed else 15)


def test_baseline_b__needs_labels(planted: Any) -> None:
    view, members, _ = planted
    bare = knowing(members, shadows=view.shadows)
    attack = fitted(build(epochs=1), bare)
    with pytest.raises(InputError, match="true classes, and 60 of 60 images have none"):
        attack.score(bare, members)
    shadow = view.shadows[0]
    unlabelled = Shadow(knowing(shadow.members), shadow.members, shadow.nonmembers)
    with pytest.raises(InputError, match="true classes, and 30 of 30 images have none"):
        attack.fit(knowing(members, shadows=[unlabelled]), NOBODY, rng(0, "fit"))


def test_labels__one_class_is_none_and_unions_prefer_the_other(
    textures: Callable[..., Tensor],
) -> None:
    images, names = textures(6), np.array(list("abcdef"))
    assert Labels([(images, names)]).of(images[3:]).tolist() == list("def")
    with pytest.raises(InputError, match="6 of 6 images have none"):
        Labels([(images, np.array(["a"] * 6))]).of(images)
    other = np.array(["dog", "b", "c"])
    both = Labels([(images[:4], names[:4])]) | Labels([(images[3:], other)])
    assert both.of(images).tolist() == ["a", "b", "c", "dog", "b", "c"]
