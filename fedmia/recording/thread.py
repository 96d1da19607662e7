"""Writes a recording beside a federation; a disk that fails never stops the federation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import RLock

from fedmia.storage import durable

LINES = 2  # of a round: its updates and what it made


class RecordingThread:
    """Calls the methods of a writer in one thread, in their order, until one fails.

    The federation goes on meanwhile, by at most one round. One call that holds tensors is there at
    most: the next comes once it is over. Every method may be called from any thread.

    Args:
        folder: of the recording, for what is said.
        say: prints a line to the user.

    Attributes:
        failure: why recording ended early; empty while it goes on.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.failure, self._folder, self._say, self._lock = "", folder, say, RLock()
        self._thread = ThreadPoolExecutor(1, "recording")
        self._tensors = deque[Future[None]](maxlen=1)
        self._lines = deque[Future[None]](maxlen=LINES)

    def call(self, method: Callable[[], object], tensors: bool = False) -> None:
        """Call a method in the thread, after those before; nothing where one failed.

        Args:
            method: of the writer; what it works on must not change then.
            tensors: whether it holds a model or an update.
        """
        with self._lock:
            waiting = self._tensors if tensors else self._lines
            if len(waiting) == waiting.maxlen:
                waiting.popleft().result()
            if not self.failure:
                waiting.append(self._thread.submit(self._try, method))

    def wait(self) -> None:
        """Wait until every call so far is over."""
        with self._lock:
            for one in (*self._tensors, *self._lines):
                one.result()

    def close(self, why: str = "it was closed") -> None:
        """End the recording, once every call is over; it can be read at any time.

        Args:
            why: it ends, for `failure`.
        """
        self.wait()
        self.failure = self.failure or why
        self._thread.shutdown()

    def _try(self, method: Callable[[], object]) -> None:
        """Call it, unless the disk failed before; where it fails, say so and go on without."""
        if self.failure:
            return
        try:
            with durable.explain():
                method()
        except OSError as error:
            self.failure = str(error)
            self._say(
                f"recording to '{self._folder}' ended: {error}; the federation goes on, and what "
                "was recorded until here can be read"
            )
