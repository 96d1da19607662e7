"""The JSON Schema of report.json, and what reads report.json: they refuse the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmia import open_run
from fedmia.settings.errors import InputError
from tests.made_up_runs import write_run
from tests.pages.reading import ROOT, script

jsonschema = pytest.importorskip("jsonschema", reason="nbformat, of the test extra, brings it")
FILES = (
    "research/results/default/report.json",
    "research/results/overfit/report.json",
    "tests/stored/run/report.json",
)
FAULTS: dict[str, Callable[[Any], object]] = {
    "a field is missing": lambda report: report.pop("smallest_leak"),
    "a field is unknown": lambda report: report.update(threat={}),
    "a field of a row is missing": lambda report: report["attacks"][0].pop("auc"),
    "a field of a row is unknown": lambda report: report["attacks"][0].update(statement=""),
    "a number is a text": lambda report: report["attacks"][0].update(auc="high"),
    "a count is no whole number": lambda report: report["attacks"][0].update(n_members=1.5),
    "a number is a boolean": lambda report: report["attacks"][0].update(auc=True),
    "a text is null": lambda report: report.update(verdict=None),
    "a row is null": lambda report: report["controls"]["untrained"].append(None),
    "a list is an object": lambda report: report.update(attacks={}),
    "an object is a list": lambda report: report.update(controls=[]),
    "an end of an interval is a text": lambda report: report["attacks"][0].update(auc_ci=["0", 1]),
    "a rate by target is a text": lambda report: report["attacks"][0].update(
        tpr_at_fpr={"0.01": "none"}
    ),
}


@pytest.fixture(scope="module")
def whole() -> Any:
    """The schema that the reference prints."""
    page = script("formats_pages", "docs/_ext").report_schema()
    return json.loads(page.partition("```json\n")[2].partition("```")[0])


def read(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def test_schema__fits_the_committed_reports(whole: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(whole)
    for path in FILES:
        jsonschema.Draft202012Validator(whole).validate(read(path))


@pytest.mark.parametrize("fault", FAULTS)
def test_schema__refuses_what_the_reader_refuses(fault: str, whole: Any, tmp_path: Path) -> None:
    report = copy.deepcopy(read(FILES[0]))
    FAULTS[fault](report)
    write_run(tmp_path, {})
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(InputError, match=r": report\."):
        open_run(tmp_path).records  # noqa: B018
    assert not jsonschema.Draft202012Validator(whole).is_valid(report)


def test_schema__says_what_a_field_means_and_in_which_unit(whole: Any) -> None:
    rows = whole["$defs"]
    for name, row in rows.items():
        omitted = {
            n for n in row["properties"] if n.startswith(("precision_at_prior", "one_score"))
        }
        assert row["description"], name
        assert row["required"] == [n for n in row["properties"] if n not in omitted], name
        assert all(field["description"] for field in row["properties"].values()), name
    assert rows["AttackRow"]["properties"]["queries"] == {
        "description": "images that the attacker had embedded; count",
        "type": "integer",
    }
    placebo = rows["NamingRow"]["properties"]["placebo"]  # a row that holds one of its own class
    assert placebo["anyOf"] == [{"$ref": "#/$defs/NamingRow"}, {"type": "null"}]
