"""What is asked of the published protocols: at which size, of how many encoders."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.settings.fields import Settings

SCALES = ("smoke", "small")


@dataclass(frozen=True)
class Protocols(Settings):
    """What `python -m research.papers protocols` is asked for.

    Raises:
        InputError: on construction, for a value out of range, or images that are missing.
    """

    scale: str = option(
        "smoke",
        "smoke (seconds, made-up images, numbers mean nothing) or small (an hour of a core, "
        "CIFAR-10)",
        choices=SCALES,
    )
    data_dir: str | None = option(
        None,
        "folder of cifar10-train.parquet, cifar10-test.parquet and cifar100-train.parquet (none: "
        "smoke alone)",
    )
    encoders: int | None = option(
        None, "encoders of each method, each of other images (none: as the plan says)", ge=2
    )
    minutes: float | None = option(
        None, "begin no encoder after so many minutes; the same command goes on (none: no limit)",
        gt=0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale != "smoke" and self.data_dir is None:
            raise InputError(f"{opt('data_dir')} is missing: {self.scale} needs CIFAR-10")
