"""Every number of a page of results is that of the file that it names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from fedmia.report.figures.draw import fingerprint
from tests.pages.reading import ROOT, script, text_of

FILE = {
    "auc": 0.6849, "epsilon": 3544.8, "share": 0.0526, "none": None,
    "knn": {"mean": 0.84, "ci": [0.81, 0.86], "n": 5},
    "points": [
        {"label": "dpsgd noise=3.0", "attack": "a", "auc": 0.52},
        {"label": "dpsgd noise=3.0", "attack": "b", "auc": 0.55},
    ],
}  # fmt: skip


numbers = script("docs_numbers")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Path of a result file `f.json`, which is not among the committed ones."""
    (tmp_path / "f.json").write_text(json.dumps(FILE))
    return str(tmp_path / "f.json")


@pytest.fixture
def checked(file: str) -> Any:
    """The complaints about a page whose one result file is `f.json`."""
    return lambda page: list(numbers.complaints("page", page.replace("f.json", file)))


@pytest.mark.parametrize("name", ["README.md", *numbers.PAGES])
def test_page__has_the_numbers_and_tables_of_its_files(name: str) -> None:
    page = text_of(name)
    assert numbers.written(page) == page
    assert name == "README.md" or not list(numbers.complaints(name, page))


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/start/first_simulation.md"])
def test_pages__quote_the_verdict_of_the_committed_default_run(name: str) -> None:
    """Their words from "The attack" to the limits of the AUC."""
    page = text_of(name)
    quoted = re.search(r"The attack \w+ separates.*?\]", page, re.DOTALL)
    assert quoted is not None
    words = re.sub(r"[\s>│]+", " ", quoted[0])
    assert numbers.result("default/report.json")["verdict"].startswith(words)


def test_pictures__are_of_the_committed_default_run() -> None:
    """Each PNG of the docs says by its text which report it shows."""
    pictures = sorted((ROOT / "docs" / "images").rglob("*.png"))
    texts = {path.name: Image.open(path).info.get("Report") for path in pictures}
    assert len(texts) == 9 and set(texts.values()) == {fingerprint(numbers.default_report())}
    text = Image.open(ROOT / "docs" / "images" / "forest.png").info["Description"]
    assert text == numbers.short_forest(numbers.default_report()).alt()


def test_tables__all_stand_in_one_page() -> None:
    pages = "".join(map(text_of, ("README.md", *numbers.PAGES)))
    assert len(numbers.PAGES) > 10
    tables = yaml.safe_load(numbers.TABLES.read_text(encoding="utf-8"))
    assert sorted(numbers.TABLE.findall(pages)) == sorted(tables)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("AUC .69 <!-- from f.json: auc -->", ".69 is 0.6849"),
        ("AUC .684 <!-- from f.json: auc -->", ".684 is 0.6849"),
        ("-.68 <!-- from f.json: auc -->", "-.68 is 0.6849"),
        ("epsilon 3.4e3 <!-- from f.json: epsilon -->", "3.4e3 is 3544.8"),
        ("text\n\nAUC .68 alone", "page:3: no result file is named for .68"),
        (".68 <!-- from f.json: auc --> and then .99", "no result file is named for .99"),
        ("| a | .68 |\n|---|---|\n| b | 1,080 |", "for .68, 1,080"),
        (".84 [.81, .86] <!-- from f.json: auc -->", "3 numbers (.84, .81, .86) for 1 values"),
        ("none <!-- from f.json: auc -->", "0 numbers () for 1 values"),
        (".68 <!-- from f.json: nosuch -->", "KeyError('nosuch')"),
        (".68 <!-- from f.json: none -->", "None is no number"),
        (".52 <!-- from f.json: points[label=dpsgd noise=3.0].auc -->", "true of 2 rows"),
        (".52 <!-- from g.json: auc -->", "FileNotFoundError"),
        ("1 and 2 <!-- set 1 -->", "2 numbers (1, 2) for 1 values"),
    ],
)
def test_number__that_does_not_is_told(checked: Any, page: str, said: str) -> None:
    (complaint,) = checked(page)
    assert said in complaint


def test_cell__of_a_path_that_is_missing_is_an_error(file: str) -> None:
    with pytest.raises(LookupError):
        numbers.fill("{nosuch|2}", {}, file)
    with pytest.raises(LookupError, match="true of 2 rows"):
        numbers.fill("{/points[label=dpsgd noise=3.0].auc|2}", {}, file)


def test_condition__of_a_value_with_a_comma(file: str) -> None:
    """And a plain cell may name the key `column` of its row."""
    numbers.result(file)["cells"] = [
        {"column": "A, 3x1", "is": 0.1},
        {"column": "A", "is": 0.2},
    ]
    row = {"column": "A, 3x1"}
    assert numbers.fill("{/cells[column='@column'].is|1}", row, file) == ".1"
    assert numbers.evaluate(numbers.result(file), "cells[column=A].is") == 0.2


PAPERS_TABLES = [
    *("encodermi-table-1", "encodermi-table-2", "federated-table-2", "federated-table-3"),
    *("federated-table-4", "partcrop-table-4", "lpla-table-3", "logistic-table-1"),
]


@pytest.mark.parametrize("name", PAPERS_TABLES)
def test_papers__show_every_cell_that_was_run_beside_the_paper_s(name: str) -> None:
    """Under a line with scale, n and kind of interval; a cell that was not run has no row."""
    content = numbers.result(f"papers-small/{name}.json")
    run = [cell for cell in content["cells"] if cell["state"] == "finished"]
    page = text_of(f"docs/papers/{content['paper']}.md")
    caption, _, after = page.partition(f"<!-- table {name} -->\n")
    lines = after.partition("\n\n")[0].splitlines()[2:]
    assert len(lines) * len({cell["level"] for cell in run}) == len(run)
    text = "\n".join(lines)
    for cell in run:
        assert f"{numbers.short(cell['ours'], 3)} [{numbers.short(cell['low'], 3)}, " in text
        assert any(numbers.short(cell["theirs"], digits) in text for digits in (3, 4))
    said = " ".join(caption.rsplit("\n\n", 2)[-2].split())
    assert all(
        one in said for one in ("`small`", "not at the paper's scale", "95 % intervals over")
    )


def test_headlines__of_every_page_have_a_file_and_their_n() -> None:
    """A number of the table stands in its page, as the table has it."""
    rows = [line.split(" | ") for line in numbers.make_table("headlines").splitlines()[2:]]
    shown: dict[str, list[str]] = {}
    for page, _, value, n, _ in rows:
        assert re.search(r"[1-9]", n), page
        shown.setdefault(page.partition("](")[2].rstrip(")"), []).append(value.lstrip("+"))
    folder = ROOT / "docs" / "findings"
    assert shown.keys() == {"../index.md", *(p.name for p in folder.glob("*.md"))} - {"index.md"}
    for page, values in shown.items():
        text = " ".join((folder / page).read_text(encoding="utf-8").split())
        for value in values:
            assert value.split(" [")[0].replace(" ", "") in text.replace("0.66", ".66"), (
                page,
                value,
            )
