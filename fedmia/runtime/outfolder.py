"""The folder of `--out`, before it holds results: refused where occupied, made with its config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedmia.errors import InputError

CONFIG = "config.yaml"


def refuse_occupied(
    out: Path, another: str, ours: Callable[[Path], bool] = lambda config: False
) -> None:
    """Refuse a folder that holds anything but what may be gone on with.

    Args:
        another: what the error calls the results of another command line.
        ours: whether a config.yaml found there is of this command line.

    Raises:
        InputError: naming the folder and what is in it, or that it is a file.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"--out '{out}' is a file")
    held = sorted(p.name for p in out.iterdir())
    if not held or (CONFIG in held and ours(out / CONFIG)):
        return
    what = another if CONFIG in held else f"'{held[0]}'"
    raise InputError(f"--out '{out}' already holds {what}; name a new folder")


def make(out: Path, config: str) -> None:
    """Make the folder where there is none, and write its config.yaml.

    Raises:
        InputError: it cannot be made or written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / CONFIG).write_text(config, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out '{out}' cannot be made: {error.strerror}") from None
