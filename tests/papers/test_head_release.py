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
    audit_noise,
    mechanism,
    noise_scale,
    predict_probabilities,
)
from fedmia.defenses.heads.stack import HeadStack, init_heads
from fedmia.lowerbounds.gdp import delta_at, epsilon_at
from fedmia.report.lowerbounds import canary_bound
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
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
    """At zero strength heads are themselves."""
    law, one = law_of(name), heads().take([0] * 5)
    noise = (add_noise(one, law, 0.7, rng(1, "noise")).flat() - one.flat()).numpy()
    assert noise.shape == (5, 41 * 20 + 21 * 10)
    assert stats.kstest(noise.ravel(), LAWS[name](scale=0.7).cdf).pvalue > 0.01
    assert stats.kstest(noise.ravel(), LAWS[name](scale=0.77).cdf).pvalue < 0.01
    assert np.abs(np.corrcoef(noise)[0, 1:]).max() < 0.12  # releases are independent
    bare = add_noise(one, law, 0.0, rng(1, "noise")), one.plus(torch.zeros_like(one.flat()))
    for same in bare:
        assert all(map(torch.equal, one.tensors(), same.tensors()))


def law_of(name: str, epsilon: float = 1.0, delta: float = 1e-5) -> Any:
    return mechanism(ReleaseSetting(name, epsilon), delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
def test_scale__is_the_papers_and_the_gaussians_is_exact(epsilon: float) -> None:
    """Classical: sigma = Delta_2 sqrt(2 ln(1.25 / delta)) / epsilon (Sec. 3.2)."""
    scales = {n: noise_scale(law_of(n, epsilon), epsilon, DELTAS) for n in (*LAWS, CLASSICAL)}
    assert scales["logistic"] == pytest.approx(3.0 / epsilon) == scales["laplace"]
    assert delta_at(epsilon, 0.4 / scales["gaussian"]) == pytest.approx(1e-5, rel=1e-6)
    twin = 0.4 * math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    assert scales[CLASSICAL] == pytest.approx(twin)
    assert (scales["gaussian"] < twin) == (epsilon <= 1)  # above it the classical is too small


@pytest.mark.parametrize("name", [*MECHANISMS, CLASSICAL])
def test_audit__finds_a_quarter_of_the_noise_and_blames_no_honest_release(name: str) -> None:
    setting = ReleaseSetting(name, 2.0)
    scale = noise_scale(law_of(name, 2.0), 2.0, DELTAS)
    honest, weak = (
        canary_bound(audit_noise(setting, 1e-5, DELTAS, scale / part, 1000, rng(0, "audit")), 3)
        for part in (1, 4)
    )
    assert honest is not None and weak is not None
    assert not honest.refuted and weak.refuted
    assert 0 < honest.value < 2 < weak.value and weak.canaries == 1000


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
    again = predict_probabilities(one, asked[2:3])
    assert torch.allclose(found[:, 2:3], again, atol=1e-6)


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Few answers of shadows to fit a classifier on."""
    monkeypatch.setattr(attack, "PAIRS", 200)
    return monkeypatch


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
    weak, strong = ReleaseSetting("logistic", 1e6), ReleaseSetting("laplace", 0.05)
    found = run_trial(*memorised, 0, [weak, strong])
    assert found.train_accuracy == 1.0
    for name in (NAIVE, CONFIDENCE):
        assert found.plain.attacks[name].auc > 0.7
        assert 0.3 < found.placebo[name].auc < 0.7
    assert found.noised[weak].attacks[KNOWING].auc > 0.7
    assert max(abs(r.auc - 0.5) for r in found.noised[strong].attacks.values()) < 0.15
    assert found.noised[weak].loss == pytest.approx(0.0, abs=0.02)
    assert found.sensitivity[1] / found.noised[strong].scale == pytest.approx(0.05)


def test_trial__utility_loss_is_definition_6_1(memorised: Any, few_pairs: Any) -> None:
    labelled, asked = memorised
    bench = HeadExperiment(labelled, asked, 1)
    releases = add_noise(bench.head.take([0] * 3), law_of("gaussian"), 3.0, rng(0, "noise"))
    found, right = bench.measure_release(releases, 3.0, {}), []
    for stack in (releases, bench.head):
        hits = [
            int(predict_probabilities(stack, labelled.features[r : r + 1])[k].argmax())
            == labelled.labels[r]
            for k in range(len(stack))
            for r in bench.split.others
        ]
        right.append(np.mean(hits))
    assert found.loss == pytest.approx(1 - right[0] / right[1])
    assert found.utility == pytest.approx(right[0])


def test_trial__each_setting_is_attacked_by_the_classifier_of_its_own_noise(
    memorised: Any, few_pairs: Any
) -> None:
    """And by the one that knows of no noise; the head without noise by that alone. Who knows trains
    on shadows that are noised by the same law and scale, of draws of their own."""
    labelled, asked = memorised
    asked = replace(asked, epochs=2, samples=2)
    given, fitted, asks = list[torch.Tensor](), list[HeadStack](), list[Any]()
    fit, measured = attack.fit_classifiers, HeadExperiment.measure_release

    def noted_fit(pairs: torch.Tensor, *rest: Any) -> HeadStack:
        given.extend(pairs)
        fitted.append(fit(pairs, *rest))
        return fitted[0]

    def noted(self: HeadExperiment, heads: HeadStack, scale: float, classifiers: Any) -> Any:
        asks.append((scale, classifiers))
        return measured(self, heads, scale, classifiers)

    few_pairs.setattr(attack, "fit_classifiers", noted_fit)
    few_pairs.setattr(HeadExperiment, "measure_release", noted)
    settings = [ReleaseSetting("gaussian", 1.0), ReleaseSetting("laplace", 5.0)]
    found = run_trial(labelled, asked, 3, settings)
    scales = [0.0, *(found.noised[s].scale for s in settings)]
    assert [scale for scale, _ in asks] == scales
    assert [set(c) for _, c in asks] == [{NAIVE}, {NAIVE, KNOWING}, {NAIVE, KNOWING}]
    for i, (_, classifiers) in enumerate(asks):
        for name, classifier in classifiers.items():
            own = fitted[0].take([i if name == KNOWING else 0])
            assert all(map(torch.equal, classifier.tensors(), own.tensors()))
    bench = HeadExperiment(labelled, asked, 3)
    for pairs, scale, setting in zip(given, scales, (None, *settings), strict=True):
        shadows = bench.shadows
        if setting is not None:
            draw = rng(3, "head", "shadow", setting.mechanism, repr(setting.epsilon))
            shadows = add_noise(shadows, mechanism(setting, asked.delta), scale, draw)
            assert (pairs - given[0]).abs().max() > 0.1
        torch.testing.assert_close(pairs, bench.pairs(shadows))


def test_trial__repeats_with_the_seed_and_not_without(memorised: Any, few_pairs: Any) -> None:
    labelled, asked = memorised
    short, settings = replace(asked, epochs=5, samples=2), [ReleaseSetting("logistic", 5.0)]
    first, again, other = (run_trial(labelled, short, seed, settings) for seed in (0, 0, 1))
    assert first == again and first != other
