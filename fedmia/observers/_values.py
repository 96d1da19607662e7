"""The numbers of a report by the names under which observers hear of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedmia.report.rows import Report, control_sets


def by_round(report: Report) -> Iterator[tuple[int, dict[str, float]]]:
    """(round, AUC by `leakage/ATTACK` and `layers/LAYER`) of the rounds that were evaluated."""
    for row in report["rounds"]:
        told = {f"leakage/{name}": value for name, value in row["leakage"].items()}
        told |= {f"layers/{name}": value for name, value in row["layers"].items()}
        if known := present(told):
            yield row["round"], known


def of_the_run(report: Report) -> dict[str, float]:
    """AUC of attacks and controls, the ends of the simultaneous intervals and the true-positive
    rate at 1 % of the attacks, what they add over their controls, utility and health."""
    told: dict[str, float | None] = {}
    for row in report["attacks"]:
        name = row["name"]
        low, high = row["auc_ci_simultaneous"] or (None, None)
        told |= {f"auc/{name}": row["auc"], f"auc_low/{name}": low, f"auc_high/{name}": high}
        told[f"tpr_at_1_percent_fpr/{name}"] = row["tpr_at_fpr"]["0.01"]
    for control, rows in control_sets(report["controls"]).items():
        told |= {f"auc_{control}/{row['name']}": row["auc"] for row in rows}
    told |= {f"added/{p['attack']}/{p['control']}": p["difference"] for p in report["paired"]}
    for group, probes in (
        ("utility", report["utility"]),
        ("utility_untrained", report["utility"]["untrained"]),
        ("utility_after_attack", report["utility"]["after_attack"]),
    ):
        if probes is not None:
            told |= {f"{group}/knn": probes["knn"], f"{group}/linear": probes["linear"]}
    if (health := report["health"]) is not None:
        told["health/cosine"] = health["cosine"]
    return present(told)


def present(values: Mapping[str, float | None]) -> dict[str, float]:
    """Those that are known."""
    return {name: value for name, value in values.items() if value is not None}
