"""Released heads: what attacks find at each mechanism and epsilon, and what the noise costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console

from fedmia.config.tree import to_tree
from fedmia.defenses.heads.release import CLASSICAL, ReleaseSetting, assumptions, audit_noise
from fedmia.encoders.base import LoadedEncoder
from fedmia.options.errors import format_error
from fedmia.options.seeding import rng
from fedmia.records.attack_rows import Interval
from fedmia.records.privacy import MEANINGFUL
from fedmia.report.figures import canvas
from fedmia.report.format import DASH, estimate, interval, number
from fedmia.report.lowerbounds import SHOUT, canary_bound
from fedmia.report.tables import Table, TextCell, flat
from fedmia.runtime.environment import describe
from fedmia.statistics.spread import Spread, clip_interval, spread, t_interval
from fedmia.study import columns, formats
from fedmia.study.columns import Column
from fedmia.study.drawing import band, cross
from fedmia.study.points import group_by_key
from fedmia.study.view import StudyPage
from papers.heads.format import HeadAttack, HeadReport, HeadRow
from papers.heads.measure import HeadTrials
from papers.heads.settings import Head
from papers.heads.trial import CONFIDENCE, KNOWING, NAIVE, AttackRates, HeadTrial, ReleaseResult
from papers.pages import TEMPLATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOLERABLE = 0.05  # utility loss that the paper calls small
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
) -> list[HeadRow]:
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
) -> HeadRow:
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


def attack_rows(heads: Sequence[Mapping[str, AttackRates]], family: int) -> list[HeadAttack]:
    """Each attack over the heads. `family`: AUCs whose intervals hold together.

    Args:
        heads: rates by attack, of each head.
        family: number of simultaneous intervals.

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


def leaks(row: HeadRow) -> list[HeadAttack]:
    """Attacks whose simultaneous interval lies over 0.5."""
    return [a for a in row["attacks"] if (ci := a["auc_ci_simultaneous"]) and ci[0] > 0.5]


def sentence(head_rows: Sequence[HeadRow], heads: int) -> str:
    """What a head leaks without noise, and what each mechanism takes to stop it.

    Args:
        head_rows: without noise first.
        heads: how many.

    Returns:
        The sentence.
    """
    plain, noised = head_rows[0], head_rows[1:]
    wrong = [r for r in noised if (bound := r["lower_bound"]) and bound["refuted"]]
    names = ", ".join(f"{r['mechanism']} at {r['epsilon']:g}" for r in wrong)
    parts = [f"{SHOUT} by canaries: {names}."] if wrong else []
    cheapest = [_cheapest(name, rows) for name, rows in by_mechanism(noised).items()]
    parts += [_sentence_without_noise(plain, heads), *cheapest, _sentence_stopped(noised)]
    return " ".join(parts)


def _sentence_without_noise(plain: HeadRow, heads: int) -> str:
    naive = plain["attacks"][0]
    sentence = (
        f"Without noise the attack has AUC {number(naive['auc']['mean'])} "
        f"{_ci(naive['auc_ci_simultaneous'])}, accuracy "
        f"{estimate(naive['accuracy']['mean'], naive['accuracy']['ci'])}, mean over {heads} heads"
    )
    return sentence + (": the heads leak." if leaks(plain) else ": no leak is established.")


def _ci(ci: Interval | None) -> str:
    return "(no interval)" if ci is None else f"[{ci[0]:.2f}, {ci[1]:.2f}] (simultaneous)"


def by_mechanism(noised: Sequence[HeadRow]) -> dict[str, list[HeadRow]]:
    """The rows of each mechanism."""
    return group_by_key((str(row["mechanism"]), row) for row in noised)


def _cheapest(name: str, head_rows: Sequence[HeadRow]) -> str:
    """The least epsilon at which a mechanism costs at most TOLERABLE of utility."""
    tolerable = [r for r in head_rows if (r["utility_loss"]["mean"] or 0.0) <= TOLERABLE]
    if not tolerable:
        return f"{name} costs over {TOLERABLE:.0%} of utility at every epsilon tried."
    least = min(tolerable, key=lambda r: r["epsilon"] or 0.0)
    worst = max((a["auc"]["mean"] or 0.0) for a in least["attacks"])
    doubt = "" if least["meaningful"] else ", no meaningful guarantee"
    return (
        f"{name} keeps utility within {TOLERABLE:.0%} from epsilon {least['epsilon']:g} on{doubt}; "
        f"the best attack there has AUC {worst:.2f}."
    )


def _sentence_stopped(noised: Sequence[HeadRow]) -> str:
    """Whether any epsilon that means something leaves a leak, and the utility it costs."""
    small = [r for r in noised if r["meaningful"]]
    if not small:
        return ""
    leaking = [r for r in small if leaks(r)]
    best = min(small, key=lambda r: r["utility_loss"]["mean"] or 0.0)
    who = f"{best['mechanism']} at {best['epsilon']:g}"
    format_error = (
        f"Of all settings with epsilon at most {MEANINGFUL:g}, {who} costs least utility: "
    )
    format_error += f"{best['utility_loss']['mean'] or 0.0:.0%}; "
    names = ", ".join(f"{r['mechanism']} at {r['epsilon']:g}" for r in leaking)
    return format_error + (
        f"a leak remains under {names}." if leaking else "no leak is established at these settings."
    )


def notes(config: Head, released: LoadedEncoder, shadows: int) -> list[str]:
    """What the reader of the numbers should know.

    Args:
        config: the settings of the command.
        released: the encoder.
        shadows: shadow heads of the attacker.

    Returns:
        The notes.
    """
    texts = [format_error(note, config.spelling) for note in released.notes]
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


def _by_name(rows: Sequence[HeadAttack]) -> dict[str, Any]:
    return {row["name"]: row for row in rows}


def _attack(row: HeadAttack) -> TextCell:
    right, tpr = row["accuracy"], number(row["tpr_at_1_percent_fpr"]["mean"], columns.DIGITS)
    lines = [interval(row["auc_ci_simultaneous"])]
    if right["mean"] is not None:
        lines.append(f"accuracy {estimate(right['mean'], right['ci'])}")
    return TextCell(number(row["auc"]["mean"]), (*lines, f"TPR {tpr}"))


def _epsilon(row: HeadRow) -> TextCell:
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
        "attacker "
        "that trains on shadow heads with the same noise. Line: without noise.",
    }

    def report(self, study: HeadTrials) -> HeadReport:  # type: ignore[override]
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

    def tables(self, report: HeadReport) -> dict[str, Table]:
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

    def draw(self, report: HeadReport) -> dict[str, bytes | None]:
        return {"fig-1": utility(report), "fig-2": protection(report)}

    def values(self, report: HeadReport, out: Path) -> dict[str, Any]:
        about = {"Settings": flat(report["config"]), "Versions": flat(report["versions"])}
        return {"attacks": list(ATTACKS.items()), "about": about}

    def terminal(self, report: HeadReport) -> Any:
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

    def more(self, report: HeadReport) -> Callable[[Console], None]:
        line = "AUC of each attack; * no meaningful guarantee."
        return lambda console: console.print(line, style="dim")


# -- the figures -----------------------------------------------------------------------------------


SIDES = (NAIVE, KNOWING)
Points = Sequence[tuple[float, Spread]]


@canvas.drawn
def utility(report: HeadReport) -> Figure | None:
    """Fig. 1: utility loss at each epsilon, mean over heads with its 95 % band."""
    figure, axes = canvas.one(6.6, 4.3)
    for i, (name, rows) in enumerate(_mechanisms(report)):
        _line(axes, i, name, [(r["epsilon"] or 0.0, r["utility_loss"]) for r in rows])
    axes.axhline(0, color=canvas.GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    _epsilons(axes, report)
    axes.set_ylabel("utility loss")
    axes.set_title(f"Utility loss by privacy budget ({report['heads']} heads)")
    canvas.legend(axes, 4)
    return figure


@canvas.drawn
def protection(report: HeadReport) -> Figure | None:
    """Fig. 2: accuracy of the attack at each epsilon (top) and at each utility loss (bottom), of
    the paper's attacker and of one that noises its shadows as the release is noised."""
    figure = canvas.new_figure(9.6, 7.4)
    grid: Any = figure.subplots(2, 2, sharey=True)
    plain = report["rows"][0]["attacks"][0]["accuracy"]
    for axes, attack in zip(grid[0], SIDES, strict=True):
        for i, (name, rows) in enumerate(_mechanisms(report)):
            _line(axes, i, name, [(r["epsilon"] or 0.0, _accuracy(r, attack)) for r in rows])
        _epsilons(axes, report)
        axes.set_title(attack)
    for axes, attack in zip(grid[1], SIDES, strict=True):
        for i, (_, rows) in enumerate(_mechanisms(report)):
            _cloud(axes, i, rows, attack)
        axes.set_xlabel("utility loss")
        axes.grid(axis="both")
    for axes in grid.flat:
        canvas.half_line(axes)
        if plain["mean"] is not None:
            axes.axhline(plain["mean"], color=canvas.INK, linewidth=1, zorder=0, label="no noise")
    for axes in grid[:, 0]:
        axes.set_ylabel("attack's accuracy")
    canvas.legend(grid[0][0], 5)
    return figure


def _mechanisms(report: HeadReport) -> Iterable[tuple[str, Sequence[HeadRow]]]:
    """Rows of each mechanism, by rising epsilon."""
    for name, rows in by_mechanism(report["rows"][1:]).items():
        yield name, sorted(rows, key=lambda r: r["epsilon"] or 0.0)


def _accuracy(row: HeadRow, attack: str) -> Spread:
    return next(a["accuracy"] for a in row["attacks"] if a["name"] == attack)


def _line(axes: Axes, i: int, name: str, points: Points) -> None:
    """Means, with their 95 % band."""
    xs, means, cis = zip(*((x, s["mean"], s["ci"]) for x, s in points), strict=True)
    band(axes, xs, means, cis, canvas.look(i), 0.15, linewidth=1.6, label=name)


def _cloud(axes: Axes, i: int, rows: Sequence[HeadRow], attack: str) -> None:
    """Utility loss across, accuracy upwards, both with their 95 % intervals; joined by epsilon."""
    look, pairs = canvas.look(i), [(r["utility_loss"], _accuracy(r, attack)) for r in rows]
    places: list[Any] = [(loss["mean"], right["mean"]) for loss, right in pairs]
    for at, (loss, right) in zip(places, pairs, strict=True):
        cross(axes, at, loss["ci"], right["ci"], color=look["color"], alpha=0.35, linewidth=2)
    axes.plot(*zip(*places, strict=True), **look, markersize=5, linewidth=1.2)


def _epsilons(axes: Axes, report: HeadReport) -> None:
    """Epsilon across on a log scale; where it means nothing, grey."""
    axes.set_xscale("log")
    most = max(r["epsilon"] or 0.0 for r in report["rows"][1:])
    if most > MEANINGFUL:
        axes.axvspan(
            MEANINGFUL, most * 1.15, color=canvas.GREY, alpha=0.12, linewidth=0, zorder=0,
            label="no meaningful guarantee",
        )  # fmt: skip
    axes.grid(axis="y")
    axes.set_xlabel("epsilon")
