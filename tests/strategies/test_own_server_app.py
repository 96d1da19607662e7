"""Our strategies in a plain ServerApp of somebody's, by Flower's own `Strategy.start`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from flwr.simulation import run_simulation

from clients.app import answer, client_app
from clients.client_setup import ClientSetup
from fedmia.federation.inline import InlineGrid
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.arrays import record, tensors
from strategies.base import FederatedStrategy, call_roll
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy, FederationError
from strategies.fedavg import FedAvg
from tests.recording.plain import PlainGrid, arrays, make_app
from tests.small_setup import small_setup
from tests.strategies.conftest import exactly, some_state
from tests.strategies.test_rounds import Failing, Shuffled, drift, spoiled, work_of

pytestmark = pytest.mark.usefixtures("clock")
NAMES = registry.names("strategy")
ON_CLIENTS = {"fedema", "fedprox", "scaffold"}
CLIENTS, ROUNDS = 10, 3


class OnDisk:
    """What clients keep, in a folder that the processes of all nodes share."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def load(self, branch: str, client: int) -> Any:
        path = self.folder / f"{branch}-{client}"
        return torch.load(path, weights_only=False) if path.exists() else None

    def save(self, branch: str, client: int, state: Any) -> None:
        torch.save(state, self.folder / f"{branch}-{client}")


@pytest.fixture
def context_of(tmp_path: Path, images: torch.Tensor) -> Iterator[Any]:
    """Ten clients of a strategy, with queue and momenta that they keep between the rounds."""
    np.save(tmp_path / "images.npy", images.numpy())
    parts = [np.arange(2 * i, 2 * i + 4) % len(images) for i in range(CLIENTS)]
    yield lambda name: small_setup(
        tmp_path / "images.npy", parts, strategy=(name, {}), rounds=ROUNDS
    )


def grid_of(context: ClientSetup) -> InlineGrid:
    return InlineGrid(partial(answer, context), CLIENTS, 2, 1)


def own_rounds(context: ClientSetup, share: float, seed: int) -> State:
    """The global weights after the rounds of our own loop."""
    strategy: FederatedStrategy = context.experiment.strategy.build("strategy")
    phase = Phase("main", 0, ROUNDS, False, share, seed, ROUNDS)
    first = context.method(-1, None).shared_state()
    with closing(grid_of(context)) as grid:
        *_, last = strategy.rounds(grid, phase, first, FailurePolicy(CLIENTS))
    return last.state


def plain_app(context: ClientSetup, share: float, seed: int, ends: list[ArrayRecord]) -> Any:
    """A server app as its user writes it."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Context) -> None:
        strategy = context.experiment.strategy.build("strategy")
        first = record(context.method(-1, None).shared_state())
        result = strategy.start(
            grid, initial_arrays=first, num_rounds=ROUNDS, participation=share, seed=seed
        )
        ends.append(result.arrays)

    return app


@pytest.mark.parametrize("share", [pytest.param(1.0, marks=pytest.mark.slow(seconds=1)), 0.5])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__gives_the_model_of_our_own_rounds(
    name: str, share: float, context_of: Any
) -> None:
    """Of clients that keep queue and momenta from the rounds before."""
    context, ends = context_of(name), list[ArrayRecord]()
    with closing(grid_of(context)) as grid:
        plain_app(context, share, 7, ends)(grid, Context(1, 1, {}, ends, {}))  # type: ignore[arg-type]
    end = tensors(ends[0])
    assert exactly(end, own_rounds(context, share, 7))
    assert share == 1.0 or not exactly(end, own_rounds(context, share, 8))


@pytest.mark.slow(seconds=60)
def test_simulation__gives_the_model_of_our_own_rounds(context_of: Any, tmp_path: Path) -> None:
    """Flower's own: node ids are random, replies come in any order, nodes keep their state."""
    context, ends = context_of("fedavg"), list[ArrayRecord]()
    run_simulation(
        plain_app(context, 0.5, 7, ends), client_app(context, OnDisk(tmp_path / "nodes")),
        CLIENTS, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    assert exactly(tensors(ends[0]), own_rounds(context, 0.5, 7))


def start(grid: Any, strategy: Any = None, first: State | None = None, **more: Any) -> Any:
    """Three rounds of clients that drift; what Flower's own `start` gives."""
    initial = ArrayRecord(torch_state_dict=some_state(99) if first is None else first)
    with closing(grid):
        return (strategy or FedAvg()).start(grid, initial, ROUNDS, **more)


def test_start__takes_replies_in_any_order_and_evaluates_on_the_server() -> None:
    seen = list[int]()

    def evaluate(round: int, models: ArrayRecord) -> MetricRecord:
        seen.append(round)
        return MetricRecord({"bias": float(tensors(models)["bias"].sum())})

    one = start(InlineGrid(work_of(drift), 7, 2, 1), evaluate_fn=evaluate)
    other = start(Shuffled(work_of(drift), 7, 2, 1))
    assert exactly(tensors(one.arrays), tensors(other.arrays)) and seen == [0, 1, 2, 3]
    assert one.evaluate_metrics_serverapp[3]["bias"] == tensors(one.arrays)["bias"].sum().item()


class Halved(InlineGrid):
    """Of each two replies one comes before the time is over."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = super().send_and_receive(messages, timeout=timeout)
        return sorted(replies, key=lambda reply: reply.metadata.src_node_id)[::2]


@pytest.mark.parametrize(
    ("grid", "reply", "words"),
    [
        (Failing, drift, "round 1: client 1 failed: out of memory"),
        (Halved, drift, r"round 1: no reply from clients \[1, 3\]"),
        (InlineGrid, lambda *order: spoiled("nan")(order[0], order[1] + 5, order[2]),
         "round 2: client 2 sent a 'bias' that is not finite"),
    ],
)  # fmt: skip
def test_reply__that_is_missing_or_no_update_ends_the_rounds(
    grid: type[InlineGrid], reply: Any, words: str
) -> None:
    with pytest.raises(FederationError, match=words):
        start(grid(work_of(reply), 4, 2, 1))


def test_start__refuses_too_few_clients_and_a_share_out_of_range() -> None:
    with pytest.raises(FederationError, match="round 1: 2 clients answered, at least 3 are needed"):
        start(InlineGrid(work_of(drift), 2, 2, 1), registry.build("strategy", "median", {}))
    with pytest.raises(InputError, match=r"participation: 1.5, must be in \(0, 1\]"):
        start(InlineGrid(work_of(drift), 2, 2, 1), participation=1.5)
    with pytest.raises(FederationError, match="5 of 6 clients connected"):
        call_roll(PlainGrid(make_app()), 6, patience=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__of_clients_of_another_app(name: str) -> None:
    """They tell neither their partition nor their name; a strategy that acts on clients is none."""
    strategy = registry.build("strategy", name, {})
    config = ConfigRecord({"lr": 0.1})
    if name in ON_CLIENTS:
        with pytest.raises(FederationError, match="round 1: client 0 sent no 'client': the strat"):
            strategy.start(PlainGrid(make_app()), arrays(1.0), train_config=config)
        return
    result = strategy.start(PlainGrid(make_app()), arrays(1.0), train_config=config)
    moved = result.arrays["weight"].numpy() - 1.0
    assert np.isfinite(moved).all() and (moved > 0).any()
    if name == "fedavg":  # clients 1 to 5 add their number over that of the round
        np.testing.assert_allclose(moved, 3 * (1 + 1 / 2 + 1 / 3))


def test_wrapper_of_flowers__around_a_strategy_of_ours() -> None:
    """It has a `start` of its own, which tells neither clients nor rounds."""
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(),  # type: ignore[arg-type]
        noise_multiplier=0.0, clipping_norm=1e6, num_sampled_clients=5,
    )  # fmt: skip
    result = wrapped.start(PlainGrid(make_app()), arrays(1.0), num_rounds=1)
    np.testing.assert_allclose(result.arrays["weight"].numpy(), 4.0)
