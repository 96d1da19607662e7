"""Threads on a busy machine, with the measurement made believe."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmia.evaluation.audits.threads import settle_threads
from fedmia.records.note import Note
from fedmia.report.words.notes import sentences
from fedmia.runtime import load
from fedmia.settings.commands.audit import Audit
from fedmia.settings.tree import from_tree


@pytest.mark.parametrize(
    ("cores", "free", "want"),
    [
        (2, 1.98, 0),
        (2, 1.0, 1),
        (2, 1.33, 1),
        (16, 15.0, 0),
        (16, 6.1, 6),
        (2, 0.2, 1),
        (1, 0.3, 0),
    ],
)
def test_threads__as_many_as_are_free(
    cores: int, free: float, want: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(load, "count_cores", lambda: cores)
    monkeypatch.setattr(load, "measure_free_cores", lambda: free)
    lines: list[str] = []
    audit = from_tree(Audit, {"encoder": "x"})
    assert settle_threads(audit, None, lines.append).machine.threads == want
    assert len(lines) == (want > 0)
    two = from_tree(Audit, {"encoder": "x", "threads": 2})
    assert settle_threads(two, None, lines.append).machine.threads == 2
    # An audit that is gone on with keeps the threads that it began with, at any load.
    for began in (0, 3):
        (tmp_path / "config.yaml").write_text(f"threads: {began}\n")
        assert settle_threads(audit, tmp_path, lines.append).machine.threads == began


def test_note__names_the_count_and_the_option_that_repeats_it() -> None:
    one, three = sentences(Note("machine-busy", {"threads": count}) for count in (1, 3))
    assert "used 1 thread;" in one and "used 3 threads;" in three
    assert "(--threads) 3 repeats" in three


def test_measured__at_most_the_cores() -> None:
    assert 0 < load.measure_free_cores(0.05) <= load.count_cores() + 0.1
