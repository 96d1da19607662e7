"""A small run with known ROCs: binormal scores, no model behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from fedmia.records import ClientInfo, Curves, Pair, Probe, RoundInfo, RunScores, ScoredAttack
from fedmia.records.privacy import ClientDefence, Epsilon


def shift(auc: float) -> float:
    """Difference of two unit normals' means at which the AUC is `auc`."""
    return float(norm.ppf(auc) * np.sqrt(2))


def scored(name: str, auc: float, n: int, m: int, seed: int, **more: object) -> ScoredAttack:
    """Binormal scores of known AUC, 32 known images a side."""
    generator = np.random.default_rng(seed)
    attack = ScoredAttack(
        name=name,
        paper="a paper",
        access="black-box",
        vantage="client",
        scores_members=generator.normal(shift(auc), 1, n),
        scores_nonmembers=generator.normal(0, 1, m),
        known_members=generator.normal(shift(auc), 1, 32),
        known_nonmembers=generator.normal(0, 1, 32),
        queries=1000,
    )
    return replace(attack, **more)  # type: ignore[arg-type]


def by_name(aucs: dict[str, float], round: int) -> dict[str, ScoredAttack]:
    """Scores whose AUCs are `aucs`, whole thousandths, in every fifth round."""
    others = (np.arange(1000) + 0.5) / 1000
    return {
        name: ScoredAttack(name, "a paper", "black-box", "client", np.array([auc]), others)
        for name, auc in aucs.items()
        if round % 5 == 4
    }


def make_run(auc: float = 0.75, n: int = 112, m: int = 500, seed: int = 0) -> RunScores:
    """Ten clients, four attacks, all controls, rounds and curves."""
    generator = np.random.default_rng(seed)
    feats = generator.normal(0, 1, (n, 3)) + 0.6, generator.normal(0, 1, (m, 3))
    combined = scored(
        "combined",
        auc,
        n,
        m,
        seed + 2,
        features_members=feats[0],
        features_nonmembers=feats[1],
        feature_names=("similarity", "loss", "maximum probability"),
    )
    active = {"under_attack": True, "act": "ascent"}
    ascent = scored("ascent", auc, n, m, seed + 3, access="white-box", **active)
    base = (ascent.scores_members, ascent.scores_nonmembers)
    zero = replace(
        ascent,
        name="ascent-zero",
        scores_members=base[0] + generator.normal(0, 0.3, n),
        scores_nonmembers=base[1] + generator.normal(0, 0.3, m),
    )
    attacks = (
        scored("similarity", auc - 0.02, n, m, seed + 1),
        combined,
        scored("internal", 0.5, n, m, seed + 4, access="white-box"),
        ascent,
    )
    untrained = [
        scored(a.name, 0.5, len(a.scores_members), len(a.scores_nonmembers), 50 + i)
        for i, a in enumerate(attacks)
    ]
    labels = generator.integers(0, 10, n), generator.integers(0, 10, m)
    rounds = np.arange(10)
    curve = 4 + 0.15 * rounds[:, None]
    return RunScores(
        seed=seed,
        member_ids=np.arange(n),
        nonmember_ids=np.arange(n, n + m),
        member_client=np.arange(n) % 9,
        member_labels=labels[0],
        nonmember_labels=labels[1],
        attacks=attacks,
        controls={"untrained": untrained, "placebo": [scored("ascent", 0.5, n, m, 77)]},
        pairs=[Pair(ascent, zero, "the same rounds without ascent")],
        pixels=(generator.normal(0, 1, n), generator.normal(0, 1, m)),
        utility={"knn": Probe(0.81, 300), "linear": Probe(0.86, 300)},
        utility_untrained={"knn": Probe(0.62, 300), "linear": Probe(0.7, 300)},
        clients=[
            ClientInfo(
                i,
                16,
                "honest" if i < 9 else "active",
                ClientDefence(
                    "dpsgd", Epsilon(8.0, 1e-5, 20, "heuristic", "Per image."), {"clipped": 0.4}
                )
                if i < 2
                else None,
                tuple(int(c) for c in generator.multinomial(16, np.ones(10) / 10)),
            )
            for i in range(10)
        ],
        rounds=[
            RoundInfo(
                r,
                r >= 40,
                4 - 0.03 * r,
                0.5 + 0.006 * r if r % 5 == 4 else None,
                by_name({"similarity": 0.5 + 0.004 * r, "internal": 0.5 + 0.001 * r}, r),
                by_name({f"layer{i}": 0.5 + 0.001 * i * r for i in range(1, 5)}, r),
            )
            for r in range(50)
        ],
        curves=Curves(
            act="ascent",
            rounds=rounds + 40,
            members=curve + generator.normal(0, 0.4, (10, n)),
            nonmembers=curve + 0.4 + generator.normal(0, 0.4, (10, m)),
            control_members=3.9 + generator.normal(0, 0.4, (10, n)),
            control_nonmembers=4.3 + generator.normal(0, 0.4, (10, m)),
            before_members=generator.normal(4, 0.4, n),
            before_nonmembers=generator.normal(4.4, 0.4, m),
            after_members=generator.normal(5.5, 0.5, n),
            after_nonmembers=generator.normal(6.1, 0.5, m),
        ),
        notes=["Images 12 and 40 were byte-equal; one was removed."],
        split={"members": 144, "nonmembers": 500, "known": 32, "test": 300},
        config={"dataset": "digits", "seed": seed, "train": {"lr": 0.06}},
        versions={"fedmia": "0.1.0", "torch": "2.15"},
        hardware={"cpu": "2 cores"},
        timing={"import_s": 3.2, "train_s": 60.0, "total_s": 63.2},
    )


@pytest.fixture(name="scored")
def _scored() -> Callable[..., ScoredAttack]:
    return scored


@pytest.fixture(name="make_run")
def _make_run() -> Callable[..., RunScores]:
    return make_run


@pytest.fixture(name="run", scope="session")
def _run() -> RunScores:
    return make_run()
