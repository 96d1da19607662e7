"""Every command on a page is one that fedmia, the repository or a tool has, flags included."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.options.errors import InputError
from papers.commands import COMMANDS as OF_PAPERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("**/*.md"))
SCRIPTS = {"run": "simulate", "audit": "audit", "sweep": "sweep", "tradeoff": "tradeoff"}
# What a reader has and this repository has not: a class of their own, a run.
YOURS = r"cannot load \w+ '[\w.]+:\w+'|is no run"
BLOCK = re.compile(r"^```(?:bash|console|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The words of each command in a page's blocks of commands."""
    lines = "".join(BLOCK.findall(page)).replace("\\\n", " ").splitlines()
    found = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines
             if re.match(r"(\$ )?(fedmia|python|bash) ", line)]  # fmt: skip
    return [words for words in found if words]


def complaint(words: list[str]) -> str | None:
    """What is wrong with a command, or None.

    Args:
        words: of the command, its program first.
    """
    program, *rest = words
    if program == "python" and rest[:1] == ["-m"]:
        package, _, name = rest[1].partition(".")
        if package not in ("fedmia", "papers"):
            return None  # a command of another package
        rest = rest[2:]
        if package == "papers":
            name = rest[0] if rest[0] in ("head", "run") else "tables"
            rest = rest if name == "tables" else rest[1:]
    elif program == "fedmia":
        name, *rest = rest
    elif program == "bash" and rest[0].removeprefix("scripts/").removesuffix(".sh") in SCRIPTS:
        name, rest = SCRIPTS[Path(rest[0]).stem], rest[1:]
    else:  # `gate.py` stands on the page
        here = (ROOT / rest[0]).is_file() or rest[0].startswith("-") or "/" not in rest[0]
        return None if here else f"there is no {rest[0]}"
    if name in ("list", "--version", "--help"):
        return None
    if name.startswith("cli."):
        return None if (ROOT / "fedmia" / f"{name.replace('.', '/')}.py").is_file() else name
    commands = {**COMMANDS, **OF_PAPERS}
    if name not in commands:
        return f"there is no command {name}"
    try:
        parse(commands[name], rest)
    except InputError as error:
        return None if re.search(YOURS, str(error)) else str(error)
    return None


@pytest.mark.parametrize("page", PAGES)
def test_commands__are_those_of_the_command_line(page: str) -> None:
    listed = commands((ROOT / page).read_text(encoding="utf-8"))
    assert not [(words, said) for words in listed if (said := complaint(words))]


def test_commands__on_the_pages_are_read() -> None:
    """No slip of the pattern lets every page pass."""
    of_howto = [commands((ROOT / p).read_text(encoding="utf-8")) for p in PAGES if "howto/" in p]
    assert sum(map(len, of_howto)) > 20


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fedmia simulate --clints 10", "clints"),
        ("python -m fedmia.audit --encoder R --defense x", "defense"),
        ("fedmia simulat --clients 10", "no command simulat"),
        ("fedmia sweep nosuch --out D", "nosuch"),
        ("fedmia simulate --defense gaussian --defense.noise 1", "noise"),
        ("python benchmarks/nosuch.py", "no benchmarks/nosuch.py"),
    ],
)
def test_complaint__names_what_is_not_there(line: str, said: str) -> None:
    assert said in str(complaint(shlex.split(line)))


@pytest.mark.parametrize("page", [p for p in PAGES if re.match(r"docs/(howto|findings)/", p)])
def test_page__is_in_the_list_of_its_folder(page: str) -> None:
    path = ROOT / page
    index = (path.parent / "index.md").read_text(encoding="utf-8")
    toctree = index.split("```{toctree}")[1].split()
    assert path.stem == "index" or path.stem in toctree


@pytest.mark.parametrize("page", [p for p in PAGES if p.startswith("docs/howto/")])
def test_howto__begins_with_its_command(page: str) -> None:
    """The first block after the title is one of commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if not page.endswith("index.md"):
        assert re.match(r"# .*\n\n(.+\n)*\n?```bash\n", text) or page.endswith("deployment.md")
