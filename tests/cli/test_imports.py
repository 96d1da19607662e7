"""What is heavy is imported where it is used: no command waits for what it may not need."""

from __future__ import annotations

import pytest

from fedmia.settings.registry import KINDS
from tests.test_layering import loaded, modules, within

# A run asks the registry for plugins, which imports every file of a kind.
PLUGINS = {package for kind, (package, _, _) in KINDS.items() if kind != "observer"}
HEAVY = (
    "matplotlib", "opacus", "pandas", "ray", "scipy.optimize", "scipy.stats", "sklearn",
    "torchvision",
)  # fmt: skip


@pytest.mark.parametrize("door", ["fedmia.simulate", "fedmia.audit"])
def test_imports__heavy_ones_wait_for_their_use(door: str) -> None:
    files = [name for name, _ in modules(*PLUGINS)]
    names = sorted(name for name in loaded(door, *files) if within(name, HEAVY))
    assert not names
