"""Notes in words: each code of the product has its sentence, and no sentence is left over."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fedmia.records.note import Note
from fedmia.report.words.notes import WORDS, in_words, sentences

ROOT = Path(__file__).resolve().parents[2]
# Their ends are other people's words, or they go on behind `Shadow encoders: `.
CLAUSES = {"plugin", "no-scores-beside", "bank-cut", "queue-long", "more-of-this-kind"}
EXAMPLES: dict[Any, list[Any]] = {
    str: ["one"], str | None: ["one", None], int: [1, 7],
    float: [0.0, 0.25], bool: [True, False], Sequence[str]: [["one"], [*"abcdefgh"]],
    Sequence[int]: [[3], [1, 2]], Sequence[tuple[int, int]]: [[(4, 2), (6, 3)]],
    Sequence[tuple[int, int, str]]: [[(1, 2, "left")], [(1, 2, "left")] * 9],
    Mapping[str, int]: [{"P": 2, "RGBA": 1}],
    Mapping[str, tuple[str, int | None]]: [{"image": ("file", None), "label": ("class", 2)}],
    Mapping[str, Mapping[str, int]]: [{}, {"members": {"train": 2}, "": {"": 1, "val": 3}}],
    Mapping[int, str]: [{1: "a.npz"}, {r: f"{r}.npz" for r in range(9)}],
}  # fmt: skip
CHOICES = {
    ("not-tried-untrained", "control"): ["none", "placebo", "unfinished", "missing"],
    ("client-failed", "action"): ["retried", "dropped"],
    ("no-scores-beside", "piece"): ["untrained", "round 3"],
    ("no-scores-beside", "why"): ["too few images", "failed: ValueError: no"],
}


def uses() -> Iterator[tuple[str, str, set[str]]]:
    """Where the product makes a note: the place, the code and the names of its values."""
    for package in ("fedmia", "clients", "strategies", "research/papers"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Note":
                    place = f"{file.relative_to(ROOT)}:{node.lineno}"
                    code, values = node.args[0], [*node.args[1:], *node.keywords]
                    assert isinstance(code, ast.Constant), f"{place}: the code is no constant"
                    assert all(isinstance(one, ast.Dict) for one in values), place
                    keys = [k for one in values for k in one.keys]  # type: ignore[union-attr]
                    yield place, code.value, {k.value for k in keys}  # type: ignore[union-attr,misc]


def test_codes__of_the_product_have_functions_of_exactly_their_values() -> None:
    every = list(uses())
    for place, code, values in every:
        assert code in WORDS, f"{place}: no function words '{code}'"
        assert values == set(inspect.signature(WORDS[code]).parameters), f"{place}: {code}"
    assert {code for _, code, _ in every} | {"plugin"} == {*WORDS}


@pytest.mark.parametrize("code", WORDS)
def test_words__are_one_line_that_ends_in_a_full_stop(code: str) -> None:
    hints = {n: h for n, h in get_type_hints(WORDS[code]).items() if n != "return"}
    examples = [CHOICES.get((code, name), EXAMPLES[hint]) for name, hint in hints.items()]
    for values in itertools.product(*examples):
        text = in_words(Note(code, dict(zip(hints, values, strict=True))))
        assert text and "\n" not in text and "  " not in text and "None" not in text.split(".")[0]
        assert (text[-1] == ".") is (code not in CLAUSES), text


def test_words__of_notes_in_notes_and_of_plugins() -> None:
    own = Note("plugin", {"text": "The source says so."})
    cut = Note("bank-cut", {"bank": "queue", "length": 16, "half": 10, "images": 20, "own": None})
    assert sentences([own, Note("shadow-training", {"note": cut})]) == [
        "The source says so.", "Shadow encoders: queue cut from 16 to 10, half of 20 images.",
    ]  # fmt: skip
    assert {own, Note("plugin", {"text": "Else."}), Note(**vars(own))} == {
        own, Note("plugin", {"text": "Else."})
    }  # fmt: skip


def test_words__refuse_what_is_no_note() -> None:
    with pytest.raises(ValueError, match="no note has the code 'nonesuch'"):
        in_words(Note("nonesuch"))
    with pytest.raises(TypeError, match="'A sentence.' is no Note"):
        sentences(["A sentence."])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'images'"):
        in_words(Note("one-colour", {"count": 1, "side": "members"}))
