"""What a worker keeps between its clients: a method and its optimizer."""

from __future__ import annotations

import threading

from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from fedmia.ssl.base import SSLMethod


class MethodCache(threading.local):
    """A thread's method and optimizer, while no client is at work with them.

    Building them, and drawing weights that the next client overwrites, takes 10 ms for a small
    encoder and 0.3 s for a ResNet-18. One is kept in a thread, so memory does not grow with the
    number of clients. What is not given back, as its client failed, is built anew.
    """

    def __init__(self) -> None:
        self._kept: tuple[SSLMethod, Optimizer] | None = None
        self._stacked: tuple[int, SSLMethod, Optimizer] | None = None

    def take(self) -> tuple[SSLMethod, Optimizer] | None:
        """The pair, which now belongs to the caller; None where there is none.

        The method holds another client's state, the optimizer none.
        """
        pair, self._kept = self._kept, None
        return pair

    def give(self, method: SSLMethod, optimizer: Optimizer) -> None:
        """Keep a pair for the next client: nothing refers to the method any more.

        Args:
            method: its state is overwritten by that of the next client.
            optimizer: of the method; its buffers are let go.
        """
        if method.comes_back:
            _clear(method, optimizer)
            self._kept = method, optimizer

    def take_stacked(self, count: int) -> tuple[SSLMethod, Optimizer] | None:
        """The pair of so many clients, likewise; None where it is of another number."""
        stacked, self._stacked = self._stacked, None
        return stacked[1:] if stacked is not None and stacked[0] == count else None

    def give_stacked(self, count: int, method: SSLMethod, optimizer: Optimizer) -> None:
        """Keep the pair of a pass for the thread's next.

        Args:
            count: clients of the pass.
            method: its state is overwritten by that of the next clients.
            optimizer: of the method; its buffers are let go.
        """
        _clear(method, optimizer)
        self._stacked = count, method, optimizer


def _clear(method: SSLMethod, optimizer: Optimizer) -> None:
    """Let go what no state holds."""
    optimizer.zero_grad(set_to_none=True)
    optimizer.state.clear()  # the buffers are another's by now, so they are let go, not zeroed
    for layer in method.modules():
        if isinstance(layer, _BatchNorm) and layer.num_batches_tracked is not None:
            layer.num_batches_tracked.zero_()  # no float, so no part of the shared state
