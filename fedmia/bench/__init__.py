"""The bench: attacks on frozen targets, side by side.

    result = fedmia.bench.evaluate(MyAttack(), "encoders-v1")

Importing this package imports nothing heavy: the pages of `fedmia bench` need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmia.bench.command import BenchResult as BenchResult
    from fedmia.bench.command import evaluate as evaluate


def __getattr__(name: str) -> Any:
    if name not in ("BenchResult", "evaluate"):
        raise AttributeError(f"module 'fedmia.bench' has no attribute '{name}'")
    from fedmia.bench import command

    return getattr(command, name)
