"""report.json is what `fedmia.records.rows` says: every key, and a value of its type."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmia import open_run
from fedmia.records import Evaluation
from fedmia.records.rows import FORMAT, Report
from fedmia.report.build import build_report
from fedmia.report.publish import json_text
from fedmia.settings.errors import InputError
from tests.commands import fedmia
from tests.made_up_runs import write_run
from tests.report.conftest import alone, opened, scored

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VARYING = {"timing", "versions", "hardware"}


def written(folder: Path, content: Any) -> Path:
    """A run whose report.json holds this."""
    write_run(folder, {})
    (folder / "report.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_report__of_a_run_with_everything_is_read_as_it_was_written(
    whole: Report, tmp_path: Path
) -> None:
    assert opened(tmp_path, whole).records == whole


@pytest.mark.parametrize("name", ["active", "server", "audit"])
def test_report__of_the_golden_runs(name: str, tmp_path: Path) -> None:
    content = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert not VARYING & {*content}
    content |= dict.fromkeys(VARYING, {})
    assert json.loads(json_text(open_run(written(tmp_path, content)).records)) == content


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
def test_report__that_holds_what_none_does_names_the_place(
    whole_content: str, change: Any, line: str, tmp_path: Path
) -> None:
    content = json.loads(whole_content)
    change(content)
    with pytest.raises(InputError, match=line) as caught:
        open_run(written(tmp_path, content)).records  # noqa: B018
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def whole_content(whole: Report) -> str:
    return json_text(whole)


def test_numbers__are_rounded_where_they_were_measured(run: Evaluation) -> None:
    attack = scored("a", 0.7, 112, 500, 1, choices={"lr": 1 / 3})
    small = {f"known_{side}": getattr(attack, f"known_{side}") * 1e-9
             for side in ("members", "nonmembers")}  # fmt: skip
    bare = alone(run, replace(attack, **small), config={"p": 1 / 3}, timing={"s": 1 / 3})
    content = json.loads(json_text(build_report(bare)))
    (row,) = content["attacks"]
    assert row["auc"] == round(row["auc"], 6) and row["choices"] == {"lr": 1 / 3}
    assert 0 < abs(row["threshold"]) < 1e-7 and row["threshold"] == float(f"{row['threshold']:.5e}")
    assert content["config"] == {"p": 1 / 3} and "precision_at_prior" not in row
    assert {"low", "over_control"} <= {*row}


@pytest.mark.parametrize("version", [1, FORMAT + 1])
def test_folder__of_another_format_is_refused_in_one_line(version: int, tmp_path: Path) -> None:
    write_run(tmp_path / "RUN", {"format": version})
    line = f"of format {version}; this fedmia reads {FORMAT}"
    with pytest.raises(InputError, match=line) as caught:
        open_run(tmp_path / "RUN").records  # noqa: B018
    assert "\n" not in str(caught.value)
    ran = fedmia(f"simulate --resume {tmp_path / 'RUN'}")
    (printed,) = ran.err.splitlines()
    assert ran.code == 2 and printed.startswith("fedmia: ") and line in printed


def test_folder__of_before_formats_is_refused_as_of_the_first(tmp_path: Path) -> None:
    write_run(tmp_path / "RUN", {})
    content = json.loads((tmp_path / "RUN" / "report.json").read_text(encoding="utf-8"))
    del content["format"]
    with pytest.raises(InputError, match="of format 1; this fedmia reads"):
        open_run(written(tmp_path / "RUN", content)).records  # noqa: B018
