"""On what a command computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedmia.runtime.device import DEVICES, check_device
from fedmia.settings import Options, option


@dataclass(frozen=True)
class Machine(Options):
    """The processor.

    Raises:
        InputError: on construction, for a value out of range.
    """

    device: str = option("auto", DEVICES)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)


@dataclass(frozen=True)
class AuditMachine(Machine):
    """The processor of an audit."""

    threads: int = option(0, "CPU threads (0: all cores); sums depend on it", ge=0)


@dataclass(frozen=True)
class FederationMachine(Machine):
    """Where clients train, and how often their work is saved."""

    backend: str = option(
        "inline", "where clients train: this process, or Ray", choices=("inline", "ray")
    )
    threads_per_client: int = option(1, "CPU threads of a client (sums depend on it)", ge=1)
    clients_at_once: int | Literal["auto"] = option(
        "auto",
        "honest clients of as many images each that train in one pass, equal to one after the "
        "other but for rounding (auto: 64 on a GPU, and of tiny images; else 1)",
        ge=1,
        omitted=True,
    )
    cpus_per_client: float | None = option(
        None, "cores that Ray gives a client (none: threads_per_client)", gt=0
    )
    gpus_per_client: float = option(
        0.0, "GPUs that Ray gives a client: a share below 1, or a whole number", ge=0
    )
    ray_address: str | None = option(
        None, "Ray cluster to join: auto or HOST:PORT (none: one is started here)"
    )
    checkpoint_every: float | None = option(
        60.0,
        "seconds between two checkpoints in --out; a kill or a power cut loses at most these, the "
        "round at work and what the disk takes (0: one after each round; none: none)",
        ge=0,
    )
