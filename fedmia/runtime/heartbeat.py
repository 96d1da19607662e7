"""A line every 30 s while something long runs, where no terminal shows a bar."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

INTERVAL = 30.0  # seconds between two lines on no terminal
REFRESH = 1.0  # seconds between two states of the line in a notebook


class Heartbeat:
    """Calls `beat` every `interval` seconds between `start` and `stop`, from a thread of its own.

    The thread also beats while one long step keeps the caller busy.

    Args:
        beat: shows the state; called from the thread.
        interval: seconds between two calls.
    """

    def __init__(self, beat: Callable[[], None], interval: float = INTERVAL) -> None:
        self._beat, self._interval = beat, interval
        self._over = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin; the first call comes after one interval."""
        self._over.clear()
        # A notebook knows by the context which cell a line belongs to.
        context = contextvars.copy_context()
        self._thread = Thread(target=context.run, args=(self._run,), daemon=True, name="progress")
        self._thread.start()

    def stop(self) -> None:
        """End; no call comes after this returns."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._over.wait(self._interval):
            self._beat()


def notebook_line() -> Callable[[str], None] | None:
    """A function that shows text in one line of a Jupyter cell and replaces it at each call.

    Returns:
        The function; None outside a Jupyter kernel. IPython is not imported for the question.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
    if handle is None:
        return None

    def show(text: str) -> None:
        """Replace the line."""
        handle.update({"text/plain": text}, raw=True)

    return show


def format_seconds(seconds: float) -> str:
    """`42 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
