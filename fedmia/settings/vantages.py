"""From where an attacker looks at a training: a row for each, in the words of every page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Vantage:
    """From where an attacker looks at a training; the views of `fedmia.threat` grant it.

    Attributes:
        uses: what an attack reads that needs it: `it uses ..`.
        does: who can run such an attack: `someone who ..`; empty: whoever has the model.
        whole: what such an attack read: `.. round 24`.
        leaks: what leaks where it finds members: `.. membership`.
        must: what somebody must do for it, in a model card; empty: nothing more.
        attacker: value of `--attacker` that grants it where no client does; empty: none.
        summary: what `--list` says of that value.
        keeps: what a run must keep for it beside models by round: `changes`, also the model before
            a round, or `updates`, also what each client sent; empty: nothing.
    """

    uses: str
    does: str = ""
    whole: str = "the model of"
    leaks: str = "The encoder leaks"
    must: str = ""
    attacker: str = ""
    summary: str = ""
    keeps: Literal["", "changes", "updates"] = ""


# Each grants what those before it grant.
VANTAGES: Mapping[str, Vantage] = {
    "outsider": Vantage(
        "the released model",
        attacker="none",
        summary="No attacker in the federation: an outsider has the released model alone.",
    ),
    "client": Vantage(
        "what a client sees",
        "takes part in the training as a client",
        "the models up to",
        "The models of the rounds leak",
        "take part in the training, which shows the model of each round",
    ),
    "server": Vantage(
        "each client's own update",
        "runs the server and sees the clients' updates",
        "the updates up to",
        "The clients' updates leak",
        "see the messages that the participants of the training send",
        "server",
        "An honest but curious server: it sees every client's update, and changes nothing.",
        keeps="updates",
    ),
}
VANTAGE = tuple(VANTAGES)
OF_SUMS = [name for name, one in VANTAGES.items() if one.keeps != "updates"][-1]  # shown sums alone
