"""A TCP proxy on loopback that is as slow as a bad line: every chunk is late, both ways."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class SlowLine:
    """Passes on what is sent to `port`; a `with` block opens and closes it.

    Args:
        target: port of this machine that is behind it.
        delay: seconds by which each chunk of at most 64 KiB is late.
    """

    def __init__(self, target: int, delay: float) -> None:
        self._target, self._delay = target, delay
        self.port = 0  # a free one, the same after `close` and `open`
        self.passed = 0

    def __enter__(self) -> SlowLine:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Accept connections."""
        self._door = socket.create_server(("127.0.0.1", self.port))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._listen, args=(self._door,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, as a machine does on whose port nobody listens."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._door.close()

    def _listen(self, door: socket.socket) -> None:
        while True:
            try:
                near, _ = door.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # nobody is behind it at the moment
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65_536):
                time.sleep(self._delay)
                sink.sendall(chunk)
                self.passed += len(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
