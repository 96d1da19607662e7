"""The time of an audit, said before its first attack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedmia import library
from fedmia.evaluation import encoder as evaluation
from fedmia.nets.smallnet import SmallNet
from fedmia.runtime.progress import AuditDisplay

ATTACKS = ["similarity", "lpla", "internal", "grad-norm", "encodermi-v", "dataset-inference"]


def images(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)


def audit(quiet: bool) -> object:
    torch.manual_seed(0)  # the same weights at every call
    return library.audit(
        SmallNet(width=4).build(3, 16), images(0), images(1), attacks=ATTACKS, quiet=quiet,
        known=10, size=16,
    )  # fmt: skip


@pytest.mark.slow
def test_estimate__names_the_total_quick_and_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    audit(quiet=False)
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if "the attacks take about" in line]
    assert "--attacks quick takes about" in line
    assert "(without encodermi-v, dataset-inference)" in line
    before = lines[: lines.index(line)]
    assert not [one for one in before if "attack 1 of" in one]


@pytest.mark.slow
def test_estimate__changes_no_score_and_is_not_made_where_nobody_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    rehearse = evaluation.rehearse
    monkeypatch.setattr(evaluation, "rehearse", lambda *rest: calls.append(1) or rehearse(*rest))
    silent = audit(quiet=True)
    assert not calls
    monkeypatch.setattr(AuditDisplay, "wants_forecast", True)
    rehearsed = audit(quiet=True)
    assert calls
    for first, second in zip(silent["attacks"], rehearsed["attacks"], strict=True):  # type: ignore[index]
        assert (first["auc"], first["queries"]) == (second["auc"], second["queries"])
