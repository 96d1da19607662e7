"""`--help`, `--list` and `--version` of the audit, written from its options."""

from __future__ import annotations

import shutil
import textwrap

from fedmia.auditing.flags import SWITCHES
from fedmia.runtime.environment import version
from fedmia.settings import help as catalogue
from fedmia.settings.audit import Audit
from fedmia.settings.option import option_fields

USAGE = (
    "usage: python -m fedmia.audit --encoder ENCODER --members DATASET --nonmembers DATASET "
    "[--FLAG VALUE ..]"
)
INTRO = (
    "Every membership attack that can run, on an encoder that you bring: a fedmia run (its own "
    "images unless others are given), an exported program, or a model by name."
)
OUTRO = (
    "Options of an attack: --attack.NAME.OPTION VALUE (--list shows them). Of a data source: "
    "--members.OPTION, --nonmembers.OPTION, --shadow-data.OPTION. Of the shadows' training: "
    "--shadow.knowledge data,architecture, --shadow.epochs 200, --shadow.model, --shadow.ssl, "
    "--shadow.online true. Of the attacker's views: --augment.crop_min 0.2 and so on. --config "
    "OUT/config.yaml repeats an audit; the same --out goes on with one that was cut short."
)


def page(name: str) -> str:
    """The text of `--help`, `--list` or `--version`."""
    if name == "list":
        return catalogue.list_page("attack")
    if name == "version":
        return f"fedmia {version('fedmia') or '(not installed)'}"
    width = min(100, shutil.get_terminal_size((80, 24)).columns)
    lines = [*textwrap.wrap(USAGE, width), "", *textwrap.wrap(INTRO, width), "", "Options"]
    for one, kind in option_fields(Audit):
        lines += catalogue.option_row(one.name, one, kind, width)
    lines += catalogue.row("--out FOLDER", "folder of the results", width)
    lines += catalogue.row("--config FILE", "YAML file of an audit", width)
    for flag, text in SWITCHES.items():
        lines += catalogue.row(f"--{flag}", text, width)
    return "\n".join([*lines, "", *textwrap.wrap(OUTRO, width)])
