"""Who takes part in a run, and what becomes of a round in which one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fedmia.records.rows import FaultRow
from fedmia.settings.errors import opt

TRIES = 3  # orders of one round that a client may fail under `retry`


class FederationError(RuntimeError):
    """The rounds cannot go on; those that are finished stand."""


@dataclass(frozen=True)
class Adversary:
    """Whom a privacy statement is to hold against.

    Attributes:
        malicious: clients in the attacker's role.
        crafts: they upload what an attack crafts.
        server: the server itself attacks.
    """

    malicious: tuple[int, ...] = ()
    crafts: bool = False
    server: bool = False


@dataclass
class FailurePolicy:
    """The clients of a run and the policy for those that fail.

    Attributes:
        clients: partition ids 0 .. clients - 1.
        on_failure: `stop` ends the rounds; `retry` gives the client its order again, from where the
            round began, TRIES times in all; `drop` goes on without the client, in this round and in
            every later one of every branch.
        timeout: seconds that a client may work on an order, None: as long as it likes.
        least: clients whose update a round needs.
        indispensable: why a run cannot do without those clients, None if it can.
        gone: clients that were dropped.
        faults: what happened, in order.
        say: shows a line to the user: each fault that the run survives, as it happens.
        hint: what helps where training diverged.
    """

    clients: int
    on_failure: str = "stop"
    timeout: float | None = None
    least: int = 1
    indispensable: Callable[[frozenset[int]], str | None] = lambda gone: None
    gone: set[int] = field(default_factory=set)
    faults: list[FaultRow] = field(default_factory=list)
    say: Callable[[str], None] = lambda line: None
    hint: str = f"a lower {opt('train.lr')} helps if training diverged"

    def note_failure(self, branch: str, round: int, client: int, reason: str) -> bool:
        """Note a failure and decide what follows.

        Args:
            branch: which federation of the run: `main`, `zero` or `placebo`.
            round: number of the round, from 1.
            client: partition id of the client.
            reason: what went wrong, for the report.

        Returns:
            True: ask the client again. False: it is dropped.

        Raises:
            FederationError: the policy says stop, or can do no more.
        """
        before = sum((f.branch, f.round, f.client) == (branch, round, client) for f in self.faults)
        action = {"retry": "retried", "drop": "dropped"}.get(self.on_failure, "stopped")
        if action == "retried" and before + 1 >= TRIES:
            action = "stopped"
        if action == "dropped" and (why := self.indispensable(frozenset({client, *self.gone}))):
            action, reason = "stopped", f"{reason} ({why})"
        self.faults.append(
            FaultRow(branch=branch, round=round, client=client, reason=reason, action=action)
        )
        if action == "stopped":  # the error says it
            often = f" ({before + 1} times)" if before else ""
            raise FederationError(f"round {round}: client {client} {reason}{often}")
        line = " ".join(reason.split())
        self.say(f"{branch} round {round}: client {client} {line} ({action})")
        if action == "dropped":
            self.gone.add(client)
        return action == "retried"

    def require_updates(self, round: int, answered: int) -> None:
        """Refuse a round with too few updates.

        Args:
            round: number of the round, from 1.
            answered: updates that arrived.

        Raises:
            FederationError: fewer than `least`.
        """
        if answered < self.least:
            raise FederationError(
                f"round {round}: {answered} clients answered, at least {self.least} are needed "
                f"({opt('federation.min_clients')}, or the strategy's own)"
            )
