"""The server's view: clients' own models, gradients against autograd, queries, lazy reads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.seeding import torch_rng
from fedmia.ssl.base import State, TrainingData
from fedmia.ssl.byol import BYOL
from fedmia.ssl.moco import MomentumContrast
from fedmia.testing.material import AUGMENT, changed
from fedmia.threat import BudgetError, ServerView, Threat
from tests.attacks.planted import view_of


class Counted(Mapping[int, State]):
    """States that count how often they are read."""

    def __init__(self, states: dict[int, State]) -> None:
        self.states, self.reads = states, 0

    def __getitem__(self, client: int) -> State:
        self.reads += 1
        return self.states[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)


def sent(state: State, clients: tuple[int, ...]) -> Counted:
    draw = torch_rng(0, "sent")
    return Counted(
        {c: {n: t + 0.03 * torch.randn(t.shape, generator=draw) for n, t in state.items()}
         for c in clients}
    )  # fmt: skip


def make(method: Any, held: Tensor, **more: Any) -> tuple[ServerView, Counted]:
    state = method.shared_state()
    updates = sent(state, (7, 2, 4))
    released = copy.deepcopy(method)
    released.load_shared({n: t * 1.1 for n, t in state.items()})  # of another round
    own = {"updates": {3: updates}, "before": {3: state}}
    return view_of(released, AUGMENT, ServerView, held=held, **own, **more), updates


@pytest.fixture
def server(make_moco: Callable[..., MomentumContrast], held: Tensor) -> tuple[ServerView, Counted]:
    return make(make_moco(), held)


Server = tuple[ServerView, Counted]


def test_threat__covers_a_client_and_sees_the_updates(server: Server, images: Tensor) -> None:
    view, updates = server
    assert view.threat == Threat("white_box", "server")
    assert view.threat.covers(Threat("white_box", "client"))
    assert view.clients(3) == (2, 4, 7)
    with pytest.raises(KeyError):
        view.clients(4)
    model = view.of_weights(view.updates[3][4])
    assert all(torch.equal(t, updates.states[4][n]) for n, t in model.state().items())
    model.embed_views(images, 5)
    assert view.queries == 100  # counted here


def test_on_updates__measures_each_client_once_and_charges_each_time(
    server: Server, held: Tensor, images: Tensor
) -> None:
    view, updates = server

    def measure(model: Any, x: Tensor) -> Tensor:
        return model.losses(x, 2, "held")

    queries = 4 * len(images) + len(held)
    losses = view.on_updates(images, 3, ("a loss",), measure, queries)
    assert losses.shape == (3, 20) and view.queries == 3 * queries and updates.reads == 3
    for row, client in zip(losses, (2, 4, 7), strict=True):
        want = view.of_weights(updates.states[client]).losses(images, 2, "held")
        assert torch.equal(row, want.double())
    view.queries, updates.reads = 0, 0
    again = view.on_updates(images.flip(0), 3, ("a loss",), measure, queries)
    assert torch.equal(again, losses.flip(1)) and view.queries == 3 * queries
    assert updates.reads == 0  # nothing is computed, so nothing is read


def test_on_updates__keeps_the_budget_before_it_computes(
    make_moco: Any, held: Tensor, images: Tensor
) -> None:
    view, updates = make(make_moco(), held, budget=59)
    with pytest.raises(BudgetError):
        view.on_updates(images, 3, ("any",), lambda m, x: torch.zeros(len(x)), 20)
    assert view.queries == 0 and updates.reads == 0


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_gradient_cosines__are_autograds(
    negatives: str, server: Server, held: Tensor, serving: Tensor, images: Tensor
) -> None:
    """One image, one pair, one client at a time; 0 of a client that sent what it received."""
    view, updates = server
    updates.states[7] = view.before[3]
    some, pairs = images[:4], 3
    cosines, lengths = view.gradient_cosines(some, 3, pairs, negatives)
    assert cosines.shape == (3, 4) and lengths.shape == (4,)
    bank = len(held) if negatives == "held" else 0
    assert view.queries == 2 * pairs * 4 + bank
    method = view.copy_method()
    received = view.before[3]
    method.load_shared(received)
    if negatives == "held":
        method.fill_bank(serving.float() / 255)
    pixels = view.view_pixels(some, 2 * pairs)
    for i in range(4):
        method.zero_grad()
        for j in range(pairs):
            loss = method.probe_losses(pixels[j, i][None], pixels[pairs + j, i][None])
            (loss.sum() / pairs).backward()
        names, weights = zip(*method.encoder.named_parameters(), strict=True)
        gradient = torch.cat([w.grad.flatten() for w in weights])
        assert lengths[i].item() == pytest.approx(gradient.norm().item(), rel=1e-4)
        for k, client in enumerate((2, 4, 7)):
            state = updates.states[client]
            step = torch.cat([(state[n] - received[n]).flatten() for n in names])
            want = F.cosine_similarity(step, -gradient, dim=0).item()
            assert cosines[k, i].item() == pytest.approx(want, abs=1e-5)


def test_gradient_cosines__leave_no_trace_and_are_computed_once(
    server: Server, images: Tensor
) -> None:
    view, updates = server
    before = view.copy_method().state_dict()
    first, _ = view.gradient_cosines(images[:5], 3, 1, "held")
    after = view.copy_method()
    assert changed(before, after.state_dict()) is None
    assert all(w.grad is None for w in after.parameters())
    updates.reads = 0
    again, _ = view.gradient_cosines(images[:5].flip(0), 3, 1, "held")
    assert torch.equal(again, first.flip(1)) and updates.reads == 0


def test_gradient_cosines__of_a_method_with_a_predictor_and_batch_norm(
    held: Tensor, images: Tensor
) -> None:
    """Only the encoder's weights count; running statistics are no weights and stay as they were."""
    backbone = SmallNet(width=4, norm="batch").build(3, images.shape[-1])
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, None)
    method = BYOL(dim=8).build(backbone, training_data, torch_rng(0, "byol"))
    view, _ = make(method, held)
    cosines, lengths = view.gradient_cosines(images[:3], 3, 2, "held")
    assert bool(cosines.isfinite().all()) and bool((cosines.abs() <= 1 + 1e-6).all())
    assert bool((lengths > 0).all())
    one, _ = view.gradient_cosines(images[1:2], 3, 2, "queue")
    other, _ = make(method, held)[0].gradient_cosines(images[:2], 3, 2, "queue")
    torch.testing.assert_close(one[:, 0], other[:, 1])
