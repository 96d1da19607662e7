"""What an attacker gets for more known images, and for more queries."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedmia.settings import registry
from tests.auditing.attacks import acting, fail, named
from tests.auditing.conftest import Audit, anew, kept


@pytest.mark.usefixtures("painted")
def test_known__rows_table_and_figure_and_rows_are_kept(audit: Audit, tmp_path: Path) -> None:
    """Rows that a later audit adds are those of one that has them from the start."""
    out = tmp_path / "AUDIT"
    audit("--known 6", out)
    before = kept(out)
    done = audit("--known 6 --sweep known=3,6,9", out)
    assert done.code == 0 and not {"main-similarity", "main-lpla"} & anew(out, before)
    rows = done.report["sweep"]
    assert rows == audit("--known 6 --sweep known=3,6,9").report["sweep"]
    assert [(r["value"], r["attack"]) for r in rows] == [
        (value, name) for value in (3, 6, 9) for name in ("similarity", "lpla")
    ]
    whole = {row["name"]: row for row in done.report["attacks"]}
    for row in rows:
        if row["value"] == 9:
            assert row["not_run"] == "only 6 images a side are known" and row["known"] is None
            continue
        scored = row["scored"]
        same = scored["auc"] == whole[row["attack"]]["auc"]
        assert row["known"] == row["value"] and row["not_run"] is None
        # Similarity learns nothing; LpLA with all that is known is the attack itself.
        assert same == (row["attack"] == "similarity" or row["value"] == 6)
        assert scored["low"] <= scored["auc_ci"][0] <= scored["auc"] <= scored["auc_ci"][1]
    with (out / "table.csv").open(newline="") as file:
        table = [r for r in csv.DictReader(file)
                 if r["metric"] == "auc" and r["subject"].startswith("sweep/")]  # fmt: skip
    got = [(r["subject"], r["attack"], *(float(r[n]) for n in ("value", "ci_low", "ci_high")))
           for r in table]  # fmt: skip
    assert got == [
        (f"sweep/known/{r['value']}", r["attack"], r["scored"]["auc"], *r["scored"]["auc_ci"])
        for r in rows
        if r["known"] is not None
    ]
    assert (out / "figures" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    section = page[page.index("<h2>Sweep</h2>") :]
    assert "not run: only 6 images a side are known" in section[: section.index("</section>")]
    assert "<img" in section[: section.index("</section>")]
    assert "already holds" in audit("--known 6 --sweep known=3", out).err


def test_broken_attack__in_a_sweep_costs_its_own_row(audit: Audit) -> None:
    calls = []

    def later() -> None:
        calls.append(1)
        if len(calls) > 3:  # the encoder's images, its threshold's, and the control's
            fail()

    with acting("Other", later):
        done = audit(f"--attacks {named('Mean', 'Other')} --known 6 --sweep known=4")
    assert done.code == 1 and len(done.report["attacks"]) == 2
    assert [r["not_run"] is None for r in done.report["sweep"]] == [True, False]
    assert "failed: ZeroDivisionError" in done.report["sweep"][1]["not_run"]


def test_query_budget__rows_keep_to_it(audit: Audit) -> None:
    flags = "--attacks similarity,lpla,internal --limit 10 --known 14 "
    done = audit(f"{flags} --sweep query_budget=30,70,150")
    assert done.code == 0 and [r["queries"] for r in done.report["attacks"]][:2] == [144, 48]
    assert not any("query budget" in n for n in done.report["notes"])
    rows = {(r["attack"], r["value"]): r for r in done.report["sweep"]}
    assert rows["lpla", 30]["not_run"] and rows["lpla", 70]["known"] == 14
    assert rows["similarity", 70]["not_run"]  # 3 views of 20 images, and of 16 known at least
    assert rows["similarity", 150]["known"] == 14
    assert rows["similarity", 150]["scored"]["queries"] == 144
    assert "needs at least" in rows["similarity", 30]["not_run"]
    for (_, budget), row in rows.items():
        assert row["not_run"] or row["scored"]["queries"] <= budget


def test_query_budget__the_attack_knows_fewer_images_and_says_how_many(
    audit: Audit,
) -> None:
    flags = "--attacks similarity,lpla --limit 10 --known 14 --query-budget 40"
    done = audit(flags)
    assert done.names() == ["lpla"] and done.report["attacks"][0]["queries"] == 40
    assert "lpla: the query budget of 40 leaves 10 known images a side." in done.report["notes"]
    assert done.report["controls"]["untrained"][0]["queries"] == 40
    least = "needs at least 108 queries for 20 images and 8 known a side"
    assert done.not_run == {"similarity": f"query_budget 40: {least}"}


@pytest.mark.slow(seconds=13)
def test_query_budget__every_attack_is_run_or_said_and_keeps_to_it(
    audit: Audit,
) -> None:
    """Four fifths of what each needs without one; where that does not suffice it is said."""
    every = registry.names("attack")
    flags = "--limit 10 --known 14"
    brief = {name: f"--attack.{name}.steps 9" for name in ("sd-mi", "fe-mi")}  # no query is less
    all_brief = " ".join(brief.values())
    done = audit(f"--attacks {','.join(every)} {flags} {all_brief}")
    assert done.code == 0 and len(done.names()) >= 9
    assert done.report["timing"]["by_attack"].keys() >= set(done.names())
    known = ("shadow encoders", "fedmia simulate", "the parts of its map")
    for reason in done.not_run.values():
        assert any(words in reason for words in known)
    for row in done.report["attacks"]:
        if row["name"] not in every:  # another reading of the row before it
            continue
        budget = row["queries"] * 4 // 5
        own = f"--attacks {row['name']} {brief.get(row['name'], '')}"
        one = audit(f"{own} {flags} --query-budget {budget}")
        assert one.code in (0, 2)
        if one.code == 2:
            assert "needs at least" in one.err
