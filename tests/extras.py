"""What the extras `docs` and `dev` bring to a developer's environment no test finds: a fresh
environment of `bash tools/test.sh` lacks it."""

from __future__ import annotations

import re
import tomllib
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


class NotOfTheTests(MetaPathFinder):
    """Refuses to import the packages that only linters, types and the site need."""

    def __init__(self) -> None:
        extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
        lines = [line for n in ("docs", "dev") for line in extras["optional-dependencies"][n]]
        names = {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in lines}
        self.names = names - {"fedmia"}

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"the extra `test` does not bring {name}", name=name)
