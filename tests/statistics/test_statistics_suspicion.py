"""The suspicion is that of plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedmia.statistics.suspicion import by_round, deviations, suspicions

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
    assert np.isnan(own[4])


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
    whole = deviations(standing.mean(axis=0))
    assert own.argmax() == 9 and own[9] > whole[9]


def test_deviations__say_nothing_where_most_are_equal() -> None:
    assert deviations(np.array([2.0, 2.0, 2.0, 9.0])).tolist() == [0, 0, 0, 0]
    assert np.isnan(deviations(np.array([2.0, 2.0, np.nan, 2.0]))[2])
