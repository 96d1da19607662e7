"""A gate: which reports fail which conditions, the exit code, JUnit's XML, the Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedmia.cli.command import SHUT
from fedmia.options.errors import InputError
from fedmia.report.gate import Gate, read_conditions
from tests.auditing.conftest import Audit, archives, audit

__all__ = ["archives", "audit"]  # fixtures of the audits
ATTACKS = [
    {"name": "a", "auc": 0.6, "low": 0.5, "high": 0.7, "tpr_at_fpr": {"0.01": 0.05, "0.1": 0.3}},
    {"name": "b", "auc": 0.55, "low": 0.5, "high": 0.6, "tpr_at_fpr": {"0.01": 0.04, "0.1": 0.4}},
]


def client(number: int, epsilon: float | None, role: str = "honest") -> dict[str, Any]:
    return {"id": number, "role": role,
            "defence": None if epsilon is None else {"epsilon": {"value": epsilon}}}  # fmt: skip


def report(**fields: Any) -> Any:
    whole = {"verdict": "V.", "verdict_code": "not-established", "attacks": ATTACKS, "clients": []}
    return whole | fields


@pytest.mark.parametrize(
    ("text", "fields", "why"),
    [
        ("leaks", {}, None),
        ("leaks", {"verdict_code": "leaks"}, "V."),
        ("shift", {"verdict_code": "leaks"}, None),
        ("auc>0.6", {}, None),
        ("auc>0.59", {}, "a has 0.600"),
        ("tpr@0.01>0.05", {}, None),
        ("tpr@0.1>0.35", {}, "b has 0.400"),
        ("tpr@0.001>0.5", {}, "a, b: too few non-members"),
        ("auc>0.5", {"attacks": []}, "no attack has scores"),
        ("epsilon>8", {}, "states no epsilon"),
        ("epsilon>8", {"clients": [client(0, 8.0), client(1, 3.0)]}, None),
        ("epsilon>2", {"clients": [client(0, 1.0), client(1, 3.0)]}, "client 1 has epsilon 3"),
        ("epsilon>8", {"clients": [client(0, 1.0), client(1, None)]}, "for client 1"),
        ("epsilon>8", {"clients": [client(0, 1.0), client(1, None, "active")]}, None),
        ("epsilon>8", {"clients": [client(0, 9.0), client(1, None)],
                       "aggregation": {"epsilon": {"value": 4.0}}}, None),
    ],
)  # fmt: skip
def test_condition__fails_what_it_says(text: str, fields: Any, why: str | None) -> None:
    lines = Gate(read_conditions(text)).check(report(**fields))
    assert len(lines) == (why is not None)
    assert why is None or (lines[0].startswith(f"{text}: ") and why in lines[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leak", "did you mean 'leaks'"), ("", "unknown condition ''"), ("auc>1", "less than 1"),
        ("auc<0.6", "known: leaks"), ("tpr@0.05>0.1", "one of 0.001, 0.01, 0.1"),
        ("tpr@1.1.1>0.1", "no number"), ("leaks,auc", "unknown condition 'auc'"),
    ],
)  # fmt: skip
def test_conditions__that_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_conditions(text)


def test_files__tell_each_condition(tmp_path: Path) -> None:
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("before\n")
    gate = Gate(read_conditions("leaks,auc>0.5"), junit, summary)
    assert len(gate.check(report())) == 1
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = {case.get("name"): case.find("failure") for case in suite}
    assert cases["leaks"] is None and cases["auc>0.5"].get("message") == "a has 0.600"  # type: ignore[union-attr]
    lines = summary.read_text().splitlines()
    assert lines[0] == "before" and "| leaks | passed |" in lines
    assert "| a | 0.600 | 0.500 | 0.700 |" in lines


def test_audit__ends_with_the_code_of_the_gate(audit: Audit, tmp_path: Path) -> None:
    flags = f"--attacks similarity,lpla --known 6 --junit {tmp_path / 'g.xml'}"
    done = audit(f"{flags} --fail-on 'leaks,auc>0.01'", tmp_path / "A")
    assert done.code == SHUT and "fedmia: gate: auc>0.01: " in done.err
    assert (tmp_path / "g.xml").is_file() and (tmp_path / "A" / "report.json").is_file()
    assert "fail_on" not in str(done.report["config"])
    assert audit("--known 6 --fail-on shift").code == 0
    for wrong, words in (("--fail-on leak", "did you mean"), ("--summary s.md", "no condition")):
        refused = audit(f"--known 6 {wrong}", tmp_path / "B")
        assert refused.code == 2 and words in refused.err and not (tmp_path / "B").exists()
