"""The tables of results in the pages of docs/, from the result files.

`python scripts/docs_numbers.py` writes each after its comment `<!-- table NAME -->`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from docs_rows import DASH, RESULTS, change, ends, load, mean, short, table
from docs_speed_tables import growth, growth_pairs, hardware, whole_run

NO_GUARANTEE, MEANINGFUL = "\\*", 20


def epsilon(point: Any) -> str:
    """`8, guaranteed`, `3.6e3*, heuristic`: two digits, rounded up, as it is a bound."""
    value = point["epsilon"]
    if value is None:
        return DASH
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    up = math.ceil(value / unit - 1e-9) * unit
    text = f"{up:.3g}" if up < 1000 else f"{up:.1e}".replace("e+0", "e").replace(".0e", "e")
    return f"{text}{NO_GUARANTEE * (value > MEANINGFUL)}, {point['standing']}"


def label(point: Any) -> str:
    """`` `gaussian` scale .03 ``."""
    if point["defense"] == "none":
        return "none"
    strength = point["strength"]
    if strength is None:
        return f"`{point['defense']}`"
    return f"`{point['defense']}` {point['option'].replace('_', ' ')} {strength:g}"


def best(point: Any) -> Any:
    return next(row for row in point["attacks"] if row["name"] == point["best"])


def tradeoff(name: str) -> str:
    """Each point: its epsilon, best attack, difference from undefended, kNN."""
    return table(
        ["defence", "epsilon at most", "best attack, AUC", "change from undefended, single",
         "runs that leak", "kNN"],
        [
            [
                label(p), epsilon(p),
                f"`{p['best']}` {short(best(p)['auc']['mean'])}"
                f"{ends(best(p)['auc_ci_simultaneous'])}",
                change(p["auc_change"]), f"{p['verdicts'].get('leaks', 0)} of {p['finished']}",
                mean(p["knn"]),
            ]
            for p in load(name)["points"]
        ],
    )  # fmt: skip


def guaranteed(*names: tuple[str, str]) -> str:
    """Likewise, with kNN over the untrained encoder of the same seed.

    Args:
        names: a file and what its federations are.
    """
    return table(
        ["federations", "defence", "epsilon at most", "best attack, AUC", "kNN", "over untrained"],
        [
            [
                what, label(p).replace(" epsilon", ""), epsilon(p),
                f"`{p['best']}` {short(best(p)['auc']['mean'])}"
                f"{ends(best(p)['auc_ci_simultaneous'])}",
                mean(p["knn"]), change(p["knn_over_untrained"]),
            ]
            for name, what in names
            if (RESULTS / name).exists()
            for p in load(name)["points"]
            if not (name.endswith("noise300.json") and p["defense"] == "none")  # as above
        ],
    )  # fmt: skip


def half() -> str:
    return table(
        ["defence", "attack", "defended clients", "undefended clients", "difference", "kNN"],
        [
            [
                label(p), f"`{p['best']}`", mean(p["groups"]["defended"]),
                mean(p["groups"]["undefended"]), change(p["groups"]["difference"], 2),
                mean(p["knn"]),
            ]
            for p in load("defences/half.json")["points"] if p["groups"]
        ],
    )  # fmt: skip


def knowing() -> str:
    """Attackers who know a defence of training."""
    return table(
        ["defence", "naive, AUC", "knowing, AUC", "difference", "p, Holm", "kNN"],
        [
            [
                f"`{r['defense']}`", mean(r["naive"]),
                *((mean(r["knowing"]), change(r["difference"]), short(r["p_holm"], 3))
                  if r["knowing"]["n"] else (DASH,) * 3),
                short(r["knn"]["mean"]),
            ]
            for r in load("knowing.json")["rows"]
        ],
    )  # fmt: skip


def knowing_sent() -> str:
    """Attackers who know the noise on what is sent, by EncoderMI-V and by RMIA."""
    both = zip(*(load(f"knowing_sent{n}.json")["rows"] for n in ("", "_rmia")), strict=True)
    head = ["defence", "EncoderMI-V naive", "knowing minus naive", "RMIA naive",
            "knowing minus naive", "kNN"]  # fmt: skip
    return table(
        head,
        [
            [f"`{a['defense']}`", mean(a["naive"]), _difference(a), mean(b["naive"]),
             _difference(b), short(a["knn"]["mean"])]
            for a, b in both
        ],
    )  # fmt: skip


def _difference(row: Any) -> str:
    return change(row["difference"]) if row["difference"]["n"] else DASH


def lower_bounds() -> str:
    """Alarms at each claim, of so many seeds."""
    file = load("lower_bounds.json")
    rows = file["rows"]
    mechanisms = list(dict.fromkeys(r["mechanism"] for r in rows))
    claims = list(dict.fromkeys(r["claim"] for r in rows))
    lines = []
    for violation in dict.fromkeys(r["violation"] for r in rows):
        line = [violation]
        for mechanism in mechanisms:
            own = [
                next((r for r in rows if (r["mechanism"], r["violation"], r["claim"], r["canaries"])
                      == (mechanism, violation, claim, 1000)), None)
                for claim in claims
            ]  # fmt: skip
            counts = " / ".join(str(r["alarms"]) for r in own if r)
            line.append(f"{counts} of {own[0]['seeds']}" if own[0] else DASH)
        lines.append(line)
    return table(["violation", *(f"`{m}`" for m in mechanisms)], lines)


def heads() -> str:
    """Released heads at each noise: what the knowing attacker reads, what use is left."""
    rows = []
    for row in load("head/head.json")["rows"]:
        by_name = {a["name"]: a for a in row["attacks"]}
        knows = by_name.get("shadow-knowing")
        value = row["epsilon"]
        text = DASH if value is None else f"{value:g}" + NO_GUARANTEE * (value > MEANINGFUL)
        if value is not None and value < 10:
            continue
        naive = by_name["shadow"]
        rows.append([
            f"`{row['mechanism']}`" if row["mechanism"] else "none", text,
            short(row["utility_loss"]["mean"]),
            short(naive["auc"]["mean"]) + ends(naive["auc_ci_simultaneous"]),
            short(knows["auc"]["mean"]) + ends(knows["auc_ci_simultaneous"]) if knows else DASH,
            short(naive["tpr_at_1_percent_fpr"]["mean"], 3),
        ])  # fmt: skip
    head = ["noise", "epsilon", "utility loss", "naive, AUC", "knowing, AUC", "TPR at 1 % FPR"]
    return table(head, rows)


def attacks(name: str) -> str:
    """Attacks of one federated run beside its controls."""
    report = load(name)
    controls = {c: {r["name"]: r for r in report["controls"][c]} for c in ("untrained", "placebo")}
    rows = sorted(report["attacks"], key=lambda r: -r["auc"])
    dated = any("round" in r for r in rows)  # the model that the row is of
    return table(
        ["attack", *["model, round"] * dated, "AUC, simultaneous 95 %", "untrained", "placebo",
         "TPR at 1 % FPR", "accuracy"],
        [
            [f"`{r['name']}`", *[_model(r)] * dated, _auc(r),
             *(_auc(c.get(r["name"])) for c in controls.values()),
             short(r["tpr_at_fpr"]["0.01"]), short(r["accuracy"])]
            for r in rows
        ],
    )  # fmt: skip


def _model(row: dict[str, Any]) -> str:
    """The round of the model that a row is of; of an active attack all that it acted in."""
    rounds = row.get("rounds") or [row.get("round")]
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"


def use(name: str) -> str:
    """What the encoder of one run is worth, beside the untrained one."""
    utility = load(name)["utility"]
    models = {f"round {utility['round']}" if "round" in utility else "the run's last": utility}
    if after := utility.get("after_attack"):
        models[f"round {after['round']}, after the attack"] = after
    rows = [
        [model, short(u["knn"]) + ends(u["knn_ci"]), short(u["linear"]) + ends(u["linear_ci"])]
        for model, u in (models | {"untrained": utility["untrained"]}).items()
    ]
    return table(["model", "weighted kNN", "linear probe"], rows)


README_ROWS = ("similarity", "combined", "ascent-static", "ascent")


def readme() -> str:
    """The README's attacks, and kNN: one run of each regime, with the AUCs of both controls."""

    def print_cells(report: Any, name: str) -> list[str]:
        rows = [report["attacks"], *(report["controls"][c] for c in ("untrained", "placebo"))]
        attack, *controls = (next(r for r in kind if r["name"] == name) for kind in rows)
        low, high = attack["auc_ci_simultaneous"]
        aucs = ", ".join(f"{control['auc']:.2f}" for control in controls)
        return [f"{attack['auc']:.2f} [{low:.2f}, {high:.2f}]", aucs]

    runs = [load(f"{name}/report.json") for name in ("default", "overfit")]
    rows = [[f"`{name}`", *(c for run in runs for c in print_cells(run, name))]
            for name in README_ROWS]  # fmt: skip
    knn = ["kNN of the same model"]
    for run in runs:
        use, (low, high) = run["utility"], run["utility"]["knn_ci"]
        knn += [f"{use['knn']:.2f} [{low:.2f}, {high:.2f}]", f"{use['untrained']['knn']:.2f}"]
    head = ["attack", "default", "untrained, placebo", "`--config overfit`", "untrained, placebo"]
    return table(head, [*rows, knn])


def set_attacks(name: str) -> str:
    """Sets of images of one kind under each attack of a federated run, beside their control."""
    return table(
        ["attack", "set score", "AUC of sets, simultaneous 95 %", "control", "its AUC",
         "difference, single interval"],
        [
            [f"`{s['attack']}`", s["judged"], _auc(s), s["control"]["name"],
             short(s["control"]["auc"]),
             change({"mean": s["control"]["difference"], "ci": s["control"]["difference_ci"]}, 2)]
            for s in load(name)["sets"]
        ],
    )  # fmt: skip


def suite() -> str:
    """Every attack on one overfitted encoder."""
    report = load("attack-suite/report.json")
    controls = {c: {r["name"]: r for r in report["controls"][c]} for c in ("untrained", "posers")}
    seconds = report["timing"]["by_attack"]
    head = ["attack", "AUC, simultaneous 95 %", "TPR at 0.1 % FPR", "TPR at 1 % FPR", "accuracy",
            "untrained", "posers", "queries", "s"]  # fmt: skip
    rows = []
    for r in sorted(report["attacks"], key=lambda r: -r["auc"]):
        tpr, ci = r["tpr_at_fpr"], r["tpr_at_fpr_ci"]
        rows.append([
            f"`{r['name']}`", _auc(r), short(tpr["0.001"], 3) + ends(ci["0.001"], 3),
            short(tpr["0.01"]) + ends(ci["0.01"]), short(r["accuracy"]),
            _auc(controls["untrained"].get(r["name"])),
            short(controls["posers"][r["name"]]["auc"]), f"{r['queries']:,}",
            f"{seconds[r['name']]:.1f}",
        ])  # fmt: skip
    return table(head, rows)


def _auc(row: Any) -> str:
    return DASH if row is None else short(row["auc"]) + ends(row["auc_ci_simultaneous"])


def server() -> str:
    """What the server that reads every update finds."""
    rates = [load("server/named.json")[f"seed={s}"] for s in range(5)]
    rows = []
    for what, of in (
        ("does it name the right client", lambda r: r["accuracy"]),
        ("did one given client train on it, AUC", lambda r: r["per_client"]["auc"]),
        ("the same, TPR at 1 % FPR", lambda r: r["per_client"]["tpr_at_fpr"]["0.01"]),
    ):
        both = [[of(r) for r in rates], [of(r["placebo"]) for r in rates]]
        rows.append([what, *(f"{short(sum(v) / 5)} ({short(min(v))} to {short(max(v))})"
                             for v in both)])  # fmt: skip
    return table(["question", "mean of five (least to greatest)", "the same in the placebo"], rows)


def rounds() -> str:
    rows = sorted(load("rounds/sweep.json")["points"][0]["attacks"],
                  key=lambda r: -r["auc"]["mean"])  # fmt: skip
    return table(["attack", "AUC"], [[f"`{r['name']}`", mean(r["auc"], 3)] for r in rows])


def sets() -> str:
    """Alarms of `dataset-inference` on sets that nobody trained on, and its power."""
    names = {
        "exchange": "within classes, exact (ours)", "welch": "t-test, classes not matched",
        "welch-matched": "t-test, classes matched",
        "resampled": "DOV4CL's t-test over resampled draws",
    }  # fmt: skip
    cells = load("dataset_inference.json")["cells"]
    rows = [
        [title, *(f"{short(c[key]['alarms_0.01'], 3)} / {short(c[key]['alarms_0.05'], 3)} / "
                 f"{short(c[key]['power_0.05'])}" for c in cells.values())]
        for key, title in names.items()
    ]  # fmt: skip
    return table(["test", *cells], rows)


def ascent(which: int = 0) -> str:
    """As benchmarks/ascent.py writes it: what was asked, or what is exploratory."""
    parts = (RESULTS / "ascent" / "answer.md").read_text(encoding="utf-8").split("\n\n")
    return [part for part in parts if part.startswith("|")][which].strip()


def signals() -> str:
    """What signals cost with a ResNet-18, beside a loop image by image."""
    rows = []
    for name, precision in (("", "float32"), ("-bfloat16", "bfloat16")):
        case = load(f"signals{name}.json")["cases"]["resnet18-32"]
        ratios = [a["ratio"] for a in case["attacks"].values()]
        rows.append([
            precision, f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"{case['sharing']['all']['ratio']:.2f}",
            *(f"{case['loop'][k]['faster']:.1f}" for k in ("views", "crops")),
            f"{case['all_attacks']['faster']:.1f}",
        ])  # fmt: skip
    head = ["precision", "time of a signal / of its passes", "all sharing rows / each alone",
            "views, times faster than the loop", "crops", "all attacks"]  # fmt: skip
    return table(head, rows)


GUARANTEED = {
    "nine16": "`moco`, nine holders of 16",
    "two300": "`moco`, two holders of 300",
    "noise300": "the same, almost only noise",
    "one600": "`moco`, one holder of 600",
    "mae300": "`mae`, two holders of 300",
}

# What stands in docs/howto/defences.md: name, strength shown, what it does, command, kind of
# guarantee, and the section with its assumptions.
STEPS = "guarantees.md#dp-sgd-when-it-is-guaranteed"
UPDATE = "guarantees.md#noise-on-the-update"
CHEAP = "guarantees.md#cheap-defences"
SERVER = "guarantees.md#rules-of-the-server"
PRICES = (
    ("dpsgd", 3.0, "clips and noises the gradient of each image",
     "--defense dpsgd --defense.noise_multiplier 3", "formal in some settings", STEPS),
    ("gaussian", 0.1, "clips and noises the update", "--defense gaussian --defense.scale 0.1",
     "formal", UPDATE),
    ("logistic", 0.02, "clips and noises the update", "--defense logistic --defense.scale 0.02",
     "formal", UPDATE),
    ("laplace", 0.05, "clips and noises the update", "--defense laplace --defense.scale 0.05",
     "formal", UPDATE),
    ("early-stopping", 10.0, "leaves the training early",
     "--defense early-stopping --defense.after 10", "empirical", CHEAP),
    ("crop-range", 1.0, "trains on whole images", "--defense crop-range --defense.lower 1",
     "empirical", CHEAP),
    ("weight-decay", 0.02, "keeps the weights small",
     "--defense weight-decay --defense.weight_decay 0.02", "empirical", CHEAP),
    ("dp-fedavg", 1.0, "the server clips updates and noises their mean",
     "--strategy dp-fedavg --strategy.noise_multiplier 1", "formal", SERVER),
    ("krum", None, "the server keeps the most typical update", "--strategy krum",
     "empirical", SERVER),
    ("median", None, "the server takes medians", "--strategy median", "empirical", SERVER),
    ("trimmed-mean", None, "the server leaves out extremes", "--strategy trimmed-mean",
     "empirical", SERVER),
    ("norm-clip", 0.3, "the server clips updates",
     "--strategy norm-clip --strategy.clip 0.3", "empirical", SERVER),
)  # fmt: skip


def defence_prices() -> str:
    """Each defence at one strength: command, kind of guarantee, what remains, use."""
    points = load("defences/tradeoff.json")["points"]

    def row(name: str, strength: float | None, does: str, command: str, kind: str) -> list[str]:
        (point,) = [
            p for p in points
            if p["defense"] == name and (strength is None or p["strength"] == strength)
        ]  # fmt: skip
        auc = short(best(point)["auc"]["mean"]) + ends(best(point)["auc_ci_simultaneous"])
        budget = epsilon(point).split(",")[0]
        return [f"`{name}`", does, command, kind, budget, auc, mean(point["knn"])]

    rows = [row("none", None, "nothing", DASH, DASH)]
    rows += [
        row(name, strength, does, f"`{command}`", f"[{kind}]({section})")
        for name, strength, does, command, kind, section in PRICES
    ]
    head = ["defence", "what it does", "command: `fedmia simulate` ..", "guarantee",
            "epsilon", "remains, AUC", "use, kNN"]  # fmt: skip
    return table(head, rows)


TABLES: dict[str, Callable[[], str]] = {
    "defences": partial(tradeoff, "defences/tradeoff.json"),
    "cifar10-defences": partial(tradeoff, "defences/cifar10.json"),
    "half": half,
    "defence-prices": defence_prices,
    "hardware": hardware,
    "whole-run": whole_run,
    "growth": growth,
    "growth-pairs": growth_pairs,
    "knowing": knowing,
    "knowing-sent": knowing_sent,
    "lower-bounds": lower_bounds,
    "heads": heads,
    "guaranteed": partial(
        guaranteed,
        *((f"defences/guaranteed-{name}.json", what) for name, what in GUARANTEED.items()),
    ),
    "readme": readme,
    "default-run": partial(attacks, "default/report.json"),
    "overfit-run": partial(attacks, "overfit/report.json"),
    "default-run-use": partial(use, "default/report.json"),
    "default-run-sets": partial(set_attacks, "default/report.json"),
    "paper-cifar10-small": partial(attacks, "paper-cifar10-small/report.json"),
    "paper-cifar10-small-sets": partial(set_attacks, "paper-cifar10-small/report.json"),
    "attack-suite": suite,
    "server": server,
    "rounds": rounds,
    "sets": sets,
    "ascent": ascent,
    "ascent-exploratory": partial(ascent, 1),
    "signals": signals,
}
