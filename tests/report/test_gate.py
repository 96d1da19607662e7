"""A gate: which reports fail which conditions, the exit code, JUnit's XML, the Markdown.

`fedmia simulate --resume RUN` shows a finished run again, here one of made-up numbers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES, VOID
from tests.auditing.conftest import Audit, archives, audit
from tests.made_up_runs import write_run
from tests.pages.reading import script
from tests.report.conftest import (
    alone,
    cases,
    claim,
    defence,
    gate,
    guessed,
    make_run,
    opened,
    outcomes,
    scored,
)

__all__ = ["archives", "audit"]  # fixtures of the audits
ATTACKS = [
    {"name": "a", "auc": 0.6, "low": 0.5, "high": 0.7, "tpr_at_fpr": {"0.01": 0.05, "0.1": 0.3}},
    {"name": "b", "auc": 0.55, "low": 0.5, "high": 0.6, "tpr_at_fpr": {"0.01": 0.04, "0.1": 0.4}},
]
BAD = {"name": "c", "auc": None, "tpr_at_fpr": {}}
TURNED = {"name": "c", "auc": 0.3, "high": 0.4, "tpr_at_fpr": {}}
TABLE = yaml.safe_load(script("docs_numbers").TABLES.read_text(encoding="utf-8"))["gate-codes"]
ROWS = {f"{row['verdict']} {row['report']}".strip(): row for row in TABLE["rows"]}


def spent(value: float | None, unit: str = "image", standing: str = "guaranteed") -> Any:
    epsilon = {"value": value, "unit": unit, "standing": standing, "delta": 1e-5, "rounds": 9}
    return {"name": "dpsgd", "epsilon": epsilon}


def client(number: int, *stated: Any, role: str = "honest") -> dict[str, Any]:
    beside = [one["epsilon"] for one in stated[1:]]
    defence = {**stated[0], "parts": [], "beside": beside} if stated else None
    return {"id": number, "whose": "client", "role": role, "defence": defence}


def made_up_run(folder: Path, fields: Any) -> Path:
    """A finished run whose report says so."""
    whole = {"subject": "a run", "verdict": "V.", "verdict_code": "not-established",
             "attacks": ATTACKS, "smallest_leak": 0.6}  # fmt: skip
    write_run(folder, whole | fields)
    return folder


def clients(*rows: Any, **more: Any) -> dict[str, Any]:
    return {"clients": [*rows], **more}


def why_not_run(reason: str) -> dict[str, Any]:
    return {"not_run": {"lira": reason}}


HEURISTIC = spent(3.0, standing="heuristic")
REFUTED = spent(3.0)
REFUTED["epsilon"]["lower_bound"] = {"value_simultaneous": 4.0, "canaries": 9, "refuted": True}


# What a report says -> condition -> why it fails it; None: it passes.
JUDGED: list[tuple[Any, dict[str, str | None]]] = [
    ({}, {"leaks": None, "auc>0.6": None, "auc>0.59": "a has 0.600", "tpr@0.01>0.05": None,
          "tpr@0.1>0.35": "b has 0.400", "tpr@0.001>0.5": "a, b: too few non-members",
          "smallest>0.6": None, "smallest>0.59": "AUC 0.600", "epsilon>8": "states no epsilon"}),
    (clients(client(0, REFUTED), verdict="Refuted."),
     {"leaks": "Refuted.", "epsilon>8": "CLAIM REFUTED: client 0 claims epsilon 3"}),
    (why_not_run("failed: OSError"),
     {"leaks": "broke: lira", "shift": None, "auc>0.6": "broke: lira"}),
    (why_not_run("needs shadows"), {"leaks": None}),
    ({"attacks": [*ATTACKS, TURNED]},
     {"leaks": "V.", "auc>0.6": "c has 0.300, which is 0.700 with its scores turned round"}),
    ({"verdict_code": "leaks"}, {"shift": None, "leaks": "V."}),
    ({"attacks": [*ATTACKS, BAD]}, {"auc>0.6": "c: too few"}),
    ({"attacks": [], "smallest_leak": None},
     {"auc>0.5": "no attack has scores", "smallest>0.9": "perfect attack"}),
    (clients(client(0, spent(8.0)), client(1, spent(3.0))), {"epsilon>8": None}),
    (clients(client(0, spent(1.0)), client(1, spent(3.0))),
     {"epsilon>2": "client 1 has epsilon 3 for one image (delta 1e-05, dpsgd: guaranteed)"}),
    (clients(client(0, spent(1.0)), client(1, spent(None))), {"epsilon>8": "client 1 has no"}),
    (clients(client(0, spent(1.0)), client(1)), {"epsilon>8": "client 1 has no guaranteed"}),
    (clients(client(0, spent(1.0)), client(1, role="active")), {"epsilon>8": None}),
    (clients(client(0, HEURISTIC)),
     {"epsilon>8": "client 0 has no guaranteed epsilon; eps", "epsilon[heuristic]>8": None}),
    (clients(client(0, spent(3.0, standing="empirical"))), {"epsilon[heuristic]>8": "empirical"}),
    (clients(client(0, spent(3.0, unit=""))), {"epsilon>8": "unit that is not named"}),
    # Of one unit the least holds, of two each.
    (clients(client(0, spent(9.0)), aggregation=spent(4.0)), {"epsilon>8": None}),
    (clients(client(0, spent(4.0)), aggregation=spent(9.0, "client")),
     {"epsilon>8": "client 0 has epsilon 9 for one client"}),
    (clients(client(0, spent(4.0), spent(9.0, "client"))), {"epsilon>8": "9 for one client"}),
    (clients(client(0), client(1), aggregation=spent(9.0, "client")), {"epsilon>8": "epsilon 9"}),
    (clients(client(0, spent(4.0)), client_counts={"clients": 9}),
     {"epsilon>8": "does not list has no"}),
    (clients(client(0), client_counts={"clients": 9}, aggregation=spent(4.0, "client")),
     {"epsilon>8": None}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "judged"), JUDGED)
def test_conditions__fail_what_they_say(
    fields: Any, judged: dict[str, str | None], tmp_path: Path
) -> None:
    ran = gate(made_up_run(tmp_path / "RUN", fields), ",".join(judged))
    for (failed, said), (text, why) in zip(outcomes(ran), judged.items(), strict=True):
        assert failed == (why is not None) and (why is None or why in said), text
    assert ran.code == (3 if any(judged.values()) else 0)


# A condition -> whether its number fails the report of every verdict.
NUMBERS = {"auc>0.9": False, "auc>0.55": True, "tpr@0.1>0.9": False, "tpr@0.1>0.35": True,
           "smallest>0.9": False, "smallest>0.55": True,
           "epsilon>8": False, "epsilon>2": True}  # fmt: skip


@pytest.mark.parametrize("broke", [False, True])
@pytest.mark.parametrize("code", CODES)
def test_conditions__of_every_kind_against_every_verdict(
    code: str, broke: bool, tmp_path: Path
) -> None:
    why = why_not_run("failed: OSError" if broke else "needs shadows")
    fields = {"verdict_code": code, **clients(client(0, spent(3.0))), **why}
    run = made_up_run(tmp_path / "RUN", fields)
    verdicts = [one for one in CODES if one != "not-established"]
    wanted = {one: code == one for one in verdicts}
    wanted["leaks"] = broke or code != "not-established"
    for text, over in NUMBERS.items():
        unknown = broke and text.startswith(("auc", "tpr"))
        wanted[text] = over or unknown or (code in VOID and not text.startswith("epsilon"))
    ran = gate(run, ",".join(wanted))
    assert dict(zip(wanted, (failed for failed, _ in outcomes(ran)), strict=True)) == wanted
    assert ran.code == 3
    passing = [text for text, over in NUMBERS.items() if not over]
    if code in VOID:
        exempt = gate(run, ",".join((*passing, f"not:{code}")))
        assert [failed for failed, _ in outcomes(exempt)] == [broke, broke, False, False]
        assert exempt.code == 3 * broke


def test_conditions__that_are_none_are_refused(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "RUN", {})
    for text, words in (
        ("leak", "did you mean 'leaks'"), ("", "unknown condition ''"), ("auc>1", "less than 1"),
        ("auc<0.6", "known: leaks"), ("tpr@0.05>0.1", "one of 0.001, 0.01, 0.1"),
        ("tpr@1.1.1>0.1", "no number"), ("leaks,auc", "unknown condition 'auc'"),
        ("auc>0.4", "at least 0.5"), ("smallest>0.2", "at least 0.5"),
        ("not-established", "unknown condition"), ("auc[heuristic]>0.6", "unknown condition"),
        ("leaks,not:leaks", "'not:leaks' exempts no verdict"), ("leaks,not:shit", "'shift'"),
        ("not:shift", "from no condition"), ("epsilon>8,not:shift", "from no condition"),
        ("leaks,shift,not:shift", "from no condition"),
    ):  # fmt: skip
        refused = gate(run, text)
        assert refused.code == 2 and words in refused.err and not refused.out, text


def make_report(run: Evaluation, row: Any) -> Report:
    """A report of this verdict, with what else its row of the table says."""
    stated = claim(4.0, standing="guaranteed", unit="image")
    audit = guessed(1000, (50, 350, 700), (49, 315, 520))
    epsilon = {"a heuristic epsilon": replace(stated, standing="heuristic"), "no epsilon": None,
               "a refuted epsilon": replace(stated, value=1.0, lower_bound=audit)}  # fmt: skip
    one = next(one for code, one in cases(run) if code == row["verdict"])
    if row["report"] == "40 + 40 images":
        one = alone(make_run(0.5, 40, 40), scored("a", 0.5, 40, 40, 1), pixels=None)
    if row["report"] == "a refuted epsilon":
        one = next(one for code, one in cases(run) if code == "not-established")
    if row["report"] == "an AUC under 0.5":
        one = alone(run, scored("a", 0.2, 112, 500, 1), pixels=None)
    if row["report"] == "an attack broke":
        one = replace(one, not_run={"lira": "failed: OSError"})
    own = defence(epsilon=epsilon.get(row["report"], stated))
    return build_report(replace(one, clients=[replace(c, defence=own) for c in one.clients]))


@pytest.mark.parametrize("name", ROWS)
def test_table__of_the_page_is_what_the_gate_does(
    run: Evaluation, name: str, tmp_path: Path
) -> None:
    row = ROWS[name]
    whole = make_report(run, row)
    assert whole.verdict_code == row["verdict"]
    opened(tmp_path / "RUN", replace(whole, interrupted=None))  # else it would be gone on with
    texts = [head.strip("`").replace("VERDICT", row["verdict"]) for head in TABLE["columns"]][2:]
    # What is refused, and what exempts a verdict from others, stands alone.
    alone = [text for text in texts if "not:" in text or text == "not-established"]
    exits = {text: gate(tmp_path / "RUN", text).code for text in alone}
    together = [text for text in texts if text not in alone]
    found = outcomes(gate(tmp_path / "RUN", ",".join(together)))
    exits |= {text: 3 * failed for text, (failed, _) in zip(together, found, strict=True)}
    assert exits == dict(zip(texts, row["exits"], strict=True))
    assert {row["verdict"] for row in ROWS.values()} == {*CODES}


def test_files__tell_each_condition(tmp_path: Path) -> None:
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("before\n")
    run = made_up_run(tmp_path / "RUN", why_not_run("needs shadows"))
    ran = gate(run, "leaks,auc>0.5", "--junit", str(junit), "--summary", str(summary))
    assert [failed for failed, _ in outcomes(ran)] == [False, True]
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    texts = {case.get("name"): (case[0].tag, case[0].text) for case in suite}
    assert texts == {
        "leaks": ("system-out", "the verdict is not-established; not run: lira"),
        "auc>0.5": ("failure", "a has 0.600; not run: lira"),
    }
    lines = summary.read_text().splitlines()
    assert lines[0] == "before" and f"| leaks | passed | {texts['leaks'][1]} |" in lines
    assert "| a | 0.600 | 0.500 | 0.700 |" in lines and "Not run: lira: needs shadows" in lines


def test_audit__ends_with_the_code_of_the_gate(audit: Audit, tmp_path: Path) -> None:
    flags = f"--attacks similarity,lpla --known 6 --junit {tmp_path / 'g.xml'}"
    done = audit(f"{flags} --fail-on 'leaks,auc>0.5'", tmp_path / "A")
    assert done.code == 3 and "fedmia: gate: auc>0.5: failed: " in done.err
    assert "fedmia: gate: leaks: passed: the verdict is not-established" in done.err
    assert (tmp_path / "g.xml").is_file() and (tmp_path / "A" / "report.json").is_file()
    assert "fail_on" not in str(done.report["config"])
    assert audit("--known 6 --fail-on shift").code == 0
    for wrong, words in (("--fail-on leak", "did you mean"), ("--summary s.md", "no condition")):
        refused = audit(f"--known 6 {wrong}", tmp_path / "B")
        assert refused.code == 2 and words in refused.err and not (tmp_path / "B").exists()
