"""`--attacker server`: updates on disk, the placebo beside, and whose image it was."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.recording import Recording
from fedmia.statistics.intervals import wilson
from tests.bank import Bank
from tests.small_runs import (
    SMALL,
    WATCHED,
    Report,
    in_round,
    interrupt,
    ran,
    read,
    simulate,
)

TINY = SMALL.replace("snapshots 1", "snapshots 2") + (
    "--clients 4 --rounds 4 --attacker server --partition iid "
)
ATTACKED = TINY + "--attacks similarity,all-for-one --attack.similarity.views 4 "


@pytest.fixture(scope="module")
def folder(bank: Bank) -> Path:
    """A finished run, of the flags ATTACKED."""
    return bank.run("server")


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return read(folder)


@pytest.mark.slow
def test_report__names_clients_beside_chance_and_the_placebo(report: Report) -> None:
    (row,) = report["named_clients"]
    assert row["attack"] == "all-for-one" and row["n"] == 24
    most = max(client["n_members"] for client in report["clients"])
    assert row["chance"] == pytest.approx(most / 24, abs=1e-6) and 6 <= most <= 8
    assert row["accuracy"] == pytest.approx(row["correct"] / 24, abs=1e-6)
    assert row["ci"] == pytest.approx(wilson(row["correct"], 24), abs=1e-6)
    assert row["ci"][0] <= row["accuracy"] <= row["ci"][1] and row["placebo"]["n"] == 24
    assert row["placebo"]["ci"][0] <= row["chance"] <= row["placebo"]["ci"][1]


def test_report__asks_about_one_client(report: Report) -> None:
    (row,) = report["named_clients"]
    found, placebo = row["per_client"], row["placebo"]["per_client"]
    assert found["auc_ci"][0] <= found["auc"] <= found["auc_ci"][1]
    assert placebo["auc_ci"][0] <= 0.5 <= placebo["auc_ci"][1]
    attack = next(a for a in report["attacks"] if a["name"] == "all-for-one")
    for one in (found, placebo):
        assert one["clients"] == 4 and one["n_members"] == one["positive_pairs"] <= 24
        assert one["n_nonmembers"] == attack["n_nonmembers"]
        assert one["negative_pairs"] == 4 * one["n_nonmembers"]
    assert found != placebo


def test_report__attacks_controls_and_roles(report: Report) -> None:
    threats = {a["name"]: (a["access"], a["vantage"]) for a in report["attacks"]}
    assert threats["all-for-one"] == ("white_box", "server")
    names = {k: [r["name"] for r in v] for k, v in report["controls"].items()}
    # Before the first round there are no updates, so nothing to attack: the placebo stands in.
    assert names == {"untrained": ["similarity"], "placebo": ["similarity", "all-for-one"]}
    assert [c["role"] for c in report["clients"]] == ["honest"] * 4
    assert not any(a["under_attack"] for a in report["attacks"]) and report["paired"] == []
    attack = next(a for a in report["attacks"] if a["name"] == "all-for-one")
    images = attack["n_members"] + attack["n_nonmembers"]
    # Clients' models of the rounds kept. Known images set the threshold, and are negatives of both
    # calls.
    models, known = 2 * 4, 16
    assert attack["queries"] == models * (4 * (images + known) + 2 * known)


def test_folder__updates_of_the_evaluated_rounds_and_nothing_of_the_placebo(folder: Path) -> None:
    store = Recording(folder / "recording")
    assert store.rounds("main") == [0, 1, 2, 3, 4]  # and those that updates started from
    kept = store.updates("main")
    assert list(kept) == [2, 4]
    before = store.before("main", kept)
    for round, updates in kept.items():
        assert list(updates) == [0, 1, 2, 3]
        merged = store.load("main", round)[0]
        for name, tensor in merged.items():
            mean = sum(u[name].double() for u in updates.values()) / 4
            torch.testing.assert_close(tensor.double(), mean, atol=1e-6, rtol=1e-5)
            assert not torch.equal(before[round][name], updates[0][name])
    assert not (folder / "recording/updates/placebo").exists()


def test_keep_updates__any_rounds_and_what_was_received_is_the_round_before(tmp_path: Path) -> None:
    flags = TINY.replace("server", "none").replace("snapshots 2", "snapshots 4")
    flags += "--federation.participation 0.5 --attacks none --federation.keep_updates 4"
    out = tmp_path / "RUN"
    assert simulate(flags, out) == 0
    store = Recording(out / "recording")
    kept = store.updates("main")
    assert list(kept) == [1, 2, 3, 4] == list(before := store.before("main", kept))
    for round, state in before.items():
        received = store.load("main", round - 1)[0]
        assert all(torch.equal(t, received[n]) for n, t in state.items())
        assert len(kept[round]) == 2  # the cohort's


def test_attacks__main_of_a_server_holds_all_for_one_and_others_need_fewer_clients() -> None:
    assert parse(SIMULATE, shlex.split("--attacker server --clients 2 --attacks similarity"))
    assert "all-for-one" in parse(SIMULATE, ["--attacker", "server"]).settings.attacks


@pytest.mark.slow
@pytest.mark.parametrize("round", [1, 3])
def test_interrupted__scored_on_the_updates_that_were_kept(round: int, tmp_path: Path) -> None:
    """Updates are kept of rounds 2 and 4: after round 1 there is none to attack."""
    in_round("main", round + 1, interrupt)
    report = ran(ATTACKED + WATCHED, tmp_path / "RUN", 130)
    names, left = [a["name"] for a in report["attacks"]], report["not_run"]
    if round == 1:
        assert names == ["similarity"] and report["named_clients"] == []
        assert [*left] == ["all-for-one"] and "updates" in left["all-for-one"]
    else:
        assert names == ["similarity", "all-for-one"] and left == {}
        assert report["named_clients"][0]["placebo"] is None
    assert "placebo" not in report["controls"]


@pytest.mark.slow
def test_ray__same_report_as_inline(one_ray: None, report: Report, tmp_path: Path) -> None:
    there = ran(f"{ATTACKED} --backend ray", tmp_path / "RUN")
    assert {**there, "config": None} == {**report, "config": None} and there["named_clients"]
