"""Leakage is seen while a federation runs, and ends it where it passes a bound."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result

import fedmia.flower
from fedmia.flower import Watch, record
from fedmia.observers.base import RunObserver
from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc_interval
from fedmia.statistics.spending import ALPHA, lower_limit, spend
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy, FederationError
from strategies.fedavg import FedAvg as OurFedAvg
from tests.auditing.conftest import MEMBERS
from tests.evaluation.memory import Net, other, state_of
from tests.flower.leaking import (
    IMAGES,
    LEAKS,
    QUIET,
    ROUNDS,
    VIEWS,
    App,
    first,
    images_of,
    orders,
    watch,
)
from tests.observers.test_observing import FakeMLflow
from tests.pages.reading import block
from tests.recording import legacy
from tests.recording.plain import NODES, PlainGrid, make_app
from tests.recording.test_grid import STRATEGIES, start


def by_flower(grid: Grid, **more: Any) -> ArrayRecord:
    return FedAvg(**{**QUIET, **more}).start(grid, first(), ROUNDS).arrays


def by_ours(grid: Grid) -> ArrayRecord:
    return OurFedAvg().start(grid, first(), ROUNDS, clients=5).arrays


def by_hand(grid: Any) -> ArrayRecord:
    """A loop that pushes and pulls, and asks whether it is stopped."""
    arrays = first()
    for round in range(1, ROUNDS + 1):
        names = list(grid.push_messages(orders(arrays, round)))
        if grid.stopped:
            assert not names
            break
        replies = list(grid.pull_messages(names))
        arrays = replies[0].content["arrays"]
    return arrays


def by_callback(grid: Any) -> ArrayRecord:
    """As `Strategy.start(.., should_stop=grid.should_stop)` does in Flower 1.43: it asks after each
    round, and so no round is empty."""
    result = Result(arrays=first())
    for round in range(1, ROUNDS + 1):
        replies = list(grid.send_and_receive(orders(result.arrays, round)))
        result.arrays = replies[0].content["arrays"]
        if grid.should_stop(round, result):
            break
    return result.arrays


def by_rounds(grid: Any) -> ArrayRecord:
    """The loop of `fedmia simulate`, which reports on the rounds that are finished."""
    policy = FailurePolicy(5, "stop", None, 1, frozenset(), say=print)
    phase, arrays = Phase("main", 0, ROUNDS, False, 1.0, 0), first()
    with pytest.raises(FederationError, match="the watch stopped the federation"):
        for round in OurFedAvg().rounds(grid, phase, arrays.to_torch_state_dict(), policy):
            arrays = ArrayRecord(round.state)
    return arrays


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


@pytest.mark.parametrize("loop", [by_flower, by_ours, by_hand, by_callback, by_rounds])
def test_watch__stops_at_the_first_look_after_the_bound_is_passed(
    loop: Callable[[Any], ArrayRecord], tmp_path: Path, lines: Any
) -> None:
    """Round 7 leaks, and 8 is looked at: the model of 8 is sent to nobody, and kept."""
    app, guard = App(), watch()
    with record(PlainGrid(app), tmp_path / "REC", watch=guard) as grid:
        result = loop(grid)
        assert grid.stopped
        assert len(list(grid.send_and_receive(orders(result, 99)))) == 0
        assert len(list(grid.send_and_receive(orders(result, 99, "evaluate")))) == 0
        hello = [Message(RecordDict(), node, "query.hello") for node in NODES]
        assert all(reply.has_content() for reply in grid.send_and_receive(hello))
        grid.final(result)
    assert app.orders == [("train", round) for round in range(1, 9) for _ in NODES]
    assert [*guard.looks] == [0, 2, 4, 6, 8]
    *before, last = (look.value for look in guard.looks.values())
    assert len({*before}) == 1 and before[0] < 0.7 and last > 0.9
    limits = [*guard.limits.values()]
    assert [*guard.limits] == [2, 4, 6, 8] and max(limits[:3]) < 0.6 < limits[3]
    torch.testing.assert_close(result.to_torch_state_dict()["late.strength"], torch.ones(()))
    recording = Recording(tmp_path / "REC")
    assert [*recording.models()] == [*range(9)]
    assert {r: len(line.cohort) for r, line in recording.records["main"].items()} == {
        0: 0, **dict.fromkeys(range(1, 9), 5),
    }  # fmt: skip
    said = [line for line in lines.messages if line.startswith("watch: ")]
    assert len(said) == 6 and re.search(
        r"round 8: similarity AUC .+ look 4 of 6: at least", said[4]
    )
    assert "the federation stops after round 8: the AUC of similarity is over 0.6" in said[5]


def test_watch__stops_before_a_leaking_model_is_evaluated(tmp_path: Path) -> None:
    app = App()
    with record(PlainGrid(app), tmp_path / "REC", watch=watch(every=1, looks=12)) as grid:
        result = by_flower(grid, fraction_evaluate=1.0, min_evaluate_nodes=5)
    assert max(r for kind, r in app.orders if kind == "train") == LEAKS
    assert max(r for kind, r in app.orders if kind == "evaluate") == LEAKS - 1
    assert result.to_torch_state_dict()["late.strength"] == 1


def test_watch__without_a_bound_or_with_its_looks_over_stops_nothing(
    tmp_path: Path, lines: Any
) -> None:
    for name, how in (
        ("A", {"stop_above": None}),
        ("B", {"looks": 3}),
    ):
        app, guard = App(bare=True), watch(**how)
        with record(PlainGrid(app), tmp_path / name, watch=guard) as grid:
            FedAvg(**QUIET).start(
                grid, ArrayRecord([t.numpy() for t in state_of(0.0).values()]), 12
            )
        assert app.orders[-1] == ("train", ROUNDS) and not guard.stopped
        assert [*guard.looks][-1] == 10 and guard.looks[10].value > 0.9
    assert sum("the 3 planned looks are over" in line for line in lines.messages) == 1


def test_watch__spends_a_planned_look_for_each_but_the_first_in_both_phases(tmp_path: Path) -> None:
    """Of two phases under one record; the first model's look spends nothing, the last ones stop
    nothing, and a single look stops a federation that leaks at it."""
    errors, guard = spend(3, 0.04), watch(looks=3, alpha=0.04, stop_above=0.99)
    with record(PlainGrid(App()), tmp_path / "REC", watch=guard) as grid:
        middle = FedAvg(**QUIET).start(grid, first(), 7).arrays
        FedAvg(**QUIET).start(grid, middle, 4)
    assert [*guard.looks] == [0, 2, 4, 6, 8, 10] and not guard.stopped
    assert guard.limits == {
        round: lower_limit(guard.looks[round], error)
        for round, error in zip((2, 4, 6), errors, strict=True)
    }
    once, app = watch(looks=1), App(leaks=1)
    with record(PlainGrid(app), tmp_path / "ONE", watch=once) as grid:
        by_flower(grid)
    assert once.stopped and app.orders == [("train", r) for r in (1, 2) for _ in NODES]
    assert once.limits == {2: lower_limit(once.looks[2], spend(1, ALPHA)[0])}


def test_watch__changes_no_model(tmp_path: Path) -> None:
    models = []
    for name, guard in (("A", None), ("B", watch(stop_above=None))):
        with record(PlainGrid(App()), tmp_path / name, watch=guard) as grid:
            by_flower(grid)
        models.append(Recording(tmp_path / name).models())
    for round, state in models[0].items():
        for tensor, values in state.items():
            assert torch.equal(models[1][round][tensor], values)


def test_watch__names_a_difference_that_no_training_made(tmp_path: Path, lines: Any) -> None:
    """The first model knows the members already."""
    guard = watch()
    with record(PlainGrid(App()), tmp_path / "REC", watch=guard) as grid:
        grid.send_and_receive(orders(ArrayRecord(state_of(1.0)), 1))
    assert not guard.stopped and auc_interval(guard.looks[0])[0] > 0.5
    assert "nobody trained this model, so members and others differ" in lines.text


def test_rehearsal__stops_a_federation_that_does_not_leak(tmp_path: Path, lines: Any) -> None:
    """At the first look after a round; what was measured is neither hidden nor replaced."""
    app, guard = App(leaks=99), watch(rehearse=0.9)
    with record(PlainGrid(app), tmp_path / "REC", watch=guard) as grid:
        by_flower(grid)
    assert grid.stopped and app.orders[-1] == ("train", 2) and [*guard.looks] == [0, 2]
    measured = guard.looks[2]
    assert measured.value == guard.looks[0].value and lower_limit(measured, 0.05) < 0.6
    first_model, look, stop, review = [m for m in lines.messages if m.startswith("watch: ")]
    assert "rehearsal" not in first_model
    assert f"rehearsal: AUC 0.900 [0.774, 0.959] in place of {measured.value:.3f} [" in look
    assert f"look 1 of 6: at least {guard.limits[2]:.3f}, stops above 0.6" in look
    assert "watch: rehearsal, AUC 0.900 in place of 0.682: the federation stops after r" in stop
    assert "without the rehearsal it would go on (at least 0.513, stops above 0.6)" in stop
    assert "an AUC of 0.900 stops the federation at 6 of the 6 planned looks" in review


def test_rehearsal__says_that_images_are_too_few(tmp_path: Path, lines: Any) -> None:
    """Forty a side at most cannot show that an AUC of .7 is over .6."""
    app = App(leaks=99)
    with record(PlainGrid(app), tmp_path / "REC", watch=watch(rehearse=0.7)) as grid:
        by_flower(grid)
    assert not grid.stopped and app.orders[-1] == ("train", ROUNDS)
    assert sum("rehearsal: AUC 0.700 [" in line for line in lines.messages) == 5
    assert lines.messages[-1].startswith(
        "watch: rehearsal: with so many images an AUC of 0.700 stops the federation at 0 of the 6 "
        "planned looks (at least 0.531 at the first, 0.506 at the last): they are too few; "
    )
    late = watch(rehearse=0.778)  # stops at once, and would not stop a leak that comes late
    with record(PlainGrid(App(leaks=99)), tmp_path / "LATE", watch=late) as grid:
        by_flower(grid)
    assert grid.stopped and "at 2 of the 6 planned looks" in lines.messages[-1]


def test_rehearsal__lets_no_leak_pass_and_without_a_bound_says_so(
    tmp_path: Path, lines: Any
) -> None:
    with record(PlainGrid(App()), tmp_path / "A", watch=watch(rehearse=0.62)) as grid:
        by_flower(grid)
    assert grid.stopped
    (stop,) = [line for line in lines.messages if "the federation stops after" in line]
    assert "AUC 0.620 in place of 1.000" in stop and "after round 8; without" in stop
    assert "it would stop here, too" in stop
    free = watch(rehearse=0.9, stop_above=None)
    with record(PlainGrid(App()), tmp_path / "B", watch=free) as grid:
        by_flower(grid)
    assert not grid.stopped
    assert lines.messages[-1] == "watch: rehearsal: without stop_above nothing is stopped"


class ThreeRounds(Watch):
    """Stops after round 3, whatever leaks."""

    def look(self, round: int, state: Any) -> bool:
        self.stopped = round >= 3
        return not self.stopped


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_of_flower__keep_the_model_that_is_not_sent(name: str, tmp_path: Path) -> None:
    app, trained = make_app(), list[int]()

    def node(message: Message, context: Context) -> Message:
        trained.append(int(message.content["config"]["server-round"]))
        return app(message, context)

    with record(PlainGrid(node), tmp_path / "REC", watch=ThreeRounds()) as grid:
        result = start(grid, name, rounds=6)
        grid.final(result.arrays)
    assert trained == [1] * 5 + [2] * 5 + [3] * 5
    models = Recording(tmp_path / "REC").models()
    assert list(models) == [0, 1, 2, 3]
    np.testing.assert_array_equal(models[3]["weight"].numpy(), result.arrays["weight"].numpy())


class Told(RunObserver):
    """Prints what it is told."""

    def begin(self, config: Any, folder: Any) -> None:
        print("begins", config["attack"], config["rehearse"])

    def scalars(self, values: Any, step: int) -> None:
        print("round", step, sorted(values))

    def report(self, *_: Any) -> None: ...

    def end(self, failed: bool) -> None:
        print("ends", failed)


def test_watch__tells_observers(tmp_path: Path, capsys: Any) -> None:
    """What is measured, and apart from it what is rehearsed."""
    observe = ["tests.flower.test_watch:Told"]
    guard = watch(observe=observe, every=6, rehearse=0.7)
    with record(PlainGrid(App()), tmp_path / "REC", watch=guard) as grid:
        by_flower(grid)
    names = ["leakage/similarity", "leakage_high/similarity", "leakage_low/similarity"]
    events = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith(("begin", "round", "ends"))
    ]
    rehearsed = [name.replace("leakage", "rehearsal") for name in names]
    assert events == [
        "begins similarity 0.7", f"round 0 {names}", f"round 6 {names}", f"round 6 {rehearsed}",
        "ends False",
    ]  # fmt: skip


def test_watch__that_stops_is_a_finished_run_of_mlflow_and_an_error_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", fake := FakeMLflow())
    with record(PlainGrid(App()), tmp_path / "A", watch=watch(observe=["mlflow"])) as grid:
        by_flower(grid)
    assert grid.stopped and fake.calls[-1][:2] == ("end_run", ("FINISHED",))
    with (
        pytest.raises(ZeroDivisionError),
        record(PlainGrid(App()), tmp_path / "B", watch=watch(observe=["mlflow"])),
    ):
        raise ZeroDivisionError
    assert fake.calls[-1][:2] == ("end_run", ("FAILED",))


class SlowThreeRounds(ThreeRounds):
    """Its looks take as long as all orders of a round take to come."""

    def look(self, round: int, state: Any) -> bool:
        time.sleep(0.2)
        return super().look(round, state)


def test_watch__of_flowers_old_loop_keeps_the_model_that_is_not_sent(tmp_path: Path) -> None:
    """It sends each client's order from a thread of its own, and waits for each reply."""
    kept = list[float]()

    def evaluate(round: int, parameters: Any, config: Any) -> None:
        kept.append(float(np.mean(parameters[0])))

    def server_fn(context: Context) -> ServerAppComponents:
        initial = ndarrays_to_parameters([np.ones((3, 2)), np.zeros(2)])
        strategy = OldFedAvg(
            min_fit_clients=5, min_available_clients=5, initial_parameters=initial,
            evaluate_fn=evaluate, fraction_evaluate=1.0, accept_failures=True,
        )  # fmt: skip
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=6))

    app = record(ServerApp(server_fn=server_fn), tmp_path / "REC", watch=SlowThreeRounds())
    app(PlainGrid(legacy.make_client()), Context(1, 1, {}, RecordDict(), {}))
    assert kept == pytest.approx([1, 3, 5, 7, 7, 7, 7])
    recording = Recording(tmp_path / "REC")
    assert [*recording.models()] == [0, 1, 2, 3]
    assert {r: len(line.cohort) for r, line in recording.records["main"].items()} == {
        0: 0, 1: 5, 2: 5, 3: 5,
    }  # fmt: skip


def test_watch__with_fewer_rounds_than_it_waits_for_says_so(tmp_path: Path, lines: Any) -> None:
    with record(PlainGrid(App()), tmp_path / "REC", watch=(guard := watch(every=13))) as grid:
        grid.final(by_flower(grid))
    assert [*guard.looks] == [0]
    text = "watch: every=13 is more than the 12 rounds"
    assert sum(text in line for line in lines.messages) == 1


def test_watch__of_a_recording_that_ends_says_so(tmp_path: Path, lines: Any) -> None:
    guard = watch()
    with record(PlainGrid(App()), tmp_path / "REC", watch=guard) as grid:
        grid.send_and_receive(orders(first(), 1))
        for _ in range(2):
            grid.send_and_receive(orders(ArrayRecord([np.ones(3)]), 2))
    assert sum("watch ended: the recording ended" in line for line in lines.messages) == 1


def test_watch__of_a_broken_model_ends_alone(tmp_path: Path, lines: Any) -> None:
    guard, broken = watch(), {n: t.clone() for n, t in state_of(0.0).items()}
    broken["early.weight"].fill_(float("nan"))
    with record(PlainGrid(App()), tmp_path / "REC", watch=guard) as grid:
        grid.send_and_receive(orders(first(), 1))
        for round in (3, 5):
            assert len(list(grid.send_and_receive(orders(ArrayRecord(broken), round)))) == 5
    ended = [line for line in lines.messages if "watch ended" in line]
    assert len(ended) == 1 and "the model of round 2: 'early.weight'" in ended[0]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "every": ({"every": 0}, "watch: every=0, must be an integer >= 1"),
    "looks": ({"looks": 0}, "watch: looks=0, must be an integer >= 1"),
    "alpha": ({"alpha": 0.7}, "watch: alpha=0.7, must be in (0, 0.5)"),
    "bound": ({"stop_above": 60}, "watch: stop_above=60, must be in [0.5, 1)"),
    "rehearsed": ({"rehearse": 0.6}, "watch: rehearse=0.6, must be over the bound, in (0.6, 1)"),
    "percent": ({"rehearse": 90}, "watch: rehearse=90, must be over the bound, in (0.6, 1)"),
    "unbound": ({"rehearse": 0.5, "stop_above": None}, "must be over the bound, in (0.5, 1)"),
    "unknown": ({"attack": "similarty"}, "similarity"),
    "active": ({"attack": "ascent", "options": {}}, "watch: attack 'ascent': takes part in"),
    "client": ({"attack": "loss-slope", "options": {}}, "needs the vantage of a client"),
    "shadows": ({"attack": "lira", "options": {}}, "trains encoders of its own"),
    "few": ({"others": IMAGES[:1]}, "watch: others: 1 images, must be at least 2"),
    "shared": ({"others": IMAGES[:50]}, f"watch: members and others share {MEMBERS} images"),
    "floats": ({"members": IMAGES / 255}, "watch: members: images must be uint8"),
}


@pytest.mark.parametrize("name", WRONG)
def test_watch__refuses_what_it_cannot_use(name: str) -> None:
    how, message = WRONG[name]
    with pytest.raises(InputError) as refused:
        watch(**how)
    assert message in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_watch__refuses_another_network_before_anything_is_trained(tmp_path: Path) -> None:
    app = App()
    with (
        record(PlainGrid(app), tmp_path / "REC", watch=watch(net=other)) as grid,
        pytest.raises(InputError, match=r"watch: .*'late.stored' is"),
    ):
        by_flower(grid)
    assert app.orders == []


def test_page__its_blocks_watch_and_stop(tmp_path: Path) -> None:
    page = "docs/howto/watch.md"
    names: dict[str, Any] = {
        "fedmia": fedmia, "Net": Net, "members": IMAGES[:MEMBERS], "others": IMAGES[MEMBERS:],
        "strategy": FedAvg(**QUIET), "first": first(), "grid": PlainGrid(app := App()),
        "VIEWS": VIEWS,
    }  # fmt: skip
    code = block(page, "watch=watch").replace("/data", str(tmp_path))
    exec(code.replace("stop_above=0.6", "stop_above=0.6, **VIEWS"), names)
    assert names["grid"].stopped and app.orders[-1] == ("train", 10)
    exec(block(page, "rehearse=").replace("rehearse=0.9", "rehearse=0.9, **VIEWS"), names)
    with record(PlainGrid(app := App(leaks=99)), tmp_path / "SEEN", watch=names["watch"]) as grid:
        by_flower(grid)
    assert app.orders[-1] == ("train", 5)

    def read_images(context: Context) -> Any:
        members, others = images_of(context)
        return members, others[1:]

    served = {"fedmia": fedmia, "app": ClientApp(), "Net": Net, "read_images": read_images}
    exec(block(page, "serve("), served)
    where = {"partition-id": 1, "num-partitions": 5}
    order = RecordDict({
        "order": ConfigRecord({"attack": "similarity", "round": 1}), "arrays": first(),
    })  # fmt: skip
    context = Context(1, 7, where, RecordDict(), {})
    reply = served["app"](Message(order, 7, "query.fedmia_leakage"), context)
    assert reply.content["leakage"]["members"] == len(images_of(context)[0])
    with record(PlainGrid(App()), tmp_path / "OWN", watch=watch(every=2)) as grid:
        loop: dict[str, Any] = {
            "grid": grid, "model": first(),
            "aggregate": lambda replies: replies[0].content["arrays"],
            "orders": lambda model, round: orders(model, round + 1),
        }  # fmt: skip
        exec(block(page, "grid.stopped"), loop)
    assert loop["round"] == 8
