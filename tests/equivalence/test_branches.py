"""The control branches differ from the attacked one by the attack alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from clients.client_round import ClientRound
from clients.client_setup import ClientSetup
from fedmia.federation.plan import make_client_setup

from .conftest import ACTIVE, Finished, Run, federated, planned, same, unattacked, weights

IDLE = ACTIVE + "--attack.ascent.steps 0"
CLEAN = 2  # clean rounds of the tiny experiment
RATED = "--attacker active --attacks ascent "


@pytest.mark.parametrize(
    "strategy",
    ["fedavg", *(pytest.param(n, marks=pytest.mark.slow) for n in ("fedavgm", "fedema"))],
)
def test_disarmed_attack__main_and_zero_are_the_same_federation(
    strategy: str, finished: Finished
) -> None:
    """Zero starts from all that is kept (queues, key encoders, momenta), not from weights alone."""
    run = finished(IDLE if strategy == "fedavg" else f"{IDLE} --strategy {strategy}")
    main, zero = weights(run), weights(run, "zero")
    assert list(zero) == [CLEAN, 3, 4]
    assert all(same(main[r], zero[r]) for r in zero)
    assert all(same(sent, run.sent("zero")[round]) for round, sent in run.sent("main").items())
    for client in range(4):
        states = [run.store.load(branch, client) for branch in ("main", "zero")]
        assert states[0] is not None and states[1] is not None
        assert states[0] is not states[1] and same(states[0].tensors, states[1].tensors)


def test_zero_branch__is_the_run_without_ascent(finished: Finished) -> None:
    armed, without = finished(ACTIVE), finished(IDLE)
    main, zero, plain = weights(armed), weights(armed, "zero"), weights(without)
    assert all(same(zero[r], plain[r]) for r in zero)
    assert same(main[CLEAN], zero[CLEAN])  # the state before the attack is shared
    bank = [armed.recording.load(branch, CLEAN)[1] for branch in ("main", "zero")]
    assert bank[0] and same(*bank)
    assert not same(main[3], zero[3])  # and the ascent does something


@pytest.mark.slow
def test_active_client__is_an_honest_one_until_it_may_craft(
    tmp_path: Path, finished: Finished
) -> None:
    run = finished(ACTIVE)
    roles = ("honest",) * 3 + ("passive",)
    passive = federated(unattacked(planned(ACTIVE)), tmp_path / "passive", roles=roles)
    assert all(same(weights(run)[r], weights(passive)[r]) for r in range(CLEAN + 1))
    kept = [one.recording.load("main", CLEAN)[1] for one in (run, passive)]
    assert kept[0] and same(*kept)
    assert not same(weights(run)[3], weights(passive)[3])


def test_no_ascent_from_the_received_model__sends_it_back(finished: Finished) -> None:
    run = finished(IDLE)
    assert list(run.sent("main")) == [3, 4]
    for round, sent in run.sent("main").items():
        assert same(sent, weights(run)[round - 1])


@pytest.mark.slow
def test_placebo__trains_the_same_way_on_images_that_nobody_is_scored_on(
    tmp_path: Path, finished: Finished
) -> None:
    even = ACTIVE + "--partition iid"
    setup, run = planned(even), finished(even)
    main, placebo = weights(run), weights(run, "placebo")
    assert same(main[0], placebo[0]) and not same(main[CLEAN], placebo[CLEAN])
    parts, split = run.client_setup.parts, setup.cast
    evaluated = np.concatenate(
        [
            split.members,
            *map(split.ids, ("known_nonmembers", "scored_nonmembers", "test_eval")),
        ]
    )
    for mine, instead in zip(parts["members"][:3], parts["placebo"][:3], strict=True):
        assert len(mine) == len(instead) and not set(instead) & set(evaluated)
    assert np.array_equal(parts["members"][3], parts["placebo"][3])  # the attacker's own
    # Only the images differ: with the members in its place it is the run itself.
    again = federated(
        setup, tmp_path / "again", parts={"members": parts["members"], "placebo": parts["members"]}
    )
    assert all(same(weights(again)[r], weights(again, "placebo")[r]) for r in (0, CLEAN, 3, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "counted"),
    [
        ("--attacker passive --attacks none --attacker-trains false", (3, 3, 3, 3)),
        ("--attacker passive --attacks none", (4, 4, 4, 4)),
        (ACTIVE + "--attacker-trains false", (3, 3, 4, 4)),  # where it crafts
    ],
)
def test_attacker__counts_in_the_mean_only_if_it_trains_or_crafts(
    flags: str, counted: tuple[int, ...], tmp_path: Path
) -> None:
    """One that does not sends back what it received: that does not dilute the mean."""
    run = federated(planned(flags + " --federation.keep_updates 4"), tmp_path / "run")
    assert (run.store.load("main", 3) is None) is (counted == (3, 3, 3, 3))
    for round, count in enumerate(counted, 1):
        update = run.recording.updates("main")[round][3]
        assert same(update, weights(run)[round - 1]) is (count == 3)
        run.check_mean(round, count)


@dataclass
class Watched:
    """A run whose rounds 3 and 4 are attacked, and only the last of them evaluated."""

    run: Run
    trained: set[tuple[int, int]]
    rates: dict[int, set[float]]
    files: list[str]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    trained: set[tuple[int, int]] = set()
    rates: dict[int, set[float]] = {}
    train, plain = ClientRound.train, ClientSetup.job

    def noted(client_round: ClientRound) -> Any:
        trained.add((client_round.task.client, client_round.task.round))
        return train(client_round)

    def rated(
        self: ClientSetup, method: Any, images: Any, round: int, *rest: Any, **more: Any
    ) -> Any:
        job = plain(self, method, images, round, *rest, **more)
        job.begin_step()
        rates.setdefault(round, set()).add(job.optimizer.param_groups[0]["lr"])
        return job

    flags = "--federation.snapshots 1 --train.lr 0.08 "
    more = "--federation.attacked_rate constant --attack.ascent.lr 0.02"
    root = tmp_path_factory.mktemp("watched") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientRound, "train", noted)
        patch.setattr(ClientSetup, "job", rated)
        run = federated(planned(RATED + flags + more), root)
    kept = root / "recording"
    files = sorted(str(p.relative_to(kept)) for p in kept.rglob("*") if p.is_file())
    return Watched(run, trained, rates, files)


@pytest.mark.slow
def test_disk__holds_no_file_of_an_attacked_round_that_is_not_evaluated(watched: Watched) -> None:
    assert list(watched.run.sent("main")) == [3, 4]
    models = [f"main/{r:04d}" for r in (0, 2, 4)] + [f"placebo/{r:04d}" for r in (0, 2, 4)]
    models += [f"zero/{r:04d}" for r in (2, 4)]
    want = {f"models/{name}.safetensors" for name in models}
    want |= {f"held/{name}.safetensors" for name in models if not name.endswith("0000")}
    assert {*watched.files} == want | {"recording.json", "rounds.jsonl"}


@pytest.mark.slow
def test_active_client__trains_no_more_once_it_crafts(watched: Watched) -> None:
    """Nothing of that would be used; its bank stays as its last training left it."""
    assert {r for c, r in watched.trained if c == 3} == {1, 2}
    assert {r for c, r in watched.trained if c == 0} == {1, 2, 3, 4}
    banks = [watched.run.recording.load("main", r)[1] for r in (2, 4)]
    assert banks[0] and same(*banks)


def test_attacked_rate__is_the_honest_one_of_attacked_rounds_alone(watched: Watched) -> None:
    cosine = [0.04 * (1 + np.cos(np.pi * r / 4)) for r in range(2)]
    got = [rate for r in range(1, 5) for rate in watched.rates[r]]  # one a round, in all branches
    assert got == pytest.approx([*cosine, 0.08, 0.08])


@pytest.mark.parametrize(("mode", "rate"), [("constant", 0.08), ("schedule", 0)])
def test_attacked_rate__modes(mode: str, rate: float, tmp_path: Path) -> None:
    flags = f"--federation.attacked_rate {mode} --attack.ascent.lr 0.5 --train.lr 0.08"
    client_setup = make_client_setup(planned(RATED + flags), tmp_path, Event())
    for round in (1, 3):
        for attacked in (False, True):
            images = np.zeros((4, 1, 8, 8), dtype=np.uint8)
            job = client_setup.job(
                client_setup.method(0, 4), images, round, np.random.default_rng(0), attacked
            )
            follows = 0.04 * (1 + np.cos(np.pi * (round - 1) / 4))
            job.begin_step()
            got = job.optimizer.param_groups[0]["lr"]
            assert got == pytest.approx(rate if attacked and rate else follows)
