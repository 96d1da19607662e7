"""`docs/architecture.md` and the walk through the example say where things are, the glossary what
words mean, and so it is."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from fedmia.settings.registry import KINDS
from tests.test_layering import LAYERS, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = (ROOT / "docs" / "concepts" / "how_it_works.md").read_text(encoding="utf-8")
IDEAS, FLOORS, PLACES = (
    PAGE.split(f"## {head}")[1].split("\n## ")[0]
    for head in ("Ten ideas", "The floors", "Where to put what")
)

GLOSSARY = (ROOT / "docs" / "concepts" / "glossary.md").read_text(encoding="utf-8")
# Words of the code: those of an entry -> the classes that it names.
WORDS = {
    tuple(re.findall(r"\*\*(\w+)\*\*", entry)): set(re.findall(r"`([A-Z]\w+)`", entry))
    for entry in GLOSSARY.split("**Words of the code**")[1].split("\n- ")[1:]
}


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def rows(text: str) -> list[list[str]]:
    """Cells of the lines of a table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def module(path: str) -> str:
    return path.rstrip("/").removesuffix(".py").replace("/", ".")


def test_page__is_one_page_with_one_diagram() -> None:
    assert PAGE.count("```") == 2 and len(PAGE.splitlines()) <= 200


def test_ideas__are_ten_and_stand_in_the_diagram() -> None:
    names = [cells[0] for cells in rows(IDEAS)]
    assert len(names) == 10 and all(quoted(cells[2]) for cells in rows(IDEAS))
    diagram = PAGE.split("```")[1]
    for name in names:
        assert all(re.search(rf"\b{word}", diagram) for word in name.split(" and ")), name


def test_floors__are_those_of_the_imports() -> None:
    named = [[module(p) for p in quoted(cells[0])] for cells in rows(FLOORS)]
    floors = [sorted(set(floor) - {"fedmia"}) for floor in LAYERS]
    listed = [name for floor in named for name in floor]
    assert sorted(listed) == sorted(name for floor in floors for name in floor)
    heights = [next(i for i, floor in enumerate(floors) if name in floor) for name in listed]
    assert heights == sorted(heights), "the page lists a floor above one that it stands on"


def test_floors__hold_every_package_and_module_of_the_root() -> None:
    root = [
        p for p in (ROOT / "fedmia").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    ]
    names = {p.name + "/" * p.is_dir() for p in root} - {"__init__.py"}
    assert names == {
        q.removeprefix("fedmia/") for q in quoted(FLOORS) if re.match(r"fedmia/[^/]+/?$", q)
    }


@pytest.mark.parametrize("path", [q for q in quoted(PAGE + WALK) if "/" in q and " " not in q])
def test_paths__exist(path: str) -> None:
    path = path.replace("NAME", "[a-z]*")
    inside = ROOT / "fedmia" / "evaluation" if path in ("steps/", "federated/", "audits/") else ROOT
    assert list(inside.glob(path)), path


@pytest.mark.parametrize(
    "name",
    [q for q in quoted(IDEAS + PLACES + WALK)
     if re.fullmatch(r"\w+(\.\w+)+", q) and not q.endswith((".py", ".md"))],
)  # fmt: skip
def test_names__can_be_imported(name: str) -> None:
    where, _, what = name.rpartition(".")
    assert hasattr(importlib.import_module(where), what)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_plugins__each_have_their_place(kind: str) -> None:
    package, where, base = KINDS[kind]
    places = {
        (path, name)
        for cells in rows(PLACES)
        for path in quoted(cells[1])
        for name in quoted(cells[2])
    }
    assert (f"{package.replace('.', '/')}/NAME.py", f"{where}.{base}") in places


def classes(*, public: bool) -> set[str]:
    """Names of the product's classes, all or those of public names in public modules."""
    return {
        node.name
        for package in ("fedmia", "clients", "strategies")
        for path in (ROOT / package).rglob("*.py")
        if not public or not re.match(r"_(?!_)", path.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not (public and node.name.startswith("_"))
    }


def test_words__name_classes_that_exist() -> None:
    assert {"run", "round", "view", "context", "recipe", "known"} <= {w for of in WORDS for w in of}
    assert set().union(*WORDS.values()) <= classes(public=False)


def test_words__begin_the_names_of_no_other_class() -> None:
    beside = {word.rstrip("s"): names for words, names in WORDS.items() for word in words}
    others = {
        name
        for name in classes(public=True)
        if name not in beside.get(re.findall("[A-Z][^A-Z]*", name)[0].lower().rstrip("s"), {name})
    }
    assert not others, "name them in docs/concepts/glossary.md beside their word, or otherwise"
