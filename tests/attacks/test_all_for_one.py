"""All for one: the statistic against a loop, a planted memory, and what cannot be compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedmia.attacks.all_for_one import AllForOne, outlier_deviates
from fedmia.seeding import rng, torch_rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.ssl.moco import MomentumContrast
from fedmia.statistics.auc import auc
from fedmia.threat import ServerView
from tests.attacks.loops import naive_pairs, naive_views
from tests.attacks.planted import fitted, view_of

MEASURES = ("loss", "similarity", "gradient")


def server(
    method: MomentumContrast, held: Tensor, updates: dict[int, dict[int, State]]
) -> ServerView:
    before = dict.fromkeys(updates, method.shared_state())
    view: ServerView = view_of(
        copy.deepcopy(method), Augment(hue=0.1), ServerView, held=held, before=before,
        updates=updates,
    )  # fmt: skip
    return view


def noise(method: MomentumContrast, cohorts: dict[int, Iterable[int]]) -> dict[int, Any]:
    """Updates by round and client, each disturbed at random."""

    def disturbed(seed: int) -> State:
        draw = torch_rng(seed, "disturbed")
        state = method.shared_state()
        return {n: t + 0.05 * torch.randn(t.shape, generator=draw) for n, t in state.items()}

    return {r: {c: disturbed(10 * r + c) for c in cs} for r, cs in cohorts.items()}


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


def test_stand_out__is_the_loop_and_for_many_clients_the_papers_z() -> None:
    for clients in (3, 4, 10):
        measured = rng(0, "measured").normal(3, 0.1, (clients, 7))
        np.testing.assert_allclose(outlier_deviates(measured), naive(measured), rtol=1e-6)
    measured = rng(0, "measured").normal(0, 1, (2000, 3))
    papers = (measured - measured.mean(axis=0)) / measured.std(axis=0)
    np.testing.assert_allclose(outlier_deviates(measured), papers, atol=0.02)


def test_stand_out__under_the_null_is_standard_normal_however_few_clients() -> None:
    for clients in (3, 10):
        measured = rng(0, "null", clients).normal(5, 2, (clients, 20000))
        deviates = outlier_deviates(measured)[0]
        assert stats.kstest(deviates, "norm").pvalue > 0.01
        assert (deviates > 2.326).mean() == pytest.approx(0.01, abs=0.003)


def test_stand_out__equal_models_say_nothing_and_extremes_stay_apart() -> None:
    same = np.full((5, 3), 0.1) + np.array([0, 1 / 3, 1e6])
    np.testing.assert_allclose(outlier_deviates(same), 0, atol=1)
    far = rng(0, "far").normal(0, 1, (10, 1)).repeat(3, axis=1)
    far[4] = [1e3, 1e4, 1e5]
    low, middle, high = outlier_deviates(far)[4]
    assert low < middle < high < np.inf  # Phi would say 1 of all


@pytest.mark.parametrize("measure", MEASURES)
def test_by_client__are_the_loop_over_rounds_and_clients(
    measure: str, make_moco: Callable[..., Any], images: Tensor, held: Tensor
) -> None:
    """Cohorts differ by round; round 3 has too few to compare."""
    moco, some = make_moco(), images[:6]
    updates = noise(moco, {1: (0, 1, 2), 2: (0, 1, 3, 4), 3: (0, 4), 4: (1, 3, 4)})
    view = server(moco, held, updates)
    clients, got = fitted(AllForOne(measure=measure, rounds=2), view).by_client(view, some)
    assert clients.tolist() == [0, 1, 3, 4]
    parts: dict[int, list[np.ndarray]] = {c: [] for c in clients.tolist()}
    for r in (2, 4):
        rows = []
        for c in sorted(updates[r]):
            model = view.of_weights(updates[r][c])
            if measure == "loss":
                rows.append(-model.losses(some, 2, "held").double().numpy())
            elif measure == "similarity":
                views = naive_views(model.copy_method(), view.view_pixels(some, 8))
                rows.append(np.mean([naive_pairs(v) for v in views], axis=1))
        if measure == "gradient":
            rows = list(view.gradient_cosines(some, r, 2, "held")[0].numpy())
        for c, row in zip(sorted(updates[r]), naive(np.stack(rows)), strict=True):
            parts[c].append(row)
    want = np.stack([np.sum(parts[c], axis=0) / np.sqrt(len(parts[c])) for c in parts])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_gradient__of_updates_that_are_steps_along_known_gradients(
    make_moco: Callable[..., Any], images: Tensor, held: Tensor, serving: Tensor
) -> None:
    """Client c steps down the loss of image c alone, and two images are no one's: the measure is
    the cosine of two images' gradients, and every client is named."""
    moco, some = make_moco(), images[:6]
    plain = server(moco, held, {})
    pixels, method = plain.view_pixels(some, 4), plain.copy_method()
    method.fill_bank(serving)
    names, weights = zip(*method.encoder.named_parameters(), strict=True)
    gradients, steps = list[Tensor](), dict[int, State]()
    for i in range(6):
        loss = method.probe_losses(pixels[:2, i], pixels[2:, i]).mean()
        parts = torch.autograd.grad(loss, weights)
        gradients.append(torch.cat([part.flatten() for part in parts]).double())
        if i < 4:
            moved = {n: w.detach() - 0.5 * g for n, w, g in zip(names, weights, parts, strict=True)}
            steps[i] = moco.shared_state() | moved
    unit = torch.nn.functional.normalize(torch.stack(gradients), dim=1)
    attack = fitted(AllForOne(measure="gradient", pairs=2), view := server(moco, held, {1: steps}))
    ids, scores = attack.by_client(view, some)
    np.testing.assert_allclose(scores, naive((unit[:4] @ unit.T).numpy()), rtol=0.02, atol=0.02)
    assert ids[scores[:, :4].argmax(axis=0)].tolist() == [0, 1, 2, 3]


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
    serving: Tensor,
) -> None:  # fmt: skip
    """Each client holds one image; 48 others of the same source are no one's."""
    moco, pool = make_moco(dim=32), textures(60, seed=9)
    pixels = server(moco, held, {}).view_pixels(pool[:12], 8)
    updates = {1: {c: memorise(moco, pixels[:, c : c + 1], serving, measure) for c in range(12)}}
    view = server(moco, held, updates)
    attack = fitted(AllForOne(measure=measure, pairs=4, views=8), view)
    ids, scores = attack.by_client(view, pool)
    right = int((ids[scores[:, :12].argmax(axis=0)] == np.arange(12)).sum())
    assert right >= 11  # by chance, 1
    most = attack.score(view, pool)
    np.testing.assert_array_equal(most, scores.max(axis=0))
    assert auc(most[:12], most[12:]) > 0.85
    # Of one client: its image lies over nearly all of no one's.
    over = [(scores[c, c] > scores[c, 12:]).mean() for c in range(12)]
    assert np.mean(over) > 0.95


def test_rounds__too_few_clients_or_none_is_refused(
    make_moco: Callable[..., Any], images: Tensor, held: Tensor
) -> None:
    moco, attack = make_moco(), AllForOne()
    few = server(moco, held, noise(moco, {1: (0, 1), 2: (0,)}))
    with pytest.raises(InputError, match=r"at least 3 clients, got \{1: 2, 2: 1\}"):
        fitted(attack, few).score(few, images)
    with pytest.raises(InputError, match="got no updates"):
        attack.score(server(moco, held, {}), images)
