"""LiRA and RMIA whose references are a federation's earlier rounds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _difficulty
import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks._reference import ReferenceSignals
from fedmia.attacks.base import Known
from fedmia.attacks.lira import LiRARounds
from fedmia.attacks.rmia import RMIARounds
from fedmia.attacks.similarity import Similarity
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.storage.snapshot import Snapshot, SnapshotStore
from fedmia.threat import ClientView, WhiteBox
from fedmia.threat.signals import Signals

CPU = torch.device("cpu")
both = pytest.mark.parametrize("kind", [LiRARounds, RMIARounds])


@pytest.fixture(scope="module")
def world(textures: Callable[..., Tensor]) -> _difficulty.World:
    return _difficulty.make_world(textures(320))


def client(method: Any, rounds: list[int], **more: Any) -> ClientView:
    """A client that received the same weights in each of `rounds`."""
    states = dict.fromkeys(rounds, method.shared_state())
    return ClientView(
        copy.deepcopy(method), _difficulty.MILD, seed=0, device=CPU, received=states, **more
    )


# -- which rounds


@pytest.mark.parametrize(
    ("rounds", "share", "want"),
    [
        ([0, 1, 2, 3, 4, 5], 0.5, [0, 1, 2]),
        ([0, 10, 20], 0.5, [0, 10]),
        ([0, 10], 0.1, [0]),
        ([0, 10, 20, 30], 1.0, [0, 10, 20]),
        ([5], 0.5, [5]),
    ],
)
def test_references__are_the_first_rounds_and_never_the_last(
    make_moco: Callable[..., Any], rounds: list[int], share: float, want: list[int],
    monkeypatch: pytest.MonkeyPatch, images: Tensor,
) -> None:  # fmt: skip
    calls: list[int] = []
    monkeypatch.setattr(ClientView, "at", lambda self, r: calls.append(r))
    view = client(make_moco(), rounds[::-1])
    found = LiRARounds(references=share).models(view, images)
    assert calls == want
    assert not np.stack([inside for _, inside in found]).any()


@both
def test_fit__without_rounds_is_refused(
    kind: type[Any], make_moco: Callable[..., Any], known: Known
) -> None:
    with pytest.raises(InputError, match="-rounds needs the models of a federation's rounds"):
        kind().fit(client(make_moco(), []), known, rng(0))


def test_score__of_the_first_model_alone_is_nothing(
    make_moco: Callable[..., Any], images: Tensor, known: Known
) -> None:
    attack, view = LiRARounds(), client(make_moco(), [0])
    attack.fit(view, known, rng(0))
    assert (attack.score(view, images) == 0).all()


# -- formulas


def told(monkeypatch: pytest.MonkeyPatch, target: Any, rows: Any) -> None:
    """LiRARounds reads these logits: of the known images first, then of the scored."""
    calls = iter([slice(0, 6), slice(6, None)])

    def read(self: Any, view: Any, images: Tensor) -> ReferenceSignals:
        p = [1 / (1 + np.exp(-x[..., part])) for part in [next(calls)] for x in (target, rows)]
        return ReferenceSignals(p[0], p[1], np.zeros(p[1].shape, dtype=bool))

    monkeypatch.setattr(LiRARounds, "read", read)


@pytest.mark.parametrize("prior", [0.5, 4.0])
def test_lira_rounds__is_the_gain_over_a_shrunk_deviation(
    monkeypatch: pytest.MonkeyPatch, prior: float, images: Tensor
) -> None:
    draw = rng(0, "told")
    target, rows = draw.standard_normal(16), draw.standard_normal((4, 16)) + 2
    told(monkeypatch, target, rows)
    attack = LiRARounds(prior=prior)
    attack.fit(None, Known(images[:3], images[3:6]), rng(0))  # type: ignore[arg-type]
    got = attack.score(None, images[6:16])  # type: ignore[arg-type]

    def standard(x: Any) -> Any:
        return (x - np.mean(x[:6])) / np.std(x[:6])

    t, r = standard(target), np.stack([standard(row) for row in rows])
    typical = np.mean([np.var(r[:, i], ddof=1) for i in range(6)])
    for i in range(6, 16):
        own = 3 * np.var(r[:, i], ddof=1)
        deviation = np.sqrt((prior * typical + own) / (prior + 3))
        assert got[i - 6] == pytest.approx((t[i] - np.mean(r[:, i])) / deviation)


def test_lira_rounds__of_one_reference_is_the_gain(
    monkeypatch: pytest.MonkeyPatch, images: Tensor
) -> None:
    draw = rng(1, "told")
    target, rows = draw.standard_normal(16), draw.standard_normal((1, 16))
    told(monkeypatch, target, rows)
    attack = LiRARounds()
    attack.fit(None, Known(images[:3], images[3:6]), rng(0))  # type: ignore[arg-type]
    got = attack.score(None, images[6:16])  # type: ignore[arg-type]
    gain = [(x - x[:6].mean()) / x[:6].std() for x in (target, rows[0])]
    np.testing.assert_allclose(got, (gain[0] - gain[1])[6:])


def test_lira_rounds__a_drift_of_all_images_plays_no_part(
    monkeypatch: pytest.MonkeyPatch, images: Tensor
) -> None:
    draw, scores = rng(2, "told"), []
    target, rows = draw.standard_normal(16), draw.standard_normal((4, 16))
    for drift, scale in ((0, 1), (np.arange(4)[:, None], 2)):
        told(monkeypatch, target, scale * rows + drift)
        attack = LiRARounds()
        attack.fit(None, Known(images[:3], images[3:6]), rng(0))  # type: ignore[arg-type]
        scores.append(attack.score(None, images[6:16]))  # type: ignore[arg-type]
    np.testing.assert_allclose(*scores, rtol=1e-6)


def test_lira_rounds__too_few_known_images_are_refused(
    make_moco: Callable[..., Any], images: Tensor
) -> None:
    with pytest.raises(InputError, match="lira-rounds needs at least 2 known images, got 1"):
        LiRARounds().fit(client(make_moco(), [0, 1]), Known(images[:1], images[:0]), rng(0))


# -- where images differ in difficulty


@both
def test_planted__difficulty_hides_members_from_the_last_model_alone(
    kind: type[Any], world: _difficulty.World
) -> None:
    view = world.rounds()
    plain, scores = world.scores(Similarity(), view), world.scores(kind(), view)
    assert _difficulty.auc(*plain) < 0.7 < 0.95 < _difficulty.auc(*scores)
    assert _difficulty.tpr(*plain) < 0.1 and _difficulty.tpr(*scores) > 0.4


@both
def test_planted__rounds_that_learn_nothing_give_chance(
    kind: type[Any], world: _difficulty.World
) -> None:
    flat = copy.copy(world)
    flat.gain = 0.0
    n = len(world.members)
    value = _difficulty.auc(*flat.scores(kind(), flat.rounds()))
    assert abs(value - 0.5) < 3 * np.sqrt((2 * n + 1) / (12 * n * n))


# -- what a client's view grants


@both
def test_queries__are_those_of_every_model(
    kind: type[Any], make_moco: Callable[..., Any], images: Tensor, known: Known
) -> None:
    attack, view = kind(views=4), client(make_moco(), [0, 1, 2, 3])
    attack.fit(view, known, rng(0))
    before = view.queries
    attack.score(view, images)
    assert view.queries - before == 3 * 4 * len(images)  # rounds 0 and 1, and the last


def test_rounds__two_attacks_share_what_they_compute(
    make_moco: Callable[..., Any], images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, passed = Signals(), []
    embed = WhiteBox._embed

    def counted(self: WhiteBox, pixels: Tensor) -> Tensor:
        passed.append(len(pixels))
        return embed(self, pixels)

    monkeypatch.setattr(WhiteBox, "_embed", counted)
    views = [client(make_moco(), [0, 1], signals=shared) for _ in range(2)]
    for view in views:
        rows = [view.embed_plain(images), *(view.at(r).embed_plain(images) for r in (0, 1))]
        assert torch.equal(rows[0], rows[1]) and view.queries == 3 * len(images)
    assert sum(passed) == 3 * len(images)


def test_received__reads_a_branch_up_to_a_round_when_asked(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for branch, offset in (("main", 0.0), ("placebo", 0.5)):
        for r in (0, 2, 4):
            store.save(branch, Snapshot(r, {"w": torch.tensor([r + offset])}, {}))
    found = store.received("placebo", 2)
    assert list(found) == [0, 2] and len(found) == 2 and 4 not in found
    assert found[2]["w"].item() == 2.5
    with pytest.raises(KeyError):
        found[4]
    store.save("placebo", Snapshot(2, {"w": torch.tensor([9.0])}, {}))
    assert found[2]["w"].item() == 9  # nothing is held
