"""Named clients: counts against known answers, beside chance and the placebo, in every output."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from fedmia.records import RunScores
from fedmia.report.build import build_report
from fedmia.report.page import page
from fedmia.report.per_client import named_rows
from fedmia.report.terminal import render
from fedmia.statistics.intervals import wilson


def naming(run: RunScores, right: int, placebo_right: int | None) -> RunScores:
    """The run whose first attack names `right` members' clients and is wrong about the rest."""

    def names(count: int) -> np.ndarray:
        wrong = run.member_client + 1000
        return np.where(np.arange(len(wrong)) < count, run.member_client, wrong)

    first, *rest = run.attacks
    found = replace(run, attacks=(replace(first, named_members=names(right)), *rest))
    if placebo_right is None:
        return replace(found, controls={k: v for k, v in run.controls.items() if k != "placebo"})
    control = replace(first, named_members=names(placebo_right))
    return replace(found, controls={**run.controls, "placebo": [control]})


def test_rows__counts_interval_chance_and_placebo(make_run: Callable[..., RunScores]) -> None:
    run = make_run()
    n = len(run.member_client)
    shares = np.bincount(run.member_client) / n
    (row,) = named_rows(naming(run, 40, 9))
    assert row == {
        "attack": run.attacks[0].name,
        "correct": 40,
        "n": n,
        "accuracy": 40 / n,
        "ci": wilson(40, n),
        "chance": pytest.approx(shares.max()),
        "null": None,
        "per_client": None,
        "placebo": {
            "correct": 9,
            "n": n,
            "accuracy": 9 / n,
            "ci": wilson(9, n),
            "null": None,
            "per_client": None,
        },
    }
    assert named_rows(naming(run, 40, None))[0]["placebo"] is None
    assert named_rows(run) == []


def test_outputs__one_sentence_in_terminal_and_page(make_run: Callable[..., RunScores]) -> None:
    run = naming(make_run(), 40, 9)
    report = build_report(run)
    assert report["named_clients"][0]["correct"] == 40
    name, n = run.attacks[0].name, len(run.member_client)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(report))
    for text in (" ".join(console.export_text().split()), page(report, {})):
        assert f"{name} names the client of 40 of {n} scored members: 0.36" in text
        assert "the placebo, clients that never saw these images, 0.08" in text
    silent = build_report(make_run())
    assert silent["named_clients"] == [] and "names the client" not in page(silent, {})


def test_verdict__of_a_leak_that_only_the_server_sees(make_run: Callable[..., RunScores]) -> None:
    run = make_run()
    best = replace(run.attacks[1], vantage="server", name="all-for-one")
    verdict = build_report(replace(run, attacks=(best,), pairs=(), controls={}))["verdict"]
    assert verdict.startswith("The clients' updates leak membership, but no control on the same")
    placebo = {"placebo": [replace(run.controls["placebo"][0], name="all-for-one")]}
    held = build_report(replace(run, attacks=(best,), pairs=(), controls=placebo))["verdict"]
    assert held.startswith("The clients' updates leak membership: all-for-one separates")


def test_check__as_many_names_as_members(make_run: Callable[..., RunScores]) -> None:
    run = make_run()
    bad = replace(run.attacks[0], named_members=np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match=r"\(3,\) clients named for"):
        build_report(replace(run, attacks=(bad,), pairs=()))
