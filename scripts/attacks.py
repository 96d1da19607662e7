"""Writes docs/attacks.md: `--list attack` as a table, with the queries that each attack makes.

python scripts/attacks.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmia.attacks.base import ActiveAttack
from fedmia.options import registry
from fedmia.options.seeding import rng
from fedmia.testing import material

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attacks.md"
HEAD = "| Attack | Access | Vantage | Queries an image | What it looks at | Published |"
TEXT = """# The attacks, and what each needs

Made by `python scripts/attacks.py` from what `--list attack` shows, which also has every option.

Access: `black_box` embeds images, `white_box` reads the weights. Vantage: an `outsider` has the
released model, a `client` takes part in the training and sees every round's model, the `server`
also sees every client's update. Queries are images embedded by the default settings to score one
image, whatever other attacks have embedded already; attacks on the contrastive loss also embed the
images that the attacker itself holds, once for each model that they read, as negatives. Attacks
marked with a star train shadow encoders: the attacker's own, on images whose membership it knows.

{table}

Those marked with **m** are what a simulation runs (`--attacks main`); `--attacks all` adds the
others that its role permits. `--attacker none` leaves the outsider's attacks; with `passive` a
client also keeps what it receives; with `active` it also sends crafted updates; with `server` the
honest-but-curious server reads each client's update. An active attack comes with a paired control
that does everything but its active step, and the report says whether that step adds anything. The
attacker also knows the membership of some images, on which classifiers and thresholds are fitted;
those are never scored. `all-for-one` names the client that trained on an image, beside how often it
names that client for non-members of the same class (of that client's own, where images belong to
clients): what it names right beyond this null (`named_clients[].null`) the image itself told. It is
also judged as asked about one client. An untrained encoder is no control of attacks that read
updates or what changed between rounds (`lira-rounds`, `rmia-rounds`, `loss-slope`): theirs is the
placebo, which `--federation.placebo auto` runs for them. `baseline-b` needs all images' true
classes.

What an audit asks of its attacker, a run may ask too; all three are off unless given.
`--query-budget N` is the most images that one attack may embed: a passive attack knows fewer
images to keep it, and what needs more does not run, with the reason. An active attack has spent
its queries in the rounds; over the budget it is not scored. `--sweep known=25,50` or `--sweep
query_budget=1000,2000` scores every passive attack at each value (`sweep` in report.json,
sweep.csv). `--posers true` is one more control: half of the scored non-members pose as members,
and an attack that tells them apart reads something else than membership. On [private
images](deployment.md) there are posers, but neither budgets nor sweeps.

## What the paper says of ascent, and whether a run bears it out

`python -m fedmia.paper RUN` opens a finished run again, makes the federated paper's Tables II to IV
and Figs. 5 to 13 of it, and sets its sentences about ascent beside the run's numbers: *held*, *not
held* or *undecided* (`claims` in `tables.json`; also in `tables.md`, on the page, in the terminal).

- **Fig. 10**: the loss of non-members "significantly surpasses" that of members. The rise decides,
  in the steps that the static climb chose; the loss before the climb stands beside it.
- **Fig. 12**: "the success rate of the active method can exceed 80%". The balanced accuracy of that
  rise decides, at the threshold of known images; beside it that at the best threshold in hindsight,
  with the climb and without.
- **Fig. 13**: after the aggregation the loss of members falls "notably", that of others slower. It
  is read twice: from the first upload, right after its climb, to the aggregate; and from before the
  attack to the aggregates of all attacked rounds. Beside both: the same without ascent.
- **Line 25** of Algorithm 1: a small difference to the aggregate says member.

All but Fig. 12 say that non-members surpass members. That is held where two intervals of 95 % lie
over: that of the difference of the means over 0 (Welch), and that of the AUC over 0.5. Losses after
a climb have heavy tails, and a few images can carry a mean: hence both, and the medians. It is not
held where one of the two lies under, or the AUC under 0.55; for Fig. 13 also where the loss of
members rises, and it is held only where that falls. Fig. 12 is held where the interval of the
accuracy lies over 0.80, and not held where it lies under and hindsight, which is optimistic, does
not reach 0.80 either. All else is undecided. Intervals are over the images of one run.

Line 25 contradicts Sec. V-B4. It takes a *small* difference to the aggregate for a member, where
the section has the loss of members "notably" reduced by the aggregation, which makes the difference
large. Both can be true only where the loss of non-members rises by more than that of members falls.
`ascent-algorithm1` follows line 25; the command says which of the two a run supports.
"""


def queries(name: str) -> str:
    """Images embedded to score one, counted on a small encoder; `a model` where several are read.

    Trained briefly: what an attack asks does not depend on that.
    """
    cls = registry.load("attack", name)
    brief = {k: 5 for k in ("steps", "epochs") if isinstance(getattr(cls, k, 0), int)}
    brief = {k: v for k, v in brief.items() if getattr(cls, k, 0) > v}
    if name == "ascent-static":
        brief["batch"] = 1  # a batch that is not full is filled with images that are not scored
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
        f"| `{name}`{marks} | {needs.access} | {needs.vantage} | {count} | {about} | "
        f"{registry.paper(cls)} |"
    )


def page() -> str:
    """The whole text."""
    names = sorted(registry.names("attack"), key=lambda n: not registry.load("attack", n).main)
    rows = [row(name, queries(name)) for name in names]
    return TEXT.format(table="\n".join([HEAD, "|---" * 6 + "|", *rows]))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
