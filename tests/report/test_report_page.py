"""The HTML page and the terminal: complete, escaped, self-contained, 80 columns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from fedmia.records import Pair, Probe, RunScores, ScoredAttack
from fedmia.report import tables
from fedmia.report.build import build_report
from fedmia.report.format import estimate, interval, number
from fedmia.report.page import page
from fedmia.report.publish import json_text, write_report
from fedmia.report.terminal import render

VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Every tag closed in order; what the page would load is collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [
            v or "" for k, v in attrs if k in ("src", "href") and not (v or "").startswith("#")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def printed(report: dict[str, object], width: int = 80) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(render(report))
    return captured.get().splitlines()


def test_page__self_contained_and_well_formed(run: RunScores) -> None:
    text = page(build_report(run), {"attacks": b"picture", "new": b"other"})
    document = parsed(text)
    assert document.loads == [
        "data:image/png;base64," + base64.b64encode(b).decode() for b in (b"picture", b"other")
    ]
    assert not document.tags & {"script", "link", "iframe"}
    assert "http" not in text and "@import" not in text and "url(" not in text


def test_page__verdict_comes_first_and_the_rest_is_there(run: RunScores) -> None:
    report = build_report(run)
    text = page(report, {})
    body = text[text.index("<body>") :]
    assert body.index(report["verdict"]) < body.index("<table")
    for phrase in (
        "untrained control",
        "placebo control",
        "adds nothing measurable",
        "weighted kNN",
        "dpsgd, epsilon 8 (delta 1e-05, 20 rounds): heuristic",
        "train.lr",
        "2 cores",
        "train_s",
        "byte-equal",
        "Bonferroni",
    ):
        assert phrase in body


def test_page__escapes_everything(run: RunScores) -> None:
    evil = "<script>alert('x')</script>&"
    attack = replace(run.attacks[0], name=evil, paper=evil, access=evil)
    poisoned = replace(
        run,
        attacks=[attack],
        pairs=[Pair(attack, replace(attack, name=evil), evil)],
        notes=[evil],
        config={evil: evil, "nested": {evil: [evil]}},
        versions={evil: evil},
        hardware={evil: evil},
        split={evil: 1},
    )
    text = page(build_report(poisoned), {evil: b"x"})
    assert "<script" not in text and "alert(&#39;x&#39;)" in text
    parsed(text)


@pytest.mark.slow
def test_tables__attacks_fit_the_page_whatever_is_run(
    run: RunScores, scored: Callable[..., ScoredAttack]
) -> None:
    """Three controls and 25 attacks: few columns, every number in one of them, cells that wrap."""
    names = [f"some_package.attacks:An{i}" for i in range(25)]
    many = [scored(n, 0.6, 112, 500, i, under_attack=True) for i, n in enumerate(names)]
    sets = {name: many for name in ("untrained", "placebo", "posers")}
    held = {a.name: a for a in many}
    rounds = [replace(run.rounds[4], leakage=held)]
    report = build_report(
        replace(run, attacks=many, controls=sets, pairs=[], rounds=rounds, sets=[])
    )
    drawn = tables.attacks(report)
    assert len(drawn.head) == 8 and len(drawn.rows) == 25
    assert all(len(row.cells) == len(drawn.head) for row in drawn.rows)
    assert len(tables.rounds(report).head) == 5
    first = max(report["attacks"], key=lambda r: r["auc"])
    text = "\n".join(t for c in drawn.rows[0].cells for t in (c.text, *c.small))
    said = text.replace("\N{NO-BREAK SPACE}", " ")
    for key in ("auc_ci", "auc_ci_simultaneous", "accuracy_ci", "precision_ci", "recall_ci"):
        assert interval(first[key]) in said
    for t, label in (("0.001", "0.1 %"), ("0.01", "1 %"), ("0.1", "10 %")):
        rate = estimate(first["tpr_at_fpr"][t], first["tpr_at_fpr_ci"][t])
        # At 0.1 % not one of 500 non-members may be told: nothing is claimed.
        assert f"{label}: {'too few non-members' if t == '0.001' else rate}" in said
    controls = [report["controls"][name] for name in sets]
    for row in (next(r for r in rows if r["name"] == first["name"]) for rows in controls):
        assert f"{number(row['auc'])}\n{interval(row['auc_ci_simultaneous'])}" in said
    oracle = f"best (oracle) {number(first['oracle_accuracy'])}"
    for cell in (first["name"], "black-box, client", "under attack", "a paper", "112 + 500",
                   "images", "1,000 queries", oracle):  # fmt: skip
        assert cell in said
    longest = max(len(w) for c in drawn.rows[0].cells[1:] for t in c.small for w in t.split(" "))
    assert longest < 20  # characters that stay together outside the name, which breaks anywhere
    style = page(report, {}).partition("</style>")[0]
    assert "nowrap" not in style.partition("@media (min-width: 72rem)")[0]


def test_page__lines_of_a_cell_and_classes_of_a_row(run: RunScores) -> None:
    text = page(build_report(run), {})
    row = re.search('<tr class="leaks"><td>combined(.*?)</td>', text)
    assert row is not None
    assert row[1] == "<small>black-box, client</small><small>a paper</small>"
    assert "<tr><td>internal<small>white-box, client</small>" in text
    assert text.count('<td class="numbers"><small>accuracy') == 4


def test_page__empty_run(run: RunScores) -> None:
    empty = replace(
        run,
        attacks=[],
        controls={},
        pairs=[],
        pixels=None,
        curves=None,
        clients=[],
        rounds=[],
        utility={},
    )
    text = page(build_report(empty), {})
    parsed(text)
    assert "No attack was run." in text and ">None<" not in text


def test_render__most_leaking_first_and_the_verdict_under_them(run: RunScores) -> None:
    report = build_report(run)
    lines = printed(report)
    names = [a.name for a in run.attacks]
    order = [line.split()[0] for line in lines if line.split() and line.split()[0] in names][:5]
    aucs = {r["name"]: r["auc"] for r in report["attacks"]}
    assert order == sorted(names, key=lambda n: -aucs[n])
    start = next(i for i, line in enumerate(lines) if "verdict" in line)
    end = next(i for i, line in enumerate(lines) if line.startswith("╰"))
    text = " ".join(line.strip("│╭╮╰╯─ ") for line in lines[start + 1 : end]).strip()
    assert text == report["verdict"]


def test_render__fits_80_columns_without_cutting(
    run: RunScores, scored: Callable[..., ScoredAttack]
) -> None:
    long = "encodermi-threshold-variant-by-batch"
    attacks = [*run.attacks, scored(long, 0.7, 112, 500, 3, under_attack=True)]
    untrained = [*run.controls["untrained"], scored(long, 0.5, 112, 500, 4)]
    wide = replace(run, attacks=attacks, controls={**run.controls, "untrained": untrained})
    lines = printed(build_report(wide))
    assert all(len(line) <= 80 for line in lines) and not any("…" in line for line in lines)
    text = "\n".join(lines)
    assert "simul" in text and re.search(r"0\.\d\d \[0\.\d\d, 0\.\d\d\]", text)
    assert "Defended, client 0, 1: dpsgd" in text and "kNN 0.81" in text


def test_render__empty_run_is_the_verdict_and_what_it_means(run: RunScores) -> None:
    empty = replace(run, attacks=[], controls={}, pairs=[], pixels=None, clients=[], utility={})
    lines = printed(build_report(empty))
    assert "verdict" in lines[0] and lines[3].startswith("What this means: ")


def test_render__the_round_of_each_model(
    run: RunScores, scored: Callable[..., ScoredAttack]
) -> None:
    """A column of the terminal, a line of the page; of models of no run neither."""
    attacks = [
        scored("similarity", 0.7, 112, 500, 1, rounds=(24,)),
        scored("ascent", 0.6, 112, 500, 2, rounds=(25, 26, 30), under_attack=True),
    ]
    after = ({"knn": Probe(0.7, 300), "linear": Probe(None, 300)}, 30)
    of_a_run = replace(run, attacks=attacks, controls={}, round=24, after_attack=after)
    report = build_report(of_a_run)
    told = printed(report)
    assert "model" in told[0] and "(round)" in told[1]
    assert [line.split()[:2] for line in told[2:4]] == [["similarity", "24"], ["ascent", "*"]]
    assert told[3].split()[2] == "25-30" and max(map(len, told)) <= 80
    text = " ".join(" ".join(told).split())
    assert "Utility of the model of round 24 on 300 test images: kNN 0.81" in text
    assert "kNN 0.70 after the attack, at round 30." in text
    lines = [cell.small for row in tables.attacks(report).rows for cell in row.cells[:1]]
    assert ["on the model of round 24" in lines[0], len(lines)] == [True, 2]
    assert "on the model under attack of rounds 25-30" in lines[1]
    table = tables.utility(report)
    assert list(table.head)[3] == "after the attack, round 30"
    assert [row.cells[3][:4] for row in table.rows] == ["0.70", "–"]
    assert "(round)" not in " ".join(printed(build_report(replace(run, controls={}))))


def test_render__brackets_in_names_are_not_markup(run: RunScores) -> None:
    attack = replace(run.attacks[0], name="[bold]x[/bold]")
    assert "[bold]x" in "".join(printed(build_report(replace(run, attacks=[attack], pairs=[]))))


def test_write_report__files_hold_the_report(run: RunScores, tmp_path: Path) -> None:
    report = build_report(run)
    (tmp_path / "run").mkdir()
    paths = write_report(tmp_path / "run", run, report, {"roc": b"picture"})
    names = [str(p.relative_to(tmp_path / "run")) for p in paths]
    files = ["report.html", "scores.csv", "curves.npz", "figures/roc.png", "table.parquet"]
    assert names == [*files, "table.csv", "report.json"]  # the one that counts on the others
    assert json.loads(paths[-1].read_text(encoding="utf-8")) == report
    assert paths[3].read_bytes() == b"picture"


def test_json_text__refuses_nan(run: RunScores) -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_text({"auc": float("nan")})
