"""What an audit adds to a report: its subject, what could not run, and a sweep."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedmia.records import EPOCHS_CUT, RunScores, ScoredAttack
from fedmia.report.build import build_report
from fedmia.report.csvs import sweep_csv
from fedmia.report.figures import attacks
from fedmia.report.metrics import attack_row
from fedmia.report.page import page
from fedmia.report.publish import write_report
from fedmia.report.terminal import render

Scored = Callable[..., ScoredAttack]
NOT_RUN = {"lira": "needs shadows", "ascent": "takes part", "rmia": "needs shadows"}


@pytest.fixture(name="audit")
def _audit(run: RunScores) -> RunScores:
    """An audit of `[b]net.pt2`: neither clients nor rounds, three attacks that could not run."""
    return replace(
        run, subject="the encoder [b]net.pt2 & co", not_run=NOT_RUN, clients=(), rounds=(),
        curves=None, pairs=(),
    )  # fmt: skip


@pytest.fixture(name="swept")
def _swept(audit: RunScores, scored: Scored) -> dict[str, Any]:
    """A report with two attacks at two values; one did not suffice for the second attack."""
    report = build_report(audit)
    rows = []
    for value, auc in ((8, 0.55), (1600, 0.7)):
        for name in ("similarity", "lpla"):
            row = {"attack": name, "sweep": "query_budget", "value": value}
            if (name, value) == ("lpla", 8):
                rows.append(row | {"known": None, "not_run": "too <few>"})
            else:
                found = attack_row(scored(name, auc, 112, 500, value), 4)
                rows.append(row | {"known": 8} | found | {"not_run": None})
    return report | {"sweep": rows}


def printed(report: dict[str, Any]) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render(report))
    return captured.get()


def test_subject__names_the_page(audit: RunScores, run: RunScores) -> None:
    text = page(build_report(audit), {})
    assert "<h1>Membership leakage of the encoder [b]net.pt2 &amp; co</h1>" in text
    title = re.search("<title>(.*)</title>", text)
    assert title is not None
    assert title[1] == "Membership leakage of the encoder [b]net.pt2 &amp; co: leaks"
    assert "<h1>Membership leakage of a federated encoder</h1>" in page(build_report(run), {})


def test_page__of_an_audit_has_no_empty_section(audit: RunScores) -> None:
    text = page(build_report(audit), {})
    matches = re.findall("<h2>(.*?)</h2>(.*?)</section>", text, re.DOTALL)
    assert [title for title, _ in matches] == [
        "Attacks", "Utility, beside privacy", "Not run", "Notes", "The run",
    ]  # fmt: skip
    assert all(re.sub("<[^>]*>", "", content).strip() for _, content in matches)


def test_page__without_anything_not_run_has_no_such_section(run: RunScores) -> None:
    assert "Not run" not in page(build_report(run), {})


def test_not_run__is_grouped_by_reason_for_readers_and_by_attack_in_json(audit: RunScores) -> None:
    report = build_report(audit)
    assert report["not_run"] == [{"attack": a, "reason": r} for a, r in NOT_RUN.items()]
    text = page(report, {})
    assert "<dt>lira, rmia</dt><dd>needs shadows</dd><dt>ascent</dt><dd>takes part</dd>" in text
    lines = [line.strip() for line in printed(report).splitlines() if "Not run" in line]
    assert lines == ["Not run: lira, rmia: needs shadows", "Not run: ascent: takes part"]


def test_notes__an_audit_trains_no_second_model(audit: RunScores, run: RunScores) -> None:
    assert any("--seeds" in note for note in build_report(run)["notes"])
    assert not any("--seeds" in note for note in build_report(audit)["notes"])


def test_sweep__is_a_section_with_a_table(swept: dict[str, Any]) -> None:
    text = page(swept, {"sweep": b"picture"})
    section = text[text.index("<h2>Sweep</h2>") :]
    section = section[: section.index("</section>")]
    assert "<img" in section and "not run: too &lt;few&gt;" in section
    assert section.count("<tr>") == 5 and ">query budget</th><th title" in section
    rows = re.findall("<tr>(.*?)</tr>", section)[1:]
    assert [re.findall("<td[^>]*>(.*?)</td>", row)[:2] for row in rows] == [
        ["similarity", "8"], ["similarity", "1,600"], ["lpla", "8"], ["lpla", "1,600"],
    ]  # fmt: skip
    assert len({row.count("<td") for row in rows}) == 1
    assert "Other figures" not in text


def test_sweep__of_known_images_has_one_column_for_them(swept: dict[str, Any]) -> None:
    rows = [row | {"sweep": "known"} for row in swept["sweep"]]
    text = page(swept | {"sweep": rows}, {})
    section = text[text.index("<h2>Sweep</h2>") :]
    heads = re.findall("<th(?: [^>]*)?>([^<]*)", section)
    assert heads[:3] == ["attack", "known members", "queries"]
    matches = re.findall("<tr>(.*?)</tr>", section[: section.index("</section>")])
    assert len({row.count("<td") for row in matches[1:]}) == 1


def test_sweep_csv__one_line_a_row(swept: dict[str, Any]) -> None:
    lines = list(csv.DictReader(io.StringIO(sweep_csv(swept["sweep"]))))
    for line, row in zip(lines, swept["sweep"], strict=True):
        assert (line["attack"], int(line["value"])) == (row["attack"], row["value"])
        if row["not_run"]:
            assert line["not_run"] == "too <few>"
            assert {line[k] for k in ("known", "auc", "auc_low", "accuracy")} == {""}
        else:
            assert [float(line[k]) for k in ("auc_low", "auc", "auc_high")] == [
                row["auc_ci"][0], row["auc"], row["auc_ci"][1],
            ]  # fmt: skip
            assert line["not_run"] == "" and int(line["queries"]) == 1000


def test_figure__lines_and_intervals(swept: dict[str, Any]) -> None:
    figure = attacks.by_value(swept)
    assert figure is not None
    (axes,) = figure.axes
    named = {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}
    by_name = {n: [r["auc"] for r in swept["sweep"] if r["attack"] == n and not r["not_run"]]
               for n in ("similarity", "lpla")}  # fmt: skip
    assert {n: list(line.get_ydata()) for n, line in named.items()} == by_name
    ends = [tuple(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 2]
    assert all(tuple(r["auc_ci"]) in ends for r in swept["sweep"] if not r["not_run"])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["8", "1,600"]
    assert "112 members, 500 non-members" in axes.get_title(loc="left")


def test_figure__nothing_to_draw(audit: RunScores, swept: dict[str, Any]) -> None:
    assert attacks.by_value(build_report(audit)) is None
    rows = [row for row in swept["sweep"] if row["not_run"]]
    assert rows and attacks.by_value(swept | {"sweep": rows}) is None


def test_files__a_sweep_has_its_own(
    audit: RunScores, swept: dict[str, Any], tmp_path: Path
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    names = [p.name for p in write_report(tmp_path / "a", audit, build_report(audit), {})]
    assert names == ["report.html", "scores.csv", "table.parquet", "table.csv", "report.json"]
    write_report(tmp_path / "b", audit, swept, {"sweep": b"picture"})
    assert (tmp_path / "b" / "sweep.csv").read_text() == sweep_csv(swept["sweep"])
    assert (tmp_path / "b" / "figures" / "sweep.png").read_bytes() == b"picture"
    assert json.loads((tmp_path / "b" / "report.json").read_text())["sweep"][0]["value"] == 8


def test_notes__say_where_an_attack_trained_less_than_its_recipe(audit: RunScores) -> None:
    cut = replace(audit.attacks[0], choices={EPOCHS_CUT: "62 of 500"})
    report = build_report(replace(audit, attacks=[cut, *audit.attacks[1:]]))
    want = f"{cut.name} trained 62 of 500 epochs of its recipe; steps 0 trains all."
    assert report["notes"].count(want) == 1
    assert not any("of its recipe" in note for note in build_report(audit)["notes"])
