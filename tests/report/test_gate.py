"""A gate: which reports fail which conditions, the exit code, JUnit's XML, the Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from fedmia.cli.command import BAD_INPUT, SHUT, pass_gate, read_gate
from fedmia.records import Evaluation
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.privacy import Epsilon
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES
from fedmia.report.conditions import read_conditions
from fedmia.report.gate import Gate
from fedmia.settings.errors import InputError
from tests.auditing.conftest import Audit, archives, audit
from tests.made_up_runs import made_up
from tests.pages.reading import script
from tests.report.conftest import alone, guessed, make_run, scored
from tests.report.test_report_words import cases

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


def report(**fields: Any) -> Report:
    whole = {"verdict": "V.", "verdict_code": "not-established", "attacks": ATTACKS,
             "smallest_leak": 0.6}  # fmt: skip
    return made_up(Report, **whole | fields)


def clients(*rows: Any, **more: Any) -> dict[str, Any]:
    return {"clients": [*rows], **more}


def why_not_run(reason: str) -> dict[str, Any]:
    return {"not_run": {"lira": reason}}


HEURISTIC = spent(3.0, standing="heuristic")
REFUTED = spent(3.0)
REFUTED["epsilon"]["lower_bound"] = {"value_simultaneous": 4.0, "canaries": 9, "refuted": True}


@pytest.mark.parametrize(
    ("text", "fields", "why"),
    [
        ("leaks", {}, None),
        ("leaks", clients(client(0, REFUTED), verdict="Refuted."), "Refuted."),
        ("leaks", why_not_run("failed: OSError"), "broke: lira"),
        ("leaks", why_not_run("needs shadows"), None),
        ("leaks", {"attacks": [*ATTACKS, TURNED]}, "V."),
        ("shift", {"verdict_code": "leaks"}, None),
        ("shift", why_not_run("failed: OSError"), None),
        ("auc>0.6", {}, None),
        ("auc>0.59", {}, "a has 0.600"),
        ("auc>0.6", {"attacks": [*ATTACKS, TURNED]}, "c has 0.300, which is 0.700"),
        ("auc>0.6", {"attacks": [*ATTACKS, BAD]}, "c: too few"),
        ("auc>0.6", why_not_run("failed: OSError"), "broke: lira"),
        ("tpr@0.01>0.05", {}, None),
        ("tpr@0.1>0.35", {}, "b has 0.400"),
        ("tpr@0.001>0.5", {}, "a, b: too few non-members"),
        ("auc>0.5", {"attacks": []}, "no attack has scores"),
        ("smallest>0.6", {}, None),
        ("smallest>0.59", {}, "AUC 0.600"),
        ("smallest>0.9", {"smallest_leak": None}, "perfect attack"),
        ("epsilon>8", {}, "states no epsilon"),
        ("epsilon>8", clients(client(0, spent(8.0)), client(1, spent(3.0))), None),
        ("epsilon>2", clients(client(0, spent(1.0)), client(1, spent(3.0))),
         "client 1 has epsilon 3 for one image (delta 1e-05, dpsgd: guaranteed)"),
        ("epsilon>8", clients(client(0, spent(1.0)), client(1, spent(None))), "client 1 has no"),
        ("epsilon>8", clients(client(0, spent(1.0)), client(1)), "client 1 has no guaranteed"),
        ("epsilon>8", clients(client(0, spent(1.0)), client(1, role="active")), None),
        ("epsilon>8", clients(client(0, HEURISTIC)), "client 0 has no guaranteed epsilon; eps"),
        ("epsilon[heuristic]>8", clients(client(0, HEURISTIC)), None),
        ("epsilon[heuristic]>8", clients(client(0, spent(3.0, standing="empirical"))), "empirical"),
        ("epsilon>8", clients(client(0, spent(3.0, unit=""))), "unit that is not named"),
        ("epsilon>8", clients(client(0, REFUTED)), "CLAIM REFUTED: client 0 claims epsilon 3"),
        # Of one unit the least holds, of two each.
        ("epsilon>8", clients(client(0, spent(9.0)), aggregation=spent(4.0)), None),
        ("epsilon>8", clients(client(0, spent(4.0)), aggregation=spent(9.0, "client")),
         "client 0 has epsilon 9 for one client"),
        ("epsilon>8", clients(client(0, spent(4.0), spent(9.0, "client"))), "9 for one client"),
        ("epsilon>8", clients(client(0), client(1), aggregation=spent(9.0, "client")), "epsilon 9"),
        ("epsilon>8", clients(client(0, spent(4.0)), client_counts={}), "does not list has no"),
        ("epsilon>8", clients(client(0), client_counts={}, aggregation=spent(4.0, "client")), None),
    ],
)  # fmt: skip
def test_condition__fails_what_it_says(text: str, fields: Any, why: str | None) -> None:
    (result,) = Gate(read_conditions(text)).check(report(**fields))
    assert result.failed == (why is not None) and (why is None or why in result.why)


@pytest.mark.parametrize("code", CODES)
def test_conditions__on_numbers_fail_where_nothing_follows_from_them(code: str) -> None:
    whole = report(verdict_code=code)
    void = code in ("shift", "control-failed", "collapsed", "untested", "no-verdict")
    for text in ("auc>0.9", "tpr@0.1>0.9", "smallest>0.9"):
        (result,) = Gate(read_conditions(text)).check(whole)
        assert result.failed == void and (not void or result.why == "V.")
        if void:
            (result,) = Gate(read_conditions(f"{text},not:{code}")).check(whole)
            assert not result.failed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leak", "did you mean 'leaks'"), ("", "unknown condition ''"), ("auc>1", "less than 1"),
        ("auc<0.6", "known: leaks"), ("tpr@0.05>0.1", "one of 0.001, 0.01, 0.1"),
        ("tpr@1.1.1>0.1", "no number"), ("leaks,auc", "unknown condition 'auc'"),
        ("auc>0.4", "at least 0.5"), ("smallest>0.2", "at least 0.5"),
        ("not-established", "unknown condition"), ("auc[heuristic]>0.6", "unknown condition"),
        ("leaks,not:leaks", "'not:leaks' exempts no verdict"), ("leaks,not:shit", "'shift'"),
        ("not:shift", "from no condition"), ("epsilon>8,not:shift", "from no condition"),
        ("leaks,shift,not:shift", "from no condition"),
    ],
)  # fmt: skip
def test_conditions__that_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_conditions(text)


def make_report(run: Evaluation, row: Any) -> Any:
    """A report of this verdict, with what else its row of the table says."""
    claim = Epsilon(
        value=4.0,
        delta=1e-5,
        rounds=20,
        standing="guaranteed",
        assumptions="Per image.",
        unit="image",
    )
    heuristic = replace(claim, standing="heuristic")
    audit = guessed(1000, (50, 350, 700), (49, 315, 520))
    epsilon = {"a heuristic epsilon": heuristic, "no epsilon": None,
               "a refuted epsilon": replace(claim, value=1.0, lower_bound=audit)}  # fmt: skip
    one = next(one for code, one in cases(run) if code == row["verdict"])
    if row["report"] == "40 + 40 images":
        one = alone(make_run(0.5, 40, 40), scored("a", 0.5, 40, 40, 1), pixels=None)
    if row["report"] == "a refuted epsilon":
        one = next(one for code, one in cases(run) if code == "not-established")
    if row["report"] == "an AUC under 0.5":
        one = alone(run, scored("a", 0.2, 112, 500, 1), pixels=None)
    if row["report"] == "an attack broke":
        one = replace(one, not_run={"lira": "failed: OSError"})
    defence = DefenceRow(name="dpsgd", epsilon=epsilon.get(row["report"], claim))
    return build_report(replace(one, clients=[replace(c, defence=defence) for c in one.clients]))


@pytest.mark.parametrize("name", ROWS)
def test_table__of_the_page_is_what_the_gate_does(run: Evaluation, name: str) -> None:
    row = ROWS[name]
    whole = make_report(run, row)
    assert whole.verdict_code == row["verdict"]
    texts = [head.strip("`").replace("VERDICT", row["verdict"]) for head in TABLE["columns"]][2:]
    exits = []
    for text in texts:
        try:
            exits.append(pass_gate(read_gate({"fail_on": text}), whole, 0))
        except InputError:
            exits.append(BAD_INPUT)
    assert dict(zip(texts, exits, strict=True)) == dict(zip(texts, row["exits"], strict=True))
    assert {row["verdict"] for row in ROWS.values()} == {*CODES}
    assert pass_gate(read_gate({"fail_on": "leaks"}), whole, 130) == 130


def test_files__tell_each_condition(tmp_path: Path) -> None:
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("before\n")
    gate = Gate(read_conditions("leaks,auc>0.5"), junit, summary)
    results = gate.check(report(**why_not_run("needs shadows")))
    assert [one.failed for one in results] == [False, True]
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
    assert done.code == SHUT and "fedmia: gate: auc>0.5: failed: " in done.err
    assert "fedmia: gate: leaks: passed: the verdict is not-established" in done.err
    assert (tmp_path / "g.xml").is_file() and (tmp_path / "A" / "report.json").is_file()
    assert "fail_on" not in str(done.report["config"])
    assert audit("--known 6 --fail-on shift").code == 0
    for wrong, words in (("--fail-on leak", "did you mean"), ("--summary s.md", "no condition")):
        refused = audit(f"--known 6 {wrong}", tmp_path / "B")
        assert refused.code == 2 and words in refused.err and not (tmp_path / "B").exists()
