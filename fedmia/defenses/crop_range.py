"""Shrinking the crop scale range (SCSR of PartCrop, Zhu et al., 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fedmia.defenses._estimate import estimates, require_public, split_public
from fedmia.defenses.base import Defense, Preparation, TrainingConditions
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt, option_error
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Job

# Shares of the method's own range. On the paper's (0.2, 1) they are its figures: 0.5 for all,
# 0.3, 0.4 and 0.5 to choose from at first, and steps of 0.02 between the two best.
USUAL = 3 / 8
COARSE = (1 / 8, 2 / 8, 3 / 8)
FINE = 1 / 40


@dataclass(frozen=True)
class CropRange(Defense):
    """Trains on crops of a narrower range of areas, its lower bound raised; promises no privacy.

    Chosen, the bound is that of least leak at the end of a run, in two stages (App. E): of three
    bounds, then of those between the two best. Leak is an own shadow estimate on public images
    alone, so beside DP-SGD the choice costs no privacy. Each bound tried costs a client's whole
    training: five to twelve of them.
    """

    paper: ClassVar[str] = "Zhu et al., PartCrop, CCS 2024, Sec. 7 and App. E"
    strength: ClassVar[str] = "lower"
    strengths: ClassVar[tuple[float, ...]] = (0.95, 0.97, 1.0)
    neutral: ClassVar[Mapping[str, Any]] = {"lower": Augment.crop_min, "choose": False}

    lower: float | None = option(
        None, "least area of the crop, as part of the image (none: 3/8 up from the method's own to "
        "its largest, the paper's 0.5 from 0.2)", gt=0, le=1
    )  # fmt: skip
    choose: bool = option(False, "choose it on public images, in place of lower")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choose and self.lower is not None:
            either = "is given, and choose too: leave one out"
            raise option_error(self, f"lower: {self.lower} {either}")

    def check(self, setting: TrainingConditions) -> None:
        own = setting.ssl.augment
        if own.operations is not None and "crop" not in own.operations:
            raise InputError(f"the method's views are not cropped: {opt('ssl.operations')}")
        if self.lower is not None and not own.crop_min <= self.lower <= own.crop_max:
            raise InputError(
                f"the lower bound shrinks the range ({own.crop_min:g}, {own.crop_max:g}) of the "
                f"method's crops ({opt('ssl.crop_min')}) and lies in it, got {self.lower:g}"
            )
        if self.choose:
            what = "the choice of the lower bound"
            require_public(setting.public, what, "lower", setting.pretrained)

    def prepare(self, preparation: Preparation, memory: dict[str, Any]) -> None:
        """The lower bound, where it is to be chosen: `memory["share"]` of the range.

        Raises:
            InputError: too few public images.
        """
        if not self.choose:
            return
        require_public(len(preparation.public), "the choice of the lower bound", "lower")
        leaks, parts = dict[float, float](), split_public(preparation)

        def measure(shares: Sequence[float]) -> None:
            for share in shares:
                course = estimates(preparation, parts, partial(self._shrink, share=share))
                leaks[share] = [estimate.leak for estimate in course][-1]

        measure(COARSE)
        measure(fine_shares(*sorted(sorted(leaks, key=leaks.__getitem__)[:2])))
        memory["share"] = min(leaks, key=lambda share: (leaks[share], -share))
        memory["metrics"] = {f"leak_at_share_{share:.3f}": leak for share, leak in leaks.items()}

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        if self.choose and "share" not in memory:  # while it is being chosen
            return
        self._shrink(job, memory.get("share", USUAL))
        memory["metrics"] = {**memory.get("metrics", {}), "crop_min": job.augment.crop_min}

    def _shrink(self, job: Job, share: float) -> None:
        own = job.augment
        lower = own.crop_min + share * (own.crop_max - own.crop_min)
        job.augment = replace(own, crop_min=lower if self.lower is None else self.lower)


def fine_shares(low: float, high: float) -> list[float]:
    """Shares in steps of FINE after `low`, before `high`.

    Args:
        low: share of the way up the method's own range, in (0, 1).
        high: another one, over `low`.

    Returns:
        Shares in ascending order; both ends are left out.
    """
    count = round((high - low) / FINE)
    return np.linspace(low, high, count + 1)[1:-1].tolist()
