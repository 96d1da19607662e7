"""The options of `fedmia diff`: two folders of runs."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.settings.fields import Settings


@dataclass(frozen=True)
class Diff(Settings):
    """Two runs or audits to compare.

    Raises:
        InputError: on construction, for a folder that is missing.
    """

    before: str = option("", "folder of a run or an audit", hole="FOLDER")
    after: str = option("", "folder of another", hole="FOLDER")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("before", "after"):
            if not getattr(self, name):
                raise InputError(f"{opt(name)} is missing: fedmia diff BEFORE AFTER")
