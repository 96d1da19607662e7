"""What the tables and figures of a paper are asked of: one finished run."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.settings.fields import Settings


@dataclass(frozen=True)
class Paper(Settings):
    """One run's tables and figures.

    Raises:
        InputError: on construction, without a run.
    """

    run: str = option("", "folder of a finished run (--out of fedmia simulate)")
    device: str = option("auto", "where the attacks compute", choices=("auto", "cpu", "cuda"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.run:
            raise InputError(f"{opt('run')} is missing: the folder of a finished run")
