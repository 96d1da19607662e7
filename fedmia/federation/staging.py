"""Clients' states of the round at work, which count once it is finished."""

from __future__ import annotations

from fedmia.federation.ledger import Key
from fedmia.storage.arena import nbytes
from fedmia.storage.snapshot import ClientState, StateStore

ROOM = 1 << 26  # bytes of the states of one round


class StagedStates(StateStore):
    """A store that the clients of a round at work do not touch: what they leave waits here.

    So a run that is ended within a round has the states of the last finished one for its
    checkpoint. Without that it would go on from the checkpoint before.

    Args:
        finished: states after the last finished round.
        room: bytes of tensors that may wait here. A round with more is handed on as it comes.

    Attributes:
        finished: as given.
        whole: whether `finished` holds nothing of the round at work.
    """

    def __init__(self, finished: StateStore, room: int = ROOM) -> None:
        self.finished, self.room, self.whole = finished, room, True
        self._staged, self._bytes = dict[Key, ClientState](), 0

    def load(self, branch: str, client: int) -> ClientState | None:
        """A client's state, of the round at work if it has one."""
        staged = self._staged.get((branch, client))
        return staged or self.finished.load(branch, client)

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep a client's state of the round at work."""
        self._staged[branch, client] = state
        self._bytes += nbytes(state.tensors)
        if self._bytes > self.room:
            self._hand_on()
            self.whole = False

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give branch `target` the states of branch `source`, after a finished round."""
        self.finished.fork(source, target, clients)

    def finish_round(self) -> None:
        """The round at work is finished: its states count."""
        self._hand_on()
        self.whole = True

    def _hand_on(self) -> None:
        for (branch, client), state in self._staged.items():
            self.finished.save(branch, client, state)
        self._staged, self._bytes = {}, 0  # a client at work reads them in one or the other
