"""The longest tests begin first: one that begins last leaves the other core idle."""

from __future__ import annotations

import pytest


def expected_seconds(item: pytest.Item) -> float:
    """What the mark `slow` says of a test, 0 where it says nothing."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", 0)) if mark else 0.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=expected_seconds, reverse=True)
