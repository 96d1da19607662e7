"""The report as one HTML file that opens offline: no scripts, no links out, pictures inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fedmia.records.rows import Report
from fedmia.report import report_tables as tables
from fedmia.report.figures.attacks import MOST
from fedmia.report.figures.canvas import COLUMN, DPI
from fedmia.report.judgement import is_alarming
from fedmia.report.selection import has_many_clients, unit_of
from fedmia.report.tables import flat, head_title
from fedmia.report.words import beside, sets
from fedmia.report.words.attacks import legend, not_run_by_reason
from fedmia.report.words.card import model_card
from fedmia.report.words.meaning import TITLES
from fedmia.report.words.numbers import TOGETHER

CAPTIONS: Mapping[str, str] = {
    "attacks": "AUC of each attack with its 95 % interval alone (thick) and that "
    f"{TOGETHER.format('attacks')} (thin). "
    "Its controls stand below it in grey.",
    "roc": "ROC curve of each attack on log axes: the left end shows the members that it finds at "
    "few false positives.",
    "clients": "AUC of each client's members against non-members of the same class mix, or against "
    "non-members that the client owns. Grey: the null, non-members that pose as its members.",
    "clients-distribution": "Histogram of the AUC over clients. Grey: the null, as many draws of "
    "non-members that pose as the clients' members, where nothing can leak.",
    "rounds": "AUC of each attack by round with 95 % bands, and utility and loss of the same "
    "rounds.",
    "layers": "AUC of the attack on each layer of the encoder, by round, with 95 % bands.",
    "sweep": "AUC of each attack with its 95 % interval, at each value of the sweep.",
    "features": "The three features that the combined attack uses, two at a time, of members and "
    f"non-members; at most {MOST:,} images of each are drawn.",
    "holdings": "Number of images of each class that each client holds.",
    "cohorts": "AUC of the members of clients by the last round in which they trained. Grey: the "
    "null, non-members that pose as these members.",
}
# Of the figures ACT, ACT-losses and ACT-thresholds of an active attack.
OF_SUBJECTS = (
    "AUC of each subject's images against those of the non-member subjects. Grey: the null, one "
    "non-member subject at a time against the others."
)
CAPTIONS_OF_ACT: Mapping[str, str] = {
    "": "Loss of the scored images on the aggregated model, in the federation with {} and in the "
    "same federation without.",
    "-losses": "Loss of the scored images before the first crafted update and right after the "
    "local {}.",
    "-thresholds": "Accuracy by threshold. Marked: the threshold chosen on the known images, and "
    "the best one on the scored images.",
}


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
    }
    return environment


def picture(caption: str, png: bytes) -> tuple[str, str]:
    """A figure as the templates show it: caption, and the bytes in base 64."""
    return caption, base64.b64encode(png).decode("ascii")


def is_wide(data: str) -> bool:
    """Whether a PNG in base 64 is wider than a column; its header has the width in pixels."""
    return int.from_bytes(base64.b64decode(data[:32])[16:20], "big") > COLUMN * DPI


def page(report: Report, figures: Mapping[str, bytes]) -> str:
    """The whole HTML document.

    Args:
        report: what `fedmia.report.build.build_report` returned.
        figures: name -> PNG bytes.

    Returns:
        The HTML text.
    """
    acts = [n.removesuffix("-thresholds") for n in figures if n.endswith("-thresholds")]
    captions = dict(CAPTIONS)
    if unit_of(report) == "subject":
        captions["clients"] = OF_SUBJECTS
    for act in acts:
        captions |= {f"{act}{end}": text.format(act) for end, text in CAPTIONS_OF_ACT.items()}
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
            acts=acts,
            alarming=is_alarming(report),
            beside=beside,
            sets=sets,
            legend=legend(report, whole=True),
            said=beside.sentences(report),
            card=model_card(report).split("\n\n"),
            not_run=not_run_by_reason(report),
            pictures={
                name: picture(captions.get(name, name), png) for name, png in figures.items()
            },
            others=[name for name in figures if name not in captions],
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


def anchor(title: str) -> str:
    """The id of a section: its title in small letters, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def contents(page: str) -> Markup:
    """A list of links to the sections of a page."""
    sections = re.findall(r'<section id="([^"]*)">\s*<h2>(.*?)</h2>', str(page))
    items = [f'<li><a href="#{escape(name)}">{title}</a></li>' for name, title in sections]
    return Markup(f'<nav aria-label="Contents"><ul>{"".join(items)}</ul></nav>')
