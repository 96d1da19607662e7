"""Same seed, same numbers: run again, from its own config.yaml, on other threads, on Ray; and where
an attack does nothing, without it. Runs are compared by their recordings and their reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fedmia import open_run
from fedmia.recording import Recording
from tests.bank import RUNS, Bank
from tests.small_runs import ran, read
from tests.watched import same

from .conftest import TINY, tiny

# What clients do: they train and craft. How a server scores is no matter of where they run.
ON_CLIENTS = tiny(
    "--rounds 3 --attack-rounds 1 --attacker active --attacks similarity,ascent "
    "--attack.ascent.pairs 1 --federation.snapshots 1 --attack.similarity.views 4 "
)


def models(run: Path) -> dict[int, Any]:
    """The kept models, and what the attacker's client held, by round."""
    recording = Recording(run / "recording")
    return {r: {**recording.models()[r], **recording.held().get(r, {})} for r in recording.rounds()}


def alike(one: Path, other: Path, last: int = 99) -> bool:
    """Whether both runs kept the same models, to the bit, up to a round."""
    here, there = ({r: m for r, m in models(run).items() if r <= last} for run in (one, other))
    assert len(here) > 1
    return here.keys() == there.keys() and all(same(here[r], there[r]) for r in here)


@pytest.mark.slow
def test_same_seed__same_files_on_another_number_of_threads(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one thread trains clients and scores where several did, or the other way round."""
    few = len(os.sched_getaffinity(0)) == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(4 if few else 1)})
    first, again = bank.run("attacked"), tmp_path / "again"
    report = ran(RUNS["attacked"].removeprefix("simulate "), again)
    assert report == read(first) and report["attacks"]
    kept = [{p.relative_to(run).as_posix(): p.read_bytes() for p in run.glob("recording/**/*")
             if p.is_file() and p.name != "rounds.jsonl"} for run in (first, again)]  # fmt: skip
    assert kept[0] == kept[1] and len(kept[0]) > 9
    files = "scores.csv", "exposed.csv", "table.csv", "curves.npz"
    assert all((first / n).read_bytes() == (again / n).read_bytes() for n in files)


@pytest.mark.slow
def test_config__a_runs_own_file_repeats_its_numbers(tmp_path: Path) -> None:
    """Also where flags, a plugin's options and a list made the first run."""
    line = TINY.replace("--train.lr 0.06", "--train.lr 6e-2") + (
        "--attacker passive --attacks similarity,internal --attack.similarity.views 4 "
        "--attack.internal.layers layer1,encoder --partition dirichlet --partition.alpha 0.5 "
        "--ssl.symmetric true --strategy fedavgm --seed 3 --federation.snapshots 2"
    )
    one, config = ran(line, tmp_path / "one"), tmp_path / "one" / "config.yaml"
    assert one == ran(f"--quiet --config {config}", tmp_path / "two")
    assert len({(tmp_path / n / "scores.csv").read_text() for n in ("one", "two")}) == 1
    assert alike(tmp_path / "one", tmp_path / "two")
    assert str(tmp_path) not in config.read_text()  # `out` is not part of the config


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "--strategy fedema --federation.participation 0.5 --train.optimizer adamw "
        "--train.warmup_epochs 2 --ssl byol --ssl.momentum_schedule cosine",
        "--strategy scaffold --federation.batch_norm local --model.norm batch",
        # The others train plainly.
        "--defense dpsgd,gaussian --defended-clients 0 --ssl mae --model vit-tiny --model.heads 2 "
        "--model.depth 4",
    ],
)
def test_ray__same_report_as_inline_but_for_timing_and_config(
    more: str, one_ray: None, tmp_path: Path
) -> None:
    inline, ray = (
        ran(f"{ON_CLIENTS}{more} --backend {name}", tmp_path / name) for name in ("inline", "ray")
    )
    assert inline["config"]["machine"].pop("backend") == "inline"
    assert ray["config"]["machine"].pop("backend") == "ray"
    assert inline == ray


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attack of no step: its client sends back what it receives."""
    return attacked(tmp_path_factory.mktemp("idle"), "--attack.ascent.steps 0")


def attacked(folder: Path, more: str) -> Path:
    line = tiny("--attacker active --attacks ascent --federation.snapshots 4 " + more)
    ran(f"{line} --attack.ascent.pairs 1 --federation.keep_updates 4", folder / "RUN")
    return folder / "RUN"


def curves(run: Path) -> Any:
    return open_run(run).curves


@pytest.mark.slow
def test_disarmed_attack__main_and_zero_are_the_same_federation(idle: Path) -> None:
    """Zero starts from all that is kept (queues, key encoders, momenta), not from weights alone;
    the client of such an attack sends back what it received."""
    drawn = curves(idle)
    assert drawn.rounds.tolist() == [3, 4]
    assert (drawn.members == drawn.control_members).all()
    assert (drawn.nonmembers == drawn.control_nonmembers).all()
    recording = Recording(idle / "recording")
    for round in (3, 4):
        assert same(recording.updates()[round][3], recording.models()[round - 1])
        assert not same(recording.updates()[round][0], recording.models()[round - 1])


@pytest.mark.slow
def test_zero_branch__is_the_run_without_ascent(idle: Path, tmp_path: Path) -> None:
    armed = attacked(tmp_path, "--attack.ascent.lr 5 --attack.ascent.steps 1")
    assert alike(armed, idle, 2) and not alike(armed, idle, 3)  # and the ascent does something
    one, other = curves(armed), curves(idle)
    assert (one.control_members == other.members).all()
    assert (one.control_nonmembers == other.nonmembers).all()
    assert (one.members != other.members).all()


@pytest.mark.slow
def test_active_client__is_an_honest_one_until_it_may_craft(idle: Path, tmp_path: Path) -> None:
    """Its images are its own, as a passive client's are."""
    line = TINY + "--attacker passive --attacks similarity --attack.similarity.views 4 "
    line += "--federation.snapshots 4 --federation.placebo true"
    ran(line, tmp_path / "RUN")
    assert alike(idle, tmp_path / "RUN", 2) and not alike(idle, tmp_path / "RUN", 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ("passive --attacks none --attacker-trains false", (3, 3, 3, 3)),
        ("passive --attacks none", (4, 4, 4, 4)),
        ("active --attacks ascent --attacker-trains false", (3, 3, 4, 4)),  # where it crafts
    ],
)
def test_attacker__counts_in_the_mean_only_if_it_trains_or_crafts(
    more: str, counted: tuple[int, ...], tmp_path: Path
) -> None:
    """One that does not sends back what it received: that does not dilute the mean."""
    keeping = "--federation.snapshots 4 --federation.keep_updates 4"
    ran(f"{TINY}--attacker {more} {keeping}", tmp_path / "RUN")
    recording = Recording(tmp_path / "RUN" / "recording")
    for round, count in enumerate(counted, 1):
        sent, received = recording.updates()[round], recording.models()[round - 1]
        assert same(sent[3], received) is (count == 3)
        for name, got in recording.models()[round].items():
            mean = sum(sent[c][name].double() for c in range(count)) / count
            assert (got.double() - mean).abs().max() < 1e-6


@pytest.mark.slow
def test_defence__draws_its_noise_from_a_stream_of_its_own(tmp_path: Path) -> None:
    """What leaves client 0 is what it would have sent undefended, plus noise: training draws the
    same numbers with and without the defence."""
    line = tiny("--attacks none --rounds 1 --federation.keep_updates 1 ")
    scale = "--defense logistic --defended-clients 0 --defense.scale 1e-6 --defense.clip 1e9"
    sent = []
    for name, more in (("plain", ""), ("noised", scale)):
        ran(line + more, tmp_path / name)
        sent.append(Recording(tmp_path / name / "recording").updates()[1])
    plain, noised = sent
    assert all(same(plain[c], noised[c]) for c in (1, 2, 3)) and not same(plain[0], noised[0])
    for name, tensor in plain[0].items():
        assert (tensor - noised[0][name]).abs().max() < 1e-4
