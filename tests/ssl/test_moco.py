"""MoCo against loops, closed forms, and the ring that its queue is."""

from __future__ import annotations

import math
import operator
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from fedmia.report.words.notes import sentences
from fedmia.ssl.bank import info_nce, revisit_probability
from fedmia.ssl.moco import MoCo, MoCoV2, MomentumContrast
from tests.ssl.methods import apart, build, pixels, unit


def oldest_first(method: MomentumContrast) -> Tensor:
    """The queue read as a ring, from the entry that will be overwritten next."""
    return torch.roll(method.queue, -method.bank.pointer, dims=0)


@pytest.mark.parametrize("T", [0.07, 1.0])
@pytest.mark.parametrize("K", [0, 1, 5])
def test_info_nce__equals_a_triple_loop(K: int, T: float) -> None:
    q, k, negatives = unit(4, 0), unit(4, 1), unit(K, 2)
    for i, got in enumerate(info_nce(q, k, negatives, T)):
        logits = []
        for other in [k[i], *negatives]:
            dot = 0.0
            for a, b in zip(q[i].tolist(), other.tolist(), strict=True):
                dot += a * b
            logits.append(dot / T)
        want = -math.log(math.exp(logits[0]) / sum(math.exp(v) for v in logits))
        assert float(got) == pytest.approx(want, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(K=st.integers(1, 9), batches=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_queue__is_a_ring_for_any_batch_size(K: int, batches: list[int]) -> None:
    method = build(MoCo(dim=4, queue=K))
    ring: deque[Tensor] = deque(method.queue.clone(), maxlen=K)
    for seed, size in enumerate(batches):
        keys = unit(size, seed, 4).float()
        method.bank.enqueue(keys)
        ring.extend(keys)
        assert method.queue.shape == (K, 4)
        assert torch.equal(oldest_first(method), torch.stack(list(ring)))


@pytest.mark.parametrize("symmetric", [False, True])
def test_losses__naive_twin(make_moco: Any, symmetric: bool) -> None:
    method, a, b = apart(make_moco(symmetric=symmetric)), pixels(3, 0), pixels(3, 1)

    @torch.no_grad()
    def one(query: Tensor, key: Tensor) -> float:
        q = F.normalize(method.encoder(query[None])[0], dim=0)
        k = F.normalize(method.key_encoder(key[None])[0], dim=0)
        logits = [float(q @ other) / method.spec.temperature for other in [k, *method.queue]]
        return -math.log(math.exp(logits[0]) / sum(map(math.exp, logits)))

    for i, got in enumerate(method.losses(a, b).tolist()):
        want = one(a[i], b[i])
        if symmetric:
            want = (want + one(b[i], a[i])) / 2
        assert got == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_after_step__enqueues_each_key_once_after_both_losses(
    make_moco: Any, symmetric: bool
) -> None:
    method, a, b = make_moco(symmetric=symmetric, queue=12), pixels(3, 0), pixels(3, 1)
    before = method.queue.clone()
    k2, k1 = (F.normalize(method.key_encoder(x), dim=1) for x in (b, a))
    method.losses(a, b)
    assert torch.equal(method.queue, before)
    method.after_step()
    want = torch.cat([k2, k1] if symmetric else [k2])
    assert method.bank.pointer == len(want)
    torch.testing.assert_close(method.queue[: len(want)], want)
    assert torch.equal(method.queue[len(want) :], before[len(want) :])
    method.after_step()  # without new losses there are no new keys
    assert method.bank.pointer == len(want)


@pytest.mark.parametrize("K", [1, 6])
def test_output_losses__equals_a_loop(make_moco: Any, K: int) -> None:
    """Lengths of the outputs play no part; each negative is counted in both directions."""
    method = make_moco(queue=K)
    z1, z2 = 3 * pixels(4, 0).flatten(1)[:, :8], pixels(4, 1).flatten(1)[:, :8]

    def unit_row(row: Tensor) -> list[float]:
        values = row.double().tolist()
        length = math.sqrt(sum(v * v for v in values))
        return [v / length for v in values]

    for i, got in enumerate(method.output_losses(z1, z2).tolist()):
        one, two = unit_row(z1[i]), unit_row(z2[i])
        want = 0.0
        for query, key in ((one, two), (two, one)):
            others = [key, *method.queue.double().tolist()]
            powers = [math.exp(sum(map(operator.mul, query, o)) / 0.2) for o in others]
            want -= math.log(powers[0] / sum(powers))
        assert got == pytest.approx(want, abs=1e-5)


def test_chance_loss__is_the_loss_where_all_outputs_are_one() -> None:
    one = F.normalize(torch.ones(8, 128), dim=1)
    spec = MoCo(queue=4096)
    losses = info_nce(one, one, one[:1].expand(72, -1), spec.temperature)
    assert losses == pytest.approx(torch.full((8,), spec.chance_loss(144, 8)), abs=1e-5)
    assert spec.chance_loss(144, 8) == pytest.approx(math.log(73))


def test_queue_limit__none_is_as_long_as_asked(make_moco: Any) -> None:
    assert len(make_moco(images=10, queue=16).queue) == 5
    method = make_moco(images=10, queue=16, queue_limit="none")
    assert len(method.queue) == 16 and MoCo(queue=16, queue_limit="none").keys(10) == 16
    assert MoCo(queue=16, queue_limit="none").chance_loss(10, 8) == math.log(17)
    assert method.renew(6, torch.Generator().manual_seed(1)) and len(method.queue) == 16


def test_queue_limit__none_is_noted_where_an_image_may_meet_itself() -> None:
    spec = MoCo(queue=16, queue_limit="none")
    assert sentences(spec.notes(32)) == [] and sentences(MoCo(queue=16).notes(32)) == []
    assert sentences(spec.notes(20)) == [
        "queue of 16 keys, as asked, for 20 images; in 32% of the steps an image meets an earlier "
        "key of its own"
    ]
    assert "outlasts an epoch: in 100% of" in sentences(spec.notes(8))[0]
    public = MoCo(queue=16, queue_limit="none", queue_source="public")
    assert sentences(public.notes(8)) == ["queue of 16 keys, as asked, for 8 images"]
    assert sentences(MoCo(queue=16).notes(20))[0].startswith("queue cut from 16 to 10")


@pytest.mark.parametrize(("K", "views"), [(30, 1), (100, 1), (150, 1), (260, 1), (150, 2)])
def test_met_again__as_counted_over_shuffled_epochs(K: int, views: int) -> None:
    """Batches of one image, so that a key comes in before the next image is asked for."""
    draw, queue, met, queries = np.random.default_rng(0), deque[int](maxlen=K), 0, 0
    for epoch in range(60):
        for image in draw.permutation(100).tolist():
            if epoch > 2:
                met, queries = met + (image in queue), queries + 1
            queue.extend([image] * views)
    assert revisit_probability(K, 100, views) == pytest.approx(met / queries, abs=0.02)


def test_temperatures__are_the_published_ones() -> None:
    """The public CIFAR recipe's, and that of v2's paper."""
    assert (MoCo().temperature, MoCoV2().temperature) == (0.1, 0.2)
