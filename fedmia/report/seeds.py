"""The spread between models: what `--seeds 3` adds to the reports of single models."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedmia.report.rows import Report, SeedRow, SeedsSummary


def seeds_summary(reports: Sequence[Report]) -> SeedsSummary:
    """Mean, standard deviation, least and greatest AUC of each attack over independent models.

    Args:
        reports: of `build_report`, one a seed.
    """
    found: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for report in reports:
        for row in report["attacks"]:
            units[row["name"]] = row["unit"]
            found.setdefault(row["name"], [])
            if row["auc"] is not None:
                found[row["name"]].append(row["auc"])
    codes = [r["verdict_code"] for r in reports]
    leaks = codes.count("leaks")
    return {
        "models": len(reports),
        "attacks": [spread(n, units[n], values) for n, values in found.items()],
        "verdicts": {code: codes.count(code) for code in sorted(set(codes))},
        "leaks": leaks,
        "sentence": f"{leaks} of {len(reports)} models leak membership.",
    }


def spread(name: str, unit: str, values: Sequence[float]) -> SeedRow:
    """One attack's AUC over models, rounded to 6 decimals."""
    return {
        "name": name,
        "unit": unit,
        "models": len(values),
        "auc_mean": round(statistics.fmean(values), 6) if values else None,
        "auc_sd": round(statistics.stdev(values), 6) if len(values) > 1 else None,
        "auc_min": min(values, default=None),
        "auc_max": max(values, default=None),
    }
