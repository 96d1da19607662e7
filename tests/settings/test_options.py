"""Options: what is accepted, what is refused and in which words; text and YAML values."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmia.settings.errors import InputError, format_value
from fedmia.settings.options import Options, check_type, option, option_fields, type_name
from fedmia.settings.values import Text, convert, disk_paths, from_text, plain
from tests.snapshots import Snapshot


@dataclass(frozen=True)
class Knobs(Options):
    """A few options."""

    count: int = option(3, "how many", ge=1, le=9)
    rate: float = option(0.5, "how fast", gt=0, lt=2)
    mode: str = option("slow", "which", choices=("slow", "quick"))
    sizes: tuple[int, ...] | None = option(None, "sizes", ge=0)
    speed: float | Literal["auto"] = option("auto", "how fast, or as it likes", gt=0)
    derived: int = 7  # no option: not shown, not checked


def test_options__defaults_are_accepted_and_listed_in_order() -> None:
    assert [f.name for f, _ in option_fields(Knobs)] == ["count", "rate", "mode", "sizes", "speed"]
    assert Knobs(count=9, rate=1, sizes=(0, 4)).rate == 1
    assert (Knobs().speed, Knobs(speed=2).speed) == ("auto", 2)


def test_option_fields__an_option_that_no_dataclass_has_is_refused() -> None:
    class Same(Knobs):
        """Adds no option, and needs no decorator."""

    class Bare(Knobs):
        """Would lose its option."""

        more: int = option(1, "one more")

    @dataclass(frozen=True)
    class Other(Options):
        """Options of another base."""

        other: int = option(1, "another")

    class Both(Knobs, Other):
        """Would lose those of its second base."""

    assert option_fields(Same) == option_fields(Knobs)
    for cls in (Bare, Both):
        with pytest.raises(InputError, match=f"{cls.__name__} must be a dataclass: it lacks"):
            option_fields(cls)


def test_options__refused_with_field_and_value(snapshot: Snapshot) -> None:
    values: dict[str, tuple[object, ...]] = {
        "count": (0, 10, True, 2.0),
        "rate": (0, 2.0, math.nan, "1"),
        "mode": ("quik",),
        "sizes": ((1, -1), [1]),
        "speed": ("fast", 0.0),
    }
    said = list[str]()
    for name, wrong in values.items():
        for value in wrong:
            with pytest.raises(InputError) as caught:
                Knobs(**{name: value})  # type: ignore[arg-type]
            said.append(str(caught.value))
    snapshot("\n".join(said))


def test_type_name__reads_as_words() -> None:
    kinds = (int, float | None, tuple[str, ...], tuple[float, float], int | Literal["auto"])
    words = ["int", "float or none", "list of str", "2 floats", "int or auto"]
    assert list(map(type_name, kinds)) == words


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("3", float, 3.0),
        ("1e-3", float, 1e-3),
        ("TRUE", bool, True),
        ("none", int | None, None),
        ("none", str, "none"),
        ("none", tuple[int, ...] | None, None),
        ("0-2,7", tuple[int, ...], (0, 1, 2, 7)),
        ("a-b,c", tuple[str, ...], ("a-b", "c")),
        ("", tuple[int, ...], ()),
        ("7", int | str, 7),
        ("x7", int | str, "x7"),
        ("auto", float | Literal["auto"], "auto"),
        ("3", float | Literal["auto"], 3.0),
    ],
)
def test_from_text__known_answers(text: str, kind: object, value: object) -> None:
    result = from_text("--x", text, kind)
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1.5", int),
        ("x", float),
        ("yes", bool),
        ("", str),
        ("4-2", tuple[int, ...]),
        ("0-99999999", tuple[int, ...]),
        ("1,,2", tuple[int, ...]),
        ("fast", float | Literal["auto"]),
    ],
)
def test_from_text__refused_naming_the_flag(text: str, kind: object) -> None:
    with pytest.raises(InputError, match=r"^x: ('.*'|1\.5), must be "):
        from_text("x", text, kind)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (8, float, 8.0),
        (True, float, True),  # handed back for the type check to refuse
        ("3", int, "3"),
        (Text("3"), int, 3),
        ([1, 2], tuple[float, ...] | None, (1.0, 2.0)),
        ("0-4", tuple[int, ...] | None, (0, 1, 2, 3, 4)),
        ("none", float | None, None),
        (None, float | None, None),
        ("auto", float | Literal["auto"], "auto"),
        (1, float | Literal["auto"], 1.0),
    ],
)
def test_convert__yaml_values_are_not_guessed_at(
    value: object, kind: object, expected: object
) -> None:
    result = convert("x", value, kind)
    assert result == expected and type(result) is type(expected)


@given(
    st.one_of(
        st.tuples(st.just(int), st.integers()),
        st.tuples(st.just(float), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just(bool), st.booleans()),
        st.tuples(st.just(tuple[int, ...]), st.lists(st.integers(0), min_size=1).map(tuple)),
        st.tuples(st.just(float | None), st.none() | st.floats(-9, 9)),
    )
)
def test_shown__what_help_shows_can_be_typed_back(pair: tuple[object, object]) -> None:
    kind, value = pair
    back = from_text("--x", format_value(value), kind)
    check_type("--x", back, kind)
    assert back == value


def test_plain__tuples_become_lists_at_every_depth() -> None:
    assert plain({"a": ((1, 2), {"b": (3,)})}) == {"a": [[1, 2], {"b": [3]}]}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~/data", "/home/me/data"),
        ("folder:~/data", "folder:/home/me/data"),
        ("file:~/a:b", "file:/home/me/a:b"),
        ("~", "~"),
        ("a/~/b", "a/~/b"),
        ("http://x/~me", "http://x/~me"),
        ("~5", "~5"),
    ],
)
def test_home__stands_for_the_tilde_of_a_path(
    text: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert convert("x", text, str) == convert("x", Text(text), str | None) == path
    assert convert("x", Text(f"a,{text}"), tuple[str, ...]) == ("a", path)


NFC, NFD = (unicodedata.normalize(form, "caf\xe9") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(("stored", "typed"), [(NFC, NFD), (NFD, NFC)])
def test_accents__of_a_path_are_those_of_the_disk(
    stored: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / stored / stored).mkdir(parents=True)
    for form in ("{}", "folder:{}", "a.b:C:{}", "{}@3", "{}/new", "{0}/{0}", f"{tmp_path}/{{}}"):
        assert convert("x", form.format(typed), str) == form.format(stored)
        assert convert("x", Text(form.format(typed)), str | None) == form.format(stored)
    assert convert("x", Text(f"a,{typed}"), tuple[str, ...]) == ("a", stored)
    (tmp_path / typed).mkdir()
    assert convert("x", typed, str) == typed


def test_accents__of_a_pattern_are_those_of_the_disk(tmp_path: Path) -> None:
    for name in (f"{NFC}-1.npz", f"{NFD}-2.npz", f"{NFC}-3.pt"):
        (tmp_path / name).touch()
    for pattern in (f"{NFC}-*.npz", f"{NFD}-*.npz"):
        names = {Path(path).name for path in disk_paths(str(tmp_path / pattern))}
        assert names == {f"{NFC}-1.npz", f"{NFD}-2.npz"}
