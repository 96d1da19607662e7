"""The time of an audit, said before its first attack."""

from __future__ import annotations

import time

import pytest

from tests.auditing.attacks import NOW, named
from tests.auditing.conftest import Audit

SLOW = named("Slow")
SIX = f"{named('Mean', 'Other', 'Embeds', 'Fails')},dataset-inference"
ONE = 3 * 6 + 0.25 * 54  # of a model: the fit on 6 known members, the scores of 54 images


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [
        ("", 7 + ONE + 0.25 * 2 * 6 + ONE),  # the threshold's images; the untrained control
        ("--encoder tests.auditing.brought:Overflows", 7 + ONE + 0.25 * 2 * 6),  # it has no control
        ("--limit 10", 7 + 18 + 0.25 * (20 + 12) + 18 + 0.25 * 20),
    ],
)
def test_estimate__is_scaled_up_to_all_images_and_models(
    flags: str, seconds: float, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails or reads sets is named as left out, and no score changes by it."""
    monkeypatch.setattr(time, "perf_counter", lambda: NOW[0])
    NOW[0] = 100
    shown = audit(f"--attacks {SLOW},{SIX} {flags} --known 6", text=True)
    (line,) = [line for line in shown.err.splitlines() if "the attacks take about" in line]
    minutes, rest = divmod(round(seconds), 60)
    took = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    assert f"take about {took}, by a rehearsal" in line
    assert "Fails" in line and "dataset-inference)" in line and "Mean" not in line
    assert "; --attacks quick takes about 0 s" in line
    assert not [one for one in shown.err.partition(line)[0].splitlines() if "attack 1 of" in one]
    silent = audit(f"--attacks {SLOW},{SIX} {flags} --known 6")
    assert silent.code == shown.code == 1 and "take about" not in silent.err
    for row in silent.report["attacks"]:
        assert f"{row['auc']:.2f}" in shown.out
