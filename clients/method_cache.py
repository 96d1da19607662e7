"""What a worker keeps between its clients: a method and its optimizer."""

from __future__ import annotations

import threading

from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from fedmia.ssl.base import SSLMethod


class MethodCache(threading.local):
    """A thread's methods and their optimizers, while no client is at work with them.

    A copy of its own for each client would take its time, and memory that is fresh each time. One
    of a client alone is kept in a thread, and one of many in a pass, so memory does not grow with
    the number of clients. What is not given back, as its client failed, is built anew.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[SSLMethod, Optimizer]] = {}

    def take(self, count: int = 1) -> tuple[SSLMethod, Optimizer] | None:
        """The pair of so many clients, which now belongs to the caller; None where there is none.

        The method holds the state of other clients, the optimizer none.

        Args:
            count: clients in a pass.
        """
        return self._pairs.pop(count, None)

    def give(self, method: SSLMethod, optimizer: Optimizer, count: int = 1) -> None:
        """Keep a pair for the next clients: nothing refers to the method any more.

        Args:
            method: its state is overwritten by that of the next clients.
            optimizer: of the method; its buffers are let go.
            count: clients in a pass.
        """
        if not method.comes_back:
            return
        optimizer.zero_grad(set_to_none=True)
        optimizer.state.clear()  # the buffers are another's by now, so they are let go, not zeroed
        for layer in method.modules():
            if isinstance(layer, _BatchNorm) and layer.num_batches_tracked is not None:
                layer.num_batches_tracked.zero_()  # no float, so no part of the shared state
        others = {n: pair for n, pair in self._pairs.items() if (n == 1) != (count == 1)}
        self._pairs = {**others, count: (method, optimizer)}
