"""The report as one HTML file that opens offline: no scripts, no links out, pictures inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report import report_tables as tables
from fedmia.report.figures.canvas import COLUMN, DPI
from fedmia.report.figures.draw import figures
from fedmia.report.judgement import is_alarming
from fedmia.report.selection import has_many_clients, unit_of
from fedmia.report.tables import flat, head_title
from fedmia.report.words import beside, sets
from fedmia.report.words.attacks import attack_terms, legend, not_run_by_reason
from fedmia.report.words.card import model_card, tested_with, untried
from fedmia.report.words.meaning import TITLES
from fedmia.report.words.terms import term_pattern, terms_in

UNLINKED = {"a", "h2", "h3", "summary", "dl"}  # tags whose texts have no links to terms


@cache  # a page takes longer to compile than to fill
def templates(*folders: Path) -> Environment:
    """The templates of all pages, and those in `folders`; they escape what they are given."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("fedmia.report"), FileSystemLoader(folders)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "title_of": head_title,
        "anchor": anchor,
        "code": code,
        "contents": contents,
        "is_wide": is_wide,
        "linked": link_terms,
        "terms": page_terms,
    }
    return environment


def picture(caption: str, png: bytes, alt: str = "") -> tuple[str, str, str]:
    """A figure as the templates show it.

    Args:
        caption: below it.
        png: its bytes.
        alt: for readers who cannot see it; empty: the caption.

    Returns:
        Caption, text for readers who cannot see it, and the bytes in base 64.
    """
    return caption, alt or caption, base64.b64encode(png).decode("ascii")


def is_wide(data: str) -> bool:
    """Whether a PNG in base 64 is wider than a column; its header has the width in pixels."""
    return int.from_bytes(base64.b64decode(data[:32])[16:20], "big") > COLUMN * DPI


def page(report: Report, pngs: Mapping[str, bytes], run: Evaluation | None = None) -> str:
    """The whole HTML document.

    Args:
        report: what `fedmia.report.build.build_report` returned.
        pngs: PNG bytes of its figures, by name.
        run: the scores behind it; None: without the figures that show scores.

    Returns:
        The HTML text.
    """
    drawn = [one for name, one in figures(report, run).items() if name in pngs]
    places: dict[str, list[str]] = {}
    for one in drawn:
        places.setdefault(one.place, []).append(one.name)
    about = {
        "Encoder": tables.encoder(report.encoder) if report.encoder is not None else [],
        "Split": flat(report.split),
        "Configuration": flat(report.config),
        "Versions": flat(report.versions),
        "Hardware": flat(report.hardware),
        "Timing, seconds": flat(report.timing),
    }
    return (
        templates()
        .get_template("page.j2")
        .render(
            report=report,
            titles=TITLES,
            tables=tables,
            about=about,
            places=places,
            alarming=is_alarming(report),
            beside=beside,
            sets=sets,
            legend=legend(report, whole=True),
            attack_terms=attack_terms(report),
            said=beside.sentences(report),
            card=model_card(report).split("\n\n"),
            untried=untried(report),
            footer=footer(report),
            not_run=not_run_by_reason(report),
            pictures={d.name: picture(d.caption(), pngs[d.name], d.alt()) for d in drawn},
            many=has_many_clients(report),
            unit=unit_of(report),
        )
    )


def code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is code; no flag breaks at a hyphen."""

    def unbroken(command: re.Match[str]) -> str:
        whole = (f'<span style="white-space: nowrap">{w}</span>' for w in command[1].split())
        return f"<code>{' '.join(whole)}</code>"

    return Markup(re.sub(r"`([^`]*)`", unbroken, str(escape(text))))


def footer(report: Report) -> Markup:
    """What each printed page says at its foot, of characters that mean nothing in a style sheet."""
    text = f"Membership leakage of {report.subject}: {report.verdict_code}; {tested_with(report)}"
    return Markup(re.sub(r"[^\w .,:;()/-]", "", text))


def anchor(title: str) -> str:
    """The id of a section: its title in small letters, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def contents(page: str) -> Markup:
    """A list of links to the sections of a page."""
    sections = re.findall(r'<section id="([^"]*)">\s*<h2>(.*?)</h2>', str(page))
    items = [f'<li><a href="#{escape(name)}">{title}</a></li>' for name, title in sections]
    return Markup(f'<nav aria-label="Contents"><ul>{"".join(items)}</ul></nav>')


def page_terms(page: str) -> dict[str, str]:
    """The terms in the texts of a page, by the alphabet.

    Args:
        page: HTML.

    Returns:
        Names of each -> its meaning.
    """
    return terms_in([text for within, text in _pieces(page) if "dt" not in within])


def link_terms(page: str, terms: Iterable[str]) -> Markup:
    """A page in which each section links to a term where it first stands in it: in the open and in
    what is folded, in heads of tables and in other texts.

    Args:
        page: HTML.
        terms: names of those in its list.

    Returns:
        The page.
    """
    names = [*terms]
    groups = (f"(?P<t{at}>{term_pattern(name).pattern})" for at, name in enumerate(names))
    either = re.compile("|".join(groups) or "(?!)")
    linked, parts = set[tuple[str, bool, bool]](), list[str]()
    for within, piece in _pieces(page):
        places = "details" in within, "th" in within

        def link(match: re.Match[str], places: tuple[bool, bool] = places) -> str:
            name = names[int((match.lastgroup or "t0")[1:])]
            if (name, *places) in linked:
                return match[0]
            linked.add((name, *places))
            return f'<a class="term" href="#{anchor(f"term {name}")}">{match[0]}</a>'

        if piece.startswith("<section"):
            linked.clear()
        may = not piece.startswith("<") and not UNLINKED & {*within}
        parts.append(either.sub(link, piece) if may else piece)
    return Markup("".join(parts))


def _pieces(page: str) -> Iterator[tuple[list[str], str]]:
    """The tags and the texts of HTML, each with the tags that are open around it."""
    within: list[str] = []
    for piece in re.split(r"(<[^>]*>)", page):
        yield within, piece
        if (tag := re.match(r"<(/?)(\w+)", piece)) and tag[2] != "img":
            within = within[:-1] if tag[1] else [*within, tag[2]]
