"""The active attack on the first model: honest clients return what they received."""

from __future__ import annotations

from typing import Any

from fedmia.federation.forks import Fork
from fedmia.federation.readings import UNTRAINED
from fedmia.federation.recorder import TrajectoryRecorder
from fedmia.federation.schedule import Schedule
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.ssl.base import State, on_device
from fedmia.storage.snapshot import Snapshot, Update
from fedmia.threat.signals import Signals
from strategies.base import FederatedStrategy
from strategies.failure_policy import FederationError


def climb_untrained(recorder: TrajectoryRecorder, schedule: Schedule, state: State) -> None:
    """Read the attacked rounds of a federation in which nobody trains: a control of the attack.

    What an attack raises on the first model is kept beside the readings.

    Args:
        recorder: of the run; takes the readings as those of the branch `untrained`.
        schedule: its rounds.
        state: weights of the first model.
    """
    experiment = schedule.experiment
    sizes = [len(part) for part in recorder.observer.client_context.parts["members"]]
    strategy: FederatedStrategy = experiment.strategy.build("strategy")
    strategy.course = schedule.course(UNTRAINED, schedule.clean, schedule.last, craft=True)
    strategy.nodes = {client: client for client in range(len(sizes))}
    try:
        if recorder.attack.round_size is None:
            _climb_rounds(recorder, schedule, strategy, state, sizes)
        else:
            _climb_alone(recorder, experiment.malicious_clients, strategy, state, sizes)
    except (InputError, FederationError) as error:
        recorder.failures[UNTRAINED] = error


def _climb_rounds(
    recorder: TrajectoryRecorder,
    schedule: Schedule,
    strategy: FederatedStrategy,
    state: State,
    sizes: list[int],
) -> None:
    client_context, notes = recorder.observer.client_context, dict[str, Any]()
    experiment = schedule.experiment
    method = recorder.observer.view(Snapshot(0, state, {}), Signals()).copy_method()
    for round in range(schedule.clean + 1, schedule.last + 1):
        clients = [c for c in range(len(sizes)) if schedule.takes_part(c, round)]
        sent = dict.fromkeys(clients, state)
        if experiment.holder in clients:
            number = len(recorder.rounds(UNTRAINED))
            stream = rng(experiment.seed, "craft-untrained", round)
            recorder.received(UNTRAINED, round, Snapshot(round, state, {}))
            turn = client_context.craft_context(
                method, state, state, number, notes, stream, round=round
            )
            crafted = on_device(recorder.attack.craft(turn), "cpu")  # where a server works
            recorder.sent(UNTRAINED, round, Snapshot(round, crafted, {}))
            sent |= {c: crafted for c in experiment.malicious_clients if c in sent}
        updates = [Update(c, round, s, sizes[c], {}) for c, s in sent.items()]
        state = state | strategy.aggregate(state, updates)
    recorder.received(UNTRAINED, schedule.last + 1, Snapshot(schedule.last, state, {}))


def _climb_alone(
    recorder: TrajectoryRecorder,
    malicious: tuple[int, ...],
    strategy: FederatedStrategy,
    state: State,
    sizes: list[int],
) -> None:
    """The first attacked round for each batch alone."""
    round, theirs = strategy.course.first + 1, {c: sizes[c] for c in malicious}
    numbers = {c: (n, dict[str, float]()) for c, n in enumerate(sizes) if c not in malicious}
    recorder.received(UNTRAINED, round, Snapshot(round, state, {}))
    honest = dict.fromkeys(numbers, state)
    recorder.forked(
        Fork(UNTRAINED, round, state, strategy, None, theirs, honest=honest, numbers=numbers)
    )
