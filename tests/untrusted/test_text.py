"""JSON that is too deep, YAML that is too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmia.settings.errors import InputError
from fedmia.settings.yamlfile import load
from fedmia.untrusted import text
from fedmia.untrusted.text import LEVELS, parse_json, read_csv


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a": ', "}")])
def test_json__values_that_a_copy_of_them_could_not_hold_are_refused(
    opened: str, closed: str
) -> None:
    def nested(levels: int) -> str:
        return f"[1, {opened * (levels - 1)}2{closed * (levels - 1)}]"

    assert parse_json("3") == 3 and parse_json(nested(LEVELS))[0] == 1
    for levels in (LEVELS + 1, 100_000):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            parse_json(nested(levels))


def test_yaml__an_alias_counts_as_what_it_stands_for(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n")
    assert load(path) == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 7)]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"a.yaml: not valid YAML: more than 100,000 values"):
        load(path)
    path.write_text("a: &a [*a]")
    with pytest.raises(InputError, match="more than"):
        load(path)


def test_csv__lines_with_cells_of_a_text_of_bounded_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfimage,client\r\n\r\n'a',\"b\r\nc\"\n")
    assert read_csv(path) == [["image", "client"], ["'a'", "b\r\nc"]]
    for content, why in ((b"a" * 200_000, "no CSV: field larger"), (b"\xff", "not in UTF-8")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=why):
            read_csv(path)
    monkeypatch.setattr(text, "TEXT", 0)
    with pytest.raises(ValueError, match="larger than 0 MiB"):
        read_csv(path)
