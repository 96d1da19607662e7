"""`--plan`: what a command would do, said without doing it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.records import Evaluation
from fedmia.report.build import build_report
from strategies.fedavg import FedAvg
from tests.auditing.attacks import NOW, named
from tests.bank import SMALL
from tests.commands import fedmia
from tests.report.conftest import make_everything, make_run, scored

SMOKE = "--config smoke --attacks similarity "


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(line: str) -> Any:
    """What a command prints as JSON."""
    ran = fedmia(f"{line} --json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.mark.slow
def test_plan__of_a_run_writes_nothing_and_names_what_it_would_do(tmp_path: Path) -> None:
    row = read(f"simulate {SMOKE}--defense dpsgd --rounds 9 --out {tmp_path}/run --plan 0.6")
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
def test_plan__of_a_study_and_of_an_audit_writes_nothing(tmp_path: Path) -> None:
    row = read("study smoke --attacks similarity --seeds 3 --jobs 1 --out study --plan")
    assert list(tmp_path.iterdir()) == []
    assert row["runs"] == 3 and row["seconds"] > 3 * row["points"]["run"]["seconds"]["total"]
    assert row["peak_mb"] == row["points"]["run"]["memory"]["peak_mb"]  # one run at a time
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).random((60, 8)))
    before = sorted(tmp_path.iterdir())
    sides = "--member-embeddings a.npy --nonmember-embeddings b.npy"
    row = read(f"audit {sides} --attacks similarity,lpla --out audit --plan 0.9")
    assert sorted(tmp_path.iterdir()) == before
    assert row["images_available"] == row["images"]["scored_members"]
    assert 2 < row["images_needed"] < row["images_available"]


@pytest.mark.slow
def test_plan__counts_the_queries_and_tests_of_the_report() -> None:
    line = "simulate --config smoke --attacker active --attacks ascent,similarity"
    row, report = read(f"{line} --plan"), read(line)
    queries = {one["name"]: one["queries"] for one in report["attacks"]}
    assert row["queries"] == {name: pytest.approx(q, rel=0.05) for name, q in queries.items()}
    assert row["tests"] == report["family"]["intervals"]


@pytest.mark.slow
def test_plan__counts_the_memory_of_every_client_of_a_pass() -> None:
    flags = f"{SMALL} --clients 4 --rounds 8 --attacks none --train.batch_size 8 --plan "
    flags = flags.replace("--quiet", "--machine.threads_per_client 99")  # one worker
    rows = {}
    for count in (1, 4):
        row = rows[count] = read(f"{flags} --machine.clients_at_once {count}")["memory"]
        each = sum(row["one_client_mb"].values())
        assert row["clients_at_work"] == count
        assert row["at_work_mb"] == pytest.approx(count * each)
        assert row["peak_mb"] == pytest.approx(sum(row["parts_mb"].values()))
        assert row["one_client_mb"]["activations"] > row["one_client_mb"]["images"] > 0


@dataclass
class Timed(FedAvg):
    """A server that takes as long as the test says, by its clock."""

    def aggregate(self, received: Any, updates: Iterable[Any]) -> Any:
        NOW[0] += TOOK.pop(0)
        return super().aggregate(received, updates)


TOOK: list[float] = []
# Of an attack on a model: its fit and scores; for the threshold, of known images alone, four fits
# on 6 members each, which also score the pilot's 32 images.
ONE = 3 * 8 + 0.25 * (24 + 52) + 4 * (3 * 6 + 0.25 * 32) + 0.25 * 2 * 8


@pytest.mark.parametrize(
    ("flags", "took", "train", "attacks"),
    [
        # Of each kind of rounds the first, then as many as there are like the second.
        ("--rounds 6", [3, 1], 3 + 5 * 1, 2 * ONE),
        pytest.param(
            "--rounds 6 --federation.placebo true",
            [3, 1],
            2 * (3 + 5 * 1),
            3 * ONE,
            marks=pytest.mark.slow(seconds=5),
        ),
        # Pre-training is in the first round, of 2 epochs in place of 20.
        pytest.param(
            "--rounds 6 --pretrain pooled --pretrain-epochs 20",
            [3, 1],
            3 + 5 * 1 + 9 * 2,
            2 * ONE,
            marks=pytest.mark.slow(seconds=5),
        ),
    ],
)
def test_plan__foresees_the_seconds_of_rounds_and_attacks(
    flags: str, took: list[float], train: float, attacks: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pilot of few rounds and images, by a clock that runs, but that a second of the strategy and
    of the attack is a million."""
    real = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: real() + 1e6 * NOW[0])
    attack = named("Slow")
    NOW[0], TOOK[:] = 0, took
    row = read(f"{SMALL.replace('--quiet', '')}--clients 3 --strategy {__name__}:Timed {flags} "
               f"--attacks {attack} --machine.threads_per_client 99 --plan")  # fmt: skip
    assert TOOK == []
    seconds = [row["seconds"][name] / 1e6 for name in ("train", "attacks")]
    assert seconds == pytest.approx([train, attacks], rel=1e-3)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("audit --encoder a.pth --members digits --nonmembers digits --sweep known=2 --plan", "sw"),
        ("audit --encoder timm:resnet18 --federation R --plan", "(--federation) R"),
        ("audit --member-embeddings a --nonmember-embeddings b --plan --fail-on leaks", "fail-on"),
        ("simulate --config smoke --sweep known=2,4 --plan", "sweep known=2,4"),
        ("simulate --config smoke --plan --observe tensorboard", "--observe"),
        *((f"simulate {SMOKE}--plan {text}", text) for text in ("1.2", "0.5", "0.2.1")),
    ],
)
def test_plan__refuses_in_one_line_what_it_cannot_foresee(flags: str, words: str) -> None:
    ran = fedmia(flags)
    (line,) = ran.err.splitlines()
    assert ran.code == 2 and "--plan" in line and words in line


def test_plan__of_no_attack_says_that_nothing_is_tested() -> None:
    ran = fedmia("simulate --config smoke --attacks none --device cpu --plan")
    *_, line = ran.out.splitlines()
    assert ran.code == 0 and line.startswith("nothing would be tested") and "AUC" not in line


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

    least = build_report(made(0.5, 0)).smallest_leak
    assert least is not None
    for seed in range(1, 201):
        codes.append(build_report(made(least, seed)).verdict_code)
    counts = Counter(codes)
    assert 148 <= counts["leaks"] + counts["leaks-uncontrolled"] <= 172, (least, counts)
