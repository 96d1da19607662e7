"""SD-MI: distances and the selector against loops, anchors apart, a leak of norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.attacks import _selector, sd_mi
from fedmia.attacks._selector import AnchorSelector
from fedmia.attacks.sd_mi import SDMI, choose_anchors, distances
from fedmia.options.errors import InputError
from tests.attacks.norm_leak import Leak, norm_leak


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def leak() -> Leak:
    return norm_leak(known=40)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", [3, 60])
def test_distances__naive_twin(count: int) -> None:
    """Eq. 10, and the squares that the code of the paper takes."""
    vectors, anchors = normal(count, 5), normal(4, 5) + 1
    want = [
        [sum((x - y) ** 2 for x, y in zip(v, a, strict=True)) for a in anchors.double().tolist()]
        for v in vectors.double().tolist()
    ]
    np.testing.assert_allclose(distances(vectors, anchors, "squared"), want, rtol=1e-9)
    np.testing.assert_allclose(distances(vectors, anchors, "euclidean"), np.sqrt(want), rtol=1e-9)


def test_selector__naive_twin() -> None:
    """Eq. 11 with the layers of the code: Linear(D, D), ReLU, Linear(D, A), ReLU, product."""
    attacker = nn.Linear(3, 1)
    net = AnchorSelector(3, 2, attacker)
    inputs = normal(6, 5)
    first, second = net.selector[0], net.selector[2]

    def linear(layer: Any, x: list[float]) -> list[float]:
        rows, biases = layer.weight.tolist(), layer.bias.tolist()
        return [sum(w * v for w, v in zip(r, x, strict=True)) + b
                for r, b in zip(rows, biases, strict=True)]  # fmt: skip

    want = []
    for row in inputs.tolist():
        hidden = [max(0.0, v) for v in linear(first, row[3:])]
        weights = [max(0.0, v) for v in linear(second, hidden)]
        want.append(linear(attacker, [s * w for s, w in zip(row[:3], weights, strict=True)]))
    np.testing.assert_allclose(net(inputs).detach(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("members", "others", "count", "want"),
    [(8, 8, 0, (2, 2)), (40, 40, 0, (10, 10)), (40, 40, 13, (6, 7)), (30, 10, 8, (6, 2)),
     (5000, 5000, 0, (1000, 1000)), (3, 3, 0, (0, 1))],
)  # fmt: skip
def test_choose_anchors__takes_of_each_side_its_share(
    members: int, others: int, count: int, want: tuple[int, int]
) -> None:
    truth = np.repeat([1, 0], [members, others])
    chosen = choose_anchors(truth, count, rng())
    assert (int(chosen[:members].sum()), int(chosen[members:].sum())) == want
    np.testing.assert_array_equal(chosen, choose_anchors(truth, count, rng()))
    if members == 40:
        assert not np.array_equal(chosen, choose_anchors(truth, count, rng(1)))


@pytest.mark.parametrize(
    ("members", "others", "count"), [(2, 2, 0), (8, 8, 13), (8, 1, 2), (0, 9, 0)]
)
def test_choose_anchors__too_few_left_is_refused(members: int, others: int, count: int) -> None:
    with pytest.raises(InputError, match=f"sd-mi: {members} known members and {others} .* beside"):
        choose_anchors(np.repeat([1, 0], [members, others]), count, rng())


@pytest.mark.parametrize("selector", [False, True])
def test_fit__anchors_are_apart_from_what_is_fitted_and_scored(
    leak: Leak, monkeypatch: pytest.MonkeyPatch, selector: bool
) -> None:
    anchors, calls, train = [], list[Any](), _selector.train_logits

    def noted(vectors: Tensor, these: Tensor, kind: str) -> Tensor:
        anchors.append(these)
        return distances(vectors, these, kind)

    def trained(model: nn.Module, *rest: Any, **more: Any) -> nn.Module:
        calls.extend(rest)
        return train(model, *rest, **more)

    monkeypatch.setattr(sd_mi, "distances", noted)
    monkeypatch.setattr(_selector, "train_logits", trained)
    SDMI(selector=selector, steps=1).fit(leak.view, leak.known, rng())
    vectors = leak.view.embed_plain(leak.known.both()[0], "avgpool")
    inputs, truth = calls[:2]
    assert len(anchors[0]) == 20
    assert inputs.shape == (60, 20 + 32 * selector) and truth.sum() == 30
    gaps = distances(vectors, anchors[0], "euclidean")
    assert int((gaps < 1e-4).any(dim=1).sum()) == 20  # every anchor is one of the known images
    want = distances(vectors[~(gaps < 1e-4).any(dim=1)], anchors[0], "squared")
    want = (want - want.amin(0)) / (want.amax(0) - want.amin(0))  # min-max on those fitted on
    np.testing.assert_allclose(inputs[:, :20], want, atol=1e-5)
    scored = leak.view.embed_plain(leak.images, "avgpool")
    assert float(distances(scored, anchors[0], "euclidean").min()) > 1e-2


@pytest.mark.parametrize(
    ("options", "steps", "epochs"),
    [
        ({}, 1000, 200),
        ({"selector": True}, 0, 200),
        ({"selector": True, "steps": 7}, 7, 200),
        ({"steps": 0, "recipe": "sdmia"}, 0, 30_000),
        ({"recipe": "sdmia", "selector": True}, 0, 5_000),
    ],
)
def test_steps__the_selector_trains_all_its_epochs_by_default(
    leak: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], steps: int, epochs: int
) -> None:
    calls = []
    monkeypatch.setattr(sd_mi, "ScaledNetwork", lambda *args: calls.append(args[-2:]))
    SDMI(**options).fit(leak.view, leak.known, rng())
    (recipe, most) = calls[0]
    assert (recipe.epochs, most) == (epochs, steps)
