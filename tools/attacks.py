"""Writes the table of docs/attacks.md: `--list attack`, with the queries that each attack makes.

python tools/attacks.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fedmia.attacks.ascent_climb import STEPS
from fedmia.attacks.base import ActiveAttack
from fedmia.attacks.stacking import Stacking
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.testing import material

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attacks.md"
HEAD = "| Attack | What it looks at | Access | Vantage | Queries an image | Published |"


def queries(name: str) -> str:
    """Images embedded to score one, counted on a small encoder; `a model` where several are read.

    Trained briefly: what an attack asks does not depend on that.
    """
    cls = registry.load("attack", name)
    if issubclass(cls, Stacking):
        return "twice those of its attacks"
    brief = {k: 5 for k in ("steps", "epochs") if isinstance(getattr(cls, k, 0), int)}
    brief = {k: v for k, v in brief.items() if getattr(cls, k, 0) > v}
    if name in ("ascent-climb", "ascent-static"):
        brief["batch"] = 1  # a batch that is not full is filled with images that are not scored
    if name == "ascent-climb":
        brief["steps"] = STEPS  # the most that it may choose
    attack = registry.build("attack", name, brief)
    images, more_images = material.textures(5), material.textures(14, seed=2)
    view: Any = material.least_view(attack, material.small_moco(), images, held=more_images)
    attack.fit(view, material.some_known(attack.least_known), rng(0))
    counted = []
    for some in (images[:2], images):
        before = view.queries
        attack.score(view, some)
        counted.append(view.queries - before)
    each, remainder = divmod(counted[1] - counted[0], len(images) - 2)
    updates = sum(map(len, getattr(view, "updates", {}).values()))
    received = len(getattr(view, "received", {}))
    if isinstance(attack, ActiveAttack):  # two rounds: three models received, one or both sent
        received = 5 if attack.reads_uploads() else 4
        if attack.round_size is not None:  # one round: before it, the upload, after it
            received = 3
    models = {"client": received, "server": updates}.get(attack.needs.vantage, 1)
    # Keys of held images are asked of each model once a call, however many images are scored.
    banks = models if getattr(attack, "negatives", "") == "held" else 0
    assert not remainder and counted[1] - len(images) * each == len(more_images) * banks, name
    assert each % models == 0, name
    of = {"client": " a model", "server": " an update"}.get(attack.needs.vantage, "")
    return f"{each // models}{of}"


def row(name: str, count: str) -> str:
    """One line of the table."""
    cls = registry.load("attack", name)
    marks = " *" * cls.uses_shadows + " **m**" * cls.main
    needs, about = cls.needs, registry.summary(cls).replace("|", "\\|")
    return (
        f"| `{name}`{marks} | {about} | {needs.access} | {needs.vantage} | {count} | "
        f"{registry.paper(cls)} |"
    )


def write_table(page: str, rows: list[str]) -> str:
    """The page with these rows in its table."""
    table = "\n".join([HEAD, "|---" * 6 + "|", *rows, ""])
    return re.sub(re.escape(HEAD) + r"\n(?:\|.*\n)*", lambda old: table, page)


if __name__ == "__main__":
    names = sorted(registry.names("attack"), key=lambda n: not registry.load("attack", n).main)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(write_table(page, [row(n, queries(n)) for n in names]), encoding="utf-8")
