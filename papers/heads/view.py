"""Released heads: what attacks find at each mechanism and epsilon, and what the noise costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from fedmia.config.tree import to_tree
from fedmia.defenses.heads.release import CLASSICAL, ReleaseSetting, assumptions, audit_noise
from fedmia.encoders.base import LoadedEncoder
from fedmia.options.seeding import rng
from fedmia.records.privacy import MEANINGFUL
from fedmia.report.format import DASH, estimate, interval, number
from fedmia.report.lowerbounds import canary_bound
from fedmia.report.tables import Table, TextCell, flat
from fedmia.runtime.environment import describe
from fedmia.statistics.spread import Spread, clip_interval, spread, t_interval
from fedmia.study import columns, formats
from fedmia.study.columns import Column
from fedmia.study.view import StudyPage
from papers.cells import Row, Rows
from papers.heads import figures
from papers.heads.measure import HeadTrials
from papers.heads.sentence import sentence
from papers.heads.settings import Head
from papers.heads.trial import CONFIDENCE, KNOWING, NAIVE, AttackRates, HeadTrial, ReleaseResult
from papers.listing import TEMPLATES

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
        Rows of `head.json`.
    """
    family = count_aucs(len(settings))
    head_rows = [row(None, [t.plain for t in trials], config, family)]
    for s in settings:
        head_rows.append(row(s, [t.noised[s] for t in trials], config, family))
        if config.canaries:
            sensitivity, scale = trials[0].sensitivity, trials[0].noised[s].scale
            draw = rng(config.seed, "head", "canaries", s.mechanism, repr(s.epsilon))
            audit = audit_noise(s, config.delta, sensitivity, scale, config.canaries, draw)
            head_rows[-1]["lower_bound"] = canary_bound(audit, len(settings))
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
        The row of `head.json`.
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
        Rows of `head.json`.
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
    texts = list(released.notes)
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


def _attack_column(name: str) -> Column:
    """What an attack finds in a row that has it under its name."""
    return Column(name, lambda row: _attack(row[name]) if name in row else DASH)


def _by_name(rows: Rows) -> dict[str, Any]:
    return {row["name"]: row for row in rows}


def _attack(row: Row) -> TextCell:
    right, tpr = row["accuracy"], number(row["tpr_at_1_percent_fpr"]["mean"], columns.DIGITS)
    lines = [interval(row["auc_ci_simultaneous"])]
    if right["mean"] is not None:
        lines.append(f"accuracy {estimate(right['mean'], right['ci'])}")
    return TextCell(number(row["auc"]["mean"]), (*lines, f"TPR {tpr}"))


def _epsilon(row: Row) -> TextCell:
    if row["epsilon"] is None:
        return TextCell(DASH, ("no guarantee",))
    standing = str(row["standing"]) if row["meaningful"] else "no meaningful guarantee"
    delta = (f"delta {row['delta']:g}",) if row["delta"] else ()
    bound = (f"at least {b['value']:.2f} by canaries",) if (b := row["lower_bound"]) else ()
    return TextCell(f"{row['epsilon']:g} for one {row['unit']}", (*delta, standing, *bound))


def _mean(value: Spread | None) -> TextCell | str:
    return DASH if value is None else TextCell(number(value["mean"]), (interval(value["ci"]),))


SMALL = ("AUC", "simultaneous", "accuracy, 95 %", "TPR at 1 % FPR")
SETTINGS = (
    Column("noise", lambda row: row["mechanism"] or "none"), Column("epsilon", _epsilon),
    Column("scale", lambda row: number(row["scale"]["mean"], columns.DIGITS)),
    Column("utility loss, 95 %", lambda row: _mean(row["utility_loss"])),
    *(Column(TextCell(name, SMALL), _attack_column(name).cell) for name in ATTACKS),
)  # fmt: skip
CONTROLS = (
    Column("control", lambda row: row["control"]),
    Column("utility, 95 %", lambda row: _mean(row["utility"])), *map(_attack_column, ATTACKS),
)  # fmt: skip
UNTRAINED = TextCell(
    "untrained encoder", ("heads without noise on it; what leaks is the heads' own training",)
)
PLACEBO = TextCell("placebo", ("a head that saw none of the images",))


@dataclass(frozen=True)
class HeadView(StudyPage):
    """Heads without noise and at each setting; figures 1 and 2 of Yang et al. (2022)."""

    file: ClassVar[str] = "head"
    folders: ClassVar[Sequence[Path]] = (TEMPLATES,)
    beside: ClassVar[Mapping[str, str]] = {n: f"figures/{n}.png" for n in ("fig-1", "fig-2")}
    captions: ClassVar[Mapping[str, str]] = {
        "fig-1": "As Fig. 1 of the paper: utility loss by epsilon, mean over heads with its 95 % "
        "band. Grey: no meaningful guarantee.",
        "fig-2": "As Fig. 2 of the paper. Top: accuracy of the attack by epsilon. Bottom: accuracy "
        "against the utility loss at the same epsilon. Left: the paper's attacker. Right: an "
        "attacker that trains on shadow heads with the same noise. Line: without noise.",
    }

    def report(self, study: HeadTrials) -> dict[str, Any]:  # type: ignore[override]
        config, trials, split = study.config, study.trials, study.split()
        family, environment = count_aucs(len(study.settings)), describe()
        listed = rows(trials, config, study.settings)
        shadows = len(split.shadow_in)
        return {
            "format": formats.FORMAT,
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

    def tables(self, report: dict[str, Any]) -> dict[str, Table]:
        none, placebo = report["controls"]["untrained"], report["controls"]["placebo"]
        controls = [
            {"control": UNTRAINED, "utility": none["utility"], **_by_name(none["attacks"])},
            {"control": PLACEBO, "utility": None, **_by_name(placebo)},
        ]
        settings = [{**row, **_by_name(row["attacks"])} for row in report["rows"]]
        return {
            "settings": columns.table(SETTINGS, settings),
            "controls": columns.table(CONTROLS, controls),
        }

    def draw(self, report: dict[str, Any]) -> dict[str, bytes | None]:
        return {"fig-1": figures.utility(report), "fig-2": figures.protection(report)}

    def values(self, report: dict[str, Any], out: Path) -> dict[str, Any]:
        about = {"Settings": flat(report["config"]), "Versions": flat(report["versions"])}
        return {"attacks": list(ATTACKS.items()), "about": about}

    def terminal(self, report: dict[str, Any]) -> Any:
        """One line a setting, which fits 80 columns."""
        lines = []
        for row in report["rows"]:
            mark = "" if row["meaningful"] or row["epsilon"] is None else " *"
            epsilon = DASH if row["epsilon"] is None else f"{row['epsilon']:g}{mark}"
            aucs = {a["name"]: number(a["auc"]["mean"]) for a in row["attacks"]}
            loss = number(row["utility_loss"]["mean"])
            noise = row["mechanism"] or "none"
            lines.append((noise, epsilon, loss, *(aucs.get(name, DASH) for name in ATTACKS)))
        names = (name.replace("-", "-\n") for name in ATTACKS)
        return columns.screen(("noise",), ("epsilon", "utility\nloss", *names), lines)

    def more(self, report: dict[str, Any]) -> Callable[[Console], None]:
        line = "AUC of each attack; * no meaningful guarantee."
        return lambda console: console.print(line, style="dim")
