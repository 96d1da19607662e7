"""Sentences that users read stand once: in `snapshots.yaml` beside the tests that print them.

`pytest --write-snapshots PATHS` writes what the tests of PATHS print; read its diff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
Snapshot = Callable[[object], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-snapshots", action="store_true", help="write the snapshots.yaml")


class Blocks(yaml.SafeDumper):
    """Writes a text of several lines as it is printed."""


Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def read_snapshots(file: Path) -> dict[str, list[str]]:
    """Sentences by test: `test_file.py::test_name[case]`, in the order in which it prints them."""
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}


@pytest.fixture
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Snapshot]:
    """`snapshot(text)`: the text, or an error's, is the next one that this test's folder stores.

    Its temporary folder stands there as `TMP`, the project's as `ROOT`.
    """
    file = request.path.parent / "snapshots.yaml"
    name, texts = f"{request.path.name}::{request.node.name}", list[str]()
    stored = read_snapshots(file).get(name, [])
    write = request.config.getoption("--write-snapshots")

    def check(text: object) -> None:
        plain = str(text).replace(str(tmp_path), "TMP").replace(str(ROOT), "ROOT")
        texts.append("\n".join(line.rstrip() for line in plain.strip().splitlines()))
        if write:
            named = dict(sorted({**read_snapshots(file), name: texts}.items()))
            file.write_text(
                yaml.dump(named, Dumper=Blocks, width=100, allow_unicode=True, sort_keys=False)
            )
        else:
            assert texts == stored[: len(texts)], f"another sentence than {file} stores"

    yield check
    assert write or len(texts) == len(stored), f"fewer sentences than {file} stores"
