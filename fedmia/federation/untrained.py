"""The active attack on the first model: honest clients return what they received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedmia.federation.forks import Fork
from fedmia.federation.readings import UNTRAINED, Readings
from fedmia.federation.recorder import TrajectoryRecorder
from fedmia.federation.schedule import Schedule
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.ssl.base import State, on_device
from strategies.base import FederatedStrategy
from strategies.failure_policy import FederationError


def climb_untrained(recorder: Readings | None, schedule: Schedule, state: State) -> None:
    """Read the attacked rounds of a federation in which nobody trains: a control of the attack.

    What an attack raises on the first model is kept beside the readings. Where these rounds were
    read before, or none was attacked, nothing is done.

    Args:
        recorder: of the run; takes the readings as those of the branch `untrained`. One of a run
            that is over, or None, is left as it is.
        schedule: its rounds.
        state: weights of the first model.
    """
    if not isinstance(recorder, TrajectoryRecorder):
        return
    if recorder.acted(UNTRAINED) or not recorder.acted("main"):
        return
    experiment, context = schedule.experiment, recorder.context
    sizes = [len(part) for part in context.parts["members"]]
    strategy: FederatedStrategy = experiment.strategy.build("strategy")
    strategy.course = schedule.course(UNTRAINED, schedule.clean, schedule.last, craft=True)
    strategy.nodes = {client: client for client in range(len(sizes))}

    def fork(round: int, received: State, cohort: Sequence[int]) -> Fork:
        malicious = {c: sizes[c] for c in experiment.malicious_clients if c in cohort}
        numbers = {c: (sizes[c], dict[str, float]()) for c in cohort if c not in malicious}
        honest = dict.fromkeys(numbers, received)
        return Fork(
            UNTRAINED, round, received, strategy, None, malicious, honest=honest, numbers=numbers
        )

    try:
        if recorder.attack.round_size is None:
            _climb_rounds(recorder, schedule, fork, state)
        else:  # the first attacked round for each batch alone
            round = schedule.clean + 1
            recorder.received(UNTRAINED, round, state, {})
            recorder.forked(fork(round, state, range(len(sizes))))
    except (InputError, FederationError) as error:
        recorder.failures[UNTRAINED] = error


def _climb_rounds(
    recorder: TrajectoryRecorder,
    schedule: Schedule,
    fork: Callable[[int, State, Sequence[int]], Fork],
    state: State,
) -> None:
    client_context, notes = recorder.context, dict[str, Any]()
    method = recorder.view(state, {}).copy_method()
    experiment = schedule.experiment
    for round in range(schedule.clean + 1, schedule.last + 1):
        cohort = [c for c in range(experiment.federation.clients) if schedule.takes_part(c, round)]
        crafted = state
        if experiment.holder in cohort:
            stream = rng(experiment.seed, "craft-untrained", round)
            recorder.received(UNTRAINED, round, state, {})
            number = len(recorder.rounds(UNTRAINED))  # crafted before, as in the main branch
            turn = client_context.craft_context(
                method, state, state, number, notes, stream, round=round
            )
            crafted = on_device(recorder.attack.craft(turn), "cpu")  # where a server works
            recorder.sent(UNTRAINED, round, crafted, {})
        replay = fork(round, state, cohort)
        state = state | replay.strategy.aggregate(state, replay.updates(crafted))
    recorder.received(UNTRAINED, schedule.last + 1, state, {})
