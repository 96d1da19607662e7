"""Terms of reports: each is explained on the page that uses it, as in the glossary of the docs."""

from __future__ import annotations

import re

import pytest

from fedmia.records.rows import Report
from fedmia.report.page import anchor, link_terms, page_terms
from tests.report.conftest import Page
from tests.test_architecture import GLOSSARY

ENTRY = re.compile(r"^- ((?:\*\*.*?\*\*(?:, )?)+): (.*?)(?=^- |^\*\*|\Z)", re.M | re.S)


def glossary() -> dict[str, tuple[set[str], str]]:
    """First name of an entry -> all of its names, and its meaning without links."""
    entries = {}
    words = GLOSSARY.partition("**Words of the code**")[0].replace("\\*", "")
    for names, text in ENTRY.findall(words):
        bold = re.findall(r"\*\*(.*?)\*\*", names)
        meaning = " ".join(re.sub(r" See\s+\[[^]]*\]\([^)]*\)\.$", "", text.strip()).split())
        entries |= dict.fromkeys(bold, ({*bold}, meaning))
    return entries


def test_terms__mean_what_the_glossary_says(everything_html: str) -> None:
    entries = glossary()
    terms = page_terms(everything_html)
    for name in entries:
        terms |= page_terms(f"<p>{name}</p>")
    assert len(terms) > 30
    assert {k: ({*k.split(", ")}, text) for k, text in terms.items()} == {
        k: entries[k.partition(", ")[0]] for k in terms
    }


@pytest.mark.parametrize(
    "text, names",
    [
        ("The null, where nothing can leak", ["the null, where nothing can leak"]),
        ("replaced by a null record", []),
        ("TPR at\n1 % FPR", ["TPR, FPR"]),
        ("Posing sets of non-members", ["member, non-member", "poser, posing set"]),
        ("white_box, outsider", ["black box, white box", "outsider, vantage"]),
        (" n ", ["n"]),
        ("have n + 1 exchanges", []),
        ("ascent-zero", []),
        ("remembers, columns", []),
        ("<dt>AUC</dt><dd>ROC</dd>", ["ROC"]),
    ],
)
def test_terms__are_whole_words(text: str, names: list[str]) -> None:
    assert list(page_terms(f"<p>{text}</p>")) == names


def test_page__lists_each_term_that_it_uses_and_links_to_it(
    whole: Report, everything_html: str
) -> None:
    body, _, terms = everything_html.partition('<dl class="terms">')
    ids = re.findall(r'<dt id="([^"]*)">', terms)
    links = re.findall(r'<a class="term" href="#([^"]*)">', body)
    assert len(ids) == len({*ids}) and {*links} <= {*ids} and 'href="#terms-on-this-page"' in body
    content = body[body.index("<section") :].partition('<section id="terms-on-this-page"')[0]
    attacks = [*(row.name for row in whole.attacks), "dataset-inference"]
    expected = {anchor(f"term {name}") for name in (*page_terms(content), *attacks)}
    assert {*ids} == expected and {"term-n", "term-tpr-fpr", "term-combined"} <= expected
    table = body.partition('<section id="attacks"')[2].partition("</table>")[0]
    heads = {"term-auc", "term-untrained", "term-placebo", "term-tpr-fpr", "term-n"}
    assert heads <= {*re.findall(r'href="#([^"]*)"', table)}


def test_links__change_no_text_and_stand_once_in_a_section(everything_html: str) -> None:
    plain = '<section id="a">\n<p>AUC, an AUC</p><img alt="AUC"><details><p>AUC</p></details>'
    plain += "<th>AUC</th>"
    linked = link_terms(f"{plain}</section>", ["AUC"])
    assert linked.count("<a ") == 3 and 'alt="AUC"' in linked
    assert re.sub(r"</?a\b[^>]*>", "", linked) == f"{plain}</section>"
    assert link_terms(plain, []) == plain
    assert Page(everything_html).tags
