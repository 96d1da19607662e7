"""Registry: a file is a plugin, its name follows from the file's, and mistakes are named."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "__init__.py": "",
    "by_halves.py": '''
from dataclasses import dataclass
from fedmia.settings import option
from fedmia.partitions.base import Partition
from fedmia.partitions._shared import Other  # imported, so no plugin of this file

@dataclass(frozen=True)
class ByHalves(Partition):
    """Deals by halves.

    And more words.
    """

    paper = "Nobody, 1900"
    share: float = option(0.5, "the first part's share", gt=0, lt=1)

    def __call__(self, labels, clients, rng):
        return []
''',
    "_shared.py": """
from dataclasses import dataclass
from fedmia.partitions.base import Partition

@dataclass(frozen=True)
class Other(Partition):
    def __call__(self, labels, clients, rng): return []
""",
    "empty.py": "X = 1\n",
}
TWO = """
from dataclasses import dataclass
from fedmia.partitions.base import Partition

@dataclass(frozen=True)
class One(Partition):
    def __call__(self, labels, clients, rng): return []

@dataclass(frozen=True)
class Two(Partition):
    def __call__(self, labels, clients, rng): return []
"""


@pytest.fixture
def partitions(tmp_path: Path) -> Path:
    """The folder of partitions of a fedmia whose other files are this one's."""
    for one in (ROOT / "fedmia").iterdir():
        if one.name != "partitions":
            (tmp_path / "fedmia" / one.name).parent.mkdir(exist_ok=True)
            (tmp_path / "fedmia" / one.name).symlink_to(one)
    folder = tmp_path / "fedmia" / "partitions"
    folder.mkdir()
    (folder / "base.py").symlink_to(ROOT / "fedmia/partitions/base.py")
    for file, text in FILES.items():
        (folder / file).write_text(text)
    return folder


def tell(partitions: Path, *expressions: str) -> list[object]:
    """What a process says in which `fedmia.partitions` is the folder; of a refusal its line."""
    program = f"""
import json
from fedmia.partitions.base import Partition
from fedmia.settings import registry
from fedmia.settings.errors import InputError
def value(expression):
    try:
        return eval(expression)
    except InputError as error:
        return str(error)
print(json.dumps([value(one) for one in {list(expressions)!r}]))
"""
    root = partitions.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    values: list[object] = json.loads(done.stdout)
    return values


def test_load__a_file_is_a_plugin_and_underscores_are_dashes(partitions: Path) -> None:
    load = "registry.load('partition', 'by-halves')"
    assert tell(
        partitions,
        "registry.names('partition')",
        f"{load}.__name__",
        f"issubclass({load}, Partition)",
        f"registry.summary({load})",
        f"registry.paper({load})",
    ) == [["by-halves"], "ByHalves", True, "Deals by halves.", "Nobody, 1900"]


def test_load__unknown_name_lists_the_known(partitions: Path) -> None:
    unknown = ("by_halves", "by-halfs", "base", "_shared", "empty", "")
    lines = tell(partitions, *(f"registry.load('partition', {name!r})" for name in unknown))
    for line in lines:
        assert re.search(r"unknown partition .*known: by-halves", str(line))


def pair(first: str | None, second: str | None) -> str:
    """Two plugins, each with a name or without."""
    text = TWO
    for cls, name in (("One", first), ("Two", second)):
        line = f"class {cls}(Partition):\n"
        text = text.replace(line, line + (f'    name = "{name}"\n' if name else ""))
    return text


@pytest.mark.parametrize(
    ("first", "second"), [(None, None), ("pair-1", "pair-1"), ("pair-1", "two"), ("one", "two")]
)
def test_names__two_plugins_of_one_name_or_of_another_beginning_are_refused(
    partitions: Path, first: str | None, second: str | None
) -> None:
    (partitions / "pair.py").write_text(pair(first, second))
    (line,) = tell(partitions, "registry.names('partition')")
    assert "pair holds 2 public plugins" in str(line)


def test_names__a_family_may_have_the_files_own(partitions: Path) -> None:
    (partitions / "pair.py").write_text(pair(None, "pair2"))
    assert tell(
        partitions,
        "registry.names('partition')",
        "registry.load('partition', 'pair').__name__",
        "registry.load('partition', 'pair2').__name__",
    ) == [["by-halves", "pair", "pair2"], "One", "Two"]
