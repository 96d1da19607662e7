"""Released heads: what attacks find at each mechanism and epsilon, and what the noise costs."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmia.cli.command import Invocation
from fedmia.defenses.heads.release import CLASSICAL, ReleaseSetting, assumptions, audit_noise
from fedmia.encoders.base import LoadedEncoder
from fedmia.records.privacy import MEANINGFUL
from fedmia.report.lowerbounds import canary_bound
from fedmia.report.page import picture, templates
from fedmia.report.publish import json_text
from fedmia.report.tables import Cell, Table, TextCell, flat, listing
from fedmia.report.words.notes import sentences
from fedmia.report.words.numbers import DASH, estimate, interval, number
from fedmia.runtime.environment import describe
from fedmia.seeding import rng
from fedmia.settings.tree import to_tree
from fedmia.statistics.spread import clip_interval, spread, t_interval
from fedmia.storage import durable
from fedmia.storage.json_rows import to_json
from fedmia.storage.manifest import FIGURES
from fedmia.study.columns import screen
from fedmia.study.rows import DIGITS
from research.papers.cells import FILES, Row, Rows
from research.papers.heads import figures
from research.papers.heads.measure import HeadTrials
from research.papers.heads.sentence import sentence
from research.papers.heads.settings import Head
from research.papers.heads.trial import (
    CONFIDENCE,
    KNOWING,
    NAIVE,
    AttackRates,
    HeadTrial,
    ReleaseResult,
)
from research.papers.jobs import HEAD
from research.papers.listing import TEMPLATES

ATTACKS: Mapping[str, str] = {
    NAIVE: "fitted on shadow heads without noise",
    KNOWING: "fitted on shadow heads under the same noise",
    CONFIDENCE: "probability of the true label",
}


def count_aucs(settings: int) -> int:
    """AUCs that one file tells: of all attacks without noise, at each setting, and of controls."""
    return 3 * settings + 3 * len((NAIVE, CONFIDENCE))


def rows(
    trials: Sequence[HeadTrial], config: Head, settings: Sequence[ReleaseSetting]
) -> list[dict[str, Any]]:
    """Heads without noise, then at each setting in order.

    Args:
        trials: one for each head.
        config: the settings of the command.
        settings: mechanisms and epsilons.

    Returns:
        Rows of `report.json`.
    """
    family = count_aucs(len(settings))
    head_rows = [row(None, [t.plain for t in trials], config, family)]
    for s in settings:
        head_rows.append(row(s, [t.noised[s] for t in trials], config, family))
        if config.canaries:
            sensitivity, scale = trials[0].sensitivity, trials[0].noised[s].scale
            draw = rng(config.seed, "head", "canaries", s.mechanism, repr(s.epsilon))
            audit = audit_noise(s, config.delta, sensitivity, scale, config.canaries, draw)
            head_rows[-1]["lower_bound"] = to_json(canary_bound(audit, len(settings)), exact=True)
    return head_rows


def row(
    setting: ReleaseSetting | None, measured: Sequence[ReleaseResult], config: Head, family: int
) -> dict[str, Any]:
    """Heads at one setting, None: without noise.

    Args:
        setting: mechanism and epsilon; None without noise.
        measured: one result for each head.
        config: the settings of the command.
        family: number of simultaneous intervals.

    Returns:
        The row of `report.json`.
    """
    mechanism, epsilon = (setting.mechanism, setting.epsilon) if setting else (None, None)
    return {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": config.delta if mechanism in ("gaussian", CLASSICAL) else 0.0,
        "standing": None if setting is None else "empirical",
        "meaningful": epsilon is not None and epsilon <= MEANINGFUL,
        "unit": "image",
        "lower_bound": None,
        "scale": spread((m.scale for m in measured), high=math.inf),
        "utility": spread(m.utility for m in measured),
        "utility_loss": spread((m.loss for m in measured), -1.0),
        "attacks": attack_rows([m.attacks for m in measured], family),
    }


def attack_rows(heads: Sequence[Mapping[str, AttackRates]], family: int) -> list[dict[str, Any]]:
    """Each attack over the heads.

    Args:
        heads: rates by attack, of each head.
        family: number of AUCs whose intervals hold together.

    Returns:
        Rows of `report.json`.
    """
    return [
        {
            "name": name,
            "auc": spread(h[name].auc for h in heads),
            "auc_ci_simultaneous": clip_interval(t_interval([h[name].auc for h in heads], family)),
            "accuracy": spread(h[name].accuracy for h in heads),
            "tpr_at_1_percent_fpr": spread(h[name].tpr for h in heads),
        }
        for name in heads[0]
    ]


def notes(config: Head, released: LoadedEncoder, shadows: int) -> list[str]:
    """What the reader of the numbers should know.

    Args:
        config: the settings of the command.
        released: the encoder.
        shadows: shadow heads of the attacker.

    Returns:
        The notes.
    """
    texts = sentences(released.notes)
    texts.append(
        f"The attacker has {shadows} shadow head{'s' * (shadows > 1)} on the same encoder, trained "
        "like the head on images of the same source. Classifiers and thresholds are fitted on "
        "their answers alone. The knowing attacker also knows the law and the scale of the noise."
    )
    texts.append(
        "The images of a head are drawn at random from all images, independently of the encoder's "
        "training set. The encoder gets no noise; fedmia audit measures its leakage."
    )
    texts.append(f"The untrained control is {released.untrained_how}.")
    return texts


def ratio(trials: Sequence[HeadTrial]) -> str:
    """Why mechanisms that are scaled by another norm cost as much as they do."""
    ratios = [t.sensitivity[1] / t.sensitivity[2] for t in trials if t.sensitivity[2]]
    many = f"{statistics.fmean(ratios):.1f}" if ratios else "unknown"
    return (
        f"The sensitivity in L1 is {many} times that in L2 (mean over heads; the paper's Table 1 "
        "has 1.26). Logistic and Laplace noise grow with the first, Gaussian noise with the second."
    )


# -- the page --------------------------------------------------------------------------------------

PROMISE = "Guaranteed limit of leakage; smaller is stronger, over 20 means little"
USED = "How useful the released head is: accuracy of its answers"
UNTRAINED = TextCell(
    "untrained encoder", ("heads without noise on it; what leaks is the heads' own training",)
)
PLACEBO = TextCell("placebo", ("a head that saw none of the images",))
CAPTIONS: Mapping[str, str] = {
    "fig-1": "As Fig. 1 of the paper: utility loss by epsilon, mean over heads with its 95 % "
    "band. Grey: no meaningful guarantee.",
    "fig-2": "As Fig. 2 of the paper. Top: accuracy of the attack by epsilon. Bottom: accuracy "
    "against the utility loss at the same epsilon. Left: the paper's attacker. Right: an "
    "attacker that trains on shadow heads with the same noise. Line: without noise.",
}


def _cell_of(name: str, row: Row) -> str | TextCell:
    """What an attack finds, over its intervals."""
    own = next((one for one in row["attacks"] if one["name"] == name), None)
    if own is None:
        return DASH
    right, tpr = own["accuracy"], number(own["tpr_at_1_percent_fpr"]["mean"], DIGITS)
    lines = [interval(own["auc_ci_simultaneous"])]
    if right["mean"] is not None:
        lines.append(f"accuracy {estimate(right['mean'], right['ci'])}")
    return TextCell(number(own["auc"]["mean"]), (*lines, f"TPR {tpr}"))


def _epsilon(row: Row) -> TextCell:
    if row["epsilon"] is None:
        return TextCell(DASH, ("no guarantee",))
    standing = str(row["standing"]) if row["meaningful"] else "no meaningful guarantee"
    delta = (f"delta {row['delta']:g}",) if row["delta"] else ()
    bound = (f"at least {b['value']:.2f} by canaries",) if (b := row["lower_bound"]) else ()
    return TextCell(f"{row['epsilon']:g} for one {row['unit']}", (*delta, standing, *bound))


def _mean(value: Row) -> TextCell:
    return TextCell(number(value["mean"]), (interval(value["ci"]),))


def report_of(study: HeadTrials) -> dict[str, Any]:
    """What `report.json` holds of heads that were trained and attacked.

    Args:
        study: the heads.

    Returns:
        The report, without its timing.
    """
    config, trials, split = study.config, study.trials, study.split()
    family, environment = count_aucs(len(study.settings)), describe()
    listed = rows(trials, config, study.settings)
    shadows = len(split.shadow_in)
    return {
        "format": 1,
        "sentence": sentence(listed, config.seeds),
        "encoder": study.released.name,
        "data": study.images.name,
        "heads": config.seeds,
        "releases": config.draws,
        "n_members": len(split.members),
        "n_nonmembers": len(split.others),
        "shadows": shadows,
        "weights": study.weights(),
        "fitted": spread(t.train_accuracy for t in trials),
        "sensitivity": {
            f"l{order}": spread((t.sensitivity[order] for t in trials), high=math.inf)
            for order in (1, 2)
        },
        "assumptions": assumptions(study.settings, config.delta, config.samples),
        "rows": listed,
        "controls": {
            "untrained": row(None, [t.plain for t in study.controls], config, family),
            "placebo": attack_rows([t.placebo for t in trials], family),
        },
        "notes": [*notes(config, study.released, shadows), ratio(trials)],
        "config": to_tree(config),
        "versions": environment["versions"] | {"commit": environment["commit"]},
        "timing": {},
    }


def tables(report: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of the page by name."""
    none, placebo = report["controls"]["untrained"], report["controls"]["placebo"]
    controls: Rows = [
        {"control": UNTRAINED, "used": _mean(none["utility"]), "attacks": none["attacks"]},
        {"control": PLACEBO, "used": DASH, "attacks": placebo},
    ]
    settings: dict[str | TextCell, Cell] = {
        TextCell("noise", title="Law of the noise"): lambda row: row["mechanism"] or "none",
        TextCell("epsilon", title=PROMISE): _epsilon,
        TextCell("scale", title="Size of the noise"): lambda row: number(
            row["scale"]["mean"], DIGITS
        ),
        TextCell("utility loss, 95 %", title="Utility lost to the noise"): lambda row: _mean(
            row["utility_loss"]
        ),
    }
    attacks: dict[str | TextCell, Cell] = {
        TextCell(f"{name}: AUC, simultaneous, accuracy 95 %, TPR at 1 % FPR", title=what): partial(
            _cell_of, name
        )
        for name, what in ATTACKS.items()
    }
    nothing: dict[str | TextCell, Cell] = {
        TextCell("control", title="The same attack where nothing, or less, can leak"):
            itemgetter("control"),
        TextCell("utility, 95 %", title=USED): itemgetter("used"),
        **{TextCell(name, title=what): partial(_cell_of, name) for name, what in ATTACKS.items()},
    }  # fmt: skip
    return {
        "settings": listing(report["rows"], settings | attacks),
        "controls": listing(controls, nothing),
    }


def page(report: Mapping[str, Any], pngs: Mapping[str, bytes]) -> str:
    """The whole HTML document; every string in the report is escaped.

    Args:
        report: what `report_of` returned.
        pngs: name -> figure.

    Returns:
        The HTML text.
    """
    return (
        templates(TEMPLATES)
        .get_template("head.j2")
        .render(
            report=report,
            tables=tables(report),
            pictures={name: picture(CAPTIONS[name], png) for name, png in pngs.items()},
            attacks=list(ATTACKS.items()),
            about={"Settings": flat(report["config"]), "Versions": flat(report["versions"])},
        )
    )


def write(report: Mapping[str, Any], out: Path) -> Path:
    """Write report.json, its page and figures/NAME.png.

    Args:
        report: what `report_of` returned.
        out: folder to write into.

    Returns:
        The page's path.
    """
    drawn = {"fig-1": figures.utility(report), "fig-2": figures.protection(report)}
    pngs = {name: png for name, png in drawn.items() if png is not None}
    durable.make_folder(out / FIGURES, out)
    files: dict[Path, bytes | str] = {out / FIGURES / f"{n}.png": png for n, png in pngs.items()}
    files |= {out / FILES[HEAD]: json_text(report), out / "report.html": page(report, pngs)}
    durable.write(files)
    return out / "report.html"


def show(report: Mapping[str, Any], invocation: Invocation, where: Path | None) -> None:
    """Print the report: as JSON, as its sentence alone, or as a table and where its page is.

    Args:
        report: what `report_of` returned.
        invocation: what the user asked for.
        where: path of the page; None where none was written.
    """
    if invocation.json:
        sys.stdout.write(json_text(report))
        return
    console = Console()
    if not invocation.quiet:
        console.print(terminal(report), highlight=False, soft_wrap=True)
        console.print("AUC of each attack; * no meaningful guarantee.", style="dim")
    console.print(report["sentence"], highlight=False, soft_wrap=True)
    if not invocation.quiet and where is not None:
        console.print(f"Report: {where}", highlight=False, soft_wrap=True)


def terminal(report: Mapping[str, Any]) -> Any:
    """One line a setting, which fits 80 columns."""
    lines = []
    for row in report["rows"]:
        mark = "" if row["meaningful"] or row["epsilon"] is None else " *"
        epsilon = DASH if row["epsilon"] is None else f"{row['epsilon']:g}{mark}"
        aucs = {a["name"]: number(a["auc"]["mean"]) for a in row["attacks"]}
        loss = number(row["utility_loss"]["mean"])
        noise = row["mechanism"] or "none"
        lines.append((noise, epsilon, loss, *(aucs.get(name, DASH) for name in ATTACKS)))
    return screen(("noise", "epsilon", "utility loss", *ATTACKS), lines)
