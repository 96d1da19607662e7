"""C from a rehearsal on public images: what it is, what it looks at, where it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clients.honest import Honest
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.logistic import Logistic
from fedmia.options.seeding import rng
from fedmia.ssl.base import State
from fedmia.storage.snapshot import MemoryStore
from tests.defenses.test_release_noise import flat, preparation

PUBLIC = np.array([7, 8, 9])


def rehearsed(client_round: Any) -> State:
    """A first round on seven public images, three of them over and over, by the run's own job."""
    client_context, order = client_round.client_context, [7, 8, 9, 7, 8, 9, 7]
    method = client_context.method(0, 7)
    method.load_shared(client_round.received)
    method.begin_first_round()
    client_context.job(method, client_context.images[order], 1, rng(0, "train", 1, 0)).run()
    return method.shared_state()


@pytest.mark.parametrize("name, order", [("logistic", 1), ("gaussian", 2)])
def test_clip__is_the_norm_of_a_first_round_on_public_images(
    name: str, order: int, make_desk: Any
) -> None:
    bounds = []
    for own in (np.arange(7), np.array([9, 0, 1, 2, 3, 4, 5])):  # C looks at no image of its own
        store = MemoryStore()
        client_round = make_desk(name, {}, store, public=PUBLIC, parts={"members": (own,)})
        expected = np.linalg.norm(flat(rehearsed(client_round), client_round.received), order)
        Honest().answer(client_round)
        client_state = store.load("main", 0)
        assert client_state is not None
        memory = client_state.memory["defense"][name]
        assert memory["clip"] == pytest.approx(expected, rel=1e-9)
        assert memory["sensitivity"] == 2 * memory["clip"]
        bounds.append(memory["clip"])
    assert bounds[0] == bounds[1] > 0


@pytest.mark.parametrize("cls", [Logistic, Gaussian])
def test_clip__its_origin_is_said(cls: Any, states: tuple[State, State]) -> None:
    received, trained = states
    length = float(np.linalg.norm(flat(trained, received), cls.order))
    public = replace(preparation(2), rehearse_public=lambda: states)
    fixed = cls.default_clip * 5000 ** (1 / cls.order)
    for options, seen, clip, said in (
        ({}, public, length, "that public images gave"),
        ({}, preparation(2), fixed, "has no public images"),
        ({"clip": 0.5}, public, 0.5, "given"),
    ):
        defense, memory = cls(**options), dict[str, Any]()
        defense.prepare(seen, memory)
        defense.release(received, trained, memory, rng(0, "x"))
        stated = defense.privacy(memory)
        assert memory["sensitivity"] == pytest.approx(2 * clip)
        assert f"C = {clip:.3g}, " in stated.assumptions and said in stated.assumptions
        assert stated.value == pytest.approx(defense.spent(2 * clip, defense.default_scale, 1))


def test_clip__an_update_that_cannot_bound_is_not_taken(states: tuple[State, State]) -> None:
    received, trained = states
    broken = {n: t * torch.nan for n, t in trained.items()}
    for bad in (received, broken):
        memory = dict[str, Any]()
        Logistic().prepare(
            replace(preparation(2), rehearse_public=lambda b=bad: (received, b)), memory
        )
        assert "clip" not in memory
