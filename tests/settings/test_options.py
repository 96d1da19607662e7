"""Options: what is accepted, what is refused and in which words; text and YAML values."""

from __future__ import annotations

import math
import pickle
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from fedmia.settings import Options, option
from fedmia.settings.errors import InputError, opt, option_error, prefix_errors
from tests.settings.conftest import AUDIT, built
from tests.snapshots import Snapshot


@dataclass(frozen=True)
class Knobs(Options):
    """A few options."""

    count: int = option(3, "how many", ge=1, le=9)
    rate: float = option(0.5, "how fast", gt=0, lt=2)
    mode: str = option("slow", "which", choices=("slow", "quick"))
    sizes: tuple[int, ...] | None = option(None, "sizes", ge=0)
    pair: tuple[float, float] = option((0.0, 1.0), "two of them")
    speed: float | Literal["auto"] = option("auto", "how fast, or as it likes", gt=0)
    grey: float = option(0.5, "any help", ge=0, le=1, of_pixels=True)
    share: float = option(0.5, "mean of each channel", ge=0, le=1)
    derived: int = 7  # no option: not checked


def test_options__accepted() -> None:
    assert Knobs(count=9, rate=1, sizes=(0, 4), speed=2, derived=-1).rate == 1
    assert Knobs(count=1, grey=1, share=0, sizes=(), speed="auto") and Knobs(rate=1.999, grey=0)


def test_options__refused_with_field_and_value(snapshot: Snapshot) -> None:
    values: dict[str, tuple[object, ...]] = {
        "count": (0, 10, True, 2.0),
        "rate": (0, 2.0, math.nan, "1"),
        "mode": ("quik",),
        "sizes": ((1, -1), [1]),
        "pair": (3, (1.0,)),
        "speed": ("fast", 0.0),
        "grey": (128.0, 256.0, -1.0),
        "share": (128.0,),
    }
    said = list[str]()
    for name, wrong in values.items():
        for value in wrong:
            with pytest.raises(InputError) as caught:
                Knobs(**{name: value})  # type: ignore[arg-type]
            said.append(str(caught.value))
    snapshot("\n".join(said))


def test_options__that_no_dataclass_has_are_refused() -> None:
    """One that adds none needs no decorator; the others would lose theirs."""

    class Same(Knobs):
        pass

    class Bare(Knobs):
        more: int = option(1, "one more")

    @dataclass(frozen=True)
    class Other(Options):
        other: int = option(1, "another")

    class Both(Knobs, Other):
        pass

    assert Same(count=4).count == 4
    for cls in (Bare, Both):
        with pytest.raises(InputError, match=f"{cls.__name__} must be a dataclass: it lacks"):
            cls()


# A flag of which kind, its text, and the value.
TYPED: list[tuple[str, str, Any]] = [
    ("federation.clients", "3", 3),
    ("train.lr", "3", 3.0),
    ("train.lr", "1e-3", 1e-3),
    ("federation.secure_aggregation", "TRUE", True),
    ("federation.min_clients", "1", 1),
    ("federation.client_timeout", "none", None),
    ("data.dir", "none", None),
    ("machine.clients_at_once", "auto", "auto"),
    ("machine.clients_at_once", "3", 3),
    ("federation.placebo", "auto", "auto"),
    ("federation.placebo", "true", True),
    ("data.mean", "0.5,1,0", (0.5, 1.0, 0.0)),
    ("data.mean", "none", None),
    ("data.dir", "7", "7"),
]


@pytest.mark.parametrize(("path", "text", "value"), TYPED)
def test_text__becomes_the_type_of_its_option(path: str, text: str, value: Any) -> None:
    more = "--dataset cifar10 --attacks similarity"
    found = built(f"simulate {more} --{path} {text}")
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value and type(found) is type(value)


def test_text__lists_and_ranges() -> None:
    clients = built("simulate --defense gaussian --defended-clients 0-2,7").defended_clients
    assert clients == (0, 1, 2, 7)
    names = built("simulate --attacks internal --attack.internal.layers a-b,c").attack["internal"]
    assert names["layers"] == ("a-b", "c")
    lists = built("study --over 'defended_clients=0-2;7' --defense gaussian").points
    assert [cell.first.defended_clients for cell in lists] == [(0, 1, 2), (7,)]


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
    text: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "e.yaml").write_text(f"data: {{dir: '{text}'}}")
    for given in (f"--data_dir='{text}'", f"--config {tmp_path}/e.yaml"):
        assert built(f"simulate --dataset cifar10 {given}").data.dir == path
    layers = f"--attacks internal --attack.internal.layers 'a,{text}'"
    assert built(f"simulate {layers}").attack["internal"]["layers"] == ("a", path)


NFC, NFD = (unicodedata.normalize(form, "caf\xe9") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(("stored", "typed"), [(NFC, NFD), (NFD, NFC)])
def test_accents__of_a_path_are_those_of_the_disk(
    stored: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / stored / stored).mkdir(parents=True)
    file = tmp_path / "e.yaml"

    def place(text: str) -> set[str]:
        file.write_text(f"data: {{dir: '{text}'}}", encoding="utf-8")
        given = (f"--data_dir='{text}'", f"--config {file}")
        return {built(f"simulate --dataset cifar10 {one}").data.dir for one in given}

    for form in ("{}", "folder:{}", "a.b:C:{}", "{}@3", "{}/new", "{0}/{0}", f"{tmp_path}/{{}}"):
        assert place(form.format(typed)) == {form.format(stored)}
    layers = f"--attacks internal --attack.internal.layers 'a,{typed}'"
    assert built(f"simulate {layers}").attack["internal"]["layers"] == ("a", stored)
    assert built(f"{AUDIT} --checkpoint {typed}").encoder.checkpoint == stored
    (tmp_path / typed).mkdir()
    assert place(typed) == {typed}


# errors


def test_error__is_one_line_with_paths_short_flags_and_values() -> None:
    error = InputError(f"{opt('federation.rounds', 3)} of {opt('clients')} is\n{opt('x', (1, 2))}")
    assert str(error) == "federation.rounds (--rounds) 3 of clients (--clients) is x 1,2"


def test_prefixed__says_where_an_error_is_once() -> None:
    with pytest.raises(InputError) as caught, prefix_errors("file"), prefix_errors(opt("over", 3)):
        raise InputError(f"{opt('seed', 3)} is bad")
    assert str(caught.value) == "file: over 3: seed 3 is bad"
    outer = prefix_errors("file")
    with pytest.raises(InputError, match="^file: bad$"), outer, prefix_errors("file"):
        raise InputError("bad")


def test_error__of_another_process_takes_a_path_too() -> None:
    error = pickle.loads(pickle.dumps(option_error(Knobs(), "p: 9, must be <= 5")))
    words = pytest.raises(InputError, match=r"^attack\.lpla\.p: 9, must be <= 5$")
    with words, prefix_errors("anything", "attack.lpla"):
        raise error
