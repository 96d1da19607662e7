"""The report as one strict-JSON dictionary: `report.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmia.report.checks import check
from fedmia.report.clients import client_rows, declared_attack, ranking
from fedmia.report.intervals import LEVEL, wilson
from fedmia.report.metrics import attack_row, auc_numbers
from fedmia.report.named import named_rows
from fedmia.report.paired import paired_row
from fedmia.report.verdict import verdict
from fedmia.results import Probe, RoundInfo, RunScores, ScoredAttack

ONE_MODEL = (
    "Intervals condition on the one model that was trained: they tell how the scores would vary "
    "with other images, not with another training"
)
SEEDS = "; --seeds 3 shows the spread between models."
ORACLE = (
    "oracle_accuracy takes the best threshold on the scored images themselves, as in the paper: "
    "an upper bound; accuracy takes it on the attacker's known images only."
)


def build_report(run: RunScores) -> dict[str, Any]:
    """The whole report of one run, ready for `json.dumps(allow_nan=False)`.

    Floats are rounded to 6 decimals (the threshold to 6 digits), so that reruns compare equal.
    Keys keep their order, `timing` last.

    Raises:
        ValueError: scores that are not finite or do not align, naming the attack.
    """
    check(run)
    report = numbers(run)
    report["verdict"], report["verdict_code"] = verdict(report, run.pretrain, run.interrupted)
    report |= {
        "subject": run.subject,
        "not_run": [{"attack": a, "reason": r} for a, r in run.not_run.items()],
        "interrupted": run.interrupted,
        "notes": notes(run, report),
        "split": dict(run.split),
        "config": dict(run.config),
        "versions": dict(run.versions),
        "hardware": dict(run.hardware),
        "timing": dict(run.timing),
    }
    cleaned = strict(report)
    assert isinstance(cleaned, dict)
    return cleaned


def numbers(run: RunScores) -> dict[str, Any]:
    """All that is computed from scores, in full precision, the verdict still empty."""
    family = family_size(run)
    controls: dict[str, Any] = {"untrained": []}
    for name, attacks in run.controls.items():
        controls[name] = [attack_row(a, family) for a in attacks]
    controls["pixels"] = None if run.pixels is None else auc_numbers(*run.pixels, family)
    clients = client_rows(run)
    attacks_rows = [attack_row(a, family) for a in run.attacks]
    paired = [paired_row(a, c, family) for a, c in run.pairs]
    return {
        "verdict": "",
        "verdict_code": "",
        "attacks": attacks_rows,
        "batches": [attack_row(b, 1) for b in run.batches],
        "paired": paired,
        "controls": controls,
        "utility": utility(run.utility) | {"untrained": utility(run.utility_untrained)},
        "clients": clients,
        "client_ranking": ranking(clients),
        "named_clients": named_rows(run),
        "rounds": [round_row(r) for r in run.rounds],
        "family": {
            "level": LEVEL,
            "intervals": family,
            "intervals_clients": sum(c["auc"] is not None for c in clients),
            "method": "Bonferroni over Newcombe (2006) method 5 intervals of the AUC",
            "widest": widest(attacks_rows, controls, paired),
        },
    }


def family_size(run: RunScores) -> int:
    """How many intervals hold together: each that the verdict or a control may rest on."""

    def usable(a: ScoredAttack) -> bool:
        return len(a.scores_members) > 0 and len(a.scores_nonmembers) > 0

    count = sum(map(usable, run.attacks))
    count += sum(usable(a) for attacks in run.controls.values() for a in attacks)
    count += sum(usable(a) for a, _ in run.pairs)
    return max(count + (run.pixels is not None), 1)


def widest(
    attacks: Sequence[Mapping[str, Any]],
    controls: Mapping[str, Any],
    paired: Sequence[Mapping[str, Any]],
) -> float | None:
    """Width of the widest simultaneous interval of the family, None where there is none."""
    rows: list[tuple[str, Mapping[str, Any]]] = [("auc_ci_simultaneous", r) for r in attacks]
    rows += [("ci_simultaneous", r) for r in paired]
    for value in controls.values():
        held = value if isinstance(value, list) else [value] if value else []
        rows += [("auc_ci_simultaneous", r) for r in held]
    found = [row[key] for key, row in rows if row[key] is not None]
    return max((high - low for low, high in found), default=None)


def utility(probes: Mapping[str, Probe]) -> dict[str, Any]:
    """kNN and linear probe accuracy with Wilson intervals; null where a probe did not run."""
    found: dict[str, Any] = {}
    for name in ("knn", "linear"):
        probe = probes.get(name)
        value = None if probe is None else probe.value
        found[name] = value
        found[f"{name}_ci"] = (
            None if probe is None or value is None else wilson(value * probe.n, probe.n)
        )
    found["n"] = max((p.n for p in probes.values()), default=0)
    return found


def round_row(info: RoundInfo) -> dict[str, Any]:
    """One entry of the report's `rounds`."""
    row = dict(vars(info))
    return row | {"leakage": dict(info.leakage), "layers": dict(info.layers)}


def notes(run: RunScores, report: Mapping[str, Any]) -> list[str]:
    """The notes of every report, then those that this run calls for, then the evaluation's own."""
    found = [ONE_MODEL + (SEEDS if run.rounds else ".")]  # an audit trains no model
    if run.attacks:
        found.append(ORACLE)
    listed: list[tuple[str, Sequence[ScoredAttack]]] = [("", run.attacks), *run.controls.items()]
    for name, attacks in listed:
        for a in attacks:
            who = f"{a.name}{f' ({name} control)' if name else ''}"
            both = np.concatenate([a.scores_members, a.scores_nonmembers])
            if len(a.scores_members) == 0 or len(a.scores_nonmembers) == 0:
                found.append(f"{who}: no scores on one side, so it says nothing.")
            elif np.ptp(both) == 0:
                found.append(f"{who}: every score is the same, so its AUC is 0.5 by definition.")
    by = declared_attack(run)
    if by is not None and any(c["auc"] is not None for c in report["clients"]):
        shown = "" if not by.under_attack else ", scored on the model under attack"
        found.append(
            f"Clients are compared by {by.name}{shown}, against non-members weighted to their own "
            "class mix (Kish's effective n); null_auc scores non-members posing as their members."
        )
    if run.batches or any(a.unit == "batch" for a in run.attacks):
        found.append("Attacks by batch score batches, not images: never pool the two.")
    return found + [n for n in run.notes if n not in found]


def strict(value: Any, key: str = "") -> Any:
    """`value` in strict JSON types: floats rounded, null for what is not finite."""
    if isinstance(value, Mapping):
        return {str(k): strict(v, str(k)) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return strict(value.tolist(), key)
    if isinstance(value, list | tuple):
        return [strict(v, key) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return None
        # A threshold may be tiny, and six decimals would turn it into 0.
        return float(f"{number:.6g}") if key == "threshold" else round(number, 6)
    return value if value is None or isinstance(value, str) else str(value)
