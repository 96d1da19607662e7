"""Every command on a page is one that fedmia, the repository or a tool has, flags included; what
pages say of commands and attacks."""

from __future__ import annotations

import re
import shlex

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.options import registry
from fedmia.options.errors import InputError
from papers.commands import COMMANDS as OF_PAPERS
from tests.pages.reading import PAGES, ROOT, commands, text_of, words_of

# What a reader has and this repository has not: a class of their own, a run.
YOURS = r"cannot load \w+ '[\w.]+:\w+'|is no run|--(encoder|run) is missing"
OF_A_CLONE = re.compile("(fedmia|python|bash) ")


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
            name = rest[0] if rest[:1] in (["head"], ["run"]) else "tables"
            rest = rest if name == "tables" else rest[1:]
    elif program == "fedmia":
        name, *rest = rest
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
    listed = [words_of(line) for line in commands(text_of(page)) if OF_A_CLONE.match(line)]
    assert not [(words, said) for words in listed if (said := complaint(words))]


def test_pages__say_how_many_attacks_there_are() -> None:
    """Of all; pages of findings and errata count those of a run."""
    pages = [page for page in PAGES if not re.search("findings|errata", page)]
    numbers = [n for page in pages for n in re.findall(r"\b(\d+) attacks", text_of(page))]
    assert len(numbers) >= 3
    assert set(numbers) == {str(len(registry.names("attack")))}


def test_pages__say_beside_overfit_that_the_server_sees_all_images() -> None:
    """A reader of the number must not take it for what a federation leaks."""
    presets = [f"configs/{name}.yaml" for name in ("overfit", "overfit-cifar10")]
    texts = {page: text_of(page) for page in PAGES if page != "docs/errata.md"}
    shown = [page for page, text in texts.items() if re.search("--config overfit", text)]
    assert len(shown) > 5
    assert not [page for page in (*shown, *presets) if "private images" not in
                " ".join(text_of(page).split()).replace(" # ", " ")]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_page__leaves_no_sentence_open(page: str) -> None:
    """A colon is followed by what it announces."""
    assert not re.search(r"[^:\s]:\n\s*(\n#|\Z)", text_of(page))


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
