"""The examples in the docstrings of the statistics give what they say."""

import doctest
import importlib

import numpy as np
import pytest

from fedmia.statistics.intervals import wilson
from fedmia.statistics.thresholds import tpr_at_fpr


@pytest.mark.parametrize(
    "name", ["auc", "intervals", "matching", "pvalues", "spread", "thresholds"]
)
def test_example__gives_what_it_says(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"fedmia.statistics.{name}"))
    assert result.attempted and not result.failed


def test_rates__outside_their_range_are_refused() -> None:
    for target in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"target must be in \(0, 1\], got {target}"):
            tpr_at_fpr(np.ones(3), np.zeros(3), target)
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 95"):
        wilson(1, 2, level=95)
