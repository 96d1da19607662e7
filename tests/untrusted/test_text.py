"""JSON that is too deep, CSV that is too long."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_csv__lines_with_cells_of_a_text_of_bounded_length(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfimage,client\r\n\r\n'a',\"b\r\nc\"\n")
    assert read_csv(path) == [["image", "client"], ["'a'", "b\r\nc"]]
    for content, why in ((b"a" * 200_000, "no CSV: field larger"), (b"\xff", "not in UTF-8")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=why):
            read_csv(path)
    with path.open("wb") as file:  # of which no byte is on the disk
        file.truncate(text.TEXT + 1)
    with pytest.raises(ValueError, match=f"larger than {text.TEXT >> 20} MiB"):
        read_csv(path)
