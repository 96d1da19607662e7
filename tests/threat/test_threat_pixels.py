"""Views that are drawn once and kept: the same pixels, for every model, up to a limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox
from fedmia.threat.signals import PixelCache

CPU = torch.device("cpu")
DRAWN: list[int] = []  # numbers of views, call by call


class Counted(Augment):
    """Notes how many views it draws."""

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        DRAWN.append(len(images))
        return super().__call__(images, uniforms)


AUGMENT = Counted(hue=0.1)


@pytest.fixture
def drawn() -> list[int]:
    """Numbers of views that are drawn, call by call."""
    DRAWN.clear()
    return DRAWN


def box(make_moco: Any, pixels: PixelCache | None, seed: int = 0, **more: Any) -> BlackBox:
    return BlackBox(make_moco(**more), AUGMENT, seed=seed, device=CPU, pixels=pixels)


@pytest.mark.parametrize("limit", [0, 20_000, 1 << 28])
def test_pixels__are_the_same_with_and_without(make_moco: Any, images: Tensor, limit: int) -> None:
    plain, cached = box(make_moco, None), box(make_moco, PixelCache(limit))
    order = torch.from_numpy(np.random.default_rng(0).permutation(20))
    asks = [(images[:7], 3), (images, 2), (images[order], 5), (images[3:9], 4), (images, 5)]
    asks.append((images[[4, 4, 19, 4]], 6))  # one image several times
    for some, views in asks:
        torch.testing.assert_close(cached.view_pixels(some, views), plain.view_pixels(some, views))
    for reader in (cached, box(make_moco, PixelCache(limit))):  # from the cache, and just drawn
        reader.view_pixels(images[:2], 5).zero_()  # what was handed out is the caller's own
        again = reader.view_pixels(images[:2], 5)
        torch.testing.assert_close(again, plain.view_pixels(images[:2], 5))


def test_pixels__a_prefix_is_not_drawn_again(
    make_moco: Any, images: Tensor, drawn: list[int]
) -> None:
    view = box(make_moco, PixelCache())
    view.view_pixels(images[:8], 4)
    view.view_pixels(images[:8], 4)
    view.view_pixels(images[2:6], 3)
    assert drawn == [8 * 4]
    view.view_pixels(images, 2)
    assert drawn == [8 * 4, 12 * 2]
    view.view_pixels(images, 4)  # eight hold four views, twelve only two
    assert drawn == [8 * 4, 12 * 2, 12 * 4]


def test_pixels__are_shared_between_models_but_not_seeds(
    make_moco: Any, images: Tensor, drawn: list[int]
) -> None:
    shared = PixelCache()
    one, other = box(make_moco, shared), box(make_moco, shared, queue=5)
    mine = one.view_pixels(images, 3)
    assert torch.equal(other.view_pixels(images, 3), mine) and drawn == [60]
    other.embed_views(images, 3)
    assert drawn == [60] and (one.queries, other.queries) == (0, 60)
    assert not torch.equal(box(make_moco, shared, seed=1).view_pixels(images, 3), mine)
    flat = BlackBox(make_moco(), Counted(hue=0.0), seed=0, device=CPU, pixels=shared)
    assert not torch.equal(flat.view_pixels(images, 3), mine)
    box(make_moco, None).view_pixels(images, 3)  # without a cache, all are drawn
    assert drawn == [60] * 4


def test_pixels__are_kept_up_to_the_limit(make_moco: Any, images: Tensor, drawn: list[int]) -> None:
    view = 3 * 8 * 8 * 4  # bytes
    cache = PixelCache(limit=10 * 2 * view)
    reader = box(make_moco, cache)

    def kept() -> int:
        return sum(row.nbytes for rows in cache.rows.values() for row in rows.values())

    reader.view_pixels(images[:6], 1)
    assert cache.used == kept() == 6 * view
    reader.view_pixels(images[:6], 2)  # longer rows take the place of shorter ones
    assert cache.used == kept() == 12 * view
    reader.view_pixels(images, 2)
    assert cache.used == kept() == 20 * view  # ten images, and no more
    drawn.clear()
    reader.view_pixels(images, 2)
    reader.view_pixels(images[:4], 40)  # too long to be kept: the short rows stay
    assert drawn == [10 * 2, 4 * 40] and cache.used == kept() == 20 * view
    drawn.clear()
    reader.view_pixels(images[:4], 2)
    assert not drawn


def test_pixels__longer_rows_are_never_replaced_by_shorter(images: Tensor) -> None:
    """As when another thread keeps more views while this one draws."""
    cache = PixelCache()

    def plain(views: int) -> Tensor:
        return torch.stack([images[:3].float()] * views)

    def interrupted(x: Tensor) -> Tensor:
        cache.get(("a",), x, 5, lambda y: plain(5))
        return plain(2)

    assert cache.get(("a",), images[:3], 2, interrupted).shape[:2] == (2, 3)
    assert {len(row) for row in cache.rows["a",].values()} == {5}
    assert cache.used == plain(5).nbytes


def test_pixels__may_be_shared_between_threads(make_moco: Any, images: Tensor) -> None:
    """Rows of other lengths are put in place while they are read."""
    shared = PixelCache()
    want = box(make_moco, None).view_pixels(images, 6)
    readers = [box(make_moco, shared) for _ in range(4)]

    def read(turn: int) -> bool:
        torch.set_num_threads(1)
        views, some = turn % 6 + 1, torch.arange(turn % 3, 20)
        got = readers[turn % 4].view_pixels(images[some], views)
        return torch.allclose(got, want[:views, some], atol=1e-6)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(120)))
    assert shared.used == sum(r.nbytes for rows in shared.rows.values() for r in rows.values())
