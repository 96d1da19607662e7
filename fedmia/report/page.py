"""The report as one HTML file that opens offline: no scripts, no links out, pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedmia.records.rows import Report
from fedmia.report import tables
from fedmia.report.format import by_reason, sentences
from fedmia.report.selection import FEW

CAPTIONS: Mapping[str, str] = {
    "attacks": "AUC of each attack with its 95 % interval (thick) and the simultaneous one (thin), "
    "its controls beneath it in grey.",
    "roc": "True positives against false positives, both on log axes: what an attacker who must "
    "not be wrong can still tell.",
    "clients": "AUC of each client's members against non-members like them: of the same class "
    "mix, or its own. Grey: what non-members score when they pose as its members.",
    "clients-distribution": "How many clients have which AUC. Grey: as many draws of non-members "
    "who pose as their members, where nothing can leak.",
    "rounds": "Leakage by round with 95 % bands, and utility and loss of the same rounds.",
    "layers": "Leakage of each layer of the encoder by round.",
    "sweep": "AUC of each attack with its 95 % interval, at each value of the sweep.",
    "features": "The three features that the combined attack separates.",
    "holdings": "Images of each class that each client holds.",
}
# Of the figures ACT, ACT-losses and ACT-thresholds of an active attack.
CAPTIONS_OF_ACT: Mapping[str, str] = {
    "": "Loss of the images under test on the aggregated model, with {} and without.",
    "-losses": "Loss before the first crafted update and right after the local {}.",
    "-thresholds": "Accuracy by threshold, with the threshold that known images chose and the best "
    "one in hindsight.",
}


def templates() -> Environment:
    """The templates of all pages; they escape what they are given."""
    return Environment(
        loader=PackageLoader("fedmia.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def picture(caption: str, png: bytes) -> tuple[str, str]:
    """A figure as the templates show it: caption, and the bytes in base 64."""
    return caption, base64.b64encode(png).decode("ascii")


def page(report: Report, figures: Mapping[str, bytes]) -> str:
    """The whole HTML document.

    Args:
        report: what `build_report` returned; every string in it is escaped.
        figures: name -> PNG, as `draw_all` returns them; a figure without a caption shows its name.
    """
    acts = [n.removesuffix("-thresholds") for n in figures if n.endswith("-thresholds")]
    captions = dict(CAPTIONS)
    for act in acts:
        captions |= {f"{act}{end}": text.format(act) for end, text in CAPTIONS_OF_ACT.items()}
    whole = templates().get_template("page.j2")
    return whole.render(
        report=report,
        tables={
            "attacks": tables.attacks(report),
            "paired": tables.paired(report),
            "controls": tables.controls(report),
            "sets": tables.sets(report),
            "datasets": [tables.datasets(row) for row in report["dataset_inference"]],
            "sweep": tables.sweep(report),
            "utility": tables.utility(report),
            "clients": tables.clients(report),
            "defended": tables.defended(report),
            "rounds": tables.rounds(report),
        },
        said=sentences(report),
        pictures={name: picture(captions.get(name, name), png) for name, png in figures.items()},
        acts=acts,
        others=[name for name in figures if name not in captions],
        not_run=by_reason(report),
        few=FEW,
        about={
            **({"Encoder": tables.encoder(report["encoder"])} if "encoder" in report else {}),
            "Split": tables.flat(report["split"]),
            "Configuration": tables.flat(report["config"]),
            "Versions": tables.flat(report["versions"]),
            "Hardware": tables.flat(report["hardware"]),
            "Timing, seconds": tables.flat(report["timing"]),
        },
    )
