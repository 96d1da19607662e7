"""Clients that fail: a defence that spoils what leaves, and an attacker that breaks down."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from clients.client_round import ClientRound
from clients.passive import Passive
from fedmia.defenses.base import Defense
from fedmia.settings import option
from fedmia.ssl.base import State

TRIES = list[int]()  # rounds in which something was spoiled, of this process


@dataclass(frozen=True)
class Spoils(Defense):
    """Lets out what it is given, but for one round."""

    how: str = option("raise", "what happens in that round", choices=("raise", "hang", "nan"))
    round: int = option(3, "which round that is", ge=1)
    times: int = option(99, "how often, until that round goes well", ge=1)

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: Any
    ) -> tuple[State, dict[str, float]]:
        memory["round"] = memory.get("round", 0) + 1
        if memory["round"] != self.round or TRIES.count(self.round) >= self.times:
            return trained, {}
        TRIES.append(self.round)
        if self.how == "raise":
            raise RuntimeError("no memory left")
        if self.how == "hang":
            time.sleep(3)
            return trained, {}
        first = next(iter(trained))
        return {**trained, first: trained[first] * torch.nan}, {}


class Broken(Passive):
    """Breaks down in round 3."""

    def work(self, client_round: ClientRound) -> Any:
        if client_round.task.round == 3:
            raise RuntimeError("no memory left")
        return super().work(client_round)
