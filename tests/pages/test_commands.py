"""Every command of a page is one that fedmia, the repository or a tool has, and runs as a reader
runs it: by the installed command, in an empty folder. What pages say of commands and attacks.

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

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS, read_commands
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from tests.pages.materials import Materials
from tests.pages.reading import PAGES, ROOT, commands, text_of, words_of

TABLE = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text(encoding="utf-8"))
OF_PAPERS = read_commands(ROOT / "research" / "papers" / "commands.yaml")
RUN: dict[str, dict[str, Any]] = TABLE["run"]
BY_TEST = {page for row in TABLE["left_out"] for page in row.get("pages", ())}
SHOWN = [(page, command) for page in PAGES for command in commands(text_of(page))]
LEFT_OUT = [pattern for row in TABLE["left_out"] for pattern in row.get("commands", ())]


def smallest(command: str) -> list[str]:
    """The words of a command at its smallest size."""
    entry = RUN[command]
    for old, new in entry.get("words", {}).items():
        assert re.search(rf"(?<!\w){old}(?!\w)", command), f"{command} has no {old}"
        command = re.sub(rf"(?<!\w){old}(?!\w)", new, command)
    words = words_of(command)
    own: Mapping[str, Any] | None = entry.get("flags", {})
    of_papers = words[:3] == ["python", "-m", "research.papers"]
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
    modules = {n: n.removesuffix(".py").replace("/", ".") for n in names}
    stems = {n: f"({re.escape(n)}|{re.escape(module)})" for n, module in modules.items()}
    return [n for n, stem in stems.items() if re.search(rf"(?<![\w/]){stem}(?![\w.]*\w)", said)]


def test_commands__are_all_in_the_table() -> None:
    listed = {command: page for page, command in SHOWN if page not in BY_TEST}
    assert len(listed) > 60
    missing = {command: page for command, page in listed.items() if command not in RUN
               and not any(re.fullmatch(pattern, command) for pattern in LEFT_OUT)}  # fmt: skip
    assert not missing, "neither run nor left out in tests/pages/commands.yaml"
    assert not set(RUN) - set(listed), "on no page any more"
    assert not [p for p in LEFT_OUT if not any(re.fullmatch(p, c) for c in listed)]


def test_smallest__keeps_every_flag_of_the_page() -> None:
    for command in RUN:
        flags = {word for word in words_of(command) if word.startswith("--")}
        assert flags <= set(smallest(command)), command


# What a reader has and this repository has not: a class of their own, a run.
YOURS = r"cannot load \w+ '[\w.]+:\w+'|is no run|(encoder|run) \(--\w+\) is missing"
YOURS += r"|no such file: (patients\.csv|HOSPITAL/)"
YOURS += "|no config file or preset 'audit.yaml'"  # that of an app
YOURS += "|torch finds no CUDA GPU on this machine"  # where one is asked for


def complaint(words: list[str]) -> str | None:
    """What is wrong with a command, its program first; None where nothing is."""
    program, name, *rest = words
    if [program, name, *rest[:1]] == ["python", "-m", "research.papers"]:
        name = rest[1] if rest[1:2] in (["head"], ["run"], ["protocols"]) else "tables"
        rest = rest[1:] if name == "tables" else rest[2:]
    elif program != "fedmia":
        here = (ROOT / name).is_file() or name.startswith("-") or "/" not in name
        return None if here else f"there is no {name}"
    elif name == "list":
        return None
    commands = {**COMMANDS, **OF_PAPERS}
    if name not in commands:
        return f"there is no command {name}"
    try:
        parse(commands[name], rest)
    except InputError as error:
        return None if re.search(YOURS, str(error)) else str(error)
    return None


def test_commands__are_those_of_the_command_line() -> None:
    listed = [(page, words_of(c)) for page, c in SHOWN if re.match("(fedmia|python|bash) ", c)]
    assert len(listed) > 60
    assert not [(page, *words, said) for page, words in listed if (said := complaint(words))]


def test_pages__say_how_many_attacks_there_are() -> None:
    """Of all; pages of findings count those of a run."""
    pages = [page for page in PAGES if "findings" not in page]
    numbers = [n for page in pages for n in re.findall(r"\b(\d+) attacks", text_of(page))]
    assert len(numbers) >= 3
    assert set(numbers) == {str(len(registry.names("attack")))}


def test_pages__say_beside_overfit_that_the_server_sees_all_images() -> None:
    """A reader of the number must not take it for what a federation leaks."""
    presets = [f"configs/{name}.yaml" for name in ("overfit", "overfit-cifar10")]
    shown = [page for page in PAGES if "--config overfit" in text_of(page)]
    assert len(shown) > 3
    assert not [page for page in (*shown, *presets) if "private images" not in
                " ".join(text_of(page).split()).replace(" # ", " ")]  # fmt: skip


def test_pages__leave_no_sentence_open() -> None:
    """A colon is followed by what it announces."""
    assert not [p for p in PAGES if re.search(r"[^:\s]:\n\s*(\n#|\Z)", text_of(p))]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fedmia simulate --clints 10", "clints"),
        ("python -m research.papers run --nosuch 1", "nosuch"),
        ("fedmia simulat --clients 10", "no command simulat"),
        ("fedmia study nosuch --out D", "nosuch"),
        ("fedmia simulate --defense gaussian --defense.noise 1", "noise"),
        ("python research/measurements/nosuch.py", "no research/measurements/nosuch.py"),
    ],
)
def test_complaint__names_what_is_not_there(line: str, said: str) -> None:
    assert said in str(complaint(shlex.split(line)))


def test_howtos__begin_with_their_command() -> None:
    """The first block after the title is one of commands; that of a deployment explains first."""
    howtos = [p for p in PAGES if re.match("docs/howto/(?!index|deployment)", p)]
    assert len(howtos) > 10
    assert not [p for p in howtos if not re.match(r"# .*\n\n(.+\n)*\n?```bash\n", text_of(p))]


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_installed__is_the_wheel_and_not_the_clone(materials: Materials, tmp_path: Path) -> None:
    show = "import fedmia, strategies, clients, sys; print(fedmia.__file__); print(*sys.path)"
    done = materials.installed.run(["python", "-c", show], tmp_path)
    file, path = done.stdout.splitlines()
    assert Path(file).is_relative_to(materials.installed.home), done.stderr
    assert str(ROOT) not in path.split() and not (ROOT / "build").exists()


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
