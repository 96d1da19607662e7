"""`--plan`: what a command would do, said without doing it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmia import audit, pilot, simulate
from fedmia.evaluation import outlook
from fedmia.records import Evaluation
from fedmia.report.build import build_report
from fedmia.report.reach import leak_tests
from fedmia.settings.commands.experiment import Experiment, Pretrain
from fedmia.statistics.power import smallest_detectable_auc
from fedmia.study.__main__ import main as study
from tests.report.conftest import make_everything, make_run, scored
from tests.small_runs import SMALL

SMOKE = "--config", "smoke", "--attacks", "similarity"


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_plan__of_a_run_writes_nothing_and_names_what_it_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = *SMOKE, "--defense", "dpsgd", "--rounds", "9", "--out", str(tmp_path / "run")
    assert simulate.main([*flags, "--plan", "0.6", "--json"]) == 0
    row = read(capsys)
    assert list(tmp_path.iterdir()) == []
    assert row["images"]["scored_members"] == 16 and row["queries"].keys() == {"similarity"}
    said, *stated = [line for line in row["lines"] if "dpsgd" in line and "epsilon" in line]
    epsilon = float(said.split("end in epsilon ")[1].split()[0])
    # Extended from an account of 2 rounds to 9, the largest is what the settings alone tell.
    assert all("9 rounds" in line for line in stated)
    spent = [float(line.split("epsilon ")[1].split()[0].rstrip(",")) for line in stated]
    assert max(spent) == pytest.approx(epsilon, rel=0.01)
    assert row["images_available"] < row["images_needed"] and row["tests"] == 1
    assert sum(row["seconds"].values()) == pytest.approx(2 * row["seconds"]["total"])


@pytest.mark.slow
def test_plan__of_a_study_and_of_an_audit_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = *SMOKE[1:], "--seeds", "3", "--jobs", "1", "--out", "study", "--plan", "--json"
    assert study(flags) == 0
    row = read(capsys)
    assert list(tmp_path.iterdir()) == []
    assert row["runs"] == 3 and row["seconds"] > 3 * row["points"]["run"]["seconds"]["total"]
    assert row["peak_mb"] == row["points"]["run"]["memory"]["peak_mb"]  # one run at a time
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).random((60, 8)))
    before = sorted(tmp_path.iterdir())
    sides = "--member-embeddings", "a.npy", "--nonmember-embeddings", "b.npy"
    flags = *sides, "--attacks", "similarity,lpla", "--out", "audit", "--plan", "0.9", "--json"
    assert audit.main(flags) == 0
    row = read(capsys)
    assert sorted(tmp_path.iterdir()) == before
    assert row["images_available"] == row["images"]["scored_members"]
    assert 2 < row["images_needed"] < row["images_available"]


@pytest.mark.slow
def test_plan__counts_the_queries_and_tests_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = *SMOKE[:2], "--attacker", "active", "--attacks", "ascent,similarity", "--json"
    assert simulate.main([*line, "--plan"]) == 0
    row = read(capsys)
    assert simulate.main(line) == 0
    report = read(capsys)
    queries = {one["name"]: one["queries"] for one in report["attacks"]}
    assert row["queries"] == {name: pytest.approx(q, rel=0.05) for name, q in queries.items()}
    assert row["tests"] == report["family"]["intervals"]


@pytest.mark.slow
def test_plan__counts_the_memory_of_every_client_of_a_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedmia.federation.backends.count_cores", lambda: 2)
    monkeypatch.setattr("fedmia.runtime.memory.free_bytes", lambda: 0)
    flags = f"{SMALL} --clients 4 --rounds 8 --attacks none --train.batch_size 8 --plan"
    for count in (1, 4):
        line = f"{flags} --machine.clients_at_once {count}"
        assert simulate.main([*line.replace("--quiet", "").split(), "--json"]) == 0
        row = read(capsys)["memory"]
        at_work, each = {1: 2, 4: 4}[count], sum(row["one_client_mb"].values())
        assert row["clients_at_work"] == at_work
        assert row["at_work_mb"] == pytest.approx(at_work * each)
        assert row["peak_mb"] == pytest.approx(sum(row["parts_mb"].values()))
        assert row["one_client_mb"]["activations"] > row["one_client_mb"]["images"] > 0
    assert simulate.main([*flags.replace("--quiet", "").split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("WARNING") and "memory" in line for line in lines)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("audit --encoder a.pth --members digits --nonmembers digits --sweep known=2 --plan", "sw"),
        ("audit --encoder timm:resnet18 --federation R --plan", "(--federation) R"),
        ("audit --member-embeddings a --nonmember-embeddings b --plan --fail-on leaks", "fail-on"),
        ("simulate --config smoke --sweep known=2,4 --plan", "sweep known=2,4"),
        ("simulate --config smoke --plan --observe tensorboard", "--observe"),
    ],
)
def test_plan__refuses_in_one_line_what_it_cannot_foresee(
    flags: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *arguments = flags.split()
    assert {"audit": audit, "simulate": simulate}[command].main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--plan" in line and words in line


def test_plan__of_no_attack_says_that_nothing_is_tested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        simulate.main(["--config", "smoke", "--attacks", "none", "--device", "cpu", "--plan"]) == 0
    )
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("nothing would be tested") and "AUC" not in line


@pytest.mark.parametrize("text", ["1.2", "0.5", "0.2.1"])
def test_plan__refuses_what_is_no_auc_of_a_leak(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main([*SMOKE, "--plan", text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--plan" in line and text in line


def test_seconds__of_rounds_are_those_of_the_pilot_for_each_kind() -> None:
    """Of each kind the first round, then as many as there are like the second."""
    whole = Experiment.complete(attacker="active")
    short = pilot.shorten(whole)
    assert (short.federation.rounds, short.attack_rounds) == (4, 2)
    rounds = {("main", 1): 3.0, ("main", 2): 1.0, ("main", 3): 20.0, ("main", 4): 2.0}
    rounds |= {("zero", 3): 2.0, ("zero", 4): 2.0}
    clock: Any = SimpleNamespace(rounds=rounds)
    main, zero, climb = 3 + 23 * 1 + 20 + 2 * 2, 3 * 2, 0.5 * 3 / 2  # 27 rounds, 3 attacked
    assert pilot.all_rounds(clock, whole, short, 0.5) == 2 * main + zero + climb  # the placebo, too
    pooled = replace(whole, pretrain=Pretrain("pooled", epochs=20))
    short = pilot.shorten(pooled)
    # The first round took 2 seconds more, for 2 epochs of 20.
    assert pilot.all_rounds(clock, pooled, short, 0.5) == 2 * main + zero + climb + 9 * 2


def test_of_all__adds_what_scoring_the_other_images_takes() -> None:
    attack = replace(
        scored("a", 0.5, 16, 24, 0), queries=100, scoring_queries=40, seconds=5, scoring_seconds=2
    )
    assert outlook.of_all(attack, "queries", 400) == 100 + 9 * 40
    assert outlook.of_all(attack, "seconds", 400) == 5 + 9 * 2
    few, many = outlook.pick(20), outlook.pick(400)
    assert len({*few}) == 16 and len({*many}) == 40 and max(few) < 20 and max(many) < 400


@pytest.mark.parametrize(
    ("controls", "rounds", "workers", "seconds"),
    [
        ([], 0, 1, 14 + 9),
        (["untrained"], 0, 1, 2 * 14 + 9),  # lira-rounds reads training: not on the untrained one
        (["untrained", "placebo"], 2, 1, 14 + 14 + 23 + 2 * 14 + 9),
        (["untrained", "placebo"], 2, 2, 14 + 23 + 14),  # no model is split between two
        (["untrained", "placebo"], 2, 99, 23),
    ],
)
def test_seconds__of_attacks_are_those_of_their_models_side_by_side(
    controls: list[str], rounds: int, workers: int, seconds: float
) -> None:
    """`similarity`, by round, takes 14 s on a model, and `lira-rounds` 9 s; what no attack of the
    pilot takes, 3 s, is paid once."""
    by_round, lira = (
        replace(scored(n, 0.5, 8, 8, 0), seconds=s, scoring_seconds=t)
        for n, s, t in (("similarity", 5, 1), ("lira-rounds", 9, 0))
    )
    pilot_scores: Any = SimpleNamespace(attacks=[by_round, lira, replace(by_round, name="other")])
    names = "similarity", "lira-rounds"
    took = outlook.of_attacks(pilot_scores, 17, names, 160, controls, rounds, workers)
    assert took == 3 + seconds


def one(auc: float, seed: int, n: int, m: int, **more: Any) -> Evaluation:
    """Three attacks, one of which finds something, with independent untrained controls."""
    aucs = {"combined": auc, "similarity": 0.5, "internal": 0.5}
    attacks = [scored(a, x, n, m, 9 * seed + i) for i, (a, x) in enumerate(aucs.items())]
    controls = [scored(a, 0.5, n, m, 9 * seed + 4 + i) for i, a in enumerate(aucs)]
    zeros = np.zeros(n, np.int64)
    more = {"controls": {"untrained": controls}} | more
    return replace(
        make_run(), attacks=attacks, pairs=(), clients=(),
        rounds=(), curves=None, pixels=None, member_ids=np.arange(n), member_labels=zeros,
        nonmember_ids=np.arange(n, n + m), member_client=zeros,
        nonmember_labels=np.zeros(m, np.int64), **more,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "audit", "without control", "sides that may differ"])
def test_smallest_leak__is_established_in_eight_of_ten(kind: str) -> None:
    """200 of them, by the verdict of the report, with all its corrections."""
    encoder, codes = make_everything(make_run()).encoder, list[str]()
    more: dict[str, Any] = {"encoder": encoder} if kind == "audit" else {}
    more |= {"controls": {}} if kind == "without control" else {}
    more |= {"drawn": False} if kind == "sides that may differ" else {}

    def made(auc: float, seed: int) -> Evaluation:
        run = one(auc, seed, 160, 500, **more)
        if run.drawn or kind == "audit":
            return run
        placebo = [
            scored(a.name, 0.5, 160, 500, 9001 + 9 * seed + i) for i, a in enumerate(run.attacks)
        ]
        return replace(run, controls={**run.controls, "placebo": placebo})

    report = build_report(made(0.5, 0))
    least = smallest_detectable_auc(160, 500, **leak_tests(report, report.attacks))
    assert least is not None
    for seed in range(1, 201):
        codes.append(build_report(made(least, seed)).verdict_code)
    counts = Counter(codes)
    assert 148 <= counts["leaks"] + counts["leaks-uncontrolled"] <= 172, (least, counts)
