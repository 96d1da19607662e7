"""SD-MI: distances and the selector against loops, anchors apart, a leak of norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.attacks import _selector, sd_mi
from fedmia.attacks._selector import AnchorSelector
from fedmia.attacks.base import Known
from fedmia.attacks.sd_mi import SDMI, choose_anchors, distances
from fedmia.attacks.similarity import Similarity
from fedmia.options.errors import InputError
from tests.attacks._norm_leak import Leak, norm_leak

QUICK = {"steps": 20}


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


def fitted_inputs(monkeypatch: pytest.MonkeyPatch, leak: Leak, attack: SDMI) -> list[Any]:
    """What the network was fitted on: inputs and truth."""
    caught: list[Any] = []
    train = _selector.train_logits

    def spy(model: nn.Module, inputs: Tensor, truth: Any, *rest: Any, **more: Any) -> nn.Module:
        caught.extend([inputs, truth])
        return train(model, inputs, truth, *rest, **more)

    monkeypatch.setattr(_selector, "train_logits", spy)
    attack.fit(leak.view, leak.known, rng())
    return caught


@pytest.mark.parametrize("selector", [False, True])
def test_fit__anchors_are_apart_from_what_is_fitted_and_scored(
    leak: Leak, monkeypatch: pytest.MonkeyPatch, selector: bool
) -> None:
    attack = SDMI(selector=selector, steps=1)
    inputs, truth = fitted_inputs(monkeypatch, leak, attack)
    vectors = leak.view.embed_plain(
        torch.cat([leak.known.members, leak.known.nonmembers]), "avgpool"
    )
    anchors = attack._anchors
    assert anchors is not None and len(anchors) == 20
    assert inputs.shape == (60, 20 + 32 * selector) and truth.sum() == 30
    gaps = distances(vectors, anchors, "euclidean")
    assert int((gaps < 1e-4).any(dim=1).sum()) == 20  # every anchor is one of the known images
    rest = vectors[~(gaps < 1e-4).any(dim=1)]
    want = distances(rest, anchors, "squared")
    want = (want - want.amin(0)) / (want.amax(0) - want.amin(0))  # min-max on those fitted on
    np.testing.assert_allclose(inputs[:, :20], want, atol=1e-5)
    scored = leak.view.embed_plain(leak.images, "avgpool")
    assert float(distances(scored, anchors, "euclidean").min()) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["squared", "euclidean"])
@pytest.mark.parametrize("selector", [False, True])
def test_planted_norm_leak__is_found(leak: Leak, selector: bool, distance: str) -> None:
    assert leak.auc(SDMI(selector=selector, distance=distance, steps=100)) > 0.95


@pytest.mark.slow
def test_planted_norm_leak__is_found_by_default(leak: Leak) -> None:
    assert leak.auc(SDMI()) > 0.95


@pytest.mark.slow
def test_planted_norm_leak__is_found_by_the_other_recipe(leak: Leak) -> None:
    assert leak.auc(SDMI(recipe="sdmia", steps=50)) > 0.95
    assert leak.auc(SDMI(recipe="sdmia", selector=True, steps=50)) > 0.95


def test_planted_norm_leak__is_none_of_cosines(leak: Leak) -> None:
    assert abs(leak.auc(Similarity(views=8)) - 0.5) < 3 * math.sqrt(121 / 43200)


@pytest.mark.slow
def test_planted_norm_leak__is_gone_where_no_norm_changes() -> None:
    auc = norm_leak(known=20, factor=1.0).auc(SDMI(steps=100))
    assert abs(auc - 0.5) < 3 * math.sqrt(121 / 43200)


def test_selector__is_another_attack(leak: Leak) -> None:
    scores = []
    for selector in (False, True):
        attack = SDMI(selector=selector, **QUICK)
        attack.fit(leak.view, leak.known, rng())
        scores.append(attack.score(leak.view, leak.images))
        epochs = attack._recipe().epochs
        assert epochs == 200
    assert not np.allclose(scores[0], scores[1])
    assert SDMI(recipe="sdmia")._recipe().epochs == 30_000
    assert SDMI(recipe="sdmia", selector=True)._recipe().epochs == 5_000


@pytest.mark.parametrize("selector", [False, True])
def test_score__permutes_with_the_images_and_stands_alone(leak: Leak, selector: bool) -> None:
    attack = SDMI(selector=selector, **QUICK)
    attack.fit(leak.view, leak.known, rng())
    want = attack.score(leak.view, leak.images)
    order = torch.from_numpy(rng().permutation(len(leak.images)))
    np.testing.assert_allclose(attack.score(leak.view, leak.images[order]), want[order], atol=1e-9)
    np.testing.assert_allclose(attack.score(leak.view, leak.images[3:5]), want[3:5], atol=1e-9)


def test_queries__one_an_image_and_anchors_once(leak: Leak) -> None:
    attack, before = SDMI(steps=1), leak.view.queries
    attack.fit(leak.view, leak.known, rng())
    assert leak.view.queries - before == 80
    attack.score(leak.view, leak.images)
    assert leak.view.queries - before == 80 + 120


def test_fit__works_from_eight_known_a_side(leak: Leak) -> None:
    attack = SDMI(steps=50)
    known = Known(leak.known.members[:8], leak.known.nonmembers[:8])
    attack.fit(leak.view, known, rng())
    assert np.isfinite(attack.score(leak.view, leak.images)).all()


@pytest.mark.parametrize(
    "options", [{"anchors": -1}, {"distance": "cosine"}, {"recipe": "x"}, {"steps": -1}]
)
def test_options__out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"SDMI\.\w+"):
        SDMI(**options)


@pytest.mark.parametrize(
    ("options", "steps"),
    [({}, 1000), ({"selector": True}, 0), ({"selector": True, "steps": 7}, 7), ({"steps": 0}, 0)],
)
def test_steps__the_selector_trains_all_its_epochs_by_default(
    leak: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], steps: int
) -> None:
    told = []
    monkeypatch.setattr(sd_mi, "ScaledNetwork", lambda *given: told.append(given[-1]))
    SDMI(**options).fit(leak.view, leak.known, rng())
    assert told == [steps]
