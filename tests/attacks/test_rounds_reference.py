"""LiRA and RMIA whose references are a federation's earlier rounds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks._reference import ReferenceSignals
from fedmia.attacks.base import Known, Scores
from fedmia.attacks.lira import LiRARounds
from fedmia.attacks.rmia import RMIARounds
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.storage.snapshot import Snapshot, SnapshotStore
from fedmia.threat import ClientView
from tests.attacks.planted import CPU, MILD, fitted


def client(method: Any, rounds: list[int]) -> ClientView:
    """A client that received the same weights in each of `rounds`."""
    received = dict.fromkeys(rounds, method.shared_state())
    return ClientView(copy.deepcopy(method), MILD, seed=0, device=CPU, received=received)


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
    models = LiRARounds(references=share).models(view, images)
    assert calls == want
    assert not np.stack([inside for _, inside in models]).any()


@pytest.mark.parametrize("kind", [LiRARounds, RMIARounds])
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


def scores_of(
    monkeypatch: pytest.MonkeyPatch, images: Tensor, target: Any, rows: Any, **options: Any
) -> Scores:
    """Of ten images by LiRARounds, which reads these logits: of six known images first."""
    calls = iter([slice(0, 6), slice(6, None)])

    def read(self: Any, view: Any, images: Tensor) -> ReferenceSignals:
        p = [1 / (1 + np.exp(-x[..., part])) for part in [next(calls)] for x in (target, rows)]
        return ReferenceSignals(p[0], p[1], np.zeros(p[1].shape, dtype=bool))

    monkeypatch.setattr(LiRARounds, "read", read)
    attack = fitted(LiRARounds(**options), None, Known(images[:3], images[3:6]))
    scores: Scores = attack.score(None, images[6:16])
    return scores


def standard(x: Any) -> Any:
    """Of mean 0 and deviation 1 on the known images."""
    return (x - np.mean(x[:6])) / np.std(x[:6])


@pytest.mark.parametrize("prior", [0.5, 4.0])
@pytest.mark.parametrize(("drift", "scale"), [(0, 1), (np.arange(4)[:, None], 2)])
def test_lira_rounds__is_the_gain_over_a_shrunk_deviation(
    monkeypatch: pytest.MonkeyPatch, prior: float, drift: Any, scale: float, images: Tensor
) -> None:
    """A drift of all images plays no part."""
    draw = rng(0, "told")
    target, rows = draw.standard_normal(16), draw.standard_normal((4, 16)) + 2
    got = scores_of(monkeypatch, images, target, scale * rows + drift, prior=prior)
    t, r = standard(target), np.stack([standard(row) for row in rows])
    typical = np.mean([np.var(r[:, i], ddof=1) for i in range(6)])
    for i in range(6, 16):
        own = 3 * np.var(r[:, i], ddof=1)
        deviation = np.sqrt((prior * typical + own) / (prior + 3))
        assert got[i - 6] == pytest.approx((t[i] - np.mean(r[:, i])) / deviation)


def test_lira_rounds__of_one_reference_is_the_gain(
    monkeypatch: pytest.MonkeyPatch, images: Tensor
) -> None:
    target, rows = rng(1, "told").standard_normal((2, 16))
    got = scores_of(monkeypatch, images, target, rows[None])
    np.testing.assert_allclose(got, (standard(target) - standard(rows))[6:])


def test_lira_rounds__too_few_known_images_are_refused(
    make_moco: Callable[..., Any], images: Tensor
) -> None:
    with pytest.raises(InputError, match="lira-rounds needs at least 2 known images, got 1"):
        LiRARounds().fit(client(make_moco(), [0, 1]), Known(images[:1], images[:0]), rng(0))


def test_received__reads_a_branch_up_to_a_round_when_asked(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for branch, offset in (("main", 0.0), ("placebo", 0.5)):
        for r in (0, 2, 4):
            store.save(branch, Snapshot(r, {"w": torch.tensor([r + offset])}, {}))
    received = store.received("placebo", 2)
    assert list(received) == [0, 2] and len(received) == 2 and 4 not in received
    assert received[2]["w"].item() == 2.5
    with pytest.raises(KeyError):
        received[4]
    store.save("placebo", Snapshot(2, {"w": torch.tensor([9.0])}, {}))
    assert received[2]["w"].item() == 9  # nothing is held
