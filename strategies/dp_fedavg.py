"""DP-FedAvg: differential privacy of clients, by clipping and noise at the server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.random import Generator

from fedmia.defenses.canaries import FAR, add_scores, check_noise, draw_coins, guess_canaries
from fedmia.defenses.sensitivity import protected, refuse_running
from fedmia.records.privacy import Epsilon
from fedmia.seeding import rng
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ExpectedRound, Update
from strategies._accounting import composed_epsilon, composed_noise, sampled_epsilon, sampled_noise
from strategies._clipping import clip_each, clip_state, match_dtypes
from strategies.base import FederatedStrategy, Metrics
from strategies.cohort import draw_cohort
from strategies.failure_policy import Adversary

DEFAULT_NOISE = 0.03
CLIP = "clip"  # C of the coming round, beside the weights


@dataclass
class DPFedAvg(FederatedStrategy):
    """G' = G + (sum of updates clipped to C, plus N(0, (z C)^2)) / m, in the m clients' mean.

    The mean is uniform: with weights by images, z C would be no bound on one client. Clipped and
    noised are the float weights alone. Under `adaptive` C follows a quantile of the updates' norms
    by the clients' noised votes, which get a share of the budget: 1/2 for an update within C, -1/2
    for a longer one, nothing for one of zeros, which so adds to neither sum.

    Attributes:
        bound: the clipping bound C at work; None before the first round.
        rounds_of: rounds in which each client took part.
        releases: rounds released so far.
        last: noise and clipping of the last round.
        audited: canaries' scores, where an audit is on.
        draw: source of the noise in an audit; else each round draws from a stream of its own.
    """

    paper: ClassVar[str] = "McMahan et al., ICLR 2018; Andrew et al., NeurIPS 2021, 1905.03871"
    singles: ClassVar[bool] = True
    private: ClassVar[bool] = True
    strength: ClassVar[str] = "noise_multiplier"
    strengths: ClassVar[tuple[float, ...]] = (0.03, 0.1, 0.3, 1.0)
    neutral: ClassVar[Mapping[str, Any]] = {"epsilon": None, "noise_multiplier": 0.0, "clip": 1e9}

    epsilon: float | None = option(None, "privacy budget of the whole run, for a client", gt=0)
    noise_multiplier: float | None = option(
        None, f"z, noise on the sum over C, in place of epsilon; neither: {DEFAULT_NOISE}", ge=0
    )
    delta: float = option(1e-5, "delta of (epsilon, delta)-DP, over the run", gt=0, lt=1)
    clip: float = option(1.0, "C, largest L2 norm of an update; if adaptive, at first", gt=0)
    adaptive: bool = option(False, "whether C follows a quantile of the updates' norms")
    quantile: float = option(
        0.5, "share of the updates that are to stay unclipped", ge=0, le=1, needs=("adaptive",)
    )
    clip_lr: float = option(0.2, "learning rate of C", gt=0, needs=("adaptive",))
    vote_share: float = option(
        0.1, "share of the budget that the votes on C get", gt=0, lt=1, needs=("adaptive",)
    )
    cohorts: str = option(
        "known",
        "who trains in a round: known to the attacker, or secret, which lowers epsilon where a "
        "round's clients are a random part of all, drawn without replacement",
        choices=("known", "secret"),
    )
    canaries: int = option(
        0, "clients made up to audit the mechanism, for a lower bound of epsilon: 1000", ge=0
    )
    bound: float | None = field(default=None, init=False, repr=False)
    rounds_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    releases: int = field(default=0, init=False, repr=False)
    last: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    audited: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    draw: Generator | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise(self, "noise_multiplier")

    def check(self, norm: str) -> None:
        refuse_running(norm)

    def broadcast(self) -> State:
        """C, for an attacker to know too: it rests on noised votes alone."""
        return {CLIP: torch.tensor(self._bound(), dtype=torch.float64)}

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        bound, noise = self._bound(), self.noise()
        spread, votes = self.parts(noise)
        lengths, round = list[float](), 0

        def count_updates() -> Iterator[Update]:
            nonlocal round
            for update in updates:
                round, name = update.round, str(update.client)
                self.rounds_of[name] = self.rounds_of.get(name, 0) + 1
                yield update

        merged = self.mean(clip_each(received, count_updates(), bound, lengths))
        count, draw = len(lengths), self.draw or rng(self.phase.seed, "server", round)
        if noise:
            merged = add_noise(merged, spread * bound / count, draw)
        self.releases += 1
        self.last = {
            "clip": bound,
            "noise_std": spread * bound / count,
            "clipped": sum(length > bound for length in lengths) / count,
            "update_norm": sum(lengths) / count,
        }
        if self.adaptive:
            cast = sum(math.copysign(0.5, bound - length) for length in lengths if length)
            under = 0.5 + (cast + draw.normal(0.0, 1.0) * votes) / count
            self.bound = bound * math.exp(-self.clip_lr * (under - self.quantile))
        if self.canaries and noise:
            self._audit(bound, noise, count, round)
        return match_dtypes(merged, received)

    def noise(self) -> float:
        """z of all that a round releases: as given, or from epsilon for all rounds of the run.

        Raises:
            InputError: an epsilon, but the rounds are not known.
        """
        if self.epsilon is None:
            multiplier = self.noise_multiplier
            return DEFAULT_NOISE if multiplier is None else float(multiplier)
        if not self.phase.total:
            raise InputError("an epsilon is of a whole run, whose rounds are not known here")
        cohorts = [
            draw_cohort(self.phase, r, len(self.nodes)) for r in range(1, self.phase.total + 1)
        ]
        rounds_of = Counter(client for one in cohorts for client in one)
        most = max([n for c, n in rounds_of.items() if c not in self.phase.malicious], default=1)
        if self.cohorts == "known":
            return composed_noise(self.epsilon, most, self.delta)
        known = composed_noise(self.epsilon, most, self.delta, 2.0)
        rate = self._rate(len(cohorts[0]), self.phase.malicious)
        return min(known, sampled_noise(self.epsilon, rate, len(cohorts), self.delta))

    def parts(self, noise: float) -> tuple[float, float]:
        """z of the sum, and deviation of the noise on the votes: together they tell as much as one
        release of z (Andrew et al., Theorem 1, with 1 / (2 sigma_b)^2 = share / z^2), of a client
        put to nothing, who moves the sum by C and the votes by 1/2, and replaced, by twice both."""
        if not self.adaptive:
            return noise, 0.0
        share = self.vote_share
        return noise / math.sqrt(1 - share), noise / (2 * math.sqrt(share))

    def privacy(self, against: Adversary) -> Epsilon | None:
        """For one client of all; None where the noise is 0: nothing is promised."""
        noise = self.noise() if self.releases else 0.0
        if self.releases and not noise:
            return None
        most = self._most_rounds(against.malicious)
        value = self._spent(noise, most, against) if most else 0.0
        stated = math.isfinite(value) and not against.server
        text = statement(self.cohorts == "secret", most, self.releases, against)
        if self.cohorts == "known" and most:
            twice = composed_epsilon(noise, most, self.delta, 2.0)
            text += f" Replacing a client by another doubles C: epsilon {twice:.3g}."
        standing = "empirical" if against.server else "guaranteed"
        audit = "own-runs-gdp" if self.cohorts == "known" else "one-run"
        return Epsilon(
            value=value if stated else None, delta=self.delta, rounds=self.releases,
            standing=standing, assumptions=text, unit="client",
            lower_bound=guess_canaries(self.audited, audit),
        )  # fmt: skip

    def _most_rounds(self, malicious: Sequence[int]) -> int:
        """Rounds of the honest client that took part most often."""
        honest = [n for c, n in self.rounds_of.items() if int(c) not in malicious]
        return max(honest, default=0)

    def _rate(self, size: float, malicious: Sequence[int]) -> float:
        """Share of the others that a cohort of `size` draws; the malicious know of themselves."""
        return min(1.0, size / max(len(self.nodes) - len(malicious), 1))

    def _audit(self, bound: float, noise: float, count: int, round: int) -> None:
        """The round once more for each of many made-up clients, alone, by a stream of their own.

        In, a client's update is FAR times C in the one weight there is; out it is nothing, or the
        opposite where the claim is of a client replaced by another. With known cohorts it joins as
        many rounds as the claim is of, else those that a draw puts it in. Its score: the log of the
        likelihoods' ratio of the noised sum and vote, but for that draw.
        """
        malicious, secret = self.phase.malicious, self.cohorts == "secret"
        done = self.audited.get("rounds", 0)
        if not secret and done >= self._most_rounds(malicious):
            return
        stream, scores = rng(self.phase.seed, "canaries", round), np.zeros(self.canaries)
        out, rate = (-1.0, self._rate(count, malicious)) if secret else (0.0, 1.0)
        spread, votes = self.parts(noise)
        twin = replace(self, canaries=0, epsilon=None, noise_multiplier=noise)
        twin.draw, none = stream, {"w": torch.zeros(1, dtype=torch.float64)}
        for i, inside in enumerate(draw_coins(self.audited, self.canaries, stream)):
            side = (1.0 if inside else out) * (stream.random() < rate)
            sent, twin.bound = {"w": none["w"] + FAR * bound * side}, bound
            merged = twin.aggregate(none, [Update(0, round, sent, 1, {})])
            scores[i] = (float(merged["w"]) / bound - (1 + out) / 2) / spread**2
            if self.adaptive and not secret:  # else a canary's vote says nothing of its coin
                vote = self.quantile - 0.5 - math.log(twin.bound / bound) / self.clip_lr
                scores[i] -= (vote + 0.25) / 2 / votes**2
        add_scores(self.audited, scores)
        self.audited["rounds"] = done + 1

    def _spent(self, noise: float, most: int, against: Adversary) -> float:
        if self.cohorts == "known":
            return composed_epsilon(noise, most, self.delta)
        known = composed_epsilon(noise, most, self.delta, 2.0)
        size = max(1, math.ceil(sum(self.rounds_of.values()) / self.releases))
        rate = self._rate(size, against.malicious)
        return min(known, sampled_epsilon(noise, rate, self.releases, self.delta))

    def aggregation_metrics(self, against: Adversary) -> Metrics:
        return dict(self.last)

    def passing(self, crafted: State, expected: ExpectedRound) -> State:
        received = expected.received
        bound = float(expected.broadcast.get(CLIP, self.clip))
        return match_dtypes(clip_state(received, crafted, bound)[0], received)

    def _bound(self) -> float:
        return self.clip if self.bound is None else self.bound


def add_noise(state: State, deviation: float, draw: Generator) -> State:
    """Independent Gaussian noise on every float weight, drawn in float64.

    Args:
        state: weights by name.
        deviation: standard deviation of the noise on one weight.
        draw: source of the noise in an audit; else each round draws from a stream of its own.

    Returns:
        Weights with noise; integer tensors stay.
    """
    noisy = dict(state)
    for name in sorted(protected(state)):  # a file has its tensors in an order of its own
        noise = torch.from_numpy(draw.normal(0.0, deviation, tuple(state[name].shape)))
        noisy[name] = state[name].double() + noise.to(state[name].device)
    return noisy


def statement(secret: bool, most: int, rounds: int, against: Adversary) -> str:
    """What the epsilon is of, and what it rests on.

    Args:
        secret: whether the cohorts are secret (amplification by sampling).
        most: rounds of the client that took part most often.
        rounds: rounds released.
        against: whom the statement is to hold against.

    Returns:
        Sentences for the report.
    """
    if secret:
        unit = "one client, all its images, replaced by another"
        how = (
            f"Amplified by sampling: it holds while nobody learns which clients a round draws (a "
            f"fixed number, at random, without replacement; not Poisson); {rounds} rounds add up."
        )
    else:
        unit = (
            "one client, all its images: its updates put to nothing, so that it adds nothing to a "
            "sum nor to the votes on C; cohorts and sizes public"
        )
        how = (
            f"No amplification: cohorts are taken as known; exact for the {most} of {rounds} "
            "rounds of the client that took part most often."
        )
    text = f"Unit: {unit}. {how} "
    if against.server:
        text += (
            "No epsilon holds against this run's attacker: the server sees the updates before it "
            "clips and noises them. "
        )
    else:
        text += "Holds against all who see the models, not against the server. "
    if against.crafts:
        text += (
            f"Client {', '.join(map(str, against.malicious))} uploads what an attack crafts: it is "
            "clipped as any other, so the statement holds for each honest client, whatever is "
            "crafted; it is none for the crafting clients' own images, nor does it bound what they "
            "do to the model. "
        )
    return text + (
        "Assumes exact arithmetic and true random noise; loss, norms and shares clipped in this "
        "report are not covered."
    )
