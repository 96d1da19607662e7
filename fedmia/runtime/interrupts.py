"""Ctrl-C: once to stop and report on what is finished, twice to stop at once."""

from __future__ import annotations

import signal
import sys
from threading import Event
from types import FrameType


class Interrupts:
    """While its context is open, the first Ctrl-C sets `stop`; the second raises.

    Args:
        finished: what will be reported on, in words.

    Raises:
        KeyboardInterrupt: at the second Ctrl-C.
    """

    def __init__(self, finished: str) -> None:
        self.stop = Event()
        self.finished = finished

    def __enter__(self) -> Event:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self.stop

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()
        print(
            f"\nfedmia: interrupted; reporting on the finished {self.finished} "
            "(Ctrl-C again stops at once)",
            file=sys.stderr,
        )
