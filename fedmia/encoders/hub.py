"""Folders of models, as hubs keep them: config.json beside the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmia.settings.errors import InputError
from fedmia.untrusted import text
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.limits import first_line

# Weights beside a config.json, as model hubs keep them.
IN_FOLDERS = ("model.safetensors", "pytorch_model.bin")


def folder_weights(
    folder: Path, form: str, files: tuple[str, ...] = IN_FOLDERS
) -> tuple[Path, dict[str, Any]]:
    """The file of weights in a folder, and the config.json beside it.

    Args:
        folder: the folder.
        form: how the user names such a folder, for errors.
        files: names of files that may hold the weights; the first that exists is taken.

    Returns:
        Path of the file, and what the configuration holds.

    Raises:
        InputError: no such folder, or it lacks one of the two.
    """
    if not folder.is_dir():
        raise InputError(f"{form}: no such folder: '{folder}' (nothing is downloaded)")
    config = read_json(folder / "config.json")
    present = [folder / name for name in files if (folder / name).is_file()]
    for file in (*present, *folder.glob("*.safetensors")):
        check_file_type(file, form)
    if not present:
        raise InputError(f"{form}: no weights in '{folder}': it has no {' or '.join(files)}")
    return present[0], config


def read_json(path: Path) -> dict[str, Any]:
    """The dictionary in a JSON file.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    check_file_type(path, "configuration")
    try:
        content = text.read_json(path)
    except FileNotFoundError:
        raise InputError(f"'{path.parent}' has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"'{path}' holds no configuration")
    return content


@contextmanager
def of_configuration(folder: Path) -> Iterator[None]:
    """Refuse the configuration of a folder in one line where what is done inside fails on it.

    Raises:
        InputError: it names the folder.
    """
    try:
        yield
    except InputError as error:
        if folder.name in str(error):
            raise
        raise InputError(f"the configuration in '{folder}': {error}") from None
    except Exception as error:  # of many libraries, which share no class
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"the configuration in '{folder}' cannot be used: {what}") from error
