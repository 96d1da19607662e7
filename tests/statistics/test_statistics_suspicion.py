"""The suspicion is that of plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from fedmia.statistics.suspicion import (
    by_round,
    deviations,
    suspicions,
    to_normal,
    upper_mean,
)

Values = list[float]


def naive_deviations(row: Values) -> Values:
    present = sorted(x for x in row if not math.isnan(x))

    def median(values: Values) -> float:
        n = len(values)
        ordered = sorted(values)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2

    middle = median(present)
    spread = 1.4826 * median([abs(x - middle) for x in present])
    return [x if math.isnan(x) else (x - middle) / spread if spread else 0.0 for x in row]


def naive_suspicions(norms: np.ndarray, cosines: np.ndarray, losses: np.ndarray | None) -> Values:
    """Round by round and client by client."""
    rounds, clients = norms.shape
    standing = [[0.0] * clients for _ in range(rounds)]
    for r in range(rounds):
        lengths = naive_deviations([math.log(x) for x in norms[r]])
        along = naive_deviations(cosines[r].tolist())
        up = [0.0] * clients if losses is None else naive_deviations(losses[r].tolist())
        standing[r] = [abs(n) - c + u for n, c, u in zip(lengths, along, up, strict=True)]
    means = []
    for c in range(clients):
        own = sorted((row[c] for row in standing if not math.isnan(row[c])), reverse=True)
        upper = own[: (len(own) + 1) // 2]
        means.append(sum(upper) / len(upper) if upper else math.nan)
    known = clients - sum(map(math.isnan, means))
    return [
        float(scipy.stats.norm.ppf(scipy.stats.t.cdf(x, known // 2)))
        for x in naive_deviations(means)
    ]


def draws() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("with_loss", [True, False])
def test_suspicions__are_those_of_plain_loops(with_loss: bool) -> None:
    """Where clients have equally many rounds, these change nothing."""
    draw = np.random.default_rng(1)
    norms, cosines = np.exp(draw.normal(size=(7, 9))), draw.uniform(-1, 1, (7, 9))
    losses = draw.normal(size=(7, 9))
    for values in (norms, cosines, losses):
        values[:, 4] = np.nan  # a client that never sent anything
    used = losses if with_loss else None
    own = suspicions(by_round(norms, cosines, used), draws())
    np.testing.assert_allclose(own, naive_suspicions(norms, cosines, used), rtol=1e-7)
    assert np.isnan(own[4])


def drawn(draw: np.random.Generator, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """How 20 clients stand out in 20 rounds, of whom the first 10 are drawn one time in ten and the
    others nine, and who are `apart` by their own means."""
    values = draw.normal(size=(3, 20, 20)) + apart * draw.normal(size=(3, 1, 20))
    values[:, draw.random((20, 20)) > np.repeat([0.1, 0.9], 10)] = np.nan
    return by_round(np.exp(values[0]), values[1], values[2]), values


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_most_suspicious__is_no_oftener_one_that_is_rarely_drawn(apart: float) -> None:
    """Half of the honest clients are; without the number of rounds it was .72 of alike ones."""
    draw = np.random.default_rng(4)
    federations = [drawn(draw, apart)[0] for _ in range(100)]
    rare = [np.nanargmax(suspicions(one, draws())) < 10 for one in federations]
    assert 0.35 < np.mean(rare) < 0.6


def test_suspicion__finds_an_attacker_of_few_rounds() -> None:
    """Its AUC was .79 where it takes part in one round of ten."""
    draw, aucs = np.random.default_rng(5), []
    for _ in range(100):
        _, (norms, cosines, losses) = drawn(draw, 0.0)
        cosines[10:, 0] -= 1.5
        losses[10:, 0] += 1.5
        own = suspicions(by_round(np.exp(norms), cosines, losses), draws())
        others = own[1:][np.isfinite(own[1:])]
        if np.isfinite(losses[10:, 0]).any():
            aucs.append(np.mean(others < own[0]))
    assert np.mean(aucs) > 0.81


@pytest.mark.parametrize("clients", [4, 5, 7, 10, 30, 100])
def test_to_normal__is_as_rare_among_any_number_of_clients(clients: int) -> None:
    draw = np.random.default_rng(6)
    values = deviations(draw.normal(size=(20_000 // clients, clients)))
    beyond = np.mean([to_normal(row) > 1.96 for row in values])
    assert 0.015 < beyond < 0.035
    assert clients > 5 or (deviations(values) > 1.96).mean() > 0.03


@pytest.mark.parametrize("clients", [3, 4, 5, 7, 9])
def test_suspicion__of_one_client_moves_little_from_round_to_round(clients: int) -> None:
    """After 5, 6 and 7 rounds; its deviation ran from 38 to 185, as few clients lie close together
    now and then."""
    draw, moves, ranges = np.random.default_rng(7), [], []
    for _ in range(50):
        values = draw.normal(size=(3, 7, clients)) + draw.normal(size=(3, 1, clients))
        honest = by_round(np.exp(values[0]), values[1], values[2])
        values[1:, :, 0] += [[-8.0], [8.0]]
        attacked = by_round(np.exp(values[0]), values[1], values[2])
        moves += [suspicions(honest[:r], draws()) for r in (5, 6, 7)]
        own = [suspicions(attacked[:r], draws())[0] for r in (5, 6, 7)]
        plain = [deviations(upper_mean(attacked[:r]))[0] for r in (5, 6, 7)]
        ranges.append((np.ptp(own), np.ptp(plain)))
    changes = np.abs(np.diff(np.reshape(moves, (50, 3, clients)), axis=1))
    assert np.median(changes) < 0.25 and np.mean(changes > 1) < 0.1
    unit, deviation = np.median(ranges, axis=0)
    assert unit < 0.5 and deviation > 2


def test_to_normal__keeps_the_order_and_is_finite() -> None:
    values = np.array([-1e9, -2.0, 0.0, np.nan, 2.0, 40.0, 150.0, 1e300])
    own = to_normal(values)
    assert np.isnan(own[3]) and (np.diff(own[~np.isnan(own)]) > 0).all() and np.isfinite(own[-1])
    assert own[6] - own[5] < 1  # of 40 and 150 it is the same client


def test_suspicions__grow_with_what_attackers_do() -> None:
    """A longer or shorter norm, a lower cosine, a higher loss; never the reverse."""
    draw = np.random.default_rng(2)
    norms, cosines = np.exp(0.1 * draw.normal(size=(5, 10))), 0.5 + 0.1 * draw.normal(size=(5, 10))
    losses = 0.1 * draw.normal(size=(5, 10))

    def of_first(norm: float = 1.0, cosine: float = 0.0, loss: float = 0.0) -> float:
        n, c, up = norms.copy(), cosines.copy(), losses.copy()
        n[:, 0], c[:, 0], up[:, 0] = n[:, 0] * norm, c[:, 0] + cosine, up[:, 0] + loss
        return float(suspicions(by_round(n, c, up), draws())[0])

    assert of_first(norm=9) > of_first(norm=3) > of_first() + 3
    assert of_first(norm=1 / 9) > of_first(norm=1 / 3) > of_first() + 3
    assert of_first(cosine=-0.9) > of_first() + 3 and of_first(cosine=0.3) < of_first()
    assert of_first(loss=0.9) > of_first() + 3 and of_first(loss=-0.9) < of_first()


def test_suspicion__of_an_attack_in_half_of_the_rounds_is_not_averaged_away() -> None:
    draw = np.random.default_rng(3)
    standing = draw.normal(size=(8, 10))
    standing[4:, 9] += 8
    own = suspicions(standing, draws())
    whole = to_normal(deviations(standing.mean(axis=0)))
    assert own.argmax() == 9 and own[9] > whole[9]


def test_deviations__say_nothing_where_most_are_equal() -> None:
    assert deviations(np.array([2.0, 2.0, 2.0, 9.0])).tolist() == [0, 0, 0, 0]
    assert np.isnan(deviations(np.array([2.0, 2.0, np.nan, 2.0]))[2])
