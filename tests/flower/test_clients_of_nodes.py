"""A Flower run has as many clients as there are nodes, unless its arguments say how many."""

from __future__ import annotations

from typing import Any

import pytest

from fedmia.flower import server
from strategies.failure_policy import FederationError


class Grid:
    """Nodes that come one after the other."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)

    def get_node_ids(self) -> Any:
        return range(self.counts.pop(0) if len(self.counts) > 1 else self.counts[0])


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SETTLE", 0.001)
    monkeypatch.setattr(server, "WAIT", 0.05)


def test_clients__all_nodes_that_came() -> None:
    grid: Any = Grid(0, 0, 1, 3)
    arguments = server.with_clients("--config smoke", grid)
    assert server.invocation(arguments).settings.federation.clients == 3


@pytest.mark.parametrize("flag", ["--clients 4", "--federation.clients=4"])
def test_clients__as_the_arguments_say(flag: str) -> None:
    grid: Any = Grid(2)
    assert server.with_clients(f"--config smoke {flag}", grid) == f"--config smoke {flag}"


def test_clients__none_came() -> None:
    grid: Any = Grid(0)
    with pytest.raises(FederationError, match="no node came"):
        server.with_clients("", grid)
