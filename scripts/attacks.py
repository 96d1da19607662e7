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
HEAD = "| Attack | What it looks at | Access | Vantage | Queries an image | Published |"
TEXT = """# The attacks, and what each needs

`python scripts/attacks.py` writes this page from `--list attack`, which also shows every option.
Terms are in the [glossary](concepts/glossary.md).

- **Access**: with `black_box` the attacker only embeds images, with `white_box` it reads the
  weights.
- **Vantage** is where the attacker stands. An `outsider` has the released model. A `client` takes
  part in the training and sees the model of every round. The `server` also sees every client's
  update.
- **Queries** are the images that the attack embeds to score one image, with its default settings
  and without help from other attacks. Attacks on the contrastive loss need negatives: they also
  embed the attacker's own images, once for each model that they read.
- **m** marks the attacks that a simulation runs unless it is told otherwise (`--attacks main`).
- **A star** marks attacks that train shadow encoders: encoders of the attacker's own, on images
  whose membership it knows.

{table}

**Which attacks run.** A simulation runs those marked **m**; `--attacks all`
adds the others that its attacker can run. With `--attacker none` these are the attacks of an
outsider. A `passive` client also keeps the models that it receives. An `active` client also sends
crafted updates. With `server` the honest-but-curious server reads each client's update.
`baseline-b` needs the true classes of all images.

**Known images.** The attacker knows the membership of some images. Attacks fit their classifiers
and thresholds on these known images, and the report never scores them.

**Controls.** An active attack has a paired control that does everything except the active step;
the report says whether that step adds anything. The untrained encoder cannot be a control of
attacks that read updates, or changes between rounds (`lira-rounds`, `rmia-rounds`, `loss-slope`).
Their control is the placebo, a second federation that trains on other images;
`--federation.placebo auto` runs it for them. `--posers true` adds a control: half of the scored
non-members are treated as members. An attack that finds these posers reads something other than
membership.

**Naming a client.** `all-for-one` names the client that trained on an image. The report also says
how often it names that client for look-alikes: non-members of the same class (and of the same
client, where images belong to clients). This rate is the null (`named_clients[].null`). Only
correct answers beyond it come from the image itself. The report also scores a second question:
did one given client train on the image?

**Limits on the attacker.** A simulation has the same limits as an audit; all are off by default.
`--query-budget N` is the largest number of images that one attack may embed. To stay within it, a
passive attack uses fewer known images. An attack that still needs more does not run, and the
report gives the reason. An active attack has made its queries during the rounds; if they exceed
the budget, it is not scored. `--sweep known=25,50` or `--sweep query_budget=1000,2000` scores
every passive attack at each value (`sweep` in report.json, sweep.csv). On [private
images](howto/deployment.md) there are posers, but no budgets and no sweeps.

## What the paper says about ascent, and whether a run supports it

`python -m fedmia.paper RUN` reads a finished run again and makes the federated paper's Tables II
to IV and Figs. 5 to 13 from it. It also tests the paper's statements about ascent on the run's
numbers. In an ascent an attacker raises the loss of its target images on purpose. Each statement
is *held*, *not held* or *undecided* (`claims` in `tables.json`; also in `tables.md`, on the page
and in the terminal).

- **Fig. 10**: the loss of non-members "significantly surpasses" that of members. The rise of the
  loss decides, over the steps that the static ascent chose. The loss before the ascent is shown
  beside it.
- **Fig. 12**: "the success rate of the active method can exceed 80%". The balanced accuracy of
  that rise decides, at the threshold chosen on known images. Beside it is the accuracy at the
  best threshold in hindsight, with and without the ascent.
- **Fig. 13**: after the aggregation the loss of members falls "notably", that of non-members more
  slowly. This is measured twice: from the first upload, right after its ascent, to the aggregate;
  and from before the attack to the aggregates of all attacked rounds. Beside both: the same
  without ascent.
- **Line 25** of Algorithm 1: a small difference to the aggregate means member.

All except Fig. 12 say that non-members exceed members. Such a statement is held if two 95 %
intervals lie above their bound: that of the difference of the means above 0 (Welch), and that of
the AUC above 0.5. Both are required, because losses after an ascent have heavy tails and a few
images can dominate a mean; the medians are shown too. The statement is not held if one of the two
intervals lies below its bound, or the AUC lies under 0.55. For Fig. 13 the loss of members must
also fall; the statement is not held if it rises. Fig. 12 is held if the interval of the accuracy
lies above 0.80. It is not held if that interval lies below and the accuracy in hindsight, which
is optimistic, does not reach 0.80 either. Everything else is undecided. Intervals are over the
images of one run.

Line 25 contradicts Sec. V-B4. Line 25 takes a *small* difference to the aggregate as a sign of a
member. The section says that aggregation "notably" reduces the loss of members, which makes their
difference large. Both can be true only if the loss of non-members rises by more than that of
members falls. `ascent-algorithm1` follows line 25; the command says which of the two a run
supports.
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
        f"| `{name}`{marks} | {about} | {needs.access} | {needs.vantage} | {count} | "
        f"{registry.paper(cls)} |"
    )


def page() -> str:
    """The whole text."""
    names = sorted(registry.names("attack"), key=lambda n: not registry.load("attack", n).main)
    rows = [row(name, queries(name)) for name in names]
    return TEXT.format(table="\n".join([HEAD, "|---" * 6 + "|", *rows]))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
