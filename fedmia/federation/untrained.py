"""The branch in which nobody trains: the active attack on the first model, a control of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedmia.federation.answered import AnsweredGrid
from fedmia.federation.notetaker import NoteTaker
from fedmia.federation.replay import Replay, one_round
from fedmia.federation.schedule import Schedule
from fedmia.recording.branches import UNTRAINED
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State, on_device
from fedmia.storage.snapshot import Update
from strategies.base import FederatedStrategy
from strategies.failure_policy import FailurePolicy, FederationError


def play_untrained(notes: NoteTaker, schedule: Schedule, state: State) -> None:
    """Play the attacked rounds of a federation in which nobody trains.

    Honest clients send back what they received. What the attack raises is noted as why the branch
    failed.

    Args:
        notes: of the active client; takes those of this branch.
        schedule: of the run.
        state: weights of the first model.
    """
    play = _play_rounds if notes.attack.round_size is None else _play_batches
    try:
        play(notes, schedule, state)
    except (InputError, FederationError) as error:
        notes.facts_of(UNTRAINED, schedule.last)["failure"] = str(error)


def _play_rounds(notes: NoteTaker, schedule: Schedule, state: State) -> None:
    """All attacked rounds, one after the other."""
    experiment, setup, memory = schedule.experiment, notes.setup, dict[str, Any]()
    sizes = [len(part) for part in setup.parts["members"]]
    method = notes.view(state, {}).copy_method()
    uploads = dict[int, State]()  # by round: malicious clients send the same

    def craft(round: int, received: State) -> State:
        if not schedule.takes_part(notes.about["client"], round):
            return received
        notes.receive(UNTRAINED, round, received, {})
        number = len(notes.rounds(UNTRAINED))  # crafted before, as in the main branch
        stream = rng(experiment.seed, "craft-untrained", round)
        turn = setup.attack_turn(method, received, received, number, memory, stream, round=round)
        crafted = on_device(notes.attack.craft(turn), "cpu")  # where a server works
        notes.send(UNTRAINED, round, crafted, {})
        return crafted

    def answer(client: int, round: int, received: State) -> Update:
        upload = received
        if client in experiment.malicious_clients:
            if round not in uploads:
                uploads[round] = craft(round, received)
            upload = uploads[round]
        return Update(client, round, upload, sizes[client], {})

    strategy: FederatedStrategy = experiment.strategy.build("strategy")
    phase = schedule.phase(UNTRAINED, schedule.clean, schedule.last, craft=True)
    grid, policy = AnsweredGrid(len(sizes), answer), FailurePolicy(len(sizes))
    for done in strategy.rounds(grid, phase, state, policy):
        state = done.state
    notes.end(UNTRAINED, schedule.last, state, {})


def _play_batches(notes: NoteTaker, schedule: Schedule, state: State) -> None:
    """The first attacked round of all clients, for each batch alone."""
    sizes = [len(part) for part in notes.setup.parts["members"]]
    phase = schedule.phase(UNTRAINED, schedule.clean, schedule.last, craft=True)
    phase = replace(one_round(phase, schedule.clean + 1), participation=1.0)
    malicious = {client: sizes[client] for client in schedule.experiment.malicious_clients}
    strategy: FederatedStrategy = schedule.experiment.strategy.build("strategy")
    replay = Replay(phase, state, strategy, None, malicious, len(sizes))
    replay.honest = lambda client: Update(client, phase.last, state, sizes[client], {})
    notes.receive(UNTRAINED, phase.last, state, {})
    notes.replay(replay)
