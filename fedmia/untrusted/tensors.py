"""Files of safetensors, which hold numbers and text alone and are as long as they promise."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open


def read_safetensors(
    path: Path, framework: str = "pt", names: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """What a file of safetensors holds.

    Args:
        path: of the file.
        framework: whose tensors these become: `pt`, or `numpy` for arrays.
        names: of those that are read; None: all.

    Returns:
        Tensors by name, and the texts beside them.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or lacks a name.
    """
    try:
        with safe_open(path, framework=framework) as file:
            tensors = {name: file.get_tensor(name) for name in names or file.keys()}
            return tensors, file.metadata() or {}
    except SafetensorError as error:
        if number := re.search(r"os error (\d+)", str(error)):  # which it tells alone
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(path)) from error
        raise ValueError(" ".join(str(error).split())[:200]) from None
