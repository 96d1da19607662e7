"""What tools/same.py takes for a difference between two folders, and what it leaves out."""

from __future__ import annotations

import runpy
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

SAME = runpy.run_path(str(Path(__file__).resolve().parents[1] / "tools" / "same.py"))
Printed = pytest.CaptureFixture[str]


def compared(folder: Path, printed: Printed) -> tuple[int, list[list[str]], str]:
    """Exit code, the differences, the last line."""
    printed.readouterr()
    code = SAME["main"]([str(folder / "A"), str(folder / "B")])
    *lines, last = printed.readouterr().out.splitlines()
    return code, [line.split("\t") for line in lines], last


def write(folder: Path, name: str, *contents: str) -> None:
    """A file in A, and the same file in B."""
    for side, content in zip("AB", contents, strict=False):
        path = folder / side / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.mark.parametrize(
    ("name", "before", "after", "field"),
    [
        ("report.json", '{"a": [{"auc": 0.5}]}', '{"a": [{"auc": 0.6}]}', "a.0.auc"),
        ("report.json", '{"n": 1}', '{"n": 1.0}', "n"),
        ("report.json", '{"n": 1}', "{}", "n"),
        ("report.json", '{"n": null}', "{}", "n"),
        ("report.json", '{"seconds": 1}', "{}", "seconds"),  # the field itself is gone
        ("deep/rounds.jsonl", '{"r": 0}\n{"r": 1}', '{"r": 0}\n{"r": 2}', "1.r"),
        ("config.yaml", "a:\n  b: [1, 2]", "a:\n  b: [1, 3]", "a.b.1"),
        ("scores.csv", "image,x\n3,0.1\n", "image,x\n3,0.2\n", "0.x"),
        ("settings.json", '{"a": 1} # x', '{"a": 1} # y', "0"),
        ("page.html", "<p>one</p>", "<p>two</p>", "0"),
        ("figure.png", "one", "two", ""),
    ],
)
def test_same__names_file_and_field(
    name: str, before: str, after: str, field: str, tmp_path: Path, capsys: Printed
) -> None:
    write(tmp_path, name, before, after)
    code, lines, _ = compared(tmp_path, capsys)
    assert code == 1 and [line[:2] for line in lines][:1] == [[name, field]]
    write(tmp_path, name, before, before)
    assert compared(tmp_path, capsys)[:2] == (0, [])


def test_same__leaves_out_and_counts_what_differs_between_runs(
    tmp_path: Path, capsys: Printed
) -> None:
    about = '{{"timing": {{"x": {0}}}, "m": [{{"seconds": {0}, "loss": NaN}}], "in": "{1}/x"}}'
    table = "metric,value\nauc,0.5\nscoring_seconds,{}\n"
    page = "<dl><dt>n</dt><dd>2</dd></dl>\n<dl><dt>a</dt><dd>{0}</dd><dt>total_s</dt></dl>{1}"
    a, b = tmp_path / "A", tmp_path / "B"
    write(tmp_path, "report.json", about.format(1, a), about.format(2, b))
    write(tmp_path, "table.csv", table.format(1), table.format(2))
    write(tmp_path, "page.html", page.format(1, "(commit 0a)"), page.format(2, "(commit 1b)"))
    write(tmp_path, "seconds.yaml", "a: 1", "a: 2")
    code, lines, last = compared(tmp_path, capsys)
    assert (code, lines, last.split()[:3:2], last.split()[-1]) == (0, [], ["0", "4"], "4"), last
    write(tmp_path, "page.html", page.format(1, ""), page.replace("<dd>2", "<dd>3").format(1, ""))
    assert compared(tmp_path, capsys)[0] == 1


@pytest.mark.parametrize(("pixels", "code"), [(b"one", 0), (b"two", 1)])
def test_same__figures_but_for_the_digest_of_their_report(
    pixels: bytes, code: int, tmp_path: Path, capsys: Printed
) -> None:
    for side, digest, drawn in (("A", b"0", b"one"), ("B", b"1", pixels)):
        (tmp_path / side).mkdir()
        figure = b"PNGtEXtReport\0" + digest * 64 + 4 * digest + drawn
        (tmp_path / side / "roc.png").write_bytes(figure)
        text = f'<img src="data:image/png;base64,{b64encode(figure).decode()}">'
        (tmp_path / side / "page.html").write_text(text)
    found, lines, _ = compared(tmp_path, capsys)
    assert (found, [line[0] for line in lines]) == (code, ["page.html", "roc.png"] * code)


def test_same__arrays_to_the_bit(tmp_path: Path, capsys: Printed) -> None:
    near = np.nextafter(np.float32(1), np.float32(2))
    for side, value, dtype in (("A", 1, "<f4"), ("B", near, "<f4"), ("B", 1, "<f8")):
        (tmp_path / side).mkdir(exist_ok=True)
        arrays: Any = {"same": np.zeros(2), "w": np.full((2, 3), value, dtype)}
        save_file(arrays, tmp_path / side / "m.safetensors")
        np.savez(tmp_path / side / "m.npz", **arrays)
        if side == "B":
            code, lines, _ = compared(tmp_path, capsys)
            assert code == 1
            assert [line[:2] for line in lines] == [["m.npz", "w"], ["m.safetensors", "w"]]


def test_same__files_of_one_side(tmp_path: Path, capsys: Printed) -> None:
    write(tmp_path, "x/a.txt", "same", "same")
    write(tmp_path, "y/b.txt", "alone")
    code, lines, _ = compared(tmp_path, capsys)
    assert code == 1 and lines == [["y/b.txt", "", "['alone']", f"'{SAME['ABSENT']}'"]]
    with pytest.raises(SystemExit, match="2"):
        SAME["main"]([str(tmp_path / "A"), str(tmp_path / "none")])
