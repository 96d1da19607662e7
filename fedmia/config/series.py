"""The options of several audits: those of one audit, several encoders, and the seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmia.config.audit import Audit
from fedmia.config.sweep import Cell
from fedmia.options.errors import InputError, opt
from fedmia.options.option import option


@dataclass(frozen=True)
class Series(Audit):
    """One audit, or the same of several encoders and with several seeds.

    Attributes:
        cells: the audits, of every encoder at the first seed before those of the second.

    Raises:
        InputError: on construction, as an audit; an encoder that is named twice, a round without
            a run.
    """

    seeds: int = option(
        1, "audits of each encoder, with seeds SEED, SEED+1, ..: other views, other known images "
        "(not of a run's own)",
        ge=1,
    )  # fmt: skip
    jobs: int | None = option(
        None, "audits side by side (none: as many as the cores allow at the given threads)", ge=1
    )
    cells: tuple[Cell[Audit], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        own: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(Audit)}
        specs = split_encoders(self.encoder)
        first = [
            Cell({"encoder": name}, Audit(**own | {"encoder": spec}))
            for spec, name in zip(specs, short_names(specs), strict=True)
        ]
        cells = (dataclasses.replace(c, nth=i) for i in range(self.seeds) for c in first)
        object.__setattr__(self, "cells", tuple(cells))


def split_encoders(text: str) -> tuple[str, ...]:
    """`RUN@0,10` -> ("RUN@0", "RUN@10"); `A.pth,B.pth` is both files. What exists as a path is one
    encoder, whatever its name.

    Raises:
        InputError: an encoder that is named twice, a number that follows no RUN@ROUND.
    """
    specs: list[str] = []
    for part in [text] if Path(text).exists() else [p.strip() for p in text.split(",")]:
        run, at, _ = specs[-1].rpartition("@") if specs else ("", "", "")
        if part.isdigit() and not at:
            raise InputError(f"{opt('encoder', text)}: {part} follows no RUN@ROUND")
        spec = f"{run}@{int(part)}" if part.isdigit() else part
        if not spec or spec in specs:
            raise InputError(
                f"{opt('encoder', text)}: " + (f"{spec} is named twice" if spec else "a name lacks")
            )
        specs.append(spec)
    return tuple(specs)


def short_names(specs: Sequence[str]) -> list[str]:
    """Names of encoders: the end of each path, or the whole path where ends are equal."""
    short = [Path(spec).name for spec in specs]
    return short if len(set(short)) == len(short) else list(specs)


def split_round(spec: str) -> tuple[str, int | None]:
    """Split `RUN@ROUND` into run and round; the round is None for any other encoder."""
    run, at, turn = spec.rpartition("@")
    return (run, int(turn)) if at and turn.isdigit() and not Path(spec).exists() else (spec, None)
