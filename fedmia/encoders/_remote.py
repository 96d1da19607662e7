"""An encoder that is a function of pixels and no more: a user's own, or one behind an API."""

from __future__ import annotations

import errno
import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.encoders._program import Program, load_black_box
from fedmia.encoders.base import EncoderFacts, LoadedEncoder
from fedmia.settings.errors import InputError, opt
from fedmia.storage.durable import DiskError, explain, make_file

Pixels = NDArray[np.float32]  # (B, C, H, W) in [0, 1], unless mean and std are given
Function = Callable[[Pixels], Any]


# Errors of SQLite that are the system's; what else it raises is of the file's content.
SYSTEM_ERRORS: Mapping[int, int] = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_BUSY: errno.ENOLCK,
    sqlite3.SQLITE_LOCKED: errno.ENOLCK,
    sqlite3.SQLITE_PROTOCOL: errno.ENOLCK,
    sqlite3.SQLITE_NOLFS: errno.EFBIG,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
}


class Answers:
    """What was answered to each image, by the digest of its pixels.

    Args:
        file: that keeps them, and may hold some; None: memory alone.

    Raises:
        InputError: it is damaged, or no such file.
        DiskError: it cannot be written.
    """

    def __init__(self, file: Path | None) -> None:
        self.where = ":memory:" if file is None else str(file)
        if file is not None:
            with explain(f"cannot write '{file}'"):
                make_file(file)
        with self._base() as base:
            base.execute("CREATE TABLE IF NOT EXISTS answers (image BLOB PRIMARY KEY, vector BLOB)")
            sizes = "SELECT count(*) FROM answers WHERE length(vector) % 4 OR vector IS NULL"
            if base.execute(sizes).fetchone()[0]:
                raise sqlite3.DatabaseError("vectors that are none")

    @contextmanager
    def _base(self) -> Iterator[sqlite3.Connection]:
        try:
            if not hasattr(self, "_open"):
                self._open = sqlite3.connect(self.where)
            with self._open:
                yield self._open
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in SYSTEM_ERRORS:
                with explain(f"'{self.where}'"):
                    raise OSError(SYSTEM_ERRORS[code], str(error)) from None
            raise InputError(
                f"'{self.where}' is damaged, or holds no answers ({error}): remove it, and each "
                f"image is sent again; or name another folder as {opt('out')}"
            ) from None

    def get(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """The vectors of those images that were answered."""
        query = "SELECT image, vector FROM answers WHERE image = ?"
        with self._base() as base:
            return dict(row for name in names for row in base.execute(query, (name,)))

    def store(self, rows: Mapping[bytes, bytes]) -> None:
        """Keep the vectors of images."""
        with self._base() as base:
            base.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows.items())


class AskedFunction(Program):
    """A function as a program: asked in batches, at most so often, and once an image.

    Args:
        facts: of the encoder.
        function: from pixels float32 (B, C, H, W) to vectors (B, D).
        batch: most images a call.
        rate: most images a second; None: no limit.
        identity: tells its answers from those of other functions.

    Attributes:
        sent: images that it was asked about.
    """

    form: ClassVar[str] = "API or function"

    def __init__(
        self, facts: EncoderFacts, function: Function, batch: int, rate: float | None,
        identity: str,
    ) -> None:  # fmt: skip
        super().__init__(facts, (None,) * 4)
        self.function, self.most, self.rate = function, batch, rate
        self.identity = identity.encode()
        self.sent, self._free = 0, 0.0
        self._answered, self._failed = False, 0  # with a vector; images without one
        self._answers: Answers | None = None
        self._first = dict[bytes, bytes]()

    def remember(self, file: Path | None) -> None:
        """From now on ask about each image once. Until then each call is new, so that a first look
        can tell a function that answers at random.

        Args:
            file: that keeps the answers, and may hold some of before; None: memory alone.

        Raises:
            InputError: it answers otherwise now than the file says, or the file is damaged.
            DiskError: the file cannot be written.
        """
        self._answers = Answers(file)
        for name, before in self._answers.get(self._first).items():
            now, then = (_vector(one) for one in (self._first[name], before))
            if now.shape != then.shape or not np.allclose(now, then, rtol=1e-3, atol=1e-4):
                raise InputError(
                    f"{self.facts.where} answers otherwise than when '{file}' was written: it is "
                    "another encoder by now; give a new folder"
                )
        self._answers.store(self._first)

    def run(self, pixels: Tensor) -> Any:
        """Vectors (B, D) of a batch; those that are remembered are not asked for again."""
        images = np.ascontiguousarray(pixels.detach().cpu().numpy(), dtype=np.float32)
        head = self.identity + str(images.shape[1:]).encode()
        names = [hashlib.sha256(head + one.tobytes()).digest() for one in images]
        known = {} if self._answers is None else self._answers.get(names)
        new = [*{name: at for at, name in enumerate(names) if name not in known}.values()]
        for start in range(0, len(new), self.most):
            part = new[start : start + self.most]
            vectors = self._ask(images[part])
            rows = {names[at]: row.tobytes() for at, row in zip(part, vectors, strict=True)}
            (self._first.update if self._answers is None else self._answers.store)(rows)
            known |= rows
        stacked = np.stack([_vector(known[name]) for name in names])
        return torch.from_numpy(stacked).to(pixels.device)

    def _ask(self, images: Pixels) -> Pixels:
        """Vectors of images that were never asked about."""
        if self.rate is not None:
            now = time.monotonic()
            time.sleep(max(0.0, self._free - now))
            self._free = max(self._free, now) + len(images) / self.rate
        answer = np.asarray(self.function(images), dtype=np.float32)
        if answer.ndim != 2 or len(answer) != len(images):
            got = f"an answer of shape {answer.shape} to {len(images)} images"
            raise InputError(f"{self.facts.where}: {got}, expected ({len(images)}, D)")
        self.sent += len(images)
        self._refuse_failed(images, answer)
        return answer

    def _refuse_failed(self, images: Pixels, answer: Pixels) -> None:
        """Refuse answers of zeros or NaN beside others. Blank images may well have zeros, as may an
        encoder that has collapsed, whose answers are zeros alone."""
        lit = images.reshape(len(images), -1).any(axis=1)
        failed = lit & ~(np.isfinite(answer).all(axis=1) & answer.any(axis=1))
        self._answered |= bool((lit & ~failed).any())
        self._failed += int(failed.sum())
        if self._answered and self._failed:
            raise DiskError(
                f"{self.facts.where} answers with zeros, NaN or infinity to {self._failed} of "
                f"{self.sent} images, and with vectors to others: it fails on these; such answers "
                "are not kept"
            )


def _vector(row: bytes) -> NDArray[np.float32]:
    return np.frombuffer(row, dtype=np.float32)


def load_function(
    facts: EncoderFacts, function: Function, identity: str, batch: int = 64,
    rate: float | None = None,
) -> LoadedEncoder:  # fmt: skip
    """A function as a released encoder: a black box without an untrained control.

    Args:
        facts: names it; where it has no mean and deviation, pixels are sent in [0, 1].
        function: from pixels float32 (B, C, H, W) to vectors (B, D).
        identity: tells its answers from those of other functions.
        batch: most images a call.
        rate: most images a second; None: no limit.

    Returns:
        The encoder.

    Raises:
        InputError: it answers blank images with something else than vectors.
    """
    facts.constants = (0.0,), (1.0,)

    remote = AskedFunction(facts, function, batch, rate, identity)
    loaded = load_black_box(remote)
    loaded.remote = remote
    return loaded
