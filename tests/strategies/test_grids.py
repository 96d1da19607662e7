"""What grids can do beyond Flower's is declared, and none is asked by the name of a method."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp import Grid

from fedmia.federation.cluster import RayGrid
from fedmia.federation.inline import InlineGrid, LocalGrid
from fedmia.flower import RecordingGrid, Watch, record
from strategies.base import find_nodes
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy
from strategies.fedavg import FedAvg
from strategies.grids import GridExtras, PlainExtras, extras_of
from tests.recording.plain import PlainGrid, make_app
from tests.strategies.conftest import exactly, some_state
from tests.strategies.test_rounds import course_of, drift, work_of
from tests.test_layering import ROOT

# Public methods of our grids that only those call who made the grid, or the grid itself.
OWN = {
    LocalGrid: {"client", "load_client_state"},
    InlineGrid: {"client", "close", "load_client_state"},
    RayGrid: {"client", "close", "load_client_state"},
    RecordingGrid: {"final", "should_stop"},
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def undeclared(kind: type) -> set[str]:
    return public(kind) - public(Grid) - public(GridExtras)


@pytest.mark.parametrize("kind", OWN)
def test_grid__has_no_method_that_nobody_declares(kind: type) -> None:
    assert undeclared(kind) == OWN[kind]


def test_grid__with_a_misspelt_method_is_seen_and_cannot_be_made() -> None:
    class Misspelt(PlainGrid, PlainExtras):
        accept = GridExtras.accept

        def acept(self, node: int) -> None: ...

    assert undeclared(Misspelt) == {"acept"}
    with pytest.raises(TypeError, match="abstract method accept"):
        Misspelt(make_app())


def test_recording_grid__passes_on_each_method_of_flowers() -> None:
    """One that it inherits would be Flower's default, not that of the grid inside."""
    assert public(Grid) | public(GridExtras) <= {*vars(RecordingGrid)}


def by_name(tree: ast.AST) -> Iterator[str]:
    """What asks a grid by the name of an attribute, or for its kind."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("getattr", "hasattr", "isinstance")
            and "grid" in ast.unparse(node.args[0]).lower()
        ):
            yield ast.unparse(node)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Grid"):
            names = (n.name for n in node.body if isinstance(n, ast.FunctionDef))
            yield from (f"{node.name}.{name}" for name in names if name.startswith("__getattr"))


def test_scan__sees_what_asks_by_name() -> None:
    code = "getattr(self._grid, 'acept', None)\nclass MyGrid:\n  def __getattr__(self, n): ..."
    assert len([*by_name(ast.parse(code))]) == 2


def test_grids__are_asked_in_one_place_alone() -> None:
    """In every module of ours that has to do with Flower, whose grid is meant."""
    places = {
        file.relative_to(ROOT).as_posix(): calls
        for folder in ("fedmia", "clients", "strategies", "research/papers")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if "flwr" in (code := file.read_text()) and (calls := [*by_name(ast.parse(code))])
    }
    assert places == {"strategies/grids.py": ["isinstance(grid, GridExtras)"]}


def test_recording_grid__passes_on_what_the_grid_inside_can_do(tmp_path: Path) -> None:
    """The rounds are those without it, and need no roll call; each reply is heard, each update
    accepted."""
    accepted, replies = list[int](), list[tuple[str, int]]()

    class Accepting(InlineGrid):
        def accept(self, node: int) -> None:
            accepted.append(node)
            super().accept(node)

    inner = Accepting(work_of(drift), 4, 2, 1)
    try:
        with record(inner, tmp_path / "REC") as grid:
            assert extras_of(grid) is grid and grid.ahead == inner.ahead
            assert find_nodes(grid) == {client: client + 2 for client in range(4)}
            extras_of(grid).observe_replies(lambda branch, client: replies.append((branch, client)))
            phase = Phase("main", 5, 8, False, 1.0, 0)
            *_, done = FedAvg().rounds(grid, phase, some_state(99), FailurePolicy(4))
    finally:
        inner.close()
    assert exactly(done.state, course_of("fedavg")[0]) and accepted == [2, 3, 4, 5] * 3
    assert sorted(replies) == sorted([("main", client) for client in range(4)] * 3)


def test_recording_grid__is_stopped_by_a_watch_of_the_grid_inside(tmp_path: Path) -> None:
    watch: Any = Watch()
    inside = RecordingGrid(PlainGrid(make_app()), None, watch)  # type: ignore[arg-type]
    outside = RecordingGrid(inside, None)  # type: ignore[arg-type]
    assert not inside.stopped and not outside.stopped
    watch.stopped = True
    assert inside.stopped and outside.stopped


def test_flowers_grid__takes_all_orders_and_needs_a_roll_call() -> None:
    extras = extras_of(PlainGrid(make_app()))
    assert extras.ahead > 10**9 and not extras.stopped and extras.client_nodes() is None
