"""Every table and figure that the five papers print is an entry, or `left_out` says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.papers.plans import FILES

# What each paper prints, read off its pages one by one; lettered where the text names the panels.
# Words that stand alone are results without a number: a place or a reason must have them.
PRINTED = {
    "encodermi": "Table 1, Table 2, Table 3, Table 4, Table 5, Table 6, Table 7, Fig. 1a, Fig. 1b, "
    "Fig. 2, Fig. 3, Fig. 4, Fig. 5a, Fig. 5b, Differential privacy, Adversarial learning",
    "federated": "Table 1, Table 2, Table 3, Table 4, Fig. 1, Fig. 2, Fig. 3, Fig. 4, Fig. 5, "
    "Fig. 6, Fig. 7, Fig. 8, Fig. 9, Fig. 10, Fig. 11, Fig. 12, Fig. 13",
    "lpla": "Table 1, Table 2, Table 3, Table 4, Table 5, Fig. 1, Fig. 2, Fig. 3, Fig. 4, Fig. 5, "
    "Fig. 6, Fig. 7, Fig. 8, Fig. 9, in parentheses, Differential privacy",
    "partcrop": "Table 1, Table 2, Table 3, Table 4, Table 5, Table 6, Table 7, Table 8, Table 9, "
    "Table 10, Table 11, Table 12, Table 13, Fig. 1, Fig. 2, Fig. 3, Fig. 4, Fig. 5, Fig. 6, "
    "Fig. 7, Fig. 8, Fig. 9, Fig. 10, Fig. 11, Fig. 12, App. D, HAM10000, MS COCO, Runtime",
    "logistic": "Table 1, Fig. 1, Fig. 2, bottom, CIFAR-10, CIFAR-100, STL-10",
}  # fmt: skip
COUNTS = {  # tables, figures
    "encodermi": (7, 5), "federated": (4, 13), "lpla": (5, 9), "partcrop": (13, 12),
    "logistic": (1, 2),
}  # fmt: skip
ROMAN = {"I": "1", "II": "2", "III": "3", "IV": "4"}  # tables of the federated paper


def labels(text: str) -> set[str]:
    """The tables and figures that a place names: `Figs. 7, 8 and 9`, `Figs. 1 to 4`, `Fig. 5a`."""
    named: set[str] = set()
    for kind, part in re.findall(
        r"(Table|Fig)s?\.? ((?:(?:\d+[ab]?|[IV]+)\b(?:, | and | to )?)+)", text
    ):
        words = re.findall(r"\d+[ab]?|[IV]+", part)
        ends = [ROMAN.get(word, word) for word in words]
        if " to " in part:
            ends = [str(n) for n in range(int(ends[0]), int(ends[1]) + 1)]
        named |= {f"{kind}{'.' * (kind == 'Fig')} {end}" for end in ends}
    return named


def covers(named: set[str], printed: str) -> bool:
    """Whether one of the labels is this one, or the figure of which it is a panel."""
    return bool(named & {printed, printed.rstrip("ab")})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Table IV, Figs. 8 and 9", {"Table 4", "Fig. 8", "Fig. 9"}),
        ("Figs. 7, 8 and 9", {"Fig. 7", "Fig. 8", "Fig. 9"}),
        ("Figs. 1 to 4", {"Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4"}),
        ("Tables 1 and 7", {"Table 1", "Table 7"}),
        ("Figs. 5a and 5b", {"Fig. 5a", "Fig. 5b"}),
        ("Fig. 2, bottom row", {"Fig. 2"}),
        ("Fig. 1, CIFAR-10", {"Fig. 1"}),
    ],
)
def test_labels__of_places(text: str, named: set[str]) -> None:
    assert labels(text) == named
    assert covers({"Fig. 5"}, "Fig. 5a") and not covers({"Fig. 1a"}, "Fig. 1b")


@pytest.mark.parametrize("paper", PRINTED)
def test_every_table_and_figure__is_an_entry_or_left_out(paper: str) -> None:
    printed = PRINTED[paper].split(", ")
    numbered = [one for one in printed if labels(one)]
    for kind, count in zip(("Table", "Fig"), COUNTS[paper], strict=True):
        assert len({re.sub("[ab]$", "", one) for one in numbered if one.startswith(kind)}) == count
    file = FILES[paper]
    texts = [*(entry["place"] for entry in file["entries"].values()), *file["left_out"]]
    named = set().union(*map(labels, texts))
    assert not [one for one in numbered if not covers(named, one)]
    assert not [one for one in named if not any(covers({one}, other) for other in numbered)]
    assert not [one for one in printed if not labels(one) and one not in " ".join(texts)]


SECTIONS = ("What the paper claims", "What we did otherwise", "What holds",
            "Its tables, ours beside theirs", "What it hangs on")  # fmt: skip


@pytest.mark.parametrize("paper", PRINTED)
def test_page__says_what_is_claimed_done_held_and_why(paper: str) -> None:
    pages = Path(__file__).resolve().parents[2] / "docs" / "papers"
    page = (pages / f"{paper}.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", page, re.M)
    assert tuple(head for head in heads if head in SECTIONS) == SECTIONS
    words = [line for line in page.splitlines() if line and not line.startswith(("|", "<!--"))]
    assert len(words) <= 70 and f"python -m research.papers {paper} --scale small" in page
    assert f"`research/papers/tables/{paper}.yaml`" in page
    assert f"]({paper}.md)" in (pages / "index.md").read_text(encoding="utf-8")
