"""Registry: a file is a plugin, its name follows from the file's, and mistakes are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmia.partitions.base import Partition
from fedmia.settings import registry
from fedmia.settings.errors import InputError

FILES = {
    "__init__.py": "",
    "by_halves.py": '''
from dataclasses import dataclass
from fedmia.settings import option
from fedmia.partitions.base import Partition
from fedmia.partitions.iid import IID as Other  # imported, so no plugin of this file

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
    "_shared.py": "raise AssertionError('a private module is no plugin')\n",
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
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which Python now looks for the files of `fedmia.partitions`."""
    name = f"plugins_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / name
    folder.mkdir()
    for file, text in FILES.items():
        (folder / file).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.names("partition")  # imports those that are there
    before = set(sys.modules)
    monkeypatch.setattr("fedmia.partitions.__path__", [str(folder)])
    yield folder
    for module in set(sys.modules) - before:
        if module.startswith("fedmia.partitions."):
            del sys.modules[module]


def test_load__a_file_is_a_plugin_and_underscores_are_dashes(package: Path) -> None:
    assert registry.names("partition") == ["by-halves"]
    cls = registry.load("partition", "by-halves")
    assert cls.__name__ == "ByHalves" and issubclass(cls, Partition)
    assert registry.summary(cls) == "Deals by halves."
    assert registry.paper(cls) == "Nobody, 1900"


def test_load__unknown_name_lists_the_known(package: Path) -> None:
    for name in ("by_halves", "by-halfs", "base", "_shared", "empty", ""):
        with pytest.raises(InputError, match=r"unknown partition .*known: by-halves"):
            registry.load("partition", name)


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
    package: Path, first: str | None, second: str | None
) -> None:
    (package / "pair.py").write_text(pair(first, second))
    with pytest.raises(InputError, match="pair holds 2 public plugins"):
        registry.names("partition")


def test_names__a_family_may_have_the_files_own(package: Path) -> None:
    (package / "pair.py").write_text(pair(None, "pair2"))
    assert registry.names("partition") == ["by-halves", "pair", "pair2"]
    assert registry.load("partition", "pair").__name__ == "One"
    assert registry.load("partition", "pair2").__name__ == "Two"


def test_load__of_a_family_imports_its_file_alone(package: Path) -> None:
    (package / "by_two.py").write_text(pair("by-two-1", "by-two-10"))
    (package / "by.py").write_text("raise AssertionError('a shorter prefix, looked at too early')")
    (package / "another.py").write_text("raise AssertionError('cannot hold the name')")
    one, two = (registry.load("partition", f"by-two-{n}") for n in (1, 10))
    assert (one.__name__, two.__name__) == ("One", "Two")
    (package / "by.py").write_text("")
    (package / "another.py").write_text("")
    for wrong in ("by-two", "by-two-2", "by_two_1", "By-two-1"):
        with pytest.raises(InputError, match="known: by-halves, by-two-1, by-two-10"):
            registry.load("partition", wrong)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_module:X", "cannot load partition"),
        ("fedmia.settings.errors:Nothing", "cannot load partition"),
        ("fedmia.settings.errors:InputError", "is not a Partition"),
        ("fedmia.settings.errors:suggest_nearest", "is not a Partition"),
    ],
)
def test_load__outside_class_that_does_not_fit(path: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        registry.load("partition", path)


def test_build__by_options_of_a_name_or_of_a_class_outside_the_repository(package: Path) -> None:
    path = f"{package.name}.by_halves:ByHalves"
    assert registry.build("partition", path, {"share": 0.25}).share == 0.25
    with pytest.raises(InputError, match="option of partition 'by-halves' 'shear'.*'share'"):
        registry.build("partition", "by-halves", {"shear": 0.1})
    with pytest.raises(InputError, match="^partition.share: .*, must be < 1"):
        registry.build("partition", "by-halves", {"share": 1.0})
