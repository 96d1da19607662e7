"""The longest tests begin first, on every worker: one that begins last leaves other cores idle."""

from __future__ import annotations

import pytest


def expected_seconds(item: pytest.Item) -> float:
    """What the mark `slow` says of a test, 0 where it says nothing."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", 0)) if mark else 0.0


def deal(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """An order in which the first share of each worker begins with as many long tests.

    `--dist worksteal` cuts the list into equal runs, one a worker, before anything is stolen.
    """
    long = sorted(filter(expected_seconds, items), key=expected_seconds, reverse=True)
    short = [item for item in items if not expected_seconds(item)]
    order: list[pytest.Item] = []
    for worker in range(workers):
        share = long[workers - 1 - worker :: workers]
        left = (len(items) + worker) // workers - len(share)
        order += share + short[:left]
        del short[:left]
    return order


@pytest.hookimpl(trylast=True)  # when those that -m leaves out are gone
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    worker = getattr(config, "workerinput", {"workercount": 1})
    items[:] = deal(items, worker["workercount"])
