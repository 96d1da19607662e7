"""All for one: the statistic against a loop, a planted memory, and what cannot be compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fedmia.attacks.all_for_one import AllForOne, outlier_deviates
from fedmia.attacks.base import Known
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import ServerView

CPU = torch.device("cpu")
AUGMENT = Augment(hue=0.1)
MEASURES = ("loss", "similarity", "gradient")


def disturbed(state: State, by: float, seed: int) -> State:
    draw = torch_rng(seed, "disturbed")
    return {n: t + by * torch.randn(t.shape, generator=draw) for n, t in state.items()}


def server(
    method: MomentumContrast, held: Tensor, updates: dict[int, dict[int, State]], **more: Any
) -> ServerView:
    before = dict.fromkeys(updates, method.shared_state())
    return ServerView(
        copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held, before=before,
        updates=updates, **more,
    )  # fmt: skip


def noise(method: MomentumContrast, cohorts: dict[int, Iterable[int]]) -> dict[int, Any]:
    state = method.shared_state()
    return {r: {c: disturbed(state, 0.05, 10 * r + c) for c in cs} for r, cs in cohorts.items()}


def fitted(known: Known, **options: Any) -> AllForOne:
    attack = AllForOne(**options)
    attack.fit(None, known, rng(0))  # type: ignore[arg-type]
    return attack


def naive(measured: np.ndarray) -> np.ndarray:
    """FedMIA's statistic, one client and one image at a time."""
    K, N = measured.shape
    out = np.empty((K, N))
    for k in range(K):
        for i in range(N):
            others = np.delete(measured[:, i], k)
            t = (measured[k, i] - others.mean()) / others.std(ddof=1)
            probability = stats.t.cdf(t / np.sqrt(1 + 1 / len(others)), len(others) - 1)
            out[k, i] = stats.norm.ppf(probability)
    return out


@pytest.mark.parametrize("clients", [3, 4, 10])
def test_stand_out__is_the_loop(clients: int) -> None:
    measured = rng(0, "measured").normal(3, 0.1, (clients, 7))
    np.testing.assert_allclose(outlier_deviates(measured), naive(measured), rtol=1e-6)


def test_stand_out__for_many_clients_is_the_papers_z() -> None:
    measured = rng(0, "measured").normal(0, 1, (2000, 3))
    papers = (measured - measured.mean(axis=0)) / measured.std(axis=0)
    np.testing.assert_allclose(outlier_deviates(measured), papers, atol=0.02)


def test_stand_out__under_the_null_is_standard_normal_however_few_clients() -> None:
    for clients in (3, 10):
        measured = rng(0, "null", clients).normal(5, 2, (clients, 20000))
        found = outlier_deviates(measured)[0]
        assert stats.kstest(found, "norm").pvalue > 0.01
        assert (found > 2.326).mean() == pytest.approx(0.01, abs=0.003)


def test_stand_out__equal_models_say_nothing_and_extremes_stay_apart() -> None:
    same = np.full((5, 3), 0.1) + np.array([0, 1 / 3, 1e6])
    np.testing.assert_allclose(outlier_deviates(same), 0, atol=1)
    far = rng(0, "far").normal(0, 1, (10, 1)).repeat(3, axis=1)
    far[4] = [1e3, 1e4, 1e5]
    found = outlier_deviates(far)[4]
    assert np.isfinite(found).all() and found[0] < found[1] < found[2]  # Phi would say 1 of all


@pytest.mark.parametrize("measure", MEASURES)
def test_by_client__are_the_loop_over_rounds_and_clients(
    measure: str, make_moco: Callable[..., Any], images: Tensor, held: Tensor, known: Known
) -> None:
    """Cohorts differ by round; round 3 has too few to compare."""
    moco, some = make_moco(), images[:6]
    updates = noise(moco, {1: (0, 1, 2), 2: (0, 1, 3, 4), 3: (0, 4), 4: (1, 3, 4)})
    view = server(moco, held, updates)
    clients, got = fitted(known, measure=measure, rounds=2).by_client(view, some)
    assert clients.tolist() == [0, 1, 3, 4]
    parts: dict[int, list[np.ndarray]] = {c: [] for c in clients.tolist()}
    for r in (2, 4):
        rows = []
        for c in sorted(updates[r]):
            model = view.of_weights(updates[r][c])
            if measure == "loss":
                rows.append(-model.losses(some, 2, "held").double().numpy())
            elif measure == "similarity":
                unit = torch.nn.functional.normalize(model.embed_views(some, 8).double(), dim=2)
                grams = unit @ unit.transpose(1, 2)
                rows.append(((grams.sum(dim=(1, 2)) - 8) / 56).numpy())
        if measure == "gradient":
            rows = list(view.gradient_cosines(some, r, 2, "held")[0].numpy())
        for c, row in zip(sorted(updates[r]), naive(np.stack(rows)), strict=True):
            parts[c].append(row)
    want = np.stack([np.sum(parts[c], axis=0) / np.sqrt(len(parts[c])) for c in parts])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def memorise(method: MomentumContrast, pixels: Tensor, held: Tensor, by: str) -> State:
    """Weights after a descent on an image's own views (8, 1, C, H, W): their loss, or their
    distance from one another."""
    mine = copy.deepcopy(method)
    mine.fill_bank(held.float() / 255)
    optimizer = torch.optim.SGD(mine.encoder.parameters(), lr=0.02)
    for _ in range(15):
        optimizer.zero_grad()
        if by == "similarity":
            unit = torch.nn.functional.normalize(mine.encoder(pixels.flatten(0, 1)), dim=1)
            loss = -unit.view(8, 1, -1).mean(dim=0).norm(dim=1).mean()
        else:
            loss = mine.probe_losses(pixels[:4].flatten(0, 1), pixels[4:].flatten(0, 1)).mean()
        loss.backward()
        optimizer.step()
    return mine.shared_state()


@pytest.mark.slow
@pytest.mark.parametrize("measure", MEASURES)
def test_planted__the_client_that_memorised_an_image_is_named(
    measure: str, make_moco: Callable[..., Any], textures: Callable[..., Tensor], held: Tensor,
    serving: Tensor, known: Known,
) -> None:  # fmt: skip
    """Each client holds one image; 48 others of the same source are no one's."""
    moco, pool = make_moco(dim=32), textures(60, seed=9)
    pixels = server(moco, held, {}).view_pixels(pool[:12], 8)
    updates = {1: {c: memorise(moco, pixels[:, c : c + 1], serving, measure) for c in range(12)}}
    view, attack = server(moco, held, updates), fitted(known, measure=measure, pairs=4, views=8)
    ids, scores = attack.by_client(view, pool)
    right = int((ids[scores[:, :12].argmax(axis=0)] == np.arange(12)).sum())
    assert right >= 11  # by chance, 1
    truth = [1] * 12 + [0] * 48
    assert roc_auc_score(truth, attack.score(view, pool)) > 0.85
    np.testing.assert_array_equal(attack.score(view, pool), scores.max(axis=0))
    # Of one client: its image lies over nearly all of no one's.
    over = [(scores[c, c] > scores[c, 12:]).mean() for c in range(12)]
    assert np.mean(over) > 0.95


def test_by_client__a_row_for_each_client_that_sent(
    make_moco: Callable[..., Any], images: Tensor, held: Tensor, known: Known
) -> None:
    moco = make_moco()
    view = server(moco, held, noise(moco, {1: (2, 5, 9)}))
    ids, scores = fitted(known, measure="similarity").by_client(view, images)
    assert ids.dtype == np.int64 and ids.tolist() == [2, 5, 9]
    assert scores.shape == (3, 20) and scores.dtype == np.float64


def test_rounds__too_few_clients_or_none_is_refused(
    make_moco: Callable[..., Any], images: Tensor, held: Tensor, known: Known
) -> None:
    moco, attack = make_moco(), fitted(known)
    with pytest.raises(InputError, match=r"at least 3 clients, got \{1: 2, 2: 1\}"):
        attack.score(server(moco, held, noise(moco, {1: (0, 1), 2: (0,)})), images)
    with pytest.raises(InputError, match="got no updates"):
        attack.score(server(moco, held, {}), images)
