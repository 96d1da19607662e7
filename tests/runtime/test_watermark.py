"""Memory of this process by phase, the rule that foresees it, and what a container leaves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedmia.runtime.memory import (
    LAZY,
    Watermark,
    foresee_phase,
    foresee_phases,
    free_bytes,
)

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system does not tell"
)


@needs_proc
def test_watermark__sees_what_a_phase_adds_and_not_what_another_did() -> None:
    with closing(Watermark()) as memory:
        memory.enter("first")
        block = np.ones(64 << 20, np.uint8)
        del block  # sooner than anybody looks
        memory.enter("second")
    assert 60 << 20 < memory.added["first"] < 90 << 20
    assert memory.added["second"] < 32 << 20


def test_phase__is_what_was_there_what_it_adds_as_often_as_it_grows_and_what_is_counted() -> None:
    whole = {"images": 40, "states": 900, "figures": 5}
    parts = foresee_phase(100, 30 + LAZY, {"images": 40, "states": 50}, whole, 3)
    assert parts == {**whole, "rest": 40 + LAZY, "more images": 60}
    over = foresee_phase(100, 30, {"clients at work": 500}, {"clients at work": 500})
    assert sum(over.values()) == 500  # more is counted than a pilot happened to take


def test_phases__name_the_largest_and_the_option_that_lowers_its_largest_part() -> None:
    phases = {
        "training": {"program": 9e8, "clients at work": 5e8, "images": 1e8},
        "attacks": {"program": 9e8, "more images": 1e8},
    }
    lowers = {"clients at work": "train.batch_size", "images": "data.size", "more images": "x"}
    row = foresee_phases(phases, lowers)
    assert (row["phase"], row["peak_mb"], row["lower"]) == ("training", 1500, "train.batch_size")
    assert row["phases_mb"] == {"training": 1500, "attacks": 1000}
    small = {"training": {"program": 9e8, "images": 1e6}}
    assert foresee_phases(small, lowers)["lower"] is None  # it would hardly change the peak


def test_free__is_what_the_container_leaves_where_that_is_less(tmp_path: Path) -> None:
    limit, use = tmp_path / "max", tmp_path / "current"
    use.write_text("400\n")
    limit.write_text("1000\n")
    assert free_bytes([(str(limit), str(use))]) == 600
    limit.write_text("max\n")
    whole = free_bytes([(str(limit), str(use))])
    assert whole is None or whole > 1 << 20
    limit.write_text("300\n")
    assert free_bytes([(str(limit), str(use))]) == 0
