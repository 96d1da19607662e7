"""Ctrl-C: once to stop and report on what is finished, twice to stop at once. Clusters and
containers end a job by SIGTERM, or warn it by SIGUSR1: they do the same."""

from __future__ import annotations

import signal
import sys
from threading import Event
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interrupts:
    """While its context is open, the first of `SIGNALS` sets `stop`; the second raises.

    Args:
        finished: what will be reported on, in words.

    Raises:
        KeyboardInterrupt: at the second one.
    """

    def __init__(self, finished: str) -> None:
        self.stop = Event()
        self.finished = finished

    def __enter__(self) -> Event:
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self.stop

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()
        print(
            f"\nfedmia: interrupted; reporting on the finished {self.finished} "
            "(Ctrl-C again stops at once)",
            file=sys.stderr,
        )
