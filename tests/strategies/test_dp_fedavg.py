"""DP-FedAvg: clipping and noise against twins, votes that follow a quantile, its accounts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants.analysis.rdp import compute_rdp
from scipy import stats

from fedmia.federation.checkpoint import restore_server, server_state
from fedmia.lowerbounds.gdp import delta_at
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies._accounting import (
    composed_epsilon,
    composed_noise,
    sampled_epsilon,
    sampled_noise,
    sampled_renyi,
)
from strategies.cohort import Phase, draw_cohort
from strategies.dp_fedavg import CLIP, DPFedAvg
from strategies.failure_policy import Adversary
from tests.made_up_runs import stated_epsilon

ALONE = Adversary()


def of_norms(norms: Sequence[float], round: int = 1, size: int = 400) -> tuple[State, list[Update]]:
    """Weights, and updates of clients whose lengths are `norms`."""
    draw = np.random.default_rng(round)
    received = {"w": torch.from_numpy(draw.normal(size=size)).float()}
    ups = []
    for client, length in enumerate(norms):
        step = draw.normal(size=size)
        moved = received["w"].double() + torch.from_numpy(step * length / np.linalg.norm(step))
        ups.append(Update(client, round, {"w": moved.float()}, 3 + client, {}))
    return received, ups


def bound_of(strategy: DPFedAvg) -> float:
    """C of the coming round."""
    return float(strategy.broadcast()[CLIP])


def stated(strategy: DPFedAvg, **against: Any) -> Any:
    """What the strategy says of its privacy."""
    return strategy.privacy(Adversary(**against))


def at(
    strategy: DPFedAvg, clients: int, total: int, share: float = 1.0, malicious: int = 0
) -> DPFedAvg:
    who = tuple(range(clients - malicious, clients))
    strategy.phase = Phase("main", 0, total, False, share, 0, total, who)
    strategy.nodes = {client: client for client in range(clients)}
    return strategy


def test_aggregate__is_the_clipped_mean_with_noise_of_its_law() -> None:
    """z C / m on each float weight, of the m clients of the round and not of all; equal weights
    whatever a client holds, none on counters."""
    received, ups = of_norms([0.1, 0.5, 4.0, 8.0], size=20_000)
    steps = [(u.state["w"] - received["w"]).double().numpy() for u in ups]
    mean = sum(s * min(1, 2.0 / np.linalg.norm(s)) for s in steps) / 4
    for u in (received, *(u.state for u in ups)):
        u["count"] = torch.tensor(3 if u is received else 1000)
    strategy = at(DPFedAvg(clip=2.0, noise_multiplier=0.8), 12, 4)
    got = strategy.aggregate(received, ups)
    assert got["count"].item() == 3
    noise = (got["w"] - received["w"]).double().numpy() - mean
    assert stats.kstest(noise / (0.8 * 2.0 / 4), "norm").pvalue > 0.01
    metrics = strategy.aggregation_metrics(ALONE)
    assert metrics["clipped"] == 0.5 and metrics["noise_std"] == pytest.approx(0.8 * 2.0 / 4)
    other = DPFedAvg(clip=2.0, noise_multiplier=0.8).aggregate(received, ups)
    assert torch.equal(got["w"], other["w"])  # a seed, no global generator
    again = strategy.aggregate(received, of_norms([0.1] * 4, round=2, size=20_000)[1])
    assert not torch.equal(again["w"], got["w"])


def test_votes__are_noised_as_the_parts_say() -> None:
    """At fixed norms, over seeds: mean and deviation of what C follows."""
    votes = []
    for seed in range(400):
        strategy = DPFedAvg(adaptive=True, noise_multiplier=1.3, clip_lr=1.0, quantile=0.5)
        strategy.phase = Phase("main", 0, 1, False, 1.0, seed, 1)
        strategy.aggregate(*of_norms([0.5, 0.5, 0.5, 2.0], size=4))
        votes.append(-4 * math.log(bound_of(strategy)))  # of C = 1: three under it, one over
    assert np.std(votes) == pytest.approx(strategy.parts(1.3)[1], rel=0.12)
    assert np.mean(votes) == pytest.approx(1.0, abs=0.35)


def sums(strategy: DPFedAvg, norms: Sequence[float]) -> tuple[torch.Tensor, float]:
    """The sum over C, and the votes, that a round without noise releases of updates along their own
    axes."""
    ups = [
        Update(i, 1, {"w": length * torch.eye(len(norms))[i].double()}, 1, {})
        for i, length in enumerate(norms)
    ]
    got = strategy.aggregate({"w": torch.zeros(len(norms)).double()}, ups)["w"]
    votes = len(norms) * -math.log(bound_of(strategy) / strategy.clip) / strategy.clip_lr
    return got * len(norms) / strategy.clip, votes


@pytest.mark.parametrize(("replaced", "share"), [(0.0, 0.1), (0.0, 0.6), (5.0, 0.1), (5.0, 0.6)])
def test_neighbours__are_as_far_apart_as_the_parts_pay_for(replaced: float, share: float) -> None:
    """The exact mu of noised sum and votes together, for one client put to nothing or replaced: of
    z = 1 it is 1, and 2 where a client becomes another, at most; and is reached."""
    largest = 0.0
    for norm in (0.001, 0.3, 1.0, 1.001, 50.0):
        for other in (0.0, *([0.002, 0.999, replaced] if replaced else ())):
            pair = []
            for length in (norm, -other):  # on the same axis, the other way
                strategy = DPFedAvg(adaptive=True, noise_multiplier=0.0, vote_share=share)
                pair.append(sums(strategy, [0.4, length, 7.0]))
            spread, votes = DPFedAvg(adaptive=True, vote_share=share).parts(1.0)
            apart = float((pair[0][0] - pair[1][0]).norm()), pair[0][1] - pair[1][1]
            largest = max(largest, math.hypot(apart[0] / spread, apart[1] / votes))
    assert largest <= (2.0 if replaced else 1.0) + 1e-6
    assert largest > (1.8 if replaced else 0.999)


@pytest.mark.parametrize(("start", "quantile"), [(0.01, 0.3), (30.0, 0.8)])
def test_adaptive_clip__ends_at_the_quantile(start: float, quantile: float) -> None:
    """From far below and far above, with the noise of votes, of 20 clients (Andrew et al.)."""
    draw = np.random.default_rng(0)
    strategy = DPFedAvg(clip=start, adaptive=True, quantile=quantile, clip_lr=0.5)
    norms, rates = np.exp(draw.normal(0.0, 0.5, (80, 20))), list[float]()
    for round, row in enumerate(norms):
        strategy.aggregate(*of_norms(row, round + 1, size=8))
        rates.append(strategy.aggregation_metrics(ALONE)["clip"])
    want = float(np.exp(0.5 * stats.norm.ppf(quantile)))
    assert np.mean(rates[-30:]) == pytest.approx(want, rel=0.15)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_votes__get_their_share_of_the_budget(share: float) -> None:
    """The two Gaussian releases of a round are mu-GDP together as one of z alone."""
    strategy = DPFedAvg(adaptive=True, noise_multiplier=1.3, vote_share=share)
    spread, votes = strategy.parts(1.3)
    squares = [1 / spread**2, (0.5 / votes) ** 2]  # a vote counts as -1/2 or 1/2
    assert sum(squares) == pytest.approx(1 / 1.3**2)
    assert squares[1] / sum(squares) == pytest.approx(share)
    assert DPFedAvg(noise_multiplier=1.3).parts(1.3) == (1.3, 0.0)


def test_accounts__exact_composition_of_the_rounds_of_one_client() -> None:
    for noise, rounds in ((0.5, 3), (2.0, 40)):
        epsilon = composed_epsilon(noise, rounds, 1e-5)
        assert delta_at(epsilon, math.sqrt(rounds) / noise) == pytest.approx(1e-5)
        assert composed_noise(epsilon, rounds, 1e-5) == pytest.approx(noise)
        # A Renyi bound, as of Opacus at rate 1, lies over the exact value, and not far.
        orders = [1 + x / 10 for x in range(1, 400)]
        renyi = compute_rdp(q=1.0, noise_multiplier=noise, steps=rounds, orders=orders)
        bound = min(r + math.log(1e5) / (a - 1) for r, a in zip(renyi, orders, strict=True))
        assert 0.8 * bound < epsilon < bound
        twice = composed_epsilon(noise, rounds, 1e-5, 2.0)
        assert twice == pytest.approx(composed_epsilon(noise / 2, rounds, 1e-5))


def naive_renyi(noise: float, rate: float, a: int) -> float:
    """Wang, Balle, Kasiviswanathan (2019), Theorem 9, for the Gaussian, whose eps(inf) is
    infinite."""
    eps = lambda j: j / (2 * noise**2)  # noqa: E731
    total = 1 + rate**2 * math.comb(a, 2) * min(4 * (math.exp(eps(2)) - 1), math.exp(eps(2)) * 2)
    for j in range(3, a + 1):
        total += rate**j * math.comb(a, j) * math.exp((j - 1) * eps(j)) * 2
    return math.log(total) / (a - 1)


@pytest.mark.parametrize("noise", [1.0, 1.5, 4.0])
@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
def test_secret_cohorts__are_amplified_as_the_theorem_says(noise: float, rate: float) -> None:
    for order in (2, 3, 7):
        want = naive_renyi(noise, rate, order)
        assert sampled_renyi(noise, rate, order) == pytest.approx(want, rel=1e-9)
        # Of a Poisson cohort (Opacus) Renyi DP is less: this one's would be claimed too small.
        poisson = compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=[order])
        assert sampled_renyi(noise, rate, order) >= np.atleast_1d(poisson)[0] * (1 - 1e-9)


def test_secret_cohorts__noise_to_epsilon_and_back() -> None:
    noise = sampled_noise(3.0, 0.05, 50, 1e-5)
    spent, more = (sampled_epsilon(noise * times, 0.05, 50, 1e-5) for times in (1.0, 0.999))
    assert spent <= 3.0 <= more
    assert sampled_epsilon(10.0, 0.02, 50, 1e-5) < composed_epsilon(10.0, 50, 1e-5, 2.0)


@pytest.mark.parametrize(("noise", "rounds"), [(2.0, 1), (3.0, 20), (8.0, 40)])
def test_secret_cohorts__a_client_that_becomes_another_moves_the_sum_by_twice_the_clip(
    noise: float, rounds: int
) -> None:
    """With everybody in every round nothing is secret: the bound lies over the exact epsilon of
    sensitivity 2, not over that of 1 alone. With a part of them it is the twin's at half z."""
    assert sampled_epsilon(noise, 1.0, rounds, 1e-5) > composed_epsilon(noise, rounds, 1e-5, 2.0)
    orders = range(2, 32)
    renyi = [rounds * naive_renyi(noise / 2, 0.1, a) for a in orders]
    want = min(
        r + math.log1p(-1 / a) - (math.log(1e-5) + math.log(a)) / (a - 1)
        for r, a in zip(renyi, orders, strict=True)
    )
    assert sampled_epsilon(noise, 0.1, rounds, 1e-5) == pytest.approx(want, rel=1e-6)


def rounds_of(strategy: DPFedAvg, rounds: int, clients: int = 6) -> DPFedAvg:
    for round in range(1, rounds + 1):
        strategy.aggregate(*of_norms([0.5] * clients, round))
    return strategy


def test_privacy__of_a_target_is_spent_round_by_round() -> None:
    strategy = rounds_of(at(DPFedAvg(epsilon=4.0, adaptive=True), 6, 8), 2)
    early = stated(strategy)
    whole = stated(rounds_of(strategy, 6))
    assert whole.value == pytest.approx(4.0) and early.value < 4.0
    assert whole.value == pytest.approx(composed_epsilon(strategy.noise(), 8, 1e-5))
    assert (whole.rounds, whole.standing, whole.delta) == (8, "guaranteed", 1e-5)
    again = at(DPFedAvg(epsilon=4.0, adaptive=True), 6, 8)
    restore_server(again, *server_state(strategy))
    assert stated(again) == whole
    assert again.aggregation_metrics(ALONE) == strategy.aggregation_metrics(ALONE)
    # Nothing is amplified where secret cohorts are everybody: planned for 2C.
    secret = rounds_of(at(DPFedAvg(epsilon=4.0, cohorts="secret"), 6, 8), 8)
    assert 3.99 < stated(secret).value <= 4.0 + 1e-9


def test_privacy__tells_rounds_of_the_run_and_of_the_client() -> None:
    """Three of five for the honest client that took part most often; replaced, at twice C."""
    strategy = at(DPFedAvg(noise_multiplier=1.5, delta=1e-6), 4, 5)
    for round in range(1, 6):
        received, ups = of_norms([0.5] * 4, round)
        strategy.aggregate(received, [u for u in ups if (u.client + round) % 2])
    statement = stated(strategy)
    assert statement.value == pytest.approx(composed_epsilon(1.5, 3, 1e-6))
    assert (statement.rounds, statement.delta, statement.unit) == (5, 1e-6, "client")
    assert "exact for the 3 of 5 rounds" in statement.assumptions
    twice = composed_epsilon(1.5, 3, 1e-6, 2.0)
    assert statement.assumptions.endswith(f"another doubles C: epsilon {twice:.3g}.")
    fewer = stated(strategy, malicious=(0, 2))
    assert fewer.value == pytest.approx(composed_epsilon(1.5, 2, 1e-6))
    secret = at(DPFedAvg(noise_multiplier=8.0, cohorts="secret", canaries=100), 100, 3)
    for round, size in ((1, 6), (2, 5), (3, 5)):
        secret.aggregate(*of_norms([0.5] * size, round))
    statement = stated(secret)  # 16 in 3 rounds: as of 6 each
    assert statement.value == pytest.approx(sampled_epsilon(8.0, 0.06, 3, 1e-5))
    assert "3 rounds add up" in statement.assumptions
    assert statement.lower_bound.audit == "one-run"


def test_adaptive__the_sum_has_its_own_part_of_the_noise_at_the_clip_of_the_round() -> None:
    """More than z C / m, since the votes cost; and C is the one that the round before left."""
    options: dict[str, float] = {"clip": 2.0, "noise_multiplier": 0.8, "vote_share": 0.6}
    strategy = DPFedAvg(adaptive=True, clip_lr=2.0, **options)  # type: ignore[arg-type]
    received, ups = of_norms([0.0] * 3, size=20_000)
    for _ in range(2):
        bound = bound_of(strategy)
        noise = (strategy.aggregate(received, ups)["w"] - received["w"]).double()
        want = 0.8 / math.sqrt(1 - 0.6) * bound / 3
        assert float(noise.std()) == pytest.approx(want, rel=0.03)
        metrics = strategy.aggregation_metrics(ALONE)
        assert metrics["noise_std"] == pytest.approx(want) and metrics["clip"] == bound
    assert abs(bound - 2.0) > 0.2 and bound_of(strategy) != bound


def test_privacy__says_whom_it_holds_against() -> None:
    strategy = rounds_of(at(DPFedAvg(noise_multiplier=2.0), 6, 3), 3)
    statement = stated(strategy)
    assert statement.value is not None and "crafts" not in statement.assumptions
    assert "not against the server" in statement.assumptions
    assert "Unit: one client, all its images: its updates put to nothing" in statement.assumptions
    statement = stated(strategy, malicious=(5,), crafts=True)
    assert (
        statement.value is not None
        and "Client 5 uploads what an attack crafts" in statement.assumptions
    )
    assert "none for the crafting clients' own images" in statement.assumptions
    statement = stated(strategy, server=True)
    assert statement.value is None and statement.standing == "empirical"
    assert "No epsilon holds against this run's attacker" in statement.assumptions
    assert stated(rounds_of(at(DPFedAvg(noise_multiplier=0.0), 6, 3), 3)) is None


def test_privacy__secret_cohorts_replace_a_client_and_are_never_poisson() -> None:
    secret = rounds_of(at(DPFedAvg(noise_multiplier=8.0, cohorts="secret"), 100, 3, 0.06), 3)
    statement = stated(secret)
    assert statement.value == pytest.approx(sampled_epsilon(8.0, 0.06, 3, 1e-5))
    assert statement.value < composed_epsilon(8.0, 3, 1e-5, 2.0)
    assert "replaced by another" in statement.assumptions and "not Poisson" in statement.assumptions
    # The malicious know of themselves.
    assert stated(secret, malicious=tuple(range(80, 100))).value > statement.value
    planned = at(DPFedAvg(epsilon=2.0, cohorts="secret"), 100, 30, 0.06)
    assert sampled_epsilon(planned.noise(), 0.06, 30, 1e-5) <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cohorts", "adaptive", "malicious"),
    [("known", False, 0), ("known", True, 10), ("known", False, 50), ("known", True, 95),
     ("secret", False, 0), ("secret", True, 10), ("secret", False, 95)],
)  # fmt: skip
def test_epsilon__is_kept_whoever_is_malicious(
    cohorts: str, adaptive: bool, malicious: int
) -> None:
    """100 clients, a tenth a round: planned for those that are promised something."""
    options: dict[str, Any] = {"epsilon": 8.0, "cohorts": cohorts, "adaptive": adaptive}
    strategy = at(DPFedAvg(**options), 100, 40, 0.1, malicious)
    phase: Any = strategy.phase
    for round in range(1, 41):
        ups = [
            Update(client, round, {"w": torch.ones(2)}, 1, {})
            for client in draw_cohort(phase, round, 100)
        ]
        strategy.aggregate({"w": torch.zeros(2)}, ups)
    assert 7.9 < stated(strategy, malicious=phase.malicious).value <= 8.0 + 1e-6


@dataclass(frozen=True)
class Thin:
    """A source of noise, of which the sum has a part only."""

    whole: Any
    part: float

    def normal(self, mean: float, deviation: float, size: Any = None) -> Any:
        return self.whole.normal(mean, deviation * (1.0 if size is None else self.part), size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


@dataclass
class ThinNoise(DPFedAvg):
    """Says what DP-FedAvg says, and releases sums of less noise."""

    part: float = 1.0

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        whole = self.draw
        if whole is not None:
            self.draw = Thin(whole, self.part)  # type: ignore[assignment]
        merged = super().aggregate(received, updates)
        self.draw = whole
        return merged


@dataclass
class BareVotes(DPFedAvg):
    """Votes on C with hardly any noise."""

    def parts(self, noise: float) -> tuple[float, float]:
        return super().parts(noise)[0], 0.01


@pytest.mark.parametrize(
    "more", [{}, {"adaptive": True}, {"cohorts": "secret", "noise_multiplier": 8.0}]
)
def test_canaries__find_a_quarter_of_the_noise(more: dict[str, Any]) -> None:
    claim, bound = audited(ThinNoise, **more)
    assert 0 < bound < claim
    claim, bound = audited(ThinNoise, part=0.25, **more)
    assert claim < 5 and bound > claim


def test_canaries__find_votes_without_noise() -> None:
    """That the sum alone does not show."""
    more = {"adaptive": True, "vote_share": 0.5}
    claim, _ = audited(DPFedAvg, **more)
    assert claim < audited(BareVotes, **more)[1]


def audited(kind: type[DPFedAvg], **more: Any) -> tuple[float, float]:
    """What a strategy of z = 4 over 4 rounds claims, and what its canaries show."""
    strategy = at(kind(**{"noise_multiplier": 4.0, "canaries": 400, **more}), 6, 4)
    statement = stated(rounds_of(strategy, 4))
    audit = statement.lower_bound
    assert audit.canaries == 400
    return statement.value, stated_epsilon(statement).lower_bound.value


def test_canaries__leave_the_run_alone_and_take_part_as_often_as_a_client() -> None:
    """Every client in one round of two, so that two of four rounds are audited; goes through
    JSON."""
    plain, watched, again = (
        at(DPFedAvg(noise_multiplier=1.0, adaptive=True, canaries=c), 6, 4) for c in (0, 100, 100)
    )
    for round in range(1, 5):
        received, ups = of_norms([0.5] * 6, round)
        mine = [u for u in ups if u.client % 2 == round % 2]
        one, other = (s.aggregate(received, mine) for s in (plain, watched))
        assert torch.equal(one["w"], other["w"]) and plain.bound == watched.bound
    assert watched.audited["rounds"] == 2 and plain.rounds_of == watched.rounds_of
    restore_server(again, *server_state(watched))
    assert stated(again) == stated(watched)


def test_options__that_say_two_things_or_not_enough() -> None:
    for words, options in (
        ("whose rounds are not known", {"epsilon": 1.0}),
        ("not both", {"epsilon": 1.0, "noise_multiplier": 1.0}),
        ("canaries: 5, must be 0 or at least 100", {"canaries": 5}),
    ):
        with pytest.raises(InputError, match=words):
            DPFedAvg(**options).aggregate(*of_norms([1.0]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="running statistics"):
        DPFedAvg().check("batch")
