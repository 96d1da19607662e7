"""Noise on a head: law, scale, identity; the paper's attack; what a head is asked and told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedmia.defenses.heads.release import (
    CLASSICAL,
    ReleaseSetting,
    add_noise,
    assumptions,
    mechanism,
    noise_scale,
    predict_probabilities,
)
from fedmia.defenses.heads.stack import HeadStack, init_heads
from fedmia.lowerbounds.gdp import delta_at, epsilon_at
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from papers.heads import attack
from papers.heads.settings import MECHANISMS, Head
from papers.heads.trial import (
    CONFIDENCE,
    KNOWING,
    NAIVE,
    HeadExperiment,
    LabelledFeatures,
    run_trial,
    split_images,
)

LAWS: dict[str, Any] = {
    "logistic": stats.logistic, "laplace": stats.laplace, "gaussian": stats.norm
}  # fmt: skip
DELTAS = {1: 3.0, 2: 0.4}


def heads(count: int = 1) -> HeadStack:
    return init_heads(count, [40, 20, 10], torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MECHANISMS)
def test_released__noise_has_the_stated_law_on_every_weight(name: str) -> None:
    law, one = mechanism(ReleaseSetting(name, 1.0), 1e-5), heads().take([0] * 5)
    found = add_noise(one, law, 0.7, rng(1, "noise"))
    noise = (found.flat() - one.flat()).numpy()
    assert noise.shape == (5, 41 * 20 + 21 * 10)
    assert stats.kstest(noise.ravel(), LAWS[name](scale=0.7).cdf).pvalue > 0.01
    assert stats.kstest(noise.ravel(), LAWS[name](scale=0.77).cdf).pvalue < 0.01
    assert np.abs(np.corrcoef(noise)[0, 1:]).max() < 0.12  # releases are independent


@pytest.mark.parametrize("name", MECHANISMS)
def test_released__zero_strength_is_the_identity(name: str) -> None:
    one, law = heads(3), mechanism(ReleaseSetting(name, 1.0), 1e-5)
    found = add_noise(one, law, 0.0, rng(1, "noise"))
    for before, after in zip(one.tensors(), found.tensors(), strict=True):
        assert torch.equal(before, after)
    nothing = one.plus(torch.zeros_like(one.flat()))
    assert all(map(torch.equal, one.tensors(), nothing.tensors()))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
def test_scale__is_the_papers_and_the_gaussians_is_exact(epsilon: float) -> None:
    scales = {
        n: noise_scale(mechanism(ReleaseSetting(n, epsilon), 1e-5), epsilon, DELTAS) for n in LAWS
    }
    assert scales["logistic"] == pytest.approx(3.0 / epsilon) == scales["laplace"]
    assert delta_at(epsilon, 0.4 / scales["gaussian"]) == pytest.approx(1e-5, rel=1e-6)
    classical = 0.4 * math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    assert (scales["gaussian"] < classical) == (epsilon <= 1)  # above it the classical is too small


@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_scale__classical_is_the_additive_logistic_papers(epsilon: float) -> None:
    """sigma = Delta_2 sqrt(2 ln(1.25 / delta)) / epsilon (Sec. 3.2)."""
    law = mechanism(ReleaseSetting(CLASSICAL, epsilon), 1e-4)
    twin = 0.4 * (2 * math.log(1.25 / 1e-4)) ** 0.5 / epsilon
    assert noise_scale(law, epsilon, DELTAS) == pytest.approx(twin)
    assert (delta_at(epsilon, 0.4 / twin) <= 1e-4) == (epsilon < 1)


def test_assumptions__say_where_the_classical_calibration_is_proved() -> None:
    settings = [ReleaseSetting(m, e) for m in ("laplace", CLASSICAL) for e in (0.5, 10.0)]
    text = assumptions(settings, 1e-5, 7)
    assert "7 pairs" in text and "no random differential privacy" in text
    assert "epsilon below 1" in text and "It covers 0.5." in text
    assert f"{epsilon_at(10 / math.sqrt(2 * math.log(1.25e5)), 1e-5):.3g} at 10" in text
    assert "It covers none of these" in assumptions(settings[1::2], 1e-5, 7)
    assert "Theorem A.1" not in assumptions(settings[:2], 1e-5, 7)


def test_answers__are_probabilities_of_one_draw() -> None:
    one, asked = heads(2), torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    found = predict_probabilities(one, asked)
    assert found.shape == (2, 6, 10) and torch.allclose(found.sum(dim=2), torch.ones(2, 6))
    assert torch.equal(found[:, 2:3], predict_probabilities(one, asked[2:3])) or torch.allclose(
        found[:, 2:3], predict_probabilities(one, asked[2:3]), atol=1e-6
    )


def test_attack__is_the_papers_network() -> None:
    """Five hidden ReLU layers, Adam at 1e-3, on 2,000 pairs of answer and label."""
    pairs, member = planted(1000)
    found = attack.fit_classifiers(pairs[None], member, 0)
    assert len(found.weights) == 6 and found.weights[0].shape == (1, 6, 64)
    assert attack.PAIRS == 2000 and attack.RATE == 1e-3
    held, truth = planted(300, seed=1)
    scores = attack.score_answers(found, held[None])[0]
    told = scores[truth.numpy() == 1][:, None] > scores[truth.numpy() == 0]
    assert told.mean() > 0.9


def planted(side: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Members answered with a surer true label than others; (2 side, 6) and the truth."""
    draw = torch.Generator().manual_seed(seed)
    member = torch.tensor([1, 0]).repeat_interleave(side)
    labels = torch.randint(3, (2 * side,), generator=draw)
    logits = torch.randn(2 * side, 3, generator=draw)
    logits[torch.arange(2 * side), labels] += 1.0 + 4.0 * member
    return attack.classifier_inputs(logits.softmax(dim=1)[None], labels)[0], member


def test_confidence__is_that_of_the_true_label() -> None:
    said = torch.tensor([[[0.7, 0.3], [0.1, 0.9]]])
    found = attack.label_log_probability(said, torch.tensor([0, 0]))
    assert np.allclose(found, np.log([[0.7, 0.1]]), atol=1e-6)
    with_labels = attack.classifier_inputs(said, torch.tensor([0, 0]))
    assert with_labels[0, 1].tolist() == pytest.approx([0.1, 0.9, 1.0, 0.0])


def test_deal__keeps_all_roles_apart() -> None:
    found = split_images(200, 40, rng(0, "deal"))
    own = set(found.members) | set(found.others)
    assert (len(found.members), len(found.others), found.shadow_in.shape) == (40, 60, (25, 40))
    assert len(own) == 100
    for one, other in zip(found.shadow_in, found.shadow_out, strict=True):
        assert not set(one) & set(other) and not (set(one) | set(other)) & own
    with pytest.raises(InputError, match="need 160 labelled images, there are 159"):
        split_images(159, 40, rng(0, "deal"))


@pytest.fixture(scope="module")
def memorised() -> tuple[LabelledFeatures, Head]:
    """Features that say nothing of the labels: a head can only learn its own images by heart."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.nn.functional.normalize(torch.randn(240, 60, generator=draw), dim=1)
    labels = torch.randint(2, (240,), generator=draw)
    options: dict[str, Any] = {"images": 40, "lr": 2.0, "weight_decay": 0.0, "samples": 4}
    return LabelledFeatures(inputs, labels, 2), Head(encoder="x", draws=3, **options)


@pytest.mark.slow
def test_trial__what_is_learnt_by_heart_leaks_until_noise_hides_it(memorised: Any) -> None:
    labelled, asked = memorised
    weak, strong = ReleaseSetting("logistic", 1e6), ReleaseSetting("laplace", 0.05)
    found = run_trial(labelled, asked, 0, [weak, strong])
    assert found.train_accuracy == 1.0
    for name in (NAIVE, CONFIDENCE):
        assert found.plain.attacks[name].auc > 0.7
        assert 0.3 < found.placebo[name].auc < 0.7
    assert found.noised[weak].attacks[KNOWING].auc > 0.7
    assert max(abs(r.auc - 0.5) for r in found.noised[strong].attacks.values()) < 0.15
    assert found.noised[weak].loss == pytest.approx(0.0, abs=0.02)
    scale = found.noised[strong].scale
    assert found.sensitivity[1] / scale == pytest.approx(0.05)


def test_trial__utility_loss_is_definition_6_1(
    memorised: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "PAIRS", 200)
    labelled, asked = memorised
    bench = HeadExperiment(labelled, asked, 1)
    law = mechanism(ReleaseSetting("gaussian", 1.0), 1e-5)
    releases = add_noise(bench.head.take([0] * 3), law, 3.0, rng(0, "noise"))
    found = bench.measure_release(releases, 3.0, {})
    rows, right = bench.split.others, []
    for stack in (releases, bench.head):
        hits = [
            int(predict_probabilities(stack, labelled.features[r : r + 1])[k].argmax())
            == labelled.labels[r]
            for k in range(len(stack))
            for r in rows
        ]
        right.append(np.mean(hits))
    assert found.loss == pytest.approx(1 - right[0] / right[1])
    assert found.utility == pytest.approx(right[0])


def test_trial__who_knows_trains_on_shadows_noised_as_the_release(
    memorised: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same law and scale, of draws of their own; who does not know, on bare ones."""
    labelled, asked = memorised
    short, fit, given = (
        replace(asked, epochs=2, samples=2),
        attack.fit_classifiers,
        list[torch.Tensor](),
    )

    def noted(pairs: torch.Tensor, *rest: Any) -> HeadStack:
        given.append(pairs)
        return fit(pairs, *rest)

    monkeypatch.setattr(attack, "PAIRS", 200)
    monkeypatch.setattr(attack, "fit_classifiers", noted)
    setting = ReleaseSetting("gaussian", 1.0)
    scale = run_trial(labelled, short, 3, [setting]).noised[setting].scale
    ((naive, knowing),) = given
    bench = HeadExperiment(labelled, short, 3)
    draw = rng(3, "head", "shadow", "gaussian", "1.0")
    noised = add_noise(bench.shadows, mechanism(setting, asked.delta), scale, draw)
    torch.testing.assert_close(naive, bench.pairs(bench.shadows))
    torch.testing.assert_close(knowing, bench.pairs(noised))
    assert (knowing - naive).abs().max() > 0.1


def test_trial__each_setting_is_attacked_by_the_classifier_of_its_own_noise(
    memorised: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by the one that knows of no noise; the head without noise by that alone."""
    labelled, asked = memorised
    fitted, asks, fit = list[HeadStack](), list[Any](), attack.fit_classifiers
    measured = HeadExperiment.measure_release

    def noted(self: HeadExperiment, heads: HeadStack, scale: float, classifiers: Any) -> Any:
        asks.append((scale, classifiers))
        return measured(self, heads, scale, classifiers)

    monkeypatch.setattr(attack, "PAIRS", 200)
    monkeypatch.setattr(attack, "fit_classifiers", lambda *of: fitted.append(fit(*of)) or fitted[0])
    monkeypatch.setattr(HeadExperiment, "measure_release", noted)
    settings = [ReleaseSetting("gaussian", 1.0), ReleaseSetting("laplace", 5.0)]
    found = run_trial(labelled, replace(asked, epochs=2, samples=2), 3, settings)
    scales = [found.noised[s].scale for s in settings]
    assert [scale for scale, _ in asks] == [0.0, *scales]
    assert [set(c) for _, c in asks] == [{NAIVE}, {NAIVE, KNOWING}, {NAIVE, KNOWING}]
    for i, (_, classifiers) in enumerate(asks):
        for name, place in ((NAIVE, 0), (KNOWING, i)):
            if name in classifiers:
                own = fitted[0].take([place])
                assert all(map(torch.equal, classifiers[name].tensors(), own.tensors()))


def test_trial__repeats_with_the_seed_and_not_without(
    memorised: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "PAIRS", 200)
    labelled, asked = memorised
    short = replace(asked, epochs=5, samples=2)
    settings = [ReleaseSetting("logistic", 5.0)]
    first, again, other = (run_trial(labelled, short, seed, settings) for seed in (0, 0, 1))
    assert first == again and first != other
