"""A clock in place of the interpreter's own."""

from __future__ import annotations

import time
from threading import get_ident

import pytest


class Clock:
    """Time that passes when a test says so, and while its thread sleeps, which wakes at once.

    Attributes:
        speed: seconds that pass in a second of sleep.
    """

    def __init__(self) -> None:
        self._now, self._sleep, self._own = time.monotonic, time.sleep, get_ident()
        self._passed, self.speed = 0.0, 1.0

    def skip(self, seconds: float) -> None:
        """Let so much time pass."""
        self._passed += seconds

    def sleep(self, seconds: float) -> None:
        """In place of `time.sleep`."""
        if get_ident() == self._own:
            self.skip(seconds * self.speed)
        else:  # of a thread that some library left
            self._sleep(seconds)

    def monotonic(self) -> float:
        """In place of `time.monotonic`."""
        return self._now() + self._passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Waiting takes no time."""
    own = Clock()
    monkeypatch.setattr(time, "sleep", own.sleep)
    monkeypatch.setattr(time, "monotonic", own.monotonic)
    return own
