"""Runs of this process, and what is wrong with how one with a fault ended."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmia.simulate import main as simulate
from fedmia.storage.json_rows import to_json
from fedmia.storage.runfolder import RunFolder

POLICIES = ("stop", "retry", "drop")
VARYING = ("timing", "config", "versions", "hardware")
Report = dict[str, Any]


def run(arguments: Sequence[str]) -> tuple[int, str, float]:
    """Exit code, what was printed on standard error, and seconds of a run in this process."""
    errors, began = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = simulate(list(arguments))
    return code, errors.getvalue(), time.perf_counter() - began


def read(out: Path) -> Report | None:
    """A report less what clocks and folders tell, None where there is none."""
    if (report := RunFolder(out).read_report_or_none()) is None:
        return None
    return {k: v for k, v in to_json(report, exact=True).items() if k not in VARYING}


def judge_fault(report: Report, policy: str, clean: Report, code: int) -> list[str]:
    """What is wrong with the report of a run with one fault."""
    faults = [(f["client"], f["round"], f["action"]) for f in report["faults"]]
    action = {"stop": "stopped", "retry": "retried", "drop": "dropped"}[policy]
    wrong = [] if faults == [(1, 2, action)] else [f"faults told: {faults}"]
    if code != (1 if policy == "stop" else 0):
        wrong.append(f"exit code {code}")
    expected = {"faults": [], "notes": []}  # of the fault itself
    if policy == "retry" and {**report, **expected} != {**clean, **expected}:
        wrong.append("other numbers than without the fault")
    if policy == "stop":
        if [r["round"] for r in report["rounds"]] != [1] or report["interrupted"] != 1:
            wrong.append("not the finished round alone")
        elif report["rounds"][0]["loss"] != clean["rounds"][0]["loss"]:
            wrong.append("another loss in the finished round")
    if policy == "drop":
        # All of client 1's images are out of it, as members and in the table of clients.
        lost = clean["attacks"][0]["n_members"] - report["attacks"][0]["n_members"]
        own = next(c["n_members"] for c in clean["clients"] if c["id"] == 1)
        if lost != own or own == 0:
            wrong.append(f"{lost} of the {own} images of the client that is gone are left out")
        if len(report["rounds"]) != len(clean["rounds"]):
            wrong.append("not all rounds")
    return wrong
