"""Who trains on what: disjoint, balanced, by content, and online in half of the shadows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedmia.data.images import digests
from fedmia.settings.errors import InputError
from fedmia.shadows.draw import ImagePool, Pixels, ShadowDraw, content_digest
from fedmia.shadows.plan import ShadowPlan

from .conftest import make_plan


def numbered(first: int, count: int) -> np.ndarray:
    """Different images of 2x2 pixels."""
    ids = np.arange(first, first + count, dtype=np.uint32)
    return ids.view(np.uint8).reshape(count, 1, 2, 2)


def draw(plan: ShadowPlan, pool: Pixels, candidates: Pixels | None) -> list[ShadowDraw]:
    return ImagePool(pool, candidates).draw(plan)


def contents(images: np.ndarray, deals: list[ShadowDraw]) -> list[tuple[set[bytes], set[bytes]]]:
    """Digests of members and of non-members of each shadow."""
    return [(set(digests(images[ours])), set(digests(images[theirs]))) for ours, theirs in deals]


def hashes(images: np.ndarray, deals: list[ShadowDraw]) -> list[str]:
    """Of the images of each shadow, in their order."""
    return [content_digest(images[ours], images[theirs]) for ours, theirs in deals]


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=9),
    st.lists(st.integers(1, 5), min_size=2, max_size=5), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_draw__subjects_are_on_one_side(
    sizes: list[int], attacked: list[int], online: bool, seed: int
) -> None:
    of = np.repeat(np.arange(len(sizes) + len(attacked)), [*sizes, *attacked])
    images, others = numbered(0, sum(sizes)), numbered(1000, sum(attacked))
    if sum(sizes) < 4:
        return
    for one in ImagePool(images, others, of).draw(make_plan(count=2, online=online, seed=seed)):
        members, rest = (set(of[side]) for side in one)
        assert members and rest and not members & rest
        assert online or max(members | rest) < len(sizes)


@given(st.integers(4, 40), st.integers(0, 12), st.integers(1, 5), st.booleans(), st.integers(0, 9))
def test_draw__members_and_nonmembers(
    pool: int, attacked: int, count: int, online: bool, seed: int
) -> None:
    images, others = numbered(0, pool), numbered(1000, attacked)
    deals = draw(make_plan(count=count, online=online, seed=seed), images, others)
    whole = np.concatenate([images, others])
    under_attack = set(digests(others))
    half = (pool + (attacked if online else 0)) // 2
    inside = dict.fromkeys(under_attack, 0)
    for sides, (members, rest) in zip(deals, contents(whole, deals), strict=True):
        assert not members & rest
        assert [len(members), len(rest)] == [*map(len, sides)] == [half, half]
        assert online or not (members | rest) & under_attack
        for one in members & under_attack:
            inside[one] += 1
        if online:
            assert under_attack <= members | rest
            assert abs(len(members & under_attack) - len(rest & under_attack)) <= 1
    if online:
        assert all(2 * n in (count - 1, count, count + 1) for n in inside.values())
        assert count % 2 or all(2 * n == count for n in inside.values())
    assert len(deals) == count


@pytest.mark.parametrize("online", [False, True])
def test_draw__order_plays_no_part(online: bool) -> None:
    images, others = numbered(0, 30), numbered(1000, 7)
    plan = make_plan(count=3, online=online)
    deals = draw(plan, images, others)
    turned = draw(plan, images[::-1], np.roll(others, 3, axis=0))
    whole = np.concatenate([images, others])
    other = np.concatenate([images[::-1], np.roll(others, 3, axis=0)])
    assert contents(whole, deals) == contents(other, turned)
    for ours, theirs in zip(deals, turned, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert np.array_equal(whole[a], other[b])  # in the same order too
    known = hashes(whole, deals)
    assert known == hashes(other, turned) and len({*known}) == 3
    anew = draw(make_plan(seed=1, online=online), images, others)
    assert hashes(whole, anew)[0] != known[0]


def test_draw__a_shadow_does_not_depend_on_how_many_there_are() -> None:
    images, others = numbered(0, 30), numbered(1000, 7)
    few = draw(make_plan(count=3, online=True), images, others)
    many = draw(make_plan(count=8, online=True), images, others)
    whole = np.concatenate([images, others])
    assert hashes(whole, few) == hashes(whole, many[:3])


def test_draw__the_images_asked_for() -> None:
    for dealt in draw(make_plan(images=5), numbered(0, 30), None):
        assert [*map(len, dealt)] == [5, 5]


def test_draw__candidates_and_repeats_leave_the_pool() -> None:
    images, others = numbered(0, 20), numbered(1000, 4)
    crowded = np.concatenate([images, images[:3], others[:2], others[:1]])
    ground = ImagePool(crowded, np.concatenate([others, others]))
    assert (ground.repeated, ground.attacked) == (3, 3)
    assert len(ground.pool) == 20 and len(ground.candidates) == 4
    deals = draw(make_plan(), crowded, others)
    clean = draw(make_plan(), images, others)
    known = hashes(np.concatenate([images, others]), clean)
    assert hashes(np.concatenate([crowded, others]), deals) == known


def test_draw__tensor_or_array(pool: Tensor, candidates: Tensor) -> None:
    a = draw(make_plan(online=True), pool, candidates)
    b = draw(make_plan(online=True), pool.numpy(), candidates.numpy())
    assert all(map(np.array_equal, itertools.chain(*a), itertools.chain(*b)))


@pytest.mark.parametrize(
    ("more", "pool", "attacked", "said"),
    [
        ({}, 3, 0, "need 4 distinct images .*there are 3"),
        ({}, 0, 0, "there are 0"),
        ({"images": 8}, 15, 0, "need 16 distinct images .*there are 15"),
        ({"images": 8}, 12, 6, "need 16 .*there are 12"),
        ({"images": 2, "online": True}, 20, 8, "half of the 8 .* at least 4, got 2"),
    ],
)
def test_draw__too_few_images(more: dict, pool: int, attacked: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        draw(make_plan(**more), numbered(0, pool), numbered(1000, attacked))


def test_draw__refuses_other_images(pool: Tensor) -> None:
    with pytest.raises(InputError, match="shadow images must be uint8"):
        draw(make_plan(), pool.float(), None)
    with pytest.raises(InputError, match="images under attack must be uint8"):
        draw(make_plan(), pool, torch.zeros(3, 8, 8, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"\(3, 8, 8\), the images under attack \(1, 8, 8\)"):
        draw(make_plan(), pool, pool[:, :1])
