"""Early stopping: a client trains no more once it would leak, or once it no longer learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.defenses._estimate import LeakEstimate, estimates, require_public, split_public
from fedmia.defenses.base import Defense, Preparation, TrainingConditions
from fedmia.settings import option
from fedmia.settings.errors import option_error
from fedmia.ssl.train import Job

LEAK = 0.55


@dataclass(frozen=True)
class EarlyStopping(Defense):
    """The client stops training after a number of its own rounds; promises no privacy.

    The number is given, as the papers have it, or chosen before the client's first round: it
    rehearses the run as a federation of one on half of the public images, holds the other half
    out, and stops before the first round after which they are told apart, or where the loss of
    those held out is least. Public images and numbers alone decide, never a client's own or scored
    ones, so beside DP-SGD it costs no privacy. It costs as much training again as a client with
    half of the public images does.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 7; Zhu et al., PartCrop, Sec. 7"
    strength: ClassVar[str] = "after"
    strengths: ClassVar[tuple[float, ...]] = (20, 10, 5, 2)
    neutral: ClassVar[Mapping[str, Any]] = {"after": None, "leak": 1.0, "patience": None}

    after: int | None = option(None, "rounds that the client trains in", ge=1)
    leak: float | None = option(
        None, "largest lower limit of the AUC of the client's own shadow estimate (none of the "
        f"three given: {LEAK})", ge=0, le=1
    )  # fmt: skip
    patience: int | None = option(
        None, "rounds in which the loss of public images held out may not fall", ge=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after is not None and (self.leak, self.patience) != (None, None):
            choice = "leaves nothing to choose: give it, or leak and patience"
            raise option_error(self, f"after: {self.after} {choice}")

    def check(self, setting: TrainingConditions) -> None:
        if self.after is None:
            what = "the choice of the last round"
            require_public(setting.public, what, "after", setting.pretrained)

    def prepare(self, preparation: Preparation, memory: dict[str, Any]) -> None:
        """Choose the last round, unless it is given; `memory["stop"]`, None where there is none.

        Raises:
            InputError: too few public images.
        """
        if self.after is not None:
            return
        require_public(len(preparation.public), "the choice of the last round", "after")
        course = list(estimates(preparation, split_public(preparation), lambda job: None))
        candidates = [n for n in (self.by_leak(course), self.by_loss(course)) if n is not None]
        memory["stop"] = min(candidates, default=None)
        memory["metrics"] = {"stops_after": float(min(candidates, default=preparation.rounds))} | {
            f"{name}_round_{n}": value
            for n, one in enumerate(course, start=1)
            for name, value in vars(one).items()
        }

    def by_leak(self, course: Sequence[LeakEstimate]) -> int | None:
        """The last round before the first that leaks, at least 1; None where none does."""
        bound = LEAK if (self.leak, self.patience) == (None, None) else self.leak
        leaking = [n for n, e in enumerate(course, start=1) if bound is not None and e.low > bound]
        return max(1, leaking[0] - 1) if leaking else None

    def by_loss(self, course: Sequence[LeakEstimate]) -> int | None:
        """The round of least loss once `patience` rounds after it were no lower, else None."""
        best = 1
        for n, one in enumerate(course, start=1):
            if one.loss < course[best - 1].loss:
                best = n
            elif self.patience is not None and n - best >= self.patience:
                return best
        return None

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        memory["rounds"] = memory.get("rounds", 0) + 1

    def sits_out(self, memory: dict[str, Any]) -> bool:
        last = memory.get("stop") if self.after is None else self.after
        return last is not None and memory.get("rounds", 0) >= last
