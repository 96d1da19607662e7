"""DP-SGD: per-image gradients, Poisson batches, noise, accounting, and no trace left behind."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from clients.honest import Honest
from fedmia.defenses._persample import (
    gradient_norms,
    image_gradients,
    poisson_batches,
    private_optimizer,
    sample_rate,
)
from fedmia.defenses.accounting import epsilon_spent
from fedmia.defenses.base import TrainingConditions
from fedmia.defenses.dpsgd import DPSGD
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.byol import BYOL
from fedmia.ssl.dino import DINO
from fedmia.ssl.moco import MoCo
from fedmia.ssl.optimizers import noise_moves
from fedmia.ssl.simclr import SimCLR
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.storage.snapshot import LocalTraining
from strategies.fedprox import FedProx
from tests.defenses.conftest import kept
from tests.small_setup import settle

OPEN = DPSGD(noise_multiplier=0.0, max_grad_norm=1e6)


def per_image(method: SSLMethod, views: tuple[Tensor, Tensor]) -> list[list[Tensor]]:
    """The naive twin: one backward pass for each image alone."""
    gradients = []
    for k in range(len(views[0])):
        loss = method.losses(views[0][k : k + 1], views[1][k : k + 1]).sum()
        gradients.append(list(torch.autograd.grad(loss, method.trainable())))
    return gradients


@pytest.mark.parametrize("symmetric", [False, True])
def test_step__sums_gradients_of_single_images_as_a_loop_clips_them(
    symmetric: bool, moco_job: Any
) -> None:
    job = moco_job(symmetric, local_epochs=1, batch_size=12)
    weights, views = job.method.train().trainable(), next(poisson_batches(job))
    expected = per_image(job.method, views)
    lengths = [math.sqrt(sum(float(t.pow(2).sum()) for t in g)) for g in expected]
    clip = float(np.median(lengths))
    with private_optimizer(job, 0.0, clip, 12, torch.Generator()) as private:
        image_gradients(job, views)
        assert gradient_norms(weights).tolist() == pytest.approx(lengths, rel=1e-3)
        records = [w.grad_sample.clone() for w in weights]
        private.pre_step()
    for w, (weight, record) in enumerate(zip(weights, records, strict=True)):
        alone = torch.stack([g[w] for g in expected])
        torch.testing.assert_close(record, alone, rtol=1e-3, atol=2e-5)
        clipped = [g[w] * min(1.0, clip / n) for g, n in zip(expected, lengths, strict=True)]
        wanted = torch.stack(clipped).sum(0) / 12
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-3, atol=2e-5)


def pull(method: Any, mu: float) -> Callable[[], None]:
    """FedProx's client half on a job's method."""
    weights = dict(zip(method.shared_parameters(), method.trainable(), strict=True))
    local = LocalTraining(method.shared_state(), {}, {}, {}, weights)
    return lambda: FedProx(mu=mu).after_backward(local)


@pytest.mark.parametrize(
    "batch_size, symmetric, mu",
    [
        (4, False, 0.0), (12, True, 0.3),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in ((12, False, 0.0), (4, True, 0.3))),
    ],
)  # fmt: skip
def test_train__no_noise_and_no_clip_is_ordinary_training(
    batch_size: int, symmetric: bool, mu: float, make_moco: Any, make_job: Any
) -> None:
    """Same Poisson batches, sums divided by the expected size, through the plain loop."""
    method, other = (make_moco(symmetric=symmetric) for _ in range(2))
    ours, plain = (
        make_job(one, batch_size=batch_size, more={"after_backward": pull(one, mu)})
        for one in (method, other)
    )
    OPEN.train(ours, {})
    plain.rng.integers(2**63 - 1)  # the seed of the noise
    batches = list(poisson_batches(plain))
    assert any(len(b[0]) for b in batches)

    class Fixed(Job):
        def batches(self) -> Any:
            return iter(batches)

        def forward(self, view1: Tensor, view2: Tensor) -> Tensor:
            if not len(view1):
                return torch.zeros(1) * sum(w.sum() for w in self.method.trainable())
            losses = super().forward(view1, view2)
            return losses * (len(losses) / batch_size)

    Fixed(**vars(plain)).run()
    ends = method.state_dict(), other.state_dict()
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-4)


def test_train__float32_whatever_precision(moco_job: Any) -> None:
    ends = []
    for precision in ("float32", "bfloat16"):
        job = moco_job(precision=precision)
        DPSGD().train(job, {})
        ends.append(job.method.shared_state())
    assert all(torch.equal(ends[0][n], ends[1][n]) for n in ends[0])


def test_options__that_bound_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="not both"):
        DPSGD(epsilon=1.0, noise_multiplier=1.0)
    for norm, ssl, word in (
        ("batch", MoCo(), "batch norm"), ("local", MoCo(), "batch norm"),
        ("group", SimCLR(), "ssl moco"), ("group", BYOL(), "ssl moco"),
        ("group", DINO(), "ssl moco"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=word):
            DPSGD().check(TrainingConditions(norm, ssl))
    for sound in (MoCo(), BYOL(head_norm="layer"), DINO(head_norm="none")):
        DPSGD().check(TrainingConditions("group", sound))


def test_train__leaves_no_trace_of_opacus(moco_job: Any) -> None:
    job, fresh = moco_job(), moco_job().method
    method, kind = job.method, type(fresh.encoder)
    metrics = DPSGD().train(job, {})
    assert type(method.encoder) is kind
    for module in method.modules():
        assert not module._forward_hooks and not module._backward_hooks
        assert not any(k in vars(module) for k in ("activations", "autograd_grad_sample_hooks"))
    assert all(set(vars(w)) == set(vars(fresh.trainable()[0])) for w in method.parameters())
    assert all(not w.requires_grad for w in method.key_encoder.parameters())
    copy.deepcopy(method)
    assert all(isinstance(v, float) and math.isfinite(v) for v in metrics.values())
    assert job.step == 6
    assert all(len(job.optimizer.state[w]) for w in method.trainable())


@pytest.mark.parametrize("batch_size", [3, 6, 12])
def test_train__noise_has_the_stated_law(batch_size: int, moco_job: Any) -> None:
    """Empty batches: T steps at rate 1 are noise alone, N(0, T (sigma C / B)^2) on each weight."""
    plain = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
    job = moco_job(local_epochs=1, batch_size=batch_size, **plain)
    weights, job.rng = job.method.trainable(), NeverChosen(0)
    start = [w.detach().clone() for w in weights]
    metrics = DPSGD(noise_multiplier=2.0, max_grad_norm=0.5, lr=1.0).train(job, {})
    moved = torch.cat([(w - s).flatten() for w, s in zip(weights, start, strict=True)])
    assert metrics["noise_std"] == pytest.approx(2.0 * 0.5 / batch_size)
    law = stats.norm(scale=metrics["noise_std"] * math.sqrt(12 // batch_size))
    assert stats.kstest(moved.detach().numpy(), law.cdf).pvalue > 0.01
    assert metrics["loss"] == 0.0 and metrics["clipped"] == 0.0


class NeverChosen(np.random.Generator):
    """A generator whose uniforms are all 1: no image enters a Poisson batch."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))

    def random(self, size: Any = None, **more: Any) -> Any:
        return np.ones(size, dtype=more.get("dtype", np.float64))


def test_train__empty_batches_leave_queue_and_finite_weights(moco_job: Any) -> None:
    job = moco_job()
    queue, job.rng = job.method.queue.clone(), NeverChosen(0)
    metrics = DPSGD().train(job, {})
    assert torch.equal(job.method.queue, queue) and job.method.bank.pointer == 0
    assert all(w.isfinite().all() for w in job.method.trainable())
    assert all(math.isfinite(v) for v in metrics.values())


def test_poisson_batches__each_image_enters_with_rate_b_over_n(moco_job: Any) -> None:
    sizes = [len(b[0]) for b in poisson_batches(moco_job(local_epochs=300))]
    assert len(sizes) == 300 * 3
    expected = 900 * stats.binom(12, sample_rate(12, 4)).pmf(np.arange(13))
    observed, often = np.bincount(sizes, minlength=13), expected > 5
    pairs = [np.append(x[often], x[~often].sum()) for x in (observed, expected)]
    assert stats.chisquare(*pairs).pvalue > 0.01
    assert sample_rate(3, 8) == 1.0


def test_train__two_rounds_continue_what_one_desk_began(make_desk: Any) -> None:
    """Momentum, queue and accountant are kept: round 2 starts where round 1 ended."""
    options, store = {"noise_multiplier": 1.0}, Ledger()
    at = make_desk("dpsgd", options)
    first = settle(store, at, Honest().answer(at)).state
    momenta = {n: t.clone() for n, t in kept(store).tensors.items() if n.startswith("optimizer.")}
    client_round = make_desk("dpsgd", options, store, 2, first)
    second = settle(store, client_round, Honest().answer(client_round)).state
    # By hand: one method and one optimizer, never stored.
    setup, by_hand = client_round.client_setup, make_desk("dpsgd", options)
    method, images = setup.method(0, 10), setup.images[by_hand.indices]
    method.load_shared(by_hand.received)
    method.begin_first_round()
    optimizer, memory = make_optimizer(method, setup.experiment.train), dict[str, Any]()
    for round in (1, 2):
        job = setup.job(method, images, 1, rng(0, "train", round, 0), optimizer=optimizer)
        job.step = (round - 1) * 2
        by_hand.defense.train(job, memory)
        assert memory["dpsgd"]["history"] == [[1.0, 0.5, 2 * round]]
        if round == 1:
            for i, w in enumerate(method.trainable()):
                buffer = optimizer.state[w]["momentum_buffer"]
                assert torch.equal(buffer, momenta[f"optimizer.{i}.momentum_buffer"])
    assert all(torch.equal(t, second[n]) for n, t in method.shared_state().items())
    assert kept(store).memory["defense"] == memory


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_train__other_optimizers_step_on_the_noised_sum(moco_job: Any, name: str) -> None:
    """With neither noise nor a clip that binds, what Opacus hands on is the plain sum over B."""
    jobs = [moco_job(optimizer=name, lr=0.01, batch_size=12, local_epochs=1) for _ in range(3)]
    ours, plain, start = (list(job.method.encoder.parameters()) for job in jobs)
    OPEN.train(jobs[0], {})
    jobs[1].rng.integers(2**63 - 1)  # the noise's seed
    (views,) = poisson_batches(jobs[1])
    jobs[1].begin_step()
    (jobs[1].method.train().losses(*views).sum() / 12).backward()
    jobs[1].optimizer.step()
    torch.testing.assert_close(ours, plain, atol=1e-4, rtol=0)
    assert not any(map(torch.equal, ours, start))


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_rate__is_less_where_the_noise_would_move_the_weights_too_far(
    moco_job: Any, name: str
) -> None:
    """As far as their own length, in all the run's steps; under a warm-up too."""
    memory: dict[str, Any] = {}
    job = moco_job(more={"total_steps": 30}, optimizer=name, lr=50.0, warmup_epochs=1.0)
    weights = [w.detach().clone() for w in job.method.trainable()]
    DPSGD(noise_multiplier=100.0).train(job, memory)
    rates = [replace(job.train, lr=memory["lr"]).rate(t, 30, 3) for t in range(30)]
    length = float(torch.cat([w.flatten() for w in weights]).norm())
    moved = noise_moves(name, weights, 100.0 / 4, sum(r * r for r in rates), 0.9)
    assert memory["lr"] < 50 and moved == pytest.approx(length, rel=1e-4)


def test_rate__under_strong_noise_is_one_for_the_run_unless_it_is_given(moco_job: Any) -> None:
    """So that the noise of the run moves the weights by their length at most, where none is given;
    the length is that of the first weights received."""
    rates, one_step = {}, {"local_epochs": 1, "batch_size": 12}
    for noise in (1e-3, 50.0, 100.0):
        memory: dict[str, Any] = {}
        job = moco_job(schedule="constant", lr=0.1, momentum=0.5, **one_step)
        w = torch.cat([w.detach().flatten() for w in job.method.trainable()])
        DPSGD(noise_multiplier=noise).train(job, memory)
        rates[noise] = memory["metrics"]["lr"]
        by_hand = float(w.norm()) * 0.5 / (noise / 12 * math.sqrt(len(w) * 2))
        assert rates[noise] == pytest.approx(min(0.1, by_hand), rel=1e-4)
    assert rates[1e-3] == 0.1 > 2 * rates[50.0] > 3.9 * rates[100.0]
    for lr, rate in ((None, rates[100.0]), (0.2, 0.2)):
        DPSGD(noise_multiplier=100.0, lr=lr).train(moco_job(lr=0.1, local_epochs=1), memory)
        assert memory["metrics"]["lr"] == rate


def test_privacy__adds_over_rounds_and_survives_json(moco_job: Any) -> None:
    """Steps at another rate are an entry of their own, in order."""
    defense, memory, third = DPSGD(noise_multiplier=1.5), dict[str, Any](), 4 / 12
    rounds = (
        (4, [[1.5, third, 6]]), (4, [[1.5, third, 12]]),
        (6, [[1.5, third, 12], [1.5, 0.5, 4]]),
        (4, [[1.5, third, 12], [1.5, 0.5, 4], [1.5, third, 6]]),
    )  # fmt: skip
    for number, (batch_size, history) in enumerate(rounds, start=1):
        defense.train(moco_job(batch_size=batch_size), memory)
        memory = json.loads(json.dumps(memory))
        stated: Any = defense.privacy(memory)
        assert memory["history"] == history
        assert stated.value == epsilon_spent(history, 1e-5, "rdp")
        assert (stated.rounds, stated.delta, stated.standing) == (number, 1e-5, "heuristic")
    assert OPEN.privacy({"history": [[0.0, 0.5, 3]], "rounds": 1}) is None
    nothing: Any = defense.privacy({})
    assert nothing.value == 0.0 and nothing.rounds == 0


def test_train__interrupted_round_counts_the_steps_it_took(moco_job: Any) -> None:
    answers = iter([False, False, True])
    memory: dict[str, Any] = {}
    DPSGD().train(moco_job(more={"stop": lambda: next(answers)}), memory)
    assert memory["history"][0][2] == 2


@pytest.mark.parametrize("accountant", ["rdp", "gdp"])
def test_train__epsilon_of_the_run_is_met_at_its_end(accountant: str, moco_job: Any) -> None:
    defense, memory = DPSGD(epsilon=5.0, accountant=accountant), dict[str, Any]()
    for _ in range(2):
        defense.train(moco_job(), memory)
    stated: Any = defense.privacy(memory)
    assert 4.9 < stated.value <= 5.0
    assert ("central limit" in stated.assumptions) == (accountant == "gdp")
    assert "queue" in stated.assumptions


@pytest.mark.parametrize(
    ("history", "accountant", "remembers", "standing", "audit"),
    [([[1.0, 0.5, 3]], "rdp", "", "guaranteed", "one-run"),
     ([[1.0, 1.0, 3]], "rdp", "", "guaranteed", "one-run-gdp"),
     ([[1.0, 1.0, 3], [1.0, 0.9, 1]], "rdp", "", "guaranteed", "one-run"),
     ([[1.0, 0.5, 3]], "gdp", "", "heuristic", "one-run"),
     ([[1.0, 0.5, 3]], "rdp", "its queue", "heuristic", "one-run")],
)  # fmt: skip
def test_privacy__what_a_statement_rests_on(
    history: Any, accountant: str, remembers: str, standing: str, audit: str
) -> None:
    canaries = {"in": [1, 0] * 50, "scores": [1.0, -1.0] * 50}
    memory = {"history": history, "rounds": 2, "remembers": remembers, "canaries": canaries}
    statement: Any = DPSGD(accountant=accountant, delta=1e-6).privacy(memory)
    assert (statement.standing, statement.unit) == (standing, "image")
    assert (statement.rounds, statement.delta) == (2, 1e-6)
    assert (statement.lower_bound.audit, statement.lower_bound.canaries) == (audit, 100)
    assert statement.value == pytest.approx(epsilon_spent(history, 1e-6, accountant))
    assert ("its queue" in statement.assumptions) == bool(remembers)
    assert ("No image's loss" in statement.assumptions) == (standing == "guaranteed")
    assert DPSGD().privacy({"history": [*history, [0.0, 0.5, 1]]}) is None


def test_foresee__refuses_what_no_noise_keeps_over_all_rounds_and_epochs() -> None:
    train, delta = Train(local_epochs=3, batch_size=4), 1e-6
    least = epsilon_spent([[1e5, 0.4, 5 * 3 * 3]], delta, "rdp")
    DPSGD(epsilon=1.0001 * least, delta=delta, accountant="rdp").foresee(10, train, 5)
    with pytest.raises(InputError, match="no noise multiplier up to 100,000 goes under"):
        DPSGD(epsilon=0.9999 * least, delta=delta, accountant="rdp").foresee(10, train, 5)
    DPSGD(noise_multiplier=1.0, delta=delta).foresee(10, train, 5)
