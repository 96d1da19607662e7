"""Every command of a page runs as a reader runs it: by the installed command, in an empty folder.

Small sizes, and commands that are left out with the reason, stand in commands.yaml.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pages.materials import Materials
from tests.pages.reading import PAGES, commands, text_of, words_of

TABLE = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text(encoding="utf-8"))
RUN: dict[str, dict[str, Any]] = TABLE["run"]
BY_TEST = {page for row in TABLE["left_out"] for page in row.get("pages", ())}
LEFT_OUT = [pattern for row in TABLE["left_out"] for pattern in row.get("commands", ())]


def shown() -> dict[str, list[str]]:
    """Every command of the pages, with the pages that show it."""
    by_command: dict[str, list[str]] = {}
    for page in PAGES:
        for command in () if page in BY_TEST else commands(text_of(page)):
            by_command.setdefault(command, []).append(page)
    return by_command


def smallest(command: str) -> list[str]:
    """The words of a command at its smallest size."""
    entry = RUN[command]
    for old, new in entry.get("words", {}).items():
        assert re.search(rf"(?<!\w){old}(?!\w)", command), f"{command} has no {old}"
        command = re.sub(rf"(?<!\w){old}(?!\w)", new, command)
    words = words_of(command)
    own: Mapping[str, Any] | None = entry.get("flags", {})
    of_papers = words[:3] == ["python", "-m", "papers"]
    if (words[0] != "fedmia" and not of_papers) or own is None:
        return words
    name = words[3] if of_papers else words[1]
    flags = TABLE["smallest"].get(name, {}) | dict(own)
    quick = TABLE["unless_named"].get(name, {}).items()
    return with_flags(
        words, flags | {n: v for n, v in quick if f"--{n}" not in words and n not in flags}
    )


def with_flags(words: list[str], flags: Mapping[str, Any]) -> list[str]:
    """A command with other values of its flags."""
    words = list(words)
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        places = [nth for nth, word in enumerate(words) if word.replace("_", "-") == flag]
        if places:
            words[places[0] + 1] = str(value)
        else:
            words += [flag, str(value)]
    return words


def read_by(words: list[str], names: Iterable[str]) -> list[str]:
    """Which of the names a command reads: all that it says but for the value of --out."""
    out = words.index("--out") + 1 if "--out" in words else 0
    said = " ".join(word for nth, word in enumerate(words) if nth != out or not out)
    read = [n for n in names if re.search(rf"(?<![\w/]){stem(n)}(?![\w.]*\w)", said)]
    return [*read, *(["cifar10-train.parquet"] if "CIFAR" in read else [])]


def stem(name: str) -> str:
    """What a command says of a file: of a module its name in Python, but for a script."""
    module = name.removesuffix(".py").replace("/", ".")
    return re.escape(name) if name == "gate.py" else re.escape(module)


def test_commands__are_all_in_the_table() -> None:
    listed = shown()
    assert len(listed) > 80
    missing = {command: pages for command, pages in listed.items() if command not in RUN
               and not any(re.fullmatch(pattern, command) for pattern in LEFT_OUT)}  # fmt: skip
    assert not missing, "neither run nor left out in tests/pages/commands.yaml"
    assert not set(RUN) - set(listed), "on no page any more"
    assert not [p for p in LEFT_OUT if not any(re.fullmatch(p, c) for c in listed)]


def test_smallest__keeps_every_flag_of_the_page() -> None:
    for command in RUN:
        flags = {word for word in words_of(command) if word.startswith("--")}
        assert flags <= set(smallest(command)), command


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("```bash\nfedmia a \\\n  --b c\n$ fedmia d  # why\n```\n", ["fedmia a --b c", "fedmia d"]),
        ("`fedmia x --out\nA`, `fedmia x`, `fedmia x --y ..`.", ["fedmia x --out A"]),
        ("```python\nfedmia.x\n```\n", []),
        ("```text\nTry fedmia x --y\n1,2 --out A on it.\n```\n", ["fedmia x --y 1,2 --out A"]),
    ],
)  # fmt: skip
def test_commands__reads(text: str, listed: list[str]) -> None:
    assert commands(text) == listed


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_installed__is_the_wheel_and_not_the_clone(materials: Materials, tmp_path: Path) -> None:
    show = "import fedmia, strategies, clients, sys; print(fedmia.__file__); print(*sys.path)"
    done = materials.installed.run(["python", "-c", show], tmp_path)
    file, path = done.stdout.splitlines()
    assert Path(file).is_relative_to(materials.installed.home), done.stderr
    root = Path(__file__).resolve().parents[2]
    assert str(root) not in path.split() and not (root / "build").exists()


# A script of the clone and the command that it runs are one.
ONCE = {tuple(smallest(command)): command for command in RUN}.values()


@pytest.mark.pages
@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("command", ONCE, ids=lambda command: command[:80])
def test_command__runs(command: str, materials: Materials, tmp_path: Path) -> None:
    words = smallest(command)
    for name in read_by(words, materials.made):
        materials.copy(name, tmp_path)
    done = materials.installed.run(words, tmp_path)
    output = done.stdout + done.stderr
    line = shlex.join(words)
    assert done.returncode == RUN[command].get("code", 0), f"{line}\n{output[-3000:]}"
    assert "Traceback (most recent call last)" not in output, f"{line}\n{output[-3000:]}"
