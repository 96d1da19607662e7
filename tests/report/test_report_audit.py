"""What an audit adds to a report: its subject, what could not run, and a sweep."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmia.records import EPOCHS_CUT, Evaluation, SweepPoint
from fedmia.records.rows import Report, SweepRow
from fedmia.report.build import build_report
from fedmia.report.page import page
from fedmia.report.publish import json_text, write_report
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc_estimate, auc_interval
from tests.report.conftest import opened, scored, section, tables

NOT_RUN = {"lira": "needs shadows", "ascent": "takes part", "rmia": "needs shadows"}


@pytest.fixture(name="audit")
def _audit(run: Evaluation) -> Evaluation:
    """An audit of `[b]net.pt2`: neither clients nor rounds, three attacks that could not run."""
    return replace(
        run, subject="the encoder [b]net.pt2 & co", not_run=NOT_RUN, clients=(), rounds=(),
        curves=None, pairs=(),
    )  # fmt: skip


@pytest.fixture
def swept(audit: Evaluation) -> Report:
    """A report with two attacks at two values; one did not suffice for the second attack."""
    points = [
        SweepPoint(name, "query_budget", value, 8, scored(name, auc, 112, 500, value))
        for value, auc in ((8, 0.55), (1600, 0.7)) for name in ("similarity", "lpla")
    ]  # fmt: skip
    points[1] = SweepPoint("lpla", "query_budget", 8, not_run="too <few>")
    return build_report(replace(audit, sweep=points))


def test_page__of_an_audit_has_its_subject_and_no_empty_section(audit: Evaluation) -> None:
    report = build_report(audit)
    text = page(report, {})
    subject = "Membership leakage of the encoder [b]net.pt2 &amp; co"
    assert f"<h1>{subject}</h1>" in text and f"<title>{subject}: leaks</title>" in text
    matches = re.findall("<h2>(.*?)</h2>(.*?)</section>", text, re.DOTALL)
    assert [title for title, _ in matches] == [
        "Attacks", "Utility, beside privacy", "Who is exposed?",
        "Do attacks find the same members?", "Who is found, by class, client and group", "Not run",
        "Notes", "The run", "For a model card",
        "Terms on this page",
    ]  # fmt: skip
    assert all(re.sub("<[^>]*>", "", content).strip() for _, content in matches)
    assert report.not_run == NOT_RUN


def test_notes__an_audit_trains_no_second_model_and_may_train_less_than_a_recipe(
    audit: Evaluation, report: Report
) -> None:
    cut = replace(audit.attacks[0], choices={EPOCHS_CUT: "62 of 500"})
    of_audit = build_report(replace(audit, attacks=[cut, *audit.attacks[1:]]))
    for words, own, other in (("--seeds", 0, 1), (f"{cut.name} trained 62 of 500", 1, 0)):
        counts = [sum(words in note for note in one.notes) for one in (of_audit, report)]
        assert counts == [own, other]


def test_sweep__is_a_section_with_a_table(swept: Report) -> None:
    text = page(swept, {"sweep": b"picture"})
    sweep = section(text, "sweep")
    assert "<img" in sweep and "not run: too &lt;few&gt;" in sweep
    assert "Other figures" not in text
    known = replace(swept, sweep=[replace(row, sweep="known") for row in swept.sweep])
    ((head, *rows),), ((less, *others),) = (
        tables(section(page(one, {}), "sweep")) for one in (swept, known)
    )
    places = [["similarity", "8"], ["similarity", "1,600"], ["lpla", "8"], ["lpla", "1,600"]]
    assert [row[:2] for row in rows] == places
    assert less == [h for h in head if h != "query budget"]
    assert {len(row) for row in rows} == {len(head)} and {len(row) for row in others} == {len(less)}


def test_figure__lines_and_intervals(audit: Evaluation, swept: Report, tmp_path: Path) -> None:
    (axes,) = opened(tmp_path, swept, audit).figure("sweep").axes
    ran = [(row.attack, row.scored) for row in swept.sweep if row.scored]
    lines = {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}
    assert {name: list(line.get_ydata()) for name, line in lines.items()} == {
        name: [row.auc for attack, row in ran if attack == name] for name in lines
    }
    ends = [tuple(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 2]
    assert lines.keys() == {"similarity", "lpla"}
    assert all(tuple(row.auc_ci or ()) in ends for _, row in ran)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["8", "1,600"]
    assert "112 members, 500 non-members" in axes.get_title(loc="left")
    gaps = [row for row in swept.sweep if row.not_run is not None]
    with pytest.raises(InputError, match="'sweep' of .* has no data"):
        opened(tmp_path, replace(swept, sweep=gaps), audit).figure("sweep")


def test_files__a_sweep_has_its_own(audit: Evaluation, swept: Report, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    names = [p.name for p in write_report(tmp_path / "a", audit, build_report(audit), {})]
    # The one that counts on the others comes last.
    assert names == [
        "report.html", "scores.csv", "exposed.csv", "table.parquet", "table.csv", "report.json",
    ]  # fmt: skip
    write_report(tmp_path / "b", audit, swept, {"sweep.png": b"picture"})
    assert (tmp_path / "b" / "figures" / "sweep.png").read_bytes() == b"picture"
    assert (tmp_path / "b" / "report.json").read_text() == json_text(swept)


def test_sweep__intervals_hold_for_all_values_of_all_attacks(run: Evaluation) -> None:
    attack = run.attacks[0]
    points = [SweepPoint("similarity", "known", value, value, attack) for value in (4, 9)]
    points.append(SweepPoint("similarity", "known", 16, not_run="few"))
    report = build_report(replace(run, sweep=points))
    assert len(run.attacks) == 4
    want = auc_interval(auc_estimate(*attack.sides), 0.95, 12)
    *rows, gap = report.sweep
    for row in rows:
        assert row.scored is not None and row.not_run is None
        assert (row.scored.low, row.scored.high) == pytest.approx(want, abs=1e-6)
    place = {"attack": "similarity", "sweep": "known", "value": 16, "known": None}
    assert gap == SweepRow(**place, not_run="few", scored=None)
    assert build_report(replace(run, sweep=[])).sweep == []


def test_sweep__a_broken_attack_is_named(run: Evaluation) -> None:
    broken = replace(run.attacks[0], scores_members=np.full(112, np.nan))
    sweep = [SweepPoint("similarity", "known", 4, 4, broken)]
    with pytest.raises(ValueError, match="'similarity' at 4: .* 112 of 112"):
        build_report(replace(run, sweep=sweep))
