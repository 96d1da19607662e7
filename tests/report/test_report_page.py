"""The HTML page and the terminal: complete, escaped, self-contained, 80 columns."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

from fedmia.records import Evaluation, Pair
from fedmia.records.note import Note
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.page import page
from tests.pages.reading import ROOT
from tests.report.conftest import TECHNICAL, Page, alone, scored, terminal
from tests.snapshots import Snapshot

TEMPLATES = ROOT / "fedmia" / "report" / "templates"


def test_everything__in_terminal_and_page(whole: Report, snapshot: Snapshot) -> None:
    lines = terminal(whole)
    assert all(len(line) <= 80 for line in lines)
    snapshot("\n".join(lines))
    document = Page(page(whole, {"attacks": b"picture", "sweep": b"other"}))
    assert TECHNICAL.findall(document.text(opened=True)) == []
    snapshot(document.text())


def test_templates__explanations_are_folded_on_every_page() -> None:
    folded = r"\{% call explain\(.*?\{% endcall %\}|<details.*?</details>"
    for file in sorted(TEMPLATES.glob("*.j2")):
        text = re.sub(folded, "", file.read_text(), flags=re.DOTALL)
        assert not TECHNICAL.findall(re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", text)), file.name


def test_page__self_contained_and_its_figures_where_they_belong(report: Report) -> None:
    text = page(report, {"attacks": b"picture", "layers": b"other"})
    document = Page(text)
    assert document.loads == [
        "data:image/png;base64," + base64.b64encode(b).decode() for b in (b"picture", b"other")
    ]
    assert not document.tags & {"script", "link", "iframe"}
    assert not any(word in text for word in ("http", "@import", "url("))
    order = ('class="verdict', 'class="boxes"', "<nav", "<figure", "<table")
    places = [text.index(t) for t in order]
    assert places == sorted(places)
    links = text.partition("<nav")[2].partition("</nav>")[0].split('href="#')[1:]
    assert links and all(f'<section id="{name.partition(chr(34))[0]}">' in text for name in links)
    assert '<tr class="leaks"><td>combined' in text and "<tr><td>internal" in text
    style = text.partition("</style>")[0]
    assert "nowrap" not in style.partition("@media (min-width: 72rem)")[0]
    assert "details::details-content" in style.partition("@media print")[2]  # folds are printed


def test_page__is_printed_whole_and_says_on_each_page_of_what_it_is(report: Report) -> None:
    """What is folded is open on paper; a long name of a setting moves no value below it; what a
    version or a name says cannot end the style sheet."""
    report = replace(report, versions={"fedmia": '1"}</style><b>', "commit": "abc"}, subject="é; x")
    text = page(report, {})
    style, _, body = text.partition("</style>")
    printed = style.partition("@media print")[2]
    (opened,) = re.findall(r"details::details-content \{([^}]*)\}", printed)
    assert "content-visibility: visible" in opened and "display: block" in opened
    assert "dt, dd { display: inline; }" in printed and "float" not in printed
    assert 'content: "Membership leakage of é; x: leaks; fedmia 1/styleb (commit abc)"' in style
    assert "nav, .screen { display: none; }" in printed and body.count('class="screen') == 1
    assert (
        body.count('class="print') == 1 and "@media screen { .print { display: none; } }" in style
    )
    first = body.partition("<nav")[0]
    assert (
        "Not tested: other attacks than these" in first
        and f"{report.attacks[0].n_members} training images" in first
    )


def test_page__escapes_everything(run: Evaluation) -> None:
    evil = "<script>alert('x')</script>&"
    attack = replace(run.attacks[0], name=evil, paper=evil, access=evil)
    poisoned = alone(
        run, attack, pairs=[Pair(attack, replace(attack, name=evil), evil)],
        notes=[Note("plugin", {"text": evil})],
        config={evil: evil, "nested": {evil: [evil]}}, versions={evil: evil},
        hardware={evil: evil}, split={evil: 1},
    )  # fmt: skip
    text = page(build_report(poisoned), {evil: b"x"})
    assert "<script" not in text and "alert(&#39;x&#39;)" in text and Page(text).tags


def test_empty__run_is_its_verdict_and_what_it_means(run: Evaluation) -> None:
    nothing = {"pixels": None, "curves": None, "clients": [], "rounds": [], "utility": {}}
    report = build_report(alone(run, **nothing))
    assert ">None<" not in page(report, {}) and "No attack was run." in page(report, {})
    lines = terminal(report)
    assert "verdict" in lines[0] and lines[3].startswith("What this means: ")


def test_render__fits_80_columns_without_cutting_or_markup(run: Evaluation) -> None:
    long = "[bold]encodermi-threshold-variant-by-batch[/bold]"
    attacks = [*run.attacks, scored(long, 0.7, 112, 500, 3, under_attack=True)]
    lines = terminal(build_report(replace(run, attacks=attacks)))
    assert all(len(line) <= 80 and "…" not in line for line in lines)
    assert any(line.startswith("[bold]") for line in lines)
    assert not any("(round)" in line for line in lines)  # of models of no run
    assert "Defended, client 0, 1: dpsgd" in "\n".join(lines)
