"""A folder as model hubs keep one: config.json beside a file of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedmia.options.errors import InputError

FILES = ("model.safetensors", "pytorch_model.bin")


def folder_weights(folder: Path, form: str, files: tuple[str, ...] = FILES) -> Path:
    """The file of weights in a folder that has a configuration too.

    Args:
        form: how the user names such a folder. files: that may hold the weights, the first wins.

    Raises:
        InputError: no such folder, or one of the two is not in it.
    """
    if not folder.is_dir():
        raise InputError(f"{form}: no such folder: '{folder}' (nothing is downloaded)")
    read_json(folder / "config.json")
    found = [folder / name for name in files if (folder / name).is_file()]
    if not found:
        raise InputError(f"{form}: no weights in '{folder}': it has no {' or '.join(files)}")
    return found[0]


def read_json(path: Path) -> dict[str, Any]:
    """The dictionary in a JSON file.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"'{path.parent}' has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"'{path}' holds no configuration")
    return found
