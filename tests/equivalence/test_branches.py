"""The control branches differ from the attacked one by the attack alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedmia.federation.run import Finished as Run

from .conftest import Finished, federated, prepared, same, weights

ACTIVE = "--attacker active --attacks ascent "
IDLE = ACTIVE + "--attack.ascent.steps 0"
CLEAN = 2  # rounds of pre-training in the tiny experiment


@pytest.mark.parametrize(
    "strategy",
    ["fedavg", *(pytest.param(n, marks=pytest.mark.slow) for n in ("fedavgm", "fedema"))],
)
def test_disarmed_attack__main_and_zero_are_the_same_federation(
    strategy: str, finished: Finished
) -> None:
    """Zero starts from all that is kept (queues, key encoders, momenta), not from weights alone."""
    run = finished(f"{IDLE} --strategy {strategy}")
    main, zero = weights(run), weights(run, "zero")
    assert list(zero) == [CLEAN, 3, 4]
    assert all(same(main[r], zero[r]) for r in zero)
    assert all(
        same(s, run.snapshots.sent("zero")[r]) for r, s in run.snapshots.sent("main").items()
    )
    for client in range(4):
        kept = [run.store.load(branch, client) for branch in ("main", "zero")]
        assert kept[0] is not None and kept[1] is not None
        assert kept[0] is not kept[1] and same(kept[0].tensors, kept[1].tensors)


def test_zero_branch__is_the_run_without_ascent(finished: Finished) -> None:
    armed, without = finished(ACTIVE), finished(IDLE)
    main, zero, plain = weights(armed), weights(armed, "zero"), weights(without)
    assert all(same(zero[r], plain[r]) for r in zero)
    assert same(main[CLEAN], zero[CLEAN])  # the state before the attack is shared
    bank = [armed.snapshots.load(branch, CLEAN).holder for branch in ("main", "zero")]
    assert bank[0] and same(*bank)
    assert not same(main[3], zero[3])  # and the ascent does something


@pytest.mark.slow
def test_no_ascent_from_its_own_training__is_an_honest_client(
    tmp_path: Path, finished: Finished
) -> None:
    setup = prepared(IDLE + " --attack.ascent.base trained")
    attacked = federated(setup, tmp_path / "attacked")
    honest = federated(setup, tmp_path / "honest", roles=("honest",) * 4, attack=None)
    passive = federated(setup, tmp_path / "passive", roles=("honest",) * 3 + ("passive",))
    for other in (honest, passive):
        assert all(same(weights(attacked)[r], weights(other)[r]) for r in (CLEAN, 3, 4))
    assert not same(weights(attacked)[3], weights(finished(IDLE))[3])  # the default base is another


def test_no_ascent_from_the_received_model__sends_it_back(finished: Finished) -> None:
    run = finished(IDLE)
    for round, sent in run.snapshots.sent("main").items():
        assert same(sent, weights(run)[round - 1])


def test_placebo__trains_the_same_way_on_images_that_nobody_is_scored_on(
    tmp_path: Path, finished: Finished
) -> None:
    setup, run = prepared(ACTIVE), finished(ACTIVE)
    main, placebo = weights(run), weights(run, "placebo")
    assert same(main[0], placebo[0]) and not same(main[CLEAN], placebo[CLEAN])
    parts, split = run.site.parts, setup.split
    evaluated = np.concatenate(
        [split.members, split.known_nonmembers, split.scored_nonmembers, split.test_eval]
    )
    for mine, instead in zip(parts["members"][:3], parts["placebo"][:3], strict=True):
        assert len(mine) == len(instead) and not set(instead) & set(evaluated)
    assert np.array_equal(parts["members"][3], parts["placebo"][3])  # the attacker's own
    # Only the images differ: with the members in its place it is the run itself.
    again = federated(
        setup, tmp_path / "again", parts={"members": parts["members"], "placebo": parts["members"]}
    )
    assert all(same(weights(again)[r], weights(again, "placebo")[r]) for r in (0, CLEAN, 3, 4))


def test_attacker__its_images_and_updates_reach_the_average_only_if_it_trains(
    tmp_path: Path,
) -> None:
    def last(flags: str, name: str) -> Run:
        return federated(prepared("--attacker passive --attacks none " + flags), tmp_path / name)

    idle = last("--attacker-trains false", "idle")
    first, second = weights(idle)[1], weights(idle)[2]
    assert not same(first, second) and not same(weights(last("", "trains"))[1], first)
    assert idle.store.load("main", 3) is None and idle.store.load("main", 0) is not None
    assert all(bool(t.isfinite().all()) for t in torch.utils._pytree.tree_leaves(second))
