"""Robust aggregation against naive twins of the papers, and what an attacker who knows it sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy.multikrum import select_multikrum

from fedmia.settings import registry
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ExpectedRound, Update
from strategies.cohort import Phase
from strategies.failure_policy import Adversary
from strategies.fedavg import FedAvg
from strategies.krum import Krum, krum_scores
from strategies.median import Median
from strategies.multi_krum import MultiKrum
from strategies.norm_clip import NormClip
from strategies.trimmed_mean import TrimmedMean
from tests.strategies.conftest import some_state as some


def updates(states: list[State]) -> list[Update]:
    return [Update(c, 1, state, 3 + 2 * c, {}) for c, state in enumerate(states)]


def flat(state: State) -> np.ndarray[Any, Any]:
    return np.concatenate([t.double().numpy().ravel() for t in state.values()])


@pytest.mark.parametrize(("n", "trim"), [(3, 0), (3, 1), (4, 0), (4, 1), (7, 0), (7, 1), (1, 5),
                                         (2, 5), (4, 5), (5, 5), (8, 5)])  # fmt: skip
def test_median_and_trimmed_mean__of_each_weight_by_itself(n: int, trim: int) -> None:
    """Where `trim` would leave nobody, one or two are left."""
    states = [some(s) for s in range(n)]
    rows = np.stack([flat(s) for s in states])
    median = Median().aggregate(some(99), updates(states))
    np.testing.assert_allclose(flat(median), np.median(rows, axis=0), rtol=1e-6)
    want, cut = [], min(trim, (n - 1) // 2)
    for column in rows.T:  # a weight's values, one by one
        middle = sorted(column)[cut : n - cut]
        want.append(sum(middle) / len(middle))
    trimmed = TrimmedMean(trim=trim).aggregate(some(99), updates(states))
    np.testing.assert_allclose(flat(trimmed), want, rtol=1e-5, atol=1e-7)


def naive_krum(rows: np.ndarray[Any, Any], f: int) -> list[float]:
    """Blanchard et al., Section 4: s(i), the sum over i -> j of ||V_i - V_j||^2."""
    scores = []
    for i in range(len(rows)):
        gaps = [float(((rows[i] - rows[j]) ** 2).sum()) for j in range(len(rows)) if j != i]
        scores.append(sum(sorted(gaps)[: len(rows) - f - 2]))
    return scores


@pytest.mark.parametrize(("n", "f"), [(5, 1), (7, 1), (7, 2), (9, 3)])
def test_krum__is_that_of_the_paper_and_of_flower(n: int, f: int) -> None:
    """Of several, n - f where no number is given: all but as many as it withstands."""
    for seed in range(5):
        states = [some(100 * seed + s, 1.0 + s / 9) for s in range(n)]
        want = naive_krum(np.stack([flat(s) for s in states]), f)
        np.testing.assert_allclose(krum_scores(states, f), want, rtol=1e-9)
        got = Krum(malicious=f).aggregate(some(99), updates(states))
        assert flat(got).tolist() == flat(states[int(np.argmin(want))]).tolist()
        for keep in (2, None):
            several = MultiKrum(malicious=f, keep=keep).aggregate(some(99), updates(states))
            best = np.argsort(want)[: keep or n - f]
            mean = np.mean([flat(states[i]) for i in best], axis=0)
            np.testing.assert_allclose(flat(several), mean, rtol=1e-5, atol=1e-6)
            sent = [RecordDict({"arrays": ArrayRecord(torch_state_dict=s)}) for s in states]
            theirs = select_multikrum(sent, f, len(best))
            assert {id(r) for r in theirs} == {id(sent[i]) for i in best}


def test_krum__sees_small_updates_of_large_weights_and_no_counter() -> None:
    """Squared norms of weights in float32 leave nothing of distances of 1e-3; a counter of steps
    is no weight."""
    draw, states = np.random.default_rng(0), []
    for client in range(6):
        moved = torch.from_numpy(draw.normal(0, 1e-3 if client else 1e-2, 2000)).float()
        states.append({"w": 50.0 + moved, "steps": torch.tensor(1000 * client)})
    want = naive_krum(np.stack([s["w"].double().numpy() for s in states]), 1)
    np.testing.assert_allclose(krum_scores(states, 1), want, rtol=1e-9)
    assert int(np.argmax(want)) == 0


@pytest.mark.parametrize("name", ["krum", "multi-krum", "median", "trimmed-mean", "norm-clip"])
def test_every_rule__bounds_what_one_client_can_do(name: str) -> None:
    """A mean goes where one of seven wants it; no robust one does."""
    honest = [some(s, 0.1) for s in range(6)]
    received = {n: torch.zeros_like(t) for n, t in honest[0].items()}
    moved = []
    for strategy in (registry.build("strategy", name, {}), FedAvg()):
        alone = flat(strategy.aggregate(received, updates(honest)))
        worst = strategy.aggregate(received, updates([*honest, some(9, 0.1, far=1e3)]))
        moved.append(np.linalg.norm(flat(worst) - alone))
    assert moved[0] < 0.5 < 100 < moved[1]


def test_norm_clip__is_that_of_the_paper() -> None:
    received, states = some(99), [some(s, 0.5 * (s + 1)) for s in range(5)]
    steps = [flat(s) - flat(received) for s in states]
    lengths, strategy = np.linalg.norm(steps, axis=1), NormClip(clip=6.0)
    assert set(lengths > 6.0) == {True, False}
    mean = sum(u * min(1, 6.0 / n) for u, n in zip(steps, lengths, strict=True)) / 5
    got = strategy.aggregate(received, updates(states))
    np.testing.assert_allclose(flat(got), flat(received) + mean, rtol=1e-5, atol=1e-6)
    metrics = strategy.aggregation_metrics(Adversary())
    assert metrics["clipped"] == np.mean(lengths > 6.0)
    assert metrics["update_norm"] == pytest.approx(lengths.mean())


@pytest.mark.parametrize(
    "name", ["norm-clip", "trimmed-mean", "dp-fedavg", "multi-krum", "fedavgm"]
)
def test_neutral_setting__is_fedavg(name: str) -> None:
    received, ups = some(99), updates([some(s) for s in range(6)])
    want = FedAvg().aggregate(received, ups)
    neutral = registry.load("strategy", name).neutral
    got = registry.build("strategy", name, neutral).aggregate(received, ups)
    assert all(torch.equal(got[n], want[n]) for n in want)


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [("krum", {}, 5), ("krum", {"malicious": 3}, 9), ("multi-krum", {"keep": 7}, 7),
     ("median", {}, 3), ("trimmed-mean", {"trim": 2}, 5), ("fedavg", {}, 1)],
)  # fmt: skip
def test_least__clients_of_a_round(name: str, options: dict[str, Any], least: int) -> None:
    assert registry.build("strategy", name, options).least == least


def test_krum__tells_how_much_of_the_model_was_crafted() -> None:
    strategy, states = MultiKrum(malicious=1, keep=2), [some(s, 0.1) for s in range(5)]
    share = (1 in np.argsort(krum_scores(states, 1))[:2]) / 2
    for craft in (False, True):
        strategy.phase = Phase("main", 0, 1, craft, 1.0, 0)
        strategy.aggregate(some(99), updates(states))
        metrics = strategy.aggregation_metrics(Adversary(malicious=(1,), crafts=True))
        assert metrics == ({"malicious_share": share} if craft else {})


@pytest.mark.parametrize(("f", "fellows"), [(1, 1), (2, 1), (2, 2)])
def test_passing__krum_takes_the_shrunk_update_and_not_the_whole_one(f: int, fellows: int) -> None:
    """Nor more than all of a small one."""
    received, drift, far = some(99), some(50, 0.02), some(9, 1.0)
    honest = [
        {n: t + drift[n] + 0.1 * some(s)[n] for n, t in received.items()} for s in range(2 * f + 3)
    ]
    crafted = {n: t + far[n] for n, t in received.items()}
    strategy = Krum(malicious=f)

    def taken(state: State) -> bool:
        return strategy.chosen_updates([*honest, *[state] * fellows])[0] >= len(honest)

    assert not taken(crafted)
    passed = strategy.passing(crafted, ExpectedRound(received, {}, honest, fellows))
    assert taken(passed)
    middle = {n: torch.stack([h[n] for h in honest]).mean(dim=0) for n in received}
    step = flat(passed) - flat(middle)
    cosine = step @ flat(far) / np.linalg.norm(step) / np.linalg.norm(flat(far))
    assert cosine > 0.999 and np.linalg.norm(step) > 0.05  # the way of the climb
    times = [{n: middle[n] + k * (t - middle[n]) for n, t in passed.items()} for k in (1.95, 2.05)]
    assert [taken(t) for t in times] == [True, False]  # half the way that would be taken
    small = {n: t + 1e-3 * far[n] for n, t in received.items()}
    expected = ExpectedRound(received, {}, honest, fellows)
    step = flat(strategy.passing(small, expected)) - flat(middle)
    np.testing.assert_allclose(step, flat(small) - flat(received), rtol=1e-2, atol=1e-6)
    assert strategy.passing(small, ExpectedRound(received, {}, [], fellows)) is small


def test_passing__stays_where_it_is_counted() -> None:
    received, far = some(99), some(9, 5.0)
    crafted = {n: t + far[n] for n, t in received.items()}
    clip = NormClip(clip=0.5).passing(crafted, ExpectedRound(received, {}, [], 1))
    step = flat(clip) - flat(received)
    assert np.linalg.norm(step) == pytest.approx(0.5, rel=1e-5)
    np.testing.assert_allclose(step / 0.5, flat(far) / np.linalg.norm(flat(far)), atol=1e-5)
    honest = [some(s, 0.1) for s in range(4)]
    trimmed = flat(TrimmedMean(trim=1).passing(crafted, ExpectedRound(received, {}, honest, 1)))
    rows = np.stack([flat(s) for s in honest])
    assert (trimmed >= rows.min(0)).all() and (trimmed <= rows.max(0)).all()
    inside = {n: t.clone() for n, t in honest[0].items()}
    for strategy in (Median(), FedAvg(), TrimmedMean(trim=0)):
        same = strategy.passing(inside, ExpectedRound(received, {}, honest, 1))
        assert all(torch.equal(same[n], inside[n]) for n in inside)


@pytest.mark.parametrize(
    ("n", "trim"), [(1, 1), (2, 1), (3, 2), (4, 1), (4, 2), (4, 9), (5, 2), (5, 3), (6, 2), (7, 4)]
)
def test_passing__trimmed_mean_moves_a_weight_no_further_than_it_must(n: int, trim: int) -> None:
    """Against a loop over weights: the honest values that `trim` of them reach, from below and from
    above, or half of them where they are fewer; what lies between stays."""
    honest, crafted = [some(s) for s in range(n)], some(9, 2.0)
    rows, before = np.stack([flat(s) for s in honest]), flat(crafted)
    expected = ExpectedRound(some(99), {}, honest, 1)
    got, sides = flat(TrimmedMean(trim=trim).passing(crafted, expected)), set()
    cut = min(trim, -(-n // 2))
    for column, value, after in zip(rows.T, before, got, strict=True):
        lowest, highest = sorted(column)[cut - 1], sorted(column, reverse=True)[cut - 1]
        assert after == (lowest if value < lowest else highest if value > highest else value)
        sides.add(-1 if value < lowest else 1 if value > highest else 0)
    assert {-1, 1} <= sides


def test_krum__equals_go_by_partition_id_and_weights_count_no_images() -> None:
    """Two pairs of equals: of the scores that tie the first id, and of several the plain mean."""
    one, other = some(1), some(2)
    states = [other, one, one, one, other]
    ups = [updates(states)[c] for c in (3, 0, 4, 2, 1)]
    assert torch.equal(Krum(malicious=1).aggregate(some(99), ups)["bias"], one["bias"])
    scored = MultiKrum(malicious=1, keep=4)
    assert scored.chosen_updates(states) == [0, 1, 2, 3]
    got = scored.aggregate(some(99), ups)
    want = (3 * flat(one) + flat(other)) / 4
    np.testing.assert_allclose(flat(got), want, rtol=1e-6)
