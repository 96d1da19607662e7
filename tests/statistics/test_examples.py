"""The examples in the docstrings of the statistics give what they say."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["auc", "intervals", "matching", "pvalues", "spread", "thresholds"]
)
def test_example__gives_what_it_says(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"fedmia.statistics.{name}"))
    assert result.attempted and not result.failed
