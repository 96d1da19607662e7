"""Bring results of format 1 over to format 2: `python scripts/convert_reports.py REPORT..`.

Each report is written anew, and the figures beside it carry its new fingerprint. Nothing is
computed again: every number is where it was, but for its place. A file of format 2 stays.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fedmia.records.client_rows import InferenceRow
from fedmia.records.fields import fields_of
from fedmia.records.rows import Report, UtilityRow
from fedmia.report.figures.draw import fingerprint
from fedmia.report.judgement import detected
from fedmia.storage.json_rows import from_json, to_json

Old = Mapping[str, Any]


def convert(old: Old) -> dict[str, Any]:
    """The report of format 2 that holds the numbers of one of format 1.

    Args:
        old: what a report of format 1 holds; parts that it lacks, as golden reports do, are
            empty.

    Returns:
        What the report of format 2 holds.
    """
    controls, utility, counts = old["controls"], old["utility"], old.get("client_counts")
    probes = [name for name in fields_of(UtilityRow)]
    defended = old["defended"] or {"groups": []}
    names_by_id = [c["id"] for c in old["clients"] if "name" in c]
    whose = "subject" if names_by_id or _has_names(old) else "client"
    by = next((c["attack"] for c in old["clients"]), None)
    new = {
        **dict.fromkeys(fields_of(Report)),
        **{name: old[name] for name in fields_of(Report) if name in old},
        "format": 2,
        "attacks": [_attack(row) for row in old["attacks"]],
        "controls": {
            name: [_attack(row) for row in rows]
            for name, rows in controls.items() if isinstance(rows, list)
        },
        "pixels": controls["pixels"] and _auc(controls["pixels"]),
        "utility": {name: utility[name] for name in probes},
        "utility_untrained": utility["untrained"],
        "utility_after_attack": utility["after_attack"],
        "sets": [_set(row) for row in old["sets"]],
        "paired": [_pair(row) for row in old["paired"]],
        "dataset_inference": [_inference(row, old, whose) for row in old["dataset_inference"]],
        "clients": [_client(row, whose) for row in old["clients"]],
        "client_counts": counts,
        "client_cohorts": [
            {**row, "whose": "cohort"} for row in old.get("client_cohorts") or ()
        ],
        "defended": [_group(row, by) for row in defended["groups"]],
        "named_clients": [_named(row) for row in old["named_clients"]],
        "suspects": old.get("suspects") or [],
        "rounds": [{"layers_ci": {}, "cohort": None, **row} for row in old["rounds"]],
        "not_run": {row["attack"]: row["reason"] for row in old["not_run"]},
        "sweep": [_point(row) for row in old.get("sweep") or ()],
        "aggregation": old.get("aggregation") and _part(old["aggregation"]),
        "lower_bound": _without(old.get("lower_bound"), "standing"),
    }  # fmt: skip
    for name in ("config", "versions", "hardware", "timing", "split"):
        new[name] = old.get(name) or {}
    return to_json(from_json(Report, new, "report"), exact=True)


def _without(row: Old | None, *names: str) -> dict[str, Any] | None:
    return row and {name: value for name, value in row.items() if name not in names}


def _has_names(old: Old) -> bool:
    return any("name" in c for row in old["dataset_inference"] for c in row["clients"])


def _auc(row: Old) -> dict[str, Any]:
    empty = ("lower_limit", "n_member_subjects", "n_nonmember_subjects", "design_effect")
    return {**dict.fromkeys(empty), **row}


def _attack(row: Old) -> dict[str, Any]:
    empty = dict.fromkeys(("fitted_on", "over_control"))
    new = {**empty, **_auc(_without(row, "threat") or {}), **row["threat"]}
    if (over := new["over_control"]) is not None:  # of before there were several
        new["over_control"] = {"n_controls": 1, "tests": 1, "lower_limit": over["low"], **over}
    return new


def _pair(row: Old) -> dict[str, Any]:
    """The sentence of a pair ends in what its control is."""
    text = row["statement"].partition(", but not over ")[0]
    over = re.search(r" (?:over|than) (.*?)(?:: [+-].*)?$", text)
    names = ("auc", "auc_control", "auc_control_ci", "auc_control_low", "auc_control_high")
    known = {**dict.fromkeys(names), **(_without(row, "statement") or {})}
    return {**known, "over": over[1] if over else row["control"]}


def _set(row: Old) -> dict[str, Any]:
    """Of the oldest runs a set has one control."""
    return {
        "controls": [row["control"]] if row.get("control") else [],
        **(_without(row, "control") or {}),
    }


def _client(row: Old, whose: str) -> dict[str, Any]:
    defence = row["defence"] and {**_part(row["defence"]), **{
        "parts": [_part(part) for part in row["defence"]["parts"]],
        "beside": [_epsilon(one) for one in row["defence"].get("beside") or ()],
    }}  # fmt: skip
    return {"name": None, "why": None, **row, "whose": whose, "defence": defence}


def _part(row: Old) -> dict[str, Any]:
    return {**row, "epsilon": row["epsilon"] and _epsilon(row["epsilon"])}


def _epsilon(row: Old) -> dict[str, Any]:
    return {"lower_bound": None, **row}


def _group(row: Old, by: str | None) -> dict[str, Any]:
    n = row["n_members"]
    leaks = [{**leak, "whose": "group", "n_members": n} for leak in row["leakage"]]
    group = {"n_clients": len(row["clients"]), **(_without(row, "n_members") or {})}
    return {**group, "leakage": leaks, "attack": by}


def _named(row: Old) -> dict[str, Any]:
    below = row["placebo"] and {**row["placebo"], "attack": row["attack"], "chance": None}
    return {**row, "placebo": below and {**below, "placebo": None}}


def _inference(row: Old, old: Old, whose: str) -> dict[str, Any]:
    clients = [{"name": None, **c, "whose": whose} for c in row["clients"]]
    reached = re.search(r"; with (\d+) non-member subjects", row["statement"])
    sizes = {c["n_nonmembers"] for c in row["clients"]} if whose == "subject" else set()
    new = {
        "n_tested": sum(c["p_value"] is not None for c in clients), "n_detected": 0,
        "n_clients": None, "may_differ": False, "p_value_untrained": None,
        **(_without(row, "threat", "statement") or {}), **row["threat"],
        "clients": clients, "family": old["family"]["intervals"],
        "n_nonmember_subjects": int(reached[1]) if reached else next(iter(sizes), None),
    }  # fmt: skip
    return {**new, "n_detected": len(detected(from_json(InferenceRow, new, "row")))}


def _point(row: Old) -> dict[str, Any]:
    place = {name: row[name] for name in ("attack", "sweep", "value", "known", "not_run")}
    scored = None if row["not_run"] else _attack(_without(row, *place) or {})
    return {**place, "scored": scored}


def stamp(folder: Path, text: str) -> None:
    """Write the fingerprint of a report into the figures beside it."""
    for file in sorted(folder.glob("figures/*.png")):
        with Image.open(file) as image:
            image.load()
            if "Report" in image.info:
                info = PngInfo()
                info.add_text("Report", text)
                image.save(file, pnginfo=info)


def main(arguments: list[str] | None = None) -> int:
    """Convert what is named, and print a line a report."""
    for path in map(Path, sys.argv[1:] if arguments is None else arguments):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format", 1) == 2 or "verdict_code" not in content:  # of released heads
            continue
        new = convert(content)
        path.write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        stamp(path.parent, fingerprint(from_json(Report, new, "report")))
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
