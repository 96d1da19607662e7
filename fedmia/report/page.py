"""The report as one HTML file that opens offline: no scripts, no links out, pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from fedmia.report.format import (
    by_reason,
    clients_sentence,
    named_sentence,
    per_client_sentence,
    utility_sentence,
)
from fedmia.report.tables import (
    attacks_table,
    clients_table,
    controls_table,
    definitions,
    paired_table,
    rounds_table,
    sweep_table,
    utility_table,
)

Row = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f23; --dim: #5c6470; --page: #fff; --card: #f5f6f8;
  --line: #d9dde3; --leaks: #b3261e; --fine: #1b6e3c; --warn: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --dim: #a3abb6; --page: #16181c;
  --card: #21242a; --line: #3a3f48; --leaks: #ff8a80; --fine: #7ddc9f; --warn: #ffcc66; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--page); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.15rem; color: var(--dim); font-weight: 600; margin: 0 0 .75rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .5rem; }
.verdict { border-left: .4rem solid var(--warn); background: var(--card); padding: 1rem 1.25rem;
  font-size: 1.2rem; border-radius: .25rem; margin: 0; }
.verdict.leaks { border-color: var(--leaks); }
.verdict.not-established { border-color: var(--fine); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 600; white-space: normal; } td.text { white-space: normal; }
td:first-child:has(small) { min-width: 13rem; }
td small, .dim { color: var(--dim); } tr.leaks td:first-child, tr.leaks .auc { font-weight: 700; }
figure { margin: 1rem 0; } figcaption { color: var(--dim); font-size: .9rem; margin-top: .35rem; }
img { max-width: 100%; height: auto; background: #fff; padding: .5rem; border-radius: .25rem;
  border: 1px solid var(--line); }
details { margin: .75rem 0; } summary { cursor: pointer; }
dl { display: grid; grid-template-columns: fit-content(22rem) 1fr; gap: .15rem 1.25rem;
  font-size: .9rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
@media print { img { border: 0; } body { max-width: none; } }
"""

CAPTIONS: Mapping[str, str] = {
    "attacks": "AUC of each attack with its 95 % interval (thick) and the simultaneous one (thin), "
    "its controls beneath it in grey.",
    "roc": "True positives against false positives, both on log axes: what an attacker who must "
    "not be wrong can still tell.",
    "clients": "AUC of each client's members against non-members of the same class mix. Grey: what "
    "non-members score when they pose as its members.",
    "rounds": "Leakage by round with 95 % bands, and utility and loss of the same rounds.",
    "layers": "Leakage of each layer of the encoder by round.",
    "sweep": "AUC of each attack with its 95 % interval, at each value of the sweep.",
    "features": "The three features that the combined attack separates.",
    "ascent": "Loss of the images under test on the aggregated model, with ascent and without.",
    "ascent-losses": "Loss before the first crafted update and right after the local ascent.",
    "ascent-thresholds": "Accuracy by threshold, with the threshold that known images chose and "
    "the best one in hindsight.",
    "holdings": "Images of each class that each client holds.",
}


def page(report: Row, figures: Mapping[str, bytes]) -> str:
    """The whole HTML document.

    Args:
        report: what `build_report` returned; every string in it is escaped.
        figures: name -> PNG, as `draw_all` returns them; a figure without a caption shows its name.
    """
    parts = [
        f"<h1>Membership leakage of {escape(report['subject'])}</h1>",
        f'<p class="verdict {escape(report["verdict_code"])}">{escape(report["verdict"])}</p>',
        _attacks(report, figures),
        _sweep(report, figures),
        _section("Utility, beside privacy", _say(utility_sentence(report)) + utility_table(report)),
        _section(
            "Clients",
            _say(clients_sentence(report))
            + _say(named_sentence(report))
            + _say(per_client_sentence(report))
            + clients_table(report)
            + _pictures(figures, "clients", "holdings"),
        ),
        _section("Rounds", _pictures(figures, "rounds", "layers") + rounds_table(report)),
        _section(
            "Under ascent", _pictures(figures, "ascent", "ascent-losses", "ascent-thresholds")
        ),
        _section("Other figures", _pictures(figures, *(n for n in figures if n not in CAPTIONS))),
        _section("Not run", _not_run(report)),
        _section("Notes", _list(report["notes"])),
        _about(report),
    ]
    body = "\n".join(p for p in parts if p)
    title = escape(f"Membership leakage of {report['subject']}: {report['verdict_code']}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _attacks(report: Row, figures: Mapping[str, bytes]) -> str:
    if not report["attacks"]:
        return _section("Attacks", _say("No attack was run."))
    family = report["family"]
    said = (
        f"Simultaneous intervals hold together at {family['level']:.0%} for all "
        f"{family['intervals']} intervals that the verdict and the controls rest on "
        f"({family['method']}). Accuracy, precision and recall are those at a threshold chosen on "
        "the attacker's known images, as if members and non-members were equally many."
    )
    return _section(
        "Attacks",
        attacks_table(report)
        + f'<p class="dim">{escape(said)}</p>'
        + _pictures(figures, "attacks", "roc", "features")
        + paired_table(report)
        + controls_table(report),
    )


def _sweep(report: Row, figures: Mapping[str, bytes]) -> str:
    if not report.get("sweep"):
        return ""
    said = (
        "All values score the same images. The simultaneous intervals here hold together for the "
        "rows of this table; no verdict rests on them."
    )
    return _section(
        "Sweep",
        _pictures(figures, "sweep") + sweep_table(report) + f'<p class="dim">{escape(said)}</p>',
    )


def _not_run(report: Row) -> str:
    held = by_reason(report)
    return definitions(held) if held else ""


def _about(report: Row) -> str:
    held = (
        ("Split", report["split"]),
        ("Configuration", report["config"]),
        ("Versions", report["versions"]),
        ("Hardware", report["hardware"]),
        ("Timing, seconds", report["timing"]),
    )
    parts = [
        f"<details{' open' if title == 'Split' else ''}><summary>{title}</summary>"
        f"{definitions(values)}</details>"
        for title, values in held
        if values
    ]
    return _section("The run", "".join(parts))


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def _say(sentence: str | None) -> str:
    return f"<p>{escape(sentence)}</p>" if sentence else ""


def _list(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _pictures(figures: Mapping[str, bytes], *names: str) -> str:
    found = []
    for name in names:
        if name in figures:
            data = base64.b64encode(figures[name]).decode("ascii")
            caption = escape(CAPTIONS.get(name, name))
            found.append(
                f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
    return "\n".join(found)
