"""A sample of `research/measurements/strangers.py`: hostile and changed files end well."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from fedmia.settings.errors import InputError

MEASUREMENTS = Path(__file__).parents[1] / "research" / "measurements"
QUICK = ["weights", "images", "tables", "settings", "shadows", "studies", "replies", "answers"]
HEAVY = ["programs", "folders", "runs", "unfinished"]


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The benchmark's modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(MEASUREMENTS))
        yield importlib.import_module("strangers")


@pytest.mark.slow(seconds=40)
def test_strangers__a_sample_of_every_kind(benchmark: Any, tmp_path: Path) -> None:
    outcomes = benchmark.measure(QUICK, 80, 0, tmp_path / "quick", each=6)
    outcomes += benchmark.measure(HEAVY, 12, 1, tmp_path / "heavy", each=8)
    assert [vars(o) for o in outcomes if o.result not in benchmark.GOOD] == []
    assert {o.result for o in outcomes} == set(benchmark.GOOD)
    assert {o.kind for o in outcomes} == set(benchmark.SHARES)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ("traceback", "raise KeyError('x')"),
        ("unnamed", "raise InputError('something is wrong')"),
        ("outside", "open('../outside/new', 'w').close()"),
        ("outside", "open('/tmp/fedmia-outside', 'w').close()"),
        ("ran", "__import__('os').system('true')"),
        ("ran", "open('../outside/ran', 'w').close()"),
        ("died", "__import__('os').kill(__import__('os').getpid(), 9)"),
        ("read", "1"),
    ],
)
def test_guard__sees_each_fault(benchmark: Any, tmp_path: Path, result: str, code: str) -> None:
    guarded = sys.modules["_guarded"]

    def read(path: Path) -> None:
        exec(code, {"InputError": InputError})

    def write(folder: Path) -> Path:
        return benchmark.write_file("file.bin", b"", folder)  # type: ignore[no-any-return]

    cases = [guarded.Case("kind", "name", write, read)] * 2
    outcomes = list(guarded.run_cases(cases, tmp_path))
    assert outcomes[0].result == result and len(outcomes) == 2
    Path("/tmp/fedmia-outside").unlink(missing_ok=True)
