"""A client that fails once, as `endurance.py` asks: a defence, so that it is plugged in.

--defense faulty:Fault --defended-clients 1 --defense.kind raise --defense.when before ..
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmia.defenses.base import Defense
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.ssl.train import Job

KINDS = ("raise", "memory", "hang", "die", "nan", "shape", "names", "foreign")
WHEN = ("before", "during", "after")


@dataclass(frozen=True)
class Fault(Defense):
    """Fails in round `round`, the first time that it gets there; else it does nothing."""

    kind: str = option("raise", "what it does", choices=KINDS)
    when: str = option("before", "before, during or after training", choices=WHEN)
    round: int = option(2, "round in which it does it", ge=1)
    done: str = option("", "file that says that it has been done")

    def train(self, job: Job, memory: dict[str, Any]) -> dict[str, float]:
        memory["round"] = memory.get("round", 0) + 1
        if memory["round"] == self.round:
            if self.when == "before":
                self._fail()
            if self.when == "during":
                plain, self_ = job.after_backward, self

                def broken() -> None:
                    plain()
                    self_._fail()

                job.after_backward = broken
        return job.run()

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        if memory["round"] == self.round and self.when == "after" and self._first():
            return self._spoiled(trained), {}
        return trained, {}

    def _spoiled(self, state: State) -> State:
        name = next(iter(state))
        if self.kind == "nan":
            return {**state, name: torch.full_like(state[name], float("nan"))}
        if self.kind == "shape":
            return {**state, name: state[name].flatten()[:1]}
        if self.kind == "names":
            return {f"{n}.other": t for n, t in state.items()}
        if self.kind == "foreign":
            return {"conv.weight": torch.zeros(3, 3)}
        self._do()
        return state

    def _fail(self) -> None:
        if self._first():
            self._do()

    def _first(self) -> bool:
        """Whether it has not been done yet; from now on it has."""
        try:
            Path(self.done).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _do(self) -> None:
        if self.kind == "raise":
            raise RuntimeError("broken on purpose")
        if self.kind == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if self.kind == "hang":
            time.sleep(60)
        if self.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
