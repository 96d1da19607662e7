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
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self.passed = 0

    def __enter__(self) -> SlowLine:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
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
