"""The time of an audit, said before its first attack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fedmia
from fedmia.attacks.base import Attack, Known
from fedmia.evaluation import encoder as evaluation
from fedmia.evaluation.audits import estimate
from fedmia.nets.smallnet import SmallNet
from fedmia.rounds.base import EncoderRounds
from fedmia.runtime.heartbeat import format_seconds
from fedmia.settings.errors import InputError
from fedmia.threat import Threat

ATTACKS = ["similarity", "lpla", "fe-mi", "grad-norm", "encodermi-v", "dataset-inference"]


def images(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)


def audit(quiet: bool) -> Any:
    torch.manual_seed(0)  # the same weights at every call
    return fedmia.audit_encoder(
        SmallNet(width=4).build(3, 16), images(0), images(1), attacks=ATTACKS, quiet=quiet,
        known=10, size=16,
    ).records  # fmt: skip


class Slow(Attack):
    """Takes 3 s for each known member and .25 s for each score, by the clock of the test, and 7 s
    more at its first fit: it is imported."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def asks_shadows(self) -> bool:
        return False

    def fit(self, view: object, known: Known, rng: object) -> None:
        self.clock[0] += 3 * len(known.members) + (self.clock[0] == 100) * 7

    def score(self, view: object, images: torch.Tensor) -> np.ndarray:
        self.clock[0] += 0.25 * len(images)
        return np.zeros(len(images))


def suite_of(clock: list[float], **more: Any) -> Any:
    """20 known images a side and 60 to score; the clock stands at 100."""
    pixels = torch.zeros(60, 1, 1, 1)
    usual = {
        "scorer": SimpleNamespace(known=Known(pixels[:20], pixels[:20]), candidates=pixels, seed=0),
        "build": lambda name: Slow(clock),
        "view": lambda *given: None,
        "main": None,
        "rounds": EncoderRounds(SimpleNamespace(remote=None)),  # type: ignore[arg-type]
        "controlled": lambda names: ["similarity"],
        "no_control_reason": None,
    }
    return SimpleNamespace(**usual | more)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_rehearsal__is_scaled_up_to_all_images(clock: list[float]) -> None:
    """The fit on 20 known members, the scores of 60 images and, for a threshold, of 2 x 20 known
    ones; on the control no threshold; what the first fit alone takes counts once."""
    suite, work = suite_of(clock), 3 * 20 + 0.25 * 60
    rehearsal = estimate.rehearse(suite, ["similarity"])
    assert rehearsal.seconds == {"similarity": 7 + work + 0.25 * 40 + work}
    assert clock == [100 + 7 + 3 * (4 + 8) + 0.25 * (4 + 16)]
    clock[0] = 100.0
    short = estimate.rehearse(suite, ["similarity", "lpla"], short=True)
    assert short.seconds == rehearsal.seconds and short.without == ("lpla",)
    assert clock == [107 + 3 * 8 + 0.25 * 8]  # over ten seconds, so no other began


@pytest.mark.parametrize(
    "why",
    [{"no_control_reason": "vectors"}, {"controlled": lambda names: []}],
    ids=["no control", "an attack that none runs on"],
)
def test_rehearsal__counts_the_control_where_it_is_attacked(
    clock: list[float], why: dict[str, Any]
) -> None:
    rehearsal = estimate.rehearse(suite_of(clock, **why), ["similarity"])
    assert rehearsal.total() == 7 + 3 * 20 + 0.25 * (60 + 40)


def test_rehearsal__counts_the_images_that_an_api_is_sent(clock: list[float]) -> None:
    """Each once: 60 scored and 40 known ones, by those of two steps."""
    remote = SimpleNamespace(sent=5)

    class Asking(Slow):
        """Sends its images."""

        def score(self, view: object, images: torch.Tensor) -> np.ndarray:
            remote.sent += len(images)
            return super().score(view, images)

    suite = suite_of(
        clock, rounds=EncoderRounds(SimpleNamespace(remote=remote)), build=lambda n: Asking(clock)
    )  # type: ignore[arg-type]
    assert estimate.rehearse(suite, ["similarity"]).images == 60 + 40
    assert remote.sent == 5 + (4 + 2 * 4) + (16 + 2 * 8)


@pytest.mark.slow
def test_estimate__names_what_it_leaves_out_and_changes_no_score(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not made where nobody reads it."""
    calls, rehearse = [], evaluation.rehearse
    monkeypatch.setattr(
        evaluation, "rehearse", lambda *rest, **how: calls.append(1) or rehearse(*rest, **how)
    )
    silent = audit(quiet=True)
    assert not calls and not capsys.readouterr().err
    rehearsed = audit(quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert calls == [1]
    for first, second in zip(silent.attacks, rehearsed.attacks, strict=True):
        assert (first.auc, first.queries) == (second.auc, second.queries)
    (line,) = [line for line in lines if "the attacks take about" in line]
    assert "--attacks quick takes about" in line
    assert "(without dataset-inference)" in line  # nor encodermi-v, which has no shadows
    assert not [one for one in lines[: lines.index(line)] if "attack 1 of" in one]


@pytest.mark.parametrize(
    ("attacks", "shown"), [("auto", True), ("all", False), (["similarity"], False)]
)
def test_others__that_could_run_are_named_where_all_quick_ones_run(
    attacks: Any, shown: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the time that they would take; they are not among those that did not run."""

    def rehearse(suite: Any, names: Any, short: bool = False) -> estimate.Rehearsal:
        return estimate.Rehearsal({n: 30.0 for n in names if n != "fe-mi"}, ("fe-mi",))

    def run(*rest: Any, **how: Any) -> None:
        raise InputError("enough was said")

    monkeypatch.setattr(evaluation, "rehearse", rehearse)
    monkeypatch.setattr(evaluation, "score", run)
    with pytest.raises(InputError, match="enough was said"):
        fedmia.audit_encoder(
            SmallNet(width=4).build(3, 16), images(0), images(1), attacks=attacks, known=10, size=16
        )
    lines = [x for x in capsys.readouterr().err.splitlines() if "not asked for" in x]
    assert len(lines) == shown
    for line in lines:
        others = line.partition("without fe-mi): ")[2].partition(";")[0].split(", ")
        assert {"partcrop", "stacking", "fe-mi"} <= {*others} and "--attacks all" in line
        assert not {"lira", "lira-rounds", "ascent", "similarity"} & {*others}
        assert f"about {format_seconds(30 * (len(others) - 1))} more" in line
