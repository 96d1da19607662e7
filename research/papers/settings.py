"""Which table or figure of a paper is reproduced, at which size, and where."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.runtime.device import DEVICES, check_device
from fedmia.settings import option
from fedmia.settings.fields import Settings

SCALES = ("smoke", "small", "paper")


@dataclass(frozen=True)
class Reproduce(Settings):
    """What `python -m research.papers TABLE` is asked for.

    Raises:
        InputError: on construction, for a value out of range.
    """

    tables: tuple[str, ...] = option(
        (), "entries of --list, the name of a paper (all its entries), or all"
    )
    scale: str = option(
        "smoke",
        "smoke (seconds, numbers mean nothing), small (minutes to hours on a CPU) or paper (the "
        "published sizes, on GPUs)",
        choices=SCALES,
    )
    data_dir: str | None = option(
        None,
        "folder of cifar10-train.parquet and the other files that --list names (none: smoke runs "
        "on made-up images)",
    )
    targets: int | None = option(
        None, "target encoders of a cell, each of other members (none: as the entry says)", ge=1
    )
    minutes: float | None = option(
        None, "stop after so many minutes; the same command goes on (none: no limit)", gt=0
    )
    jobs: int | None = option(
        None, "trainings and audits side by side (none: one a core, one on a GPU)", ge=1
    )
    device: str = option("auto", DEVICES)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device, "device")
