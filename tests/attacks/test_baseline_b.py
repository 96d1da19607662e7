"""Baseline-B: a classifier that is surer of members, by hand, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.attacks.base import Known
from fedmia.data.images import IntArray, digests
from fedmia.nets.base import Backbone
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import Labels, Shadow, WhiteBox

CPU = torch.device("cpu")
NOBODY = Known(torch.empty(0), torch.empty(0))
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
    stored: Tensor

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.register_buffer("stored", self.colour(stored.float() / 255), persistent=False)
        mix = torch.randn(self.width, 192, generator=torch_rng(0, "mix"))
        self.register_buffer("mix", mix, persistent=False)

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


def view_of(members: Tensor, shadows: Any = (), labels: Labels | None = None) -> WhiteBox:
    encoder = Encoder(Surer(members), nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    method = MomentumContrast(encoder, MoCo(dim=12, queue=16), 16, torch_rng(0, "queue"))
    return WhiteBox(method, MILD, seed=0, device=CPU, shadows=shadows, labels=labels)


@pytest.fixture
def planted() -> tuple[WhiteBox, Tensor, Tensor]:
    """A target with two shadows, its members, and other images."""
    pool = coloured(240, seed=3)
    labels = Labels([(pool, named(pool))])
    shadows = [
        Shadow(view_of(some[:60], labels=labels), some[:60], some[60:])
        for some in (pool[120:], pool[120:].flip(0))
    ]
    return view_of(pool[:60], shadows, labels), pool[:60], pool[60:120]


def build(**options: Any) -> Any:
    return registry.build("attack", "baseline-b", QUICK | options)


def test_baseline_b__finds_members_by_what_is_right(planted: Any) -> None:
    view, members, others = planted
    attack = build()
    attack.fit(view, NOBODY, rng(0, "fit"))
    scores = attack.score(view, torch.cat([members, others]))
    assert roc_auc_score(np.repeat([1, 0], 60), scores) > 0.9


def test_baseline_b__vector_by_hand(planted: Any) -> None:
    """b_0 is the image's, b_i its i-th view's; the task is half of the first shadow's rest."""
    view, members, _ = planted
    attack = build(views=4)
    attack.fit(view, NOBODY, rng(0, "fit"))
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


@pytest.mark.slow
def test_baseline_b__task_is_apart_from_what_is_fitted_on(planted: Any) -> None:
    view, _, _ = planted
    attack = build(share=0.25)
    calls = []
    original = type(attack)._mark_correct

    def spy(self: Any, model: Any, over: Any, images: Tensor) -> Tensor:
        calls.append((over, set(digests(images.numpy()))))
        return original(self, model, over, images)

    type(attack)._mark_correct = spy
    try:
        attack.fit(view, NOBODY, rng(0, "fit"))
    finally:
        type(attack)._mark_correct = original
    for shadow, (over, fitted) in zip(view.shadows, calls, strict=True):
        assert over is shadow.view
        task = set(digests(attack._task(view, shadow)[0].numpy()))
        assert len(task) == 15 and not task & fitted
        assert len(fitted & set(digests(shadow.members.numpy()))) == 45  # as many as non-members
        assert len(fitted) == 90


@pytest.mark.slow
def test_baseline_b__task_of_a_file_leaves_out_shadow_images(planted: Any, tmp_path: Path) -> None:
    view, _, _ = planted
    own = coloured(30, seed=9)
    taken = torch.cat([own, view.shadows[0].members[:9], view.shadows[1].nonmembers[:9]])
    np.savez(tmp_path / "task.npz", x=taken.permute(0, 2, 3, 1).numpy(), y=strongest(taken))
    attack = build(downstream_file=str(tmp_path / "task.npz"))
    attack.fit(view, NOBODY, rng(0, "fit"))
    images, classes = attack._task(view, view.shadows[0])
    assert set(digests(images.numpy())) == set(digests(own.numpy()))
    np.testing.assert_array_equal(classes, named(images))
    assert view.queries == 30


def test_baseline_b__needs_labels(planted: Any) -> None:
    view, members, _ = planted
    bare = view_of(members, view.shadows)
    attack = build()
    attack.fit(bare, NOBODY, rng(0, "fit"))
    with pytest.raises(InputError, match="true classes, and 60 of 60 images have none"):
        attack.score(bare, members)
    shadow = view.shadows[0]
    unlabelled = Shadow(view_of(shadow.members), shadow.members, shadow.nonmembers)
    with pytest.raises(InputError, match="true classes, and 30 of 30 images have none"):
        attack.fit(view_of(members, [unlabelled]), NOBODY, rng(0, "fit"))


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
