"""SSLMem against a loop over pairs of views. Where images differ in difficulty:
test_difficulty.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.attacks.sslmem import SSLMem
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from tests.attacks.loops import naive_pairs


class Encoded:
    """A model whose image of grey g has views at 0, d and 2 d on a line, d = gaps[g]; and a shadow
    trained on some greys."""

    def __init__(self, gaps: list[float], trained: tuple[int, ...] = ()) -> None:
        self.gaps, self.trained = torch.tensor(gaps), trained
        self.view, self.members, self.shadows = self, grey(list(trained) or [0]), ()

    def embed_views(
        self, images: Tensor, views: int, layer: str, augmentation: Any = None
    ) -> Tensor:
        steps = self.gaps[images.flatten(1)[:, 0].long()]
        line = torch.tensor([3.0, 4.0]) / 5
        return 7 + torch.arange(views)[None, :, None] * steps[:, None, None] * line

    def trained_on(self, images: Tensor) -> Any:
        return np.isin(images.flatten(1)[:, 0].numpy(), self.trained)


def grey(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).clone()


def naive_alignment(model: Encoded, value: int, views: int = 3) -> float:
    rows = model.embed_views(grey([value]), views, "avgpool")[0]
    return -float(np.mean(naive_pairs(rows, "euclidean")))


def test_score__is_the_papers_difference_of_alignment() -> None:
    """Distances over their mean on the holdout; references without the image only."""
    target = Encoded([1.0, 2.0, 0.5, 4.0, 3.0, 1.5])
    shadows = [
        Encoded([2.0, 1.0, 3.0, 5.0, 0.3, 1.0], (1, 4)), Encoded([9.0, 1.0, 7.0, 2.0, 4.0, 6.0])
    ]  # fmt: skip
    target.shadows = tuple(shadows)  # type: ignore[assignment]
    attack = SSLMem(views=3)
    attack.fit(target, Known(grey([0]), grey([4, 5])), rng(0))  # type: ignore[arg-type]
    scores = attack.score(target, grey([0, 1, 2, 3]))  # type: ignore[arg-type]
    for value in range(4):
        own = naive_alignment(target, value)
        own /= (naive_alignment(target, 4) + naive_alignment(target, 5)) / 2
        others = []
        for shadow in shadows:
            if value in shadow.trained:
                continue
            holdout = [v for v in (4, 5) if v not in shadow.trained]
            typical = np.mean([naive_alignment(shadow, v) for v in holdout])
            others.append(naive_alignment(shadow, value) / typical)
        assert scores[value] == pytest.approx(np.mean(others) - own, rel=1e-5)


def test_score__unit_length_leaves_angles_alone(
    make_moco: Callable[..., Any], make_view: Callable[..., Any], images: Tensor
) -> None:
    """Against the distances of the representations themselves, or of those of length 1."""
    for length in ("own", "unit"):
        attack = SSLMem(views=4, length=length)
        view = make_view(attack, make_moco(), images)
        rows = view.embed_views(images[:5], 4, "avgpool").double()
        if length == "unit":
            rows = rows / rows.norm(dim=2, keepdim=True)
        want = [torch.pdist(r).mean() for r in rows]
        assert np.allclose(attack.alignment(view, images[:5]), want, rtol=1e-4)


def test_score__refuses_images_and_holdouts_that_every_shadow_knows() -> None:
    target = Encoded([1.0] * 4)
    target.shadows = (Encoded([1.0] * 4, (1,)),)  # type: ignore[assignment]
    attack = SSLMem(views=3)
    with pytest.raises(InputError, match="known non-members that no shadow"):
        attack.fit(target, Known(grey([0]), grey([1])), rng(0))  # type: ignore[arg-type]
    attack.fit(target, Known(grey([0]), grey([2])), rng(0))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="1 of 2 images have none among 1"):
        attack.score(target, grey([1, 3]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1 known"):
        attack.fit(target, Known(grey([0]), grey([])), rng(0))  # type: ignore[arg-type]
