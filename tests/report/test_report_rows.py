"""report.json is what `fedmia.records.rows` says: every key, and a value of its type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedmia.cli.command import BAD_INPUT
from fedmia.records.attack_rows import AttackRow, OverControlRow
from fedmia.records.rows import FORMAT, Report
from fedmia.settings.errors import InputError
from fedmia.simulate import main as simulate
from fedmia.storage.json_rows import from_json, to_json
from fedmia.storage.runfolder import RunFolder
from tests.made_up_runs import made_up, write_run

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VARYING = {"timing", "versions", "hardware"}


def test_report__of_a_run_with_everything_is_read_as_it_was_written(whole: Report) -> None:
    content = json.loads(json.dumps(to_json(whole)))
    assert from_json(Report, content, "report") == whole
    assert to_json(from_json(Report, content, "report")) == content


@pytest.mark.parametrize("name", ["active", "server", "audit"])
def test_report__of_the_golden_runs(name: str) -> None:
    content = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert not VARYING & {*content}
    whole = {**content, **dict.fromkeys(VARYING, {})}
    assert to_json(from_json(Report, whole, "report"), exact=True) == whole


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda r: r["attacks"][0].update(acuracy=0.5), r"report.attacks\[0\].acuracy: unknown"),
        (lambda r: r["family"].pop("method"), "report.family.method: missing"),
        (lambda r: r["rounds"][4]["leakage"].update(similarity="high"),
         r"report.rounds\[4\].leakage.similarity: 'high' is no float"),
        (lambda r: r["clients"][1]["defence"]["epsilon"].update(value=[8]),
         r"report.clients\[1\].defence.epsilon.value: \[8\] is no float"),
        (lambda r: r["attacks"][0].update(queries=True), r"attacks\[0\].queries: True is no int"),
        (lambda r: r["attacks"][0].update(queries=1.5), r"attacks\[0\].queries: 1.5 is no int"),
        (lambda r: r["attacks"][0].update(name=None), r"attacks\[0\].name: None is no str"),
        (lambda r: r.update(attacks={}), r"report.attacks: {} is no list"),
        (lambda r: r.update(controls=[]), r"report.controls: \[\] is no dict"),
        (lambda r: r["sets"].append(8), r"report.sets\[\d+\]: 8 is no SetRow"),
    ],
)  # fmt: skip
def test_from_json__names_the_place_of_what_no_report_holds(
    whole: Report, change: Any, line: str
) -> None:
    content = json.loads(json.dumps(to_json(whole)))
    change(content)
    with pytest.raises(ValueError, match=f"{line}") as caught:
        from_json(Report, content, "report")
    assert "\n" not in str(caught.value)


def test_from_json__an_integer_is_a_float_and_null_is_where_it_may_be() -> None:
    row = made_up(AttackRow, auc=1, low=None)
    assert (row.auc, row.low) == (1, None)


def test_to_json__rounds_what_was_measured() -> None:
    row = made_up(AttackRow, auc=2 / 3, threshold=1.23456789e-9, choices={"lr": 1 / 3})
    content = to_json(row)
    assert (content["auc"], content["threshold"]) == (0.666667, 1.23457e-9)
    assert content["choices"] == {"lr": 1 / 3}  # chosen, not measured
    assert to_json(row, exact=True)["auc"] == 2 / 3
    assert to_json({"delta": 1.23456789e-7, "config": {"p": 1 / 3}, "p": 1 / 3}) == {
        "delta": 1.23456789e-7, "config": {"p": 1 / 3}, "p": 0.333333,
    }  # fmt: skip


def test_to_json__what_most_reports_lack_is_left_out_where_it_is_none() -> None:
    row = made_up(AttackRow, auc=0.5, precision_at_prior=None, precision_at_prior_ci=None)
    content = to_json(row)
    assert not {"precision_at_prior", "precision_at_prior_ci"} & content.keys()
    assert "low" in content and from_json(AttackRow, content, "row") == row
    given = to_json(made_up(AttackRow, auc=0.5, precision_at_prior={"0.01": 0.25}))
    assert given["precision_at_prior"] == {"0.01": 0.25}
    with pytest.raises(ValueError, match=r"row.precision_at_prior: 'x' is no"):
        from_json(AttackRow, {**content, "precision_at_prior": "x"}, "row")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_to_json__what_is_not_finite_is_null(value: float) -> None:
    row = OverControlRow(
        control="placebo", difference=value, low=None, high=0.5, lower_limit=0.0, tests=1,
        n_controls=1,
    )  # fmt: skip
    assert to_json(row)["difference"] is to_json(row, exact=True)["difference"] is None
    json.dumps(to_json(row), allow_nan=False)


@pytest.mark.parametrize("version", [1, FORMAT + 1])
def test_folder__of_another_format_is_refused_in_one_line(
    version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "RUN", {"format": version})
    line = f"of format {version}; this fedmia reads {FORMAT}"
    with pytest.raises(InputError, match=line) as caught:
        RunFolder(tmp_path / "RUN").report()
    assert "\n" not in str(caught.value)
    assert simulate(["--resume", str(tmp_path / "RUN")]) == BAD_INPUT
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith("fedmia: ") and line in printed


def test_folder__of_before_formats_is_refused_as_of_the_first(tmp_path: Path) -> None:
    write_run(tmp_path / "RUN", {})
    file = tmp_path / "RUN" / "report.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["format"]
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match="of format 1; this fedmia reads"):
        RunFolder(tmp_path / "RUN").report()
