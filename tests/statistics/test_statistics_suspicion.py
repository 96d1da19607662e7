"""The suspicion is that of plain loops, and its p-value is that of honest clients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedmia.statistics.suspicion import by_round, deviations, p_values, suspicions

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
    return naive_deviations(means)


@pytest.mark.parametrize("with_loss", [True, False])
def test_suspicions__are_those_of_plain_loops(with_loss: bool) -> None:
    draw = np.random.default_rng(1)
    norms, cosines = np.exp(draw.normal(size=(7, 9))), draw.uniform(-1, 1, (7, 9))
    losses = draw.normal(size=(7, 9))
    absent = draw.random((7, 9)) < 0.25
    absent[:, 4] = True  # a client that never sent anything
    for values in (norms, cosines, losses):
        values[absent] = np.nan
    used = losses if with_loss else None
    own = suspicions(by_round(norms, cosines, used))
    np.testing.assert_allclose(own, naive_suspicions(norms, cosines, used), rtol=1e-10)
    assert np.isnan(own[4]) and np.isnan(p_values(own, 5, with_loss, draw)[4])


def test_suspicions__grow_with_what_attackers_do() -> None:
    """A longer or shorter norm, a lower cosine, a higher loss; never the reverse."""
    draw = np.random.default_rng(2)
    norms, cosines = np.exp(0.1 * draw.normal(size=(5, 10))), 0.5 + 0.1 * draw.normal(size=(5, 10))
    losses = 0.1 * draw.normal(size=(5, 10))

    def of_first(norm: float = 1.0, cosine: float = 0.0, loss: float = 0.0) -> float:
        n, c, up = norms.copy(), cosines.copy(), losses.copy()
        n[:, 0], c[:, 0], up[:, 0] = n[:, 0] * norm, c[:, 0] + cosine, up[:, 0] + loss
        return float(suspicions(by_round(n, c, up))[0])

    assert of_first(norm=9) > of_first(norm=3) > of_first() + 3
    assert of_first(norm=1 / 9) > of_first(norm=1 / 3) > of_first() + 3
    assert of_first(cosine=-0.9) > of_first() + 3 and of_first(cosine=0.3) < of_first()
    assert of_first(loss=0.9) > of_first() + 3 and of_first(loss=-0.9) < of_first()


def test_suspicion__of_an_attack_in_half_of_the_rounds_is_not_averaged_away() -> None:
    draw = np.random.default_rng(3)
    standing = draw.normal(size=(8, 10))
    standing[4:, 9] += 8
    own = suspicions(standing)
    assert own.argmax() == 9 and p_values(own, 8, True, draw)[9] < 0.05
    whole = deviations(standing.mean(axis=0))
    assert own[9] > whole[9]


@pytest.mark.parametrize(("clients", "rounds"), [(3, 4), (10, 8), (10, 1), (50, 2)])
def test_p_values__name_somebody_in_one_of_twenty_normal_federations(
    clients: int, rounds: int
) -> None:
    """Whose most suspicious client is the 95th of 100 has p 0.05, however they are scaled."""
    norms, cosines, losses = np.random.default_rng(4).normal(3, 2, (3, 4000, rounds, clients))
    most = suspicions(by_round(np.exp(norms), cosines, losses)).max(axis=-1)
    one = np.full(clients, np.quantile(most, 0.95))
    p = p_values(one, rounds, True, np.random.default_rng(0))
    assert p[0] == pytest.approx(0.05, abs=0.02)
    assert 0 < p_values(one * 1e6, rounds, True, np.random.default_rng(0))[0] <= 0.01


def test_p_values__are_the_share_of_draws_whose_most_suspicious_is_as_suspicious() -> None:
    own = np.array([0.0, 1.0, -1.0, 4.0, np.nan])
    norms, cosines, losses = np.random.default_rng(5).standard_normal((3, 20_000, 3, 4))[:, :300]
    ps = p_values(own, 3, False, np.random.default_rng(5))
    most = [max(naive_suspicions(np.exp(n), c, None)) for n, c in zip(norms, cosines, strict=True)]
    for p, x in zip(ps[:4], own, strict=False):
        assert p == pytest.approx(np.mean([m >= x for m in most]), abs=0.09)
    assert np.isnan(ps[4]) and losses.shape == cosines.shape
    assert np.isnan(p_values(np.full(3, np.nan), 1, True, np.random.default_rng(0))).all()


def test_deviations__say_nothing_where_most_are_equal() -> None:
    assert deviations(np.array([2.0, 2.0, 2.0, 9.0])).tolist() == [0, 0, 0, 0]
    assert np.isnan(deviations(np.array([2.0, 2.0, np.nan, 2.0]))[2])
