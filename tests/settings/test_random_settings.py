"""Settings drawn from the schema are refused before anything is written, or run to a report."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fedmia.settings.errors import InputError
from tests.settings.random_settings import SMALLEST, run_settings, trees


def check(command: str, folder: Path, examples: int) -> Counter[str]:
    """What became of so many trees, the same each time."""
    results: Counter[str] = Counter()

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(trees(command))
    def run(tree: dict[str, Any]) -> None:
        try:
            results[run_settings(command, tree, folder / uuid.uuid4().hex)] += 1
        except InputError:
            results["refused"] += 1

    run()
    return results


@pytest.mark.parametrize("command", list(SMALLEST))
def test_settings__the_smallest_run(command: str, tmp_path: Path) -> None:
    assert run_settings(command, SMALLEST[command], tmp_path) == "ran"


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("command", list(SMALLEST))
@pytest.mark.parametrize("examples", [8, pytest.param(45, marks=pytest.mark.slow)])
def test_settings__drawn_ones_are_refused_or_run(
    command: str, examples: int, tmp_path: Path
) -> None:
    results = check(command, tmp_path, examples)
    assert min(results["refused"], results["ran"]) > examples // 10
