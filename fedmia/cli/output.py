"""Standard output and error of a command: any text goes out, whoever reads it and however long."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from fedmia.storage.durable import explain

ESCAPE = "fedmia.escape"  # name of the handler of characters that an encoding lacks


class PatientStream:
    """A stream whose reader may leave, as `head` does: the rest goes nowhere.

    Args:
        stream: that it writes to; None: it was closed before the process began.
        name: for the error of a disk that is full.
    """

    def __init__(self, stream: TextIO | None, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text; returns its length.

        Raises:
            DiskError: the file that it leads to cannot be written.
        """
        if self._stream is not None:
            self._try(lambda: cast(TextIO, self._stream).write(text))
        return len(text)

    def flush(self) -> None:
        """Send what was written.

        Raises:
            DiskError: the file that it leads to cannot be written.
        """
        if self._stream is not None:
            self._try(self._stream.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            with suppress(OSError):  # for the flush at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if not isinstance(error, BrokenPipeError):
                with explain(f"{self._name} cannot be written"):
                    raise


@contextmanager
def open_output() -> Iterator[None]:
    """Standard output and error for a command; what an encoding lacks is escaped, as JSON does it.

    Yields:
        Nothing.
    """
    codecs.register_error(ESCAPE, _escape)
    before = sys.stdout, sys.stderr
    kinds = [getattr(stream, "errors", None) for stream in before]
    names = ("standard output", "standard error")
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ESCAPE)
    sys.stdout, sys.stderr = (
        cast(TextIO, PatientStream(*pair)) for pair in zip(before, names, strict=True)
    )
    try:
        yield
    finally:
        with suppress(OSError):  # a command that does well flushes by itself
            sys.stdout.flush()
        sys.stdout, sys.stderr = before
        for stream, errors in zip(before, kinds, strict=True):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors=errors)


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
