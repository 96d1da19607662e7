"""Files of others: a small file that unfolds to a large one is refused before it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmia.settings.errors import InputError

ROOM = 1 << 28  # bytes that any file may unfold to
TIMES = 20  # its own length, beyond that: images and weights shrink by less


def check_unfolded(where: str, size: int, length: int) -> None:
    """Refuse a file that promises far more than it holds.

    Args:
        where: names the file.
        size: bytes that it unfolds to.
        length: bytes that it has.

    Raises:
        InputError: more than 256 MiB, and more than 20 times its length.
    """
    if size > max(ROOM, TIMES * length):
        raise InputError(
            f"{where} unfolds to {size / 2**20:,.0f} MiB from {length / 2**20:,.1f} MiB; at most "
            f"{TIMES} times its length is read (or {ROOM >> 20} MiB)"
        )


def check_name(where: str, name: object) -> str:
    """Refuse the name of a file beside another one that leads elsewhere.

    Args:
        where: what names it.
        name: of the file.

    Returns:
        The name.

    Raises:
        InputError: it is no text, or leads out of its folder.
    """
    if not isinstance(name, str) or Path(name).name != name or name in ("", "..") or "\0" in name:
        raise InputError(f"{where} names the file {name!r:.100}, which leads out of its folder")
    return name


def first_line(error: BaseException) -> str:
    """First line of an exception's message, its first 300 characters, or its type where there is
    none: a file of others may put a whole page into a name that the message repeats."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


@contextmanager
def unreadable(what: str) -> Iterator[None]:
    """Refuse a file in one line where what is done inside fails on it.

    Args:
        what: begins the line, such as `npz: cannot read FILE`; the reason follows.

    Yields:
        Nothing.

    Raises:
        InputError: what was raised inside, or the reason of another error.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # readers of formats share no class of error
        raise InputError(f"{what}: {first_line(error)}") from None
