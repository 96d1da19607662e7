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
from fedmia.defenses import dpsgd
from fedmia.defenses._accounting import epsilon_spent
from fedmia.defenses._persample import (
    gradient_norms,
    image_gradients,
    poisson_batches,
    private_optimizer,
    sample_rate,
)
from fedmia.defenses.base import RunConditions
from fedmia.defenses.dpsgd import DPSGD
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.byol import BYOL
from fedmia.ssl.dino import DINO
from fedmia.ssl.moco import MoCo
from fedmia.ssl.optimizers import noise_moves
from fedmia.ssl.simclr import SimCLR
from fedmia.ssl.train import Job, Train
from fedmia.storage.snapshot import MemoryStore, StrategyContext
from strategies.fedprox import FedProx

OPEN = DPSGD(noise_multiplier=0.0, max_grad_norm=1e6)
NOISE_FREE = (0.0, 1e6)


def per_image(method: SSLMethod, views: tuple[Tensor, Tensor]) -> list[list[Tensor]]:
    """The naive twin: one backward pass for each image alone."""
    gradients = []
    for k in range(len(views[0])):
        loss = method.losses(views[0][k : k + 1], views[1][k : k + 1]).sum()
        gradients.append(list(torch.autograd.grad(loss, method.trainable())))
    return gradients


@pytest.mark.parametrize("symmetric", [False, True])
def test_image_gradients__one_record_an_image_equal_to_a_loop(
    symmetric: bool, make_moco: Any, make_job: Any
) -> None:
    job = make_job(make_moco(symmetric=symmetric).train(), local_epochs=1, batch_size=8)
    views = next(b for b in poisson_batches(job) if len(b[0]) > 2)
    expected = per_image(job.method, views)
    generator = torch.Generator().manual_seed(0)
    with private_optimizer(job, *NOISE_FREE, 8, generator):
        image_gradients(job, views)
        for w, weight in enumerate(job.method.trainable()):
            alone = torch.stack([g[w] for g in expected])
            assert weight.grad_sample.shape == alone.shape
            assert torch.allclose(weight.grad_sample, alone, rtol=1e-3, atol=2e-5)
        lengths = [math.sqrt(sum(float(t.pow(2).sum()) for t in g)) for g in expected]
        assert gradient_norms(job.method.trainable()).tolist() == pytest.approx(lengths, rel=1e-3)


@pytest.mark.parametrize("symmetric", [False, True])
def test_step__clips_each_image_to_the_norm(symmetric: bool, make_moco: Any, make_job: Any) -> None:
    job = make_job(make_moco(symmetric=symmetric).train(), batch_size=12)
    views = next(poisson_batches(job))
    expected = per_image(job.method, views)
    lengths = [math.sqrt(sum(float(t.pow(2).sum()) for t in g)) for g in expected]
    clip = float(np.median(lengths))
    with private_optimizer(job, 0.0, clip, 12, torch.Generator()) as private:
        image_gradients(job, views)
        private.pre_step()
        for w, weight in enumerate(job.method.trainable()):
            clipped = [g[w] * min(1.0, clip / n) for g, n in zip(expected, lengths, strict=True)]
            wanted = torch.stack(clipped).sum(0) / 12
            assert torch.allclose(weight.grad, wanted, rtol=1e-3, atol=2e-5)


def pull(method: Any, mu: float) -> Callable[[], None]:
    """FedProx's client half on a job's method."""
    weights = dict(zip(method.shared_parameters(), method.trainable(), strict=True))
    local = StrategyContext(method.shared_state(), {}, {}, {}, weights)
    return lambda: FedProx(mu=mu).after_backward(local)


@pytest.mark.parametrize("batch_size", [12, 4])
@pytest.mark.parametrize("symmetric, mu", [(False, 0.0), (True, 0.3)])
def test_train__no_noise_and_no_clip_is_ordinary_training(
    batch_size: int, symmetric: bool, mu: float, make_moco: Any, make_job: Any
) -> None:
    """Same Poisson batches, sums divided by the expected size, through the plain loop."""
    method = make_moco(symmetric=symmetric)
    other = copy.deepcopy(method)
    ours = make_job(method, batch_size=batch_size, more={"after_backward": pull(method, mu)})
    plain = make_job(other, batch_size=batch_size, more={"after_backward": pull(other, mu)})
    OPEN.train(ours, {})
    plain.rng.integers(2**63 - 1)  # the seed of the noise
    batches = list(poisson_batches(plain))
    assert any(len(b[0]) for b in batches)

    class Fixed(Job):
        def batches(self) -> Any:
            return iter(batches)

        def forward(self, view1: Tensor, view2: Tensor) -> Tensor:
            losses = (
                super().forward(view1, view2)
                if len(view1)
                else torch.zeros(1) * sum(w.sum() for w in self.method.trainable())
            )
            return losses * (len(losses) / batch_size)

    Fixed(**vars(plain)).run()
    for (name, a), (_, b) in zip(
        method.state_dict().items(), other.state_dict().items(), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4), name


def test_train__float32_whatever_precision(make_moco: Any, make_job: Any) -> None:
    ends = []
    for precision in ("float32", "bfloat16"):
        method = make_moco()
        DPSGD().train(make_job(method, precision=precision), {})
        ends.append(method.shared_state())
    assert all(torch.equal(ends[0][n], ends[1][n]) for n in ends[0])


def test_train__repeats_by_seed_and_leaves_global_generators_alone(
    make_moco: Any, make_job: Any
) -> None:
    ends = []
    for seed in (0, 0, 1):
        job = make_job(make_moco(), seed=seed)
        before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
        DPSGD().train(job, {})
        assert torch.equal(before[0], torch.random.get_rng_state())
        assert np.array_equal(before[1], np.random.get_state()[1])
        ends.append(job.method.shared_state())
    assert all(torch.equal(ends[0][n], ends[1][n]) for n in ends[0])
    assert any(not torch.equal(ends[0][n], ends[2][n]) for n in ends[0])


def test_train__leaves_no_trace_of_opacus(make_moco: Any, make_job: Any) -> None:
    method = make_moco()
    kind = type(method.encoder)
    job = make_job(method)
    metrics = DPSGD().train(job, {})
    assert type(method.encoder) is kind
    for module in method.modules():
        assert not module._forward_hooks and not module._backward_hooks
        assert not any(k in vars(module) for k in ("activations", "autograd_grad_sample_hooks"))
    fresh = set(vars(make_moco().trainable()[0]))
    for weight in method.parameters():
        assert set(vars(weight)) == fresh
    assert all(not w.requires_grad for w in method.key_encoder.parameters())
    copy.deepcopy(method)
    assert all(isinstance(v, float) and math.isfinite(v) for v in metrics.values())
    assert job.step == 6
    assert all(len(job.optimizer.state[w]) for w in method.trainable())


def test_train__noise_has_the_stated_law(make_moco: Any, make_job: Any) -> None:
    """A batch that is always empty: the step is noise alone, N(0, (sigma C / B)^2)."""
    method = make_moco()
    start = [w.detach().clone() for w in method.trainable()]
    job = make_job(
        method, local_epochs=1, batch_size=12, lr=1.0, momentum=0.0, weight_decay=0.0,
        schedule="constant",
    )  # fmt: skip
    job.rng = _NeverChosen(0)
    metrics = DPSGD(noise_multiplier=2.0, max_grad_norm=0.5).train(job, {})
    moved = torch.cat([(w - s).flatten() for w, s in zip(method.trainable(), start, strict=True)])
    sigma = 2.0 * 0.5 / 12
    assert metrics["noise_std"] == pytest.approx(sigma)
    assert stats.kstest(moved.detach().numpy(), stats.norm(scale=sigma).cdf).pvalue > 0.01
    assert metrics["loss"] == 0.0 and metrics["clipped"] == 0.0


@pytest.mark.parametrize("batch_size", [3, 6])
def test_train__tells_the_noise_of_a_step_whose_batch_is_a_part(
    batch_size: int, make_moco: Any, make_job: Any
) -> None:
    """Empty batches: T steps at rate 1 move each weight by N(0, T std^2), std as it is told."""
    method = make_moco()
    start = [w.detach().clone() for w in method.trainable()]
    job = make_job(
        method, local_epochs=1, batch_size=batch_size, lr=1.0, momentum=0.0, weight_decay=0.0,
        schedule="constant",
    )  # fmt: skip
    job.rng = _NeverChosen(0)
    noise_std = DPSGD(noise_multiplier=2.0, max_grad_norm=0.5, lr=1.0).train(job, {})["noise_std"]
    moved = torch.cat([(w - s).flatten() for w, s in zip(method.trainable(), start, strict=True)])
    steps = 12 // batch_size
    assert noise_std == pytest.approx(2.0 * 0.5 / batch_size)
    assert float(moved.detach().std()) == pytest.approx(noise_std * math.sqrt(steps), rel=0.05)


class _NeverChosen(np.random.Generator):
    """A generator whose uniforms are all 1: no image enters a Poisson batch."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))

    def random(self, size: Any = None, **more: Any) -> Any:
        return np.ones(size, dtype=more.get("dtype", np.float64))


def test_train__empty_batches_leave_queue_and_finite_weights(make_moco: Any, make_job: Any):
    method = make_moco()
    queue = method.queue.clone()
    job = make_job(method)
    job.rng = _NeverChosen(0)
    metrics = DPSGD().train(job, {})
    assert torch.equal(method.queue, queue) and method.bank.pointer == 0
    assert all(w.isfinite().all() for w in method.trainable())
    assert all(math.isfinite(v) for v in metrics.values())


def test_poisson_batches__each_image_enters_with_rate_b_over_n(
    make_moco: Any, make_job: Any
) -> None:
    sizes = [len(b[0]) for b in poisson_batches(make_job(make_moco(), local_epochs=300))]
    assert len(sizes) == 300 * 3
    law = stats.binom(12, sample_rate(12, 4))
    counts = np.bincount(sizes, minlength=13)
    kept = law.pmf(np.arange(13)) * 900 > 5
    observed = np.append(counts[kept], counts[~kept].sum())
    chances = np.append(law.pmf(np.arange(13))[kept], law.pmf(np.arange(13))[~kept].sum())
    assert stats.chisquare(observed, 900 * chances).pvalue > 0.01
    assert sample_rate(3, 8) == 1.0


def test_train__two_rounds_continue_what_one_desk_began(make_desk: Any) -> None:
    """Momentum, queue and accountant are kept: round 2 starts where round 1 ended."""
    options = {"noise_multiplier": 1.0}
    store = MemoryStore()
    first = Honest().answer(make_desk("dpsgd", options, store)).state
    client_state = store.load("main", 0)
    assert client_state is not None and client_state.memory["defense"]["dpsgd"]["history"] == [
        [1.0, 0.5, 2]
    ]
    momenta = {n: t.clone() for n, t in client_state.tensors.items() if n.startswith("optimizer.")}
    client_round = make_desk("dpsgd", options, store, 2, first)
    second = Honest().answer(client_round).state
    # By hand: one method and one optimizer, never stored.
    client_context = client_round.client_context
    method = client_context.method(0, 10)
    method.load_shared(make_desk("dpsgd", options).received)
    method.begin_first_round()
    by_hand = make_desk("dpsgd", options)
    from fedmia.ssl.train import make_optimizer

    optimizer = make_optimizer(method, client_context.train)
    memory: dict[str, Any] = {}
    for round in (1, 2):
        job = client_context.job(
            method, client_context.images[by_hand.indices], 1, rng(0, "train", round, 0)
        )
        job.optimizer, job.step = optimizer, (round - 1) * 2
        by_hand.defense.train(job, memory)
        if round == 1:
            buffers = [optimizer.state[w]["momentum_buffer"] for w in method.trainable()]
            names = [f"optimizer.{i}.momentum_buffer" for i in range(len(buffers))]
            assert all(torch.equal(b, momenta[n]) for n, b in zip(names, buffers, strict=True))
    assert all(torch.equal(t, second[n]) for n, t in method.shared_state().items())
    client_state = store.load("main", 0)
    assert client_state is not None and client_state.memory["defense"] == memory
    assert memory["dpsgd"]["history"] == [[1.0, 0.5, 4]]


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_train__other_optimizers_step_on_the_noised_sum(
    make_moco: Any, make_job: Any, name: str
) -> None:
    """With neither noise nor a clip that binds, what Opacus hands on is the plain sum over B."""
    train = {"optimizer": name, "lr": 0.01, "batch_size": 12, "local_epochs": 1}
    private, plain = make_moco(), make_moco()
    job, other = (make_job(method, **train) for method in (private, plain))
    DPSGD(noise_multiplier=0.0, max_grad_norm=1e6).train(job, {})
    other.rng.integers(2**63 - 1)  # the noise's seed
    (views,) = poisson_batches(other)
    other.begin_step()
    plain.train()
    (plain.losses(*views).sum() / 12).backward()
    other.optimizer.step()
    for got, want, was in zip(
        private.encoder.parameters(), plain.encoder.parameters(),
        make_moco().encoder.parameters(), strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
        assert not torch.equal(got, was)


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_rate__is_less_where_the_noise_would_move_the_weights_too_far(
    make_moco: Any, make_job: Any, name: str
) -> None:
    """As far as their own length, in all the run's steps; under a warm-up too."""
    memory: dict[str, Any] = {}
    train = {"optimizer": name, "lr": 50.0, "warmup_epochs": 1.0}
    job = make_job(make_moco(), more={"total_steps": 30}, **train)
    weights = [w.detach().clone() for w in job.method.trainable()]
    DPSGD(noise_multiplier=100.0).train(job, memory)
    rates = [replace(job.train, lr=memory["lr"]).rate(t, 30, 3) for t in range(30)]
    squares = sum(r * r for r in rates)
    length = float(torch.cat([w.flatten() for w in weights]).norm())
    moved = noise_moves(name, weights, 100.0 / 4, squares, 0.9)
    assert memory["lr"] < 50 and moved == pytest.approx(length, rel=1e-4)


def test_privacy__adds_over_rounds_and_survives_json(make_moco: Any, make_job: Any) -> None:
    defense, memory = DPSGD(noise_multiplier=1.5), {}
    method, values = make_moco(), []
    for _ in range(2):
        defense.train(make_job(method), memory)
        memory = json.loads(json.dumps(memory))
        stated = defense.privacy(memory)
        assert (
            stated is not None and stated.standing == "heuristic" and "queue" in stated.assumptions
        )
        values.append(stated.value)
    assert stated.rounds == 2 and stated.delta == 1e-5
    assert values[0] == epsilon_spent([(1.5, 4 / 12, 6)], 1e-5, "rdp")
    assert values[1] == epsilon_spent([(1.5, 4 / 12, 12)], 1e-5, "rdp") > values[0]
    assert OPEN.privacy({"history": [[0.0, 0.5, 3]], "rounds": 1}) is None
    nothing = defense.privacy({})
    assert nothing is not None and nothing.value == 0.0 and nothing.rounds == 0


def test_train__interrupted_round_counts_the_steps_it_took(make_moco: Any, make_job: Any) -> None:
    answers = iter([False, False, True])
    memory: dict[str, Any] = {}
    DPSGD().train(make_job(make_moco(), more={"stop": lambda: next(answers)}), memory)
    assert memory["history"][0][2] == 2


@pytest.mark.parametrize("accountant", ["rdp", "gdp"])
def test_train__epsilon_of_the_run_is_met_at_its_end(
    accountant: str, make_moco: Any, make_job: Any
) -> None:
    defense, memory = DPSGD(epsilon=5.0, accountant=accountant), {}
    method = make_moco()
    for _ in range(2):
        defense.train(make_job(method), memory)
    stated = defense.privacy(memory)
    assert stated is not None and stated.value is not None
    assert 4.9 < stated.value <= 5.0
    assert ("central limit" in stated.assumptions) == (accountant == "gdp")


def test_options__refused_in_one_line() -> None:
    with pytest.raises(InputError, match="not both"):
        DPSGD(epsilon=1.0, noise_multiplier=1.0)
    with pytest.raises(InputError, match="unknown DPSGD.accountant value"):
        DPSGD(accountant="moments")
    for norm in ("batch", "local"):
        with pytest.raises(InputError, match="batch norm mixes"):
            DPSGD().check(RunConditions(norm, MoCo()))
    with pytest.raises(InputError, match="no gradient belongs to one image"):
        DPSGD().check(RunConditions("group", SimCLR()))
    for coupled in (BYOL(), DINO()):
        with pytest.raises(InputError, match="no gradient belongs to one image"):
            DPSGD().check(RunConditions("group", coupled))
    for sound in (MoCo(), BYOL(head_norm="layer"), DINO(head_norm="none")):
        DPSGD().check(RunConditions("group", sound))


def test_history__entries_join_where_noise_and_rate_are_the_same() -> None:
    """Steps at another rate or another noise are entries of their own, in order."""
    history: list[Any] = []
    for entry in ((1.0, 0.5, 3), (1.0, 0.5, 4), (1.0, 0.25, 2), (2.0, 0.25, 1), (1.0, 0.5, 1)):
        history = dpsgd._extend_history(dpsgd._history({"history": history}), entry)
    assert history == [[1.0, 0.5, 7], [1.0, 0.25, 2], [2.0, 0.25, 1], [1.0, 0.5, 1]]


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
    statement = DPSGD(accountant=accountant, delta=1e-6).privacy(memory)
    assert statement is not None
    assert (statement.standing, statement.audit, statement.unit) == (standing, audit, "image")
    assert (statement.rounds, statement.delta, statement.canaries) == (2, 1e-6, 100)
    steps = [(float(a), float(b), int(n)) for a, b, n in history]
    assert statement.value == pytest.approx(epsilon_spent(steps, 1e-6, accountant))
    assert ("its queue" in statement.assumptions) == bool(remembers)
    assert ("No image's loss" in statement.assumptions) == (standing == "guaranteed")
    assert DPSGD().privacy({"history": [*history, [0.0, 0.5, 1]]}) is None


def test_foresee__counts_the_steps_of_all_rounds_and_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = list[Any]()
    monkeypatch.setattr(dpsgd, "check_reachable", lambda *given: calls.append(given))
    train = Train(local_epochs=3, batch_size=4)
    DPSGD(noise_multiplier=1.0).foresee(10, train, 5)
    DPSGD(epsilon=2.0, delta=1e-6, accountant="gdp").foresee(10, train, 5)
    assert calls == [(2.0, 1e-6, 0.4, 5 * 3 * 3, "gdp")]
