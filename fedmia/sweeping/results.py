"""What a sweep keeps of the report of one run."""

from __future__ import annotations

from fedmia.report.format import control_of
from fedmia.report.rows import Report, control_sets
from fedmia.sweeping.rows import CellAttack, CellPair, CellResults


def results(report: Report) -> CellResults:
    """What a sweep keeps of a run's report."""
    pairs: list[CellPair] = [
        {
            "attack": p["attack"], "control": p["control"],
            "auc": p.get("auc"), "auc_control": p.get("auc_control"),
            "difference": p["difference"], "ci": p["ci"],
        }
        for p in report["paired"]
    ]  # fmt: skip
    after = report["utility"].get("after_attack")
    return {
        "verdict": report["verdict"],
        "verdict_code": report["verdict_code"],
        "attacks": [_attack(report, i) for i in range(len(report["attacks"]))],
        "pairs": pairs,
        "sets": report["sets"],
        "knn": report["utility"]["knn"],
        "linear": report["utility"]["linear"],
        "knn_after_attack": after["knn"] if after else None,
        "commit": report["versions"].get("commit"),
    }


def _attack(report: Report, i: int) -> CellAttack:
    row = report["attacks"][i]
    beside = {label: control_of(report, label, row["name"])
              for label in control_sets(report["controls"])}  # fmt: skip
    return {
        "name": row["name"],
        "auc": row["auc"],
        "auc_ci": row["auc_ci"],
        "auc_ci_simultaneous": row["auc_ci_simultaneous"],
        "tpr_at_1_percent_fpr": row["tpr_at_fpr"]["0.01"],
        "controls": {label: found["auc"] for label, found in beside.items() if found},
        "choices": row["choices"],
    }
