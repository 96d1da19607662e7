"""MoCo against loops, closed forms, and the ring that its queue is."""

from __future__ import annotations

import copy
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

from fedmia.nets.smallnet import SmallNet
from fedmia.ssl._bank import info_nce, revisit_probability
from fedmia.ssl.base import Recipe
from fedmia.ssl.moco import MoCo, MoCoV2, MomentumContrast


def unit(rows: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64), dim=1)


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def oldest_first(method: MomentumContrast) -> Tensor:
    """The queue read as a ring, from the entry that will be overwritten next."""
    return torch.roll(method.queue, -method.bank.pointer, dims=0)


def everything(method: MomentumContrast) -> dict[str, Tensor]:
    state = {n: t.clone() for n, t in method.state_dict().items()}
    return state | {"pointer": torch.tensor(method.bank.pointer)}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize("T", [0.07, 1.0])
@pytest.mark.parametrize("K", [0, 1, 5])
def test_info_nce__equals_a_triple_loop(K: int, T: float) -> None:
    q, k, negatives = unit(4, 6, 0), unit(4, 6, 1), unit(K, 6, 2)
    for i, got in enumerate(info_nce(q, k, negatives, T)):
        logits = []
        for other in [k[i], *negatives]:
            dot = 0.0
            for a, b in zip(q[i].tolist(), other.tolist(), strict=True):
                dot += a * b
            logits.append(dot / T)
        want = -math.log(math.exp(logits[0]) / sum(math.exp(v) for v in logits))
        assert float(got) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("K", [0, 1, 7])
def test_info_nce__constant_embeddings_give_log_of_k_plus_1(K: int) -> None:
    ones = F.normalize(torch.ones(3, 4, dtype=torch.float64), dim=1)
    got = info_nce(ones, ones, ones[:1].expand(K, 4), 0.07)
    torch.testing.assert_close(got, torch.full((3,), math.log(K + 1), dtype=torch.float64))


def test_info_nce__opposite_negatives_closed_form() -> None:
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    got = info_nce(q, q, -q.expand(3, 2), 0.5)
    assert float(got) == pytest.approx(math.log(1 + 3 * math.exp(-4)), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(K=st.integers(1, 9), batches=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_queue__is_a_ring_for_any_batch_size(K: int, batches: list[int]) -> None:
    spec = MoCo(dim=4, queue=K)
    method = spec.build(SmallNet(width=1).build(1, 4), Recipe((0.0,), (1.0,)), torch.Generator())
    ring: deque[Tensor] = deque(method.queue.clone(), maxlen=K)
    for seed, size in enumerate(batches):
        keys = unit(size, 4, seed).float()
        method.bank.enqueue(keys)
        ring.extend(keys)
        assert method.queue.shape == (K, 4)
        assert torch.equal(oldest_first(method), torch.stack(list(ring)))


def test_losses__are_per_image(make_moco: Any) -> None:
    method, a, b = make_moco(), pixels(6, 0), pixels(6, 1)
    whole = method.losses(a, b)
    assert whole.shape == (6,)
    alone = torch.cat([method.losses(a[i : i + 1], b[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=0)
    assert whole.unique().numel() == 6


@pytest.mark.parametrize("symmetric", [False, True])
def test_losses__naive_twin(make_moco: Any, symmetric: bool) -> None:
    method, a, b = make_moco(symmetric=symmetric), pixels(3, 0), pixels(3, 1)
    with torch.no_grad():  # so that the two encoders differ
        for weight in method.key_encoder.parameters():
            weight.mul_(1.3).add_(0.01)

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


def test_losses__gradient_reaches_the_query_encoder_only(make_moco: Any) -> None:
    method = make_moco(symmetric=True)
    before = everything(method)
    method.losses(pixels(4, 0), pixels(4, 1)).mean().backward()
    assert all(w.grad is not None for w in method.encoder.parameters())
    assert any(bool(w.grad.abs().sum() > 0) for w in method.encoder.parameters())
    assert all(w.grad is None for w in method.key_encoder.parameters())
    assert same(before, everything(method))  # the queue moves after the step, not before


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


@pytest.mark.parametrize("m", [0.0, 0.3, 0.99, 1.0])
def test_after_step__momentum_update_formula(make_moco: Any, m: float) -> None:
    method = make_moco(momentum=m)
    with torch.no_grad():
        for i, weight in enumerate(method.encoder.parameters()):
            weight.add_(0.1 * (i + 1))
    keys = [w.clone() for w in method.key_encoder.parameters()]
    queries = [w.detach().clone() for w in method.encoder.parameters()]
    method.after_step()
    for k, q, got in zip(keys, queries, method.key_encoder.parameters(), strict=True):
        torch.testing.assert_close(got, m * k + (1 - m) * q, atol=1e-6, rtol=1e-6)
    for q, after in zip(queries, method.encoder.parameters(), strict=True):
        assert torch.equal(q, after)


def test_probe_losses__leaves_state_untouched_and_sums_both_directions(make_moco: Any) -> None:
    method, a, b = make_moco(), pixels(4, 0), pixels(4, 1)
    method.losses(a, b)  # keys wait to be enqueued
    waiting = [k.clone() for k in method.latest]
    before = everything(method)
    got = method.probe_losses(a, b)
    assert got.requires_grad
    assert same(before, everything(method))
    assert all(torch.equal(x, y) for x, y in zip(waiting, method.latest, strict=True))
    torch.testing.assert_close(got, method.probe_losses(b, a))
    z1, z2 = (F.normalize(method.encoder(x), dim=1) for x in (a, b))
    one = info_nce(z1, z2, method.queue, 0.2)
    other = info_nce(z2, z1, method.queue, 0.2)
    torch.testing.assert_close(got, one + other)


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


def test_output_losses__takes_outputs_of_another_precision(make_moco: Any) -> None:
    method = make_moco()
    z1, z2 = pixels(4, 0).flatten(1)[:, :8], pixels(4, 1).flatten(1)[:, :8]
    got = method.output_losses(z1.double(), z2.double())
    assert got.dtype == torch.float64
    torch.testing.assert_close(got.float(), method.output_losses(z1, z2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_probe_losses__one_forward_equals_two(norm: str) -> None:
    """Batch norm too, as observers read in eval mode."""
    backbone = SmallNet(width=4, norm=norm).build(3, 8)
    method = MoCo(dim=8, queue=16).build(
        backbone, Recipe((0.5,) * 3, (0.25,) * 3), torch.Generator()
    )
    method.train()
    method.encoder(pixels(32, 2))  # statistics other than the first
    method.eval()
    a, b = pixels(5, 0), pixels(5, 1)
    want = method.output_losses(method.encoder(a), method.encoder(b))
    torch.testing.assert_close(method.probe_losses(a, b), want, atol=1e-5, rtol=1e-5)


def test_augment__not_given_is_the_public_recipe() -> None:
    for cls in (MoCo, MoCoV2):
        assert cls().augment == cls(crop_min=0.2, flip=0.5, jitter=1.0).augment
        mild = cls(crop_min=0.8, flip=0.0, jitter=0.25).augment
        assert (mild.crop_min, mild.flip) == (0.8, 0.0)
        for name in ("brightness", "contrast", "saturation", "hue"):
            assert getattr(mild, name) == pytest.approx(getattr(cls().augment, name) / 4)
        assert (mild.jitter_p, mild.blur_p) == (cls().augment.jitter_p, cls().augment.blur_p)
        still = cls(jitter=0.0).augment
        assert (still.brightness, still.contrast, still.saturation, still.hue) == (0, 0, 0, 0)
    assert MoCo(jitter=3.0).augment.hue == 0.5  # half the colour circle is all there is


def test_shared_state__is_floats_and_a_copy(make_moco: Any) -> None:
    method = make_moco()
    state = method.shared_state()
    assert all(t.dtype == torch.float32 and not t.requires_grad for t in state.values())
    assert set(state) == {n for n, _ in method.encoder.named_parameters()}
    next(iter(state.values())).fill_(9.0)
    assert not same(state, method.shared_state())


def test_shared_state__of_batch_norm_leaves_the_integer_counter_out() -> None:
    backbone = SmallNet(width=1, norm="batch").build(1, 4)
    method = MoCo(dim=4, queue=4).build(backbone, Recipe((0.0,), (1.0,)), torch.Generator())
    assert any("num_batches_tracked" in n for n in method.encoder.state_dict())
    state = method.shared_state()
    assert any("running_mean" in n for n in state)
    assert all(t.is_floating_point() for t in state.values())
    method.load_shared(state)  # what was left out keeps its value


def test_load_shared__refuses_another_model(make_moco: Any) -> None:
    method = make_moco()
    state = method.shared_state()
    name, tensor = state.popitem()
    with pytest.raises(ValueError, match="does not fit"):
        method.load_shared(state)
    with pytest.raises(ValueError, match="does not fit"):
        method.load_shared(state | {name: tensor, "stranger": tensor})


@pytest.mark.parametrize("policy", ["keep", "reset"])
def test_local_state__round_trip(make_moco: Any, policy: str) -> None:
    trained, fresh = (make_moco(seed, queue_policy=policy) for seed in (0, 1))
    trained.losses(pixels(5, 0), pixels(5, 1))
    trained.after_step()
    snapshot = {n: t.clone() for n, t in trained.local_state().items()}
    own = fresh.queue.clone()
    fresh.load_local(trained.local_state())
    expected = trained.key_encoder.state_dict()
    assert same(fresh.key_encoder.state_dict(), expected)
    if policy == "keep":
        assert (
            torch.equal(fresh.queue, trained.queue)
            and fresh.bank.pointer == trained.bank.pointer == 5
        )
    else:
        assert torch.equal(fresh.queue, own) and fresh.bank.pointer == 0
    fresh.losses(pixels(5, 2), pixels(5, 3))
    fresh.after_step()  # neither the kept copy nor the source moves with it
    assert same({n: t for n, t in trained.local_state().items()}, snapshot)


def test_begin_round__keeps_or_resets_the_key_encoder(make_moco: Any) -> None:
    for policy in ("keep", "reset"):
        method = make_moco(key=policy)
        with torch.no_grad():
            for weight in method.encoder.parameters():
                weight.add_(1.0)
        before = copy.deepcopy(method.key_encoder.state_dict())
        method.begin_round()
        expected = before if policy == "keep" else method.encoder.state_dict()
        assert same(method.key_encoder.state_dict(), expected)
        method.begin_first_round()
        assert same(method.key_encoder.state_dict(), method.encoder.state_dict())


def test_fill_bank__replaces_the_negatives_by_own_keys(make_moco: Any) -> None:
    method, x = make_moco(), pixels(5, 0)
    method.fill_bank(x)
    torch.testing.assert_close(method.queue, F.normalize(method.encoder(x), dim=1))
    assert method.bank.pointer == 0 and not method.queue.requires_grad


@pytest.mark.parametrize(
    ("images", "K"), [(None, 16), (100, 16), (32, 16), (31, 15), (4, 2), (1, 1)]
)
def test_queue__is_capped_at_half_the_images_and_says_so(
    make_moco: Any, images: int | None, K: int
) -> None:
    assert len(make_moco(images=images).queue) == K
    if images is None:
        return
    notes = MoCo(queue=16).notes(images)
    assert len(notes) == (K < 16)
    assert all(f"from 16 to {K}" in n and f"{images} images" in n for n in notes)


def test_build__draws_every_weight_from_the_generator(make_moco: Any) -> None:
    torch.manual_seed(1)
    one = everything(make_moco(seed=3))
    torch.manual_seed(2)
    assert same(one, everything(make_moco(seed=3)))
    assert not same(one, everything(make_moco(seed=4)))
    method = make_moco(seed=3)
    assert same(method.key_encoder.state_dict(), method.encoder.state_dict())
    torch.testing.assert_close(method.queue.norm(dim=1), torch.ones(16))


def test_mocov2__has_the_mlp_head_and_the_published_constants() -> None:
    v1, v2 = MoCo(), MoCoV2()
    assert (v1.temperature, v2.temperature) == (0.1, 0.2)  # the public CIFAR recipe; v2's paper
    assert [type(m).__name__ for m in v2.head(6).children()] == ["Linear", "ReLU", "Linear"]
    assert isinstance(v1.head(6), torch.nn.Linear)
    assert (v1.augment.jitter_p, v1.augment.hue, v1.augment.blur_p) == (1.0, 0.4, 0.0)
    assert (v2.augment.jitter_p, v2.augment.hue, v2.augment.blur_p) == (0.8, 0.1, 0.5)
    backbone = SmallNet(width=2).build(3, 8)
    method = v2.build(backbone, Recipe((0.5,) * 3, (0.25,) * 3), torch.Generator())
    assert method.encoder(pixels(2, 0)).shape == (2, 128)


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
    assert spec.notes(32) == [] and MoCo(queue=16).notes(32) == []
    assert spec.notes(20) == [
        "queue of 16 keys, as asked, for 20 images; in 32% of the steps an image meets an earlier "
        "key of its own"
    ]
    assert "outlasts an epoch: in 100% of" in spec.notes(8)[0]
    public = MoCo(queue=16, queue_limit="none", queue_source="public")
    assert public.notes(8) == ["queue of 16 keys, as asked, for 8 images"]
    assert MoCo(queue=16).notes(20)[0].startswith("queue cut from 16 to 10")


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
