"""Every table and figure that the five papers number is an entry, or `left_out` says why not."""

from __future__ import annotations

import re

import pytest

from papers.listing import read_files

# Tables and figures of each paper; the federated one numbers tables in Roman.
NUMBERED = {
    "federated": (4, 13),
    "encodermi": (7, 5),
    "lpla": (5, 9),
    "partcrop": (13, 12),
    "logistic": (1, 2),
}
ROMAN = ("I", "II", "III", "IV")


def numbers(text: str, kind: str) -> set[int]:
    """The numbers of tables or figures that a place names: `Figs. 7, 8 and 9`, `Figs. 1 to 4`."""
    numbered: set[int] = set()
    for part in re.findall(rf"{kind}s?\.? ((?:[0-9IV]+[ab]?(?:, | and | to )?)+)", text):
        words = re.findall(r"\d+|[IV]+", part)
        ends = [ROMAN.index(word) + 1 if word in ROMAN else int(word) for word in words]
        numbered |= set(range(ends[0], ends[1] + 1)) if " to " in part else set(ends)
    return numbered


@pytest.mark.parametrize(
    ("text", "figures"),
    [("Table IV, Figs. 8 and 9", {8, 9}), ("Figs. 7, 8 and 9", {7, 8, 9}),
     ("Figs. 1 to 4", {1, 2, 3, 4}), ("Figs. 5a and 5b", {5}), ("Fig. 2, bottom row", {2})],
)  # fmt: skip
def test_numbers__of_places(text: str, figures: set[int]) -> None:
    assert numbers(text, "Fig") == figures
    assert numbers(text, "Table") == ({4} if "IV" in text else set())


@pytest.mark.parametrize("kind, at", [("Table", 0), ("Fig", 1)])
@pytest.mark.parametrize("paper", NUMBERED)
def test_every_table_and_figure__is_an_entry_or_left_out(paper: str, kind: str, at: int) -> None:
    file = read_files()[paper]
    places = [entry["place"] for entry in file["entries"].values()]
    covered = set().union(*(numbers(text, kind) for text in [*places, *file["left_out"]]))
    assert covered == set(range(1, NUMBERED[paper][at] + 1))
