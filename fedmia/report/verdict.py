"""One plain sentence and its code. Every judgement rests on simultaneous intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def excludes_half(row: Row) -> bool:
    """Whether the simultaneous interval of this AUC leaves out 0.5, on either side."""
    ci = row["auc_ci_simultaneous"]
    return ci is not None and not ci[0] <= 0.5 <= ci[1]


def verdict(report: Mapping[str, Any], pretrain: str, interrupted: int | None) -> tuple[str, str]:
    """(sentence, code) of a report whose attacks, controls and pairs are filled in.

    Codes: `shift` (pixels alone tell members apart), `control-failed`, `leaks`,
    `not-established`, tried in this order.
    """
    core, code = _core(report)
    tail = ""
    if pretrain == "pooled":
        tail += "; pre-training was pooled, so the server had seen all private images"
    if interrupted is not None:
        tail += f"; the run was interrupted after round {interrupted}"
    return f"{core}{tail}.", code


def _core(report: Mapping[str, Any]) -> tuple[str, str]:
    pixels = report["controls"]["pixels"]
    if pixels is not None and excludes_half(pixels):
        return (
            "Shift between the sets; leakage not established: a classifier of raw pixels that "
            f"never sees the model tells members from non-members with {numbers(pixels)}",
            "shift",
        )
    failed = failed_control(report["controls"])
    if failed is not None:
        name, row = failed
        return (
            f"Control failed; leakage not established: {row['name']} under the {name} control, "
            f"where there is nothing to leak, has {numbers(row)}, which excludes 0.5",
            "control-failed",
        )
    attacks = [a for a in report["attacks"] if a["auc"] is not None]
    if not attacks:
        return "No leakage established: no attack was scored", "not-established"
    strongest = strongest_leak(attacks)
    if strongest is None:
        return _nothing(attacks) + _reversed(attacks), "not-established"
    where = ", on the model under attack" if strongest["under_attack"] else ""
    batch = " (batches, not images)" if strongest["unit"] == "batch" else ""
    what = "The encoder leaks"
    if strongest["threat"]["vantage"] == "server":
        what = "The clients' updates leak"
    return (
        f"{what} membership: {strongest['name']} tells members from non-members{batch} "
        f"with {numbers(strongest)}{where}" + _ascent(report["paired"]) + _reversed(attacks),
        "leaks",
    )


def numbers(row: Row) -> str:
    """`AUC 0.64 [0.55, 0.72] (simultaneous 95 % interval; 112 members, 500 non-members)`."""
    low, high = row["auc_ci_simultaneous"]
    unit = "batches of members, of" if row.get("unit") == "batch" else "members,"
    n = f"{row['n_members']} {unit} {row['n_nonmembers']} non-members"
    return f"AUC {row['auc']:.2f} [{low:.2f}, {high:.2f}] (simultaneous 95 % interval; {n})"


def failed_control(controls: Mapping[str, Any]) -> tuple[str, Row] | None:
    """(set name, row) of the control farthest from 0.5 among those that exclude it, or None."""
    failed = [
        (name, row)
        for name, rows in controls.items()
        if name != "pixels"
        for row in rows
        if excludes_half(row)
    ]
    return max(failed, key=lambda f: abs(f[1]["auc"] - 0.5), default=None)


def strongest_leak(attacks: Sequence[Row]) -> Row | None:
    """The attack of highest AUC whose simultaneous interval lies over 0.5; images before batches,
    because the two are never pooled and a batch says less about a person."""
    leaks = [a for a in attacks if a["auc_ci_simultaneous"][0] > 0.5]
    return max(leaks, key=lambda a: (a["unit"] == "image", a["auc"]), default=None)


def _nothing(attacks: Sequence[Row]) -> str:
    reach = max(attacks, key=lambda a: (a["unit"] == "image", a["auc_ci_simultaneous"][1]))
    if len(attacks) == 1:
        return (
            f"No leakage established: {reach['name']} has {numbers(reach)}, which does not lie "
            "over 0.5"
        )
    return (
        f"No leakage established: no simultaneous interval of {len(attacks)} attacks lies over "
        f"0.5; the one that reaches highest is that of {reach['name']}, {numbers(reach)}"
    )


def _reversed(attacks: Sequence[Row]) -> str:
    turned = [a["name"] for a in attacks if a["auc_ci_simultaneous"][1] < 0.5]
    if not turned:
        return ""
    verb = "is" if len(turned) == 1 else "are"
    return f"; {', '.join(turned)} {verb} reversed (interval under 0.5: members score lower)"


def _ascent(paired: Sequence[Row]) -> str:
    rows = [p for p in paired if p["unit"] == "image" and p["difference"] is not None]
    return f"; {rows[0]['statement']}" if rows else ""
