"""A run that was ended at any moment goes on, and ends in the report of one that was not."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fedmia.cli.command import DISK_FAILED
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.federation import checkpoint
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.ledger import Ledger
from fedmia.federation.rounds import FederatedRun
from fedmia.report.figures import draw
from fedmia.simulate import main
from fedmia.storage import archive, snapshot
from fedmia.storage.snapshot import ClientState

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "--clients 3 --train.local_epochs 1 --model.width 4 --split.members 24 --split.nonmembers 48 "
    "--split.known 8 --split.test 20 --device cpu --federation.snapshots 1 --rounds 4 "
    "--attack-rounds 2 --attacker active --attacks similarity,ascent --attack.similarity.views 4 "
    "--attack.ascent.pairs 1 --strategy scaffold --quiet "
)
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


class Killed(BaseException):
    """Nothing that anybody catches."""


@pytest.fixture(autouse=True)
def plain(monkeypatch: Patch) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "RUN"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "draw_all", lambda scores, report: {})
        assert main([*shlex.split(TINY), "--out", str(out)]) == 0
    assert not (out / "checkpoint").exists()
    assert [p.name for p in (out / "snapshots").iterdir()] == ["main"]
    return out


@pytest.fixture(scope="module")
def whole(finished: Path) -> dict[str, Any]:
    """Its report."""
    return read(finished)


def read(out: Path) -> dict[str, Any]:
    """A run's report but for its timing."""
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return {**report, "timing": None}


def at_write(number: int, error: BaseException, monkeypatch: Patch) -> list[str]:
    """The write of that number fails, half of the file written; the names of all before it."""
    names: list[str] = []

    def failing(write: Callable[..., None]) -> Callable[..., None]:
        def save(tensors: Any, path: Any, *more: Any) -> None:
            if len(names) == number:
                Path(path).write_bytes(b"half")
                raise error
            names.append(Path(path).name)
            write(tensors, path, *more)

        return save

    monkeypatch.setattr(snapshot, "save_file", failing(safetensors.torch.save_file))
    monkeypatch.setattr(archive, "save_file", failing(safetensors.numpy.save_file))
    return names


def resume(out: Path, *more: str) -> int:
    return main(["--resume", str(out), "--quiet", *more])


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of all files that the run writes, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "draw_all", lambda scores, report: {})
        names = at_write(-1, Killed(), patch)
        assert main([*shlex.split(TINY), "--out", str(tmp_path_factory.mktemp("w") / "RUN")]) == 0
    return names


# Parts of all writes: at the first model, in a clean round, in a branch beside it, among scores.
SOME = [0.0, 0.12, 0.4, 0.93]


@pytest.mark.slow
@pytest.mark.parametrize("share", SOME)
def test_killed_while_it_writes__goes_on_to_the_same_report(
    share: float, whole: dict[str, Any], writes: list[str], tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        at_write(int(share * len(writes)), Killed(), patch)
        main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")])
    assert resume(tmp_path / "RUN") == 0
    assert read(tmp_path / "RUN") == whole
    files = {p.relative_to(tmp_path / "RUN").as_posix() for p in (tmp_path / "RUN").rglob("*")}
    assert not [name for name in files if "checkpoint" in name or "partial" in name]


@pytest.mark.slow
def test_between_files_and_index__the_checkpoint_before_counts(
    whole: dict[str, Any], tmp_path: Path, monkeypatch: Patch
) -> None:
    replace, calls = os.replace, list[str]()

    def dies(source: Any, target: Any) -> None:
        calls.append(str(target))
        if Path(target).name == checkpoint.INDEX and len(calls) > 4:
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", dies)
        main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")])
    assert resume(tmp_path / "RUN") == 0 and read(tmp_path / "RUN") == whole


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.93])  # the latter among scores
def test_full_disk__one_line_and_nothing_is_lost(
    share: float, whole: dict[str, Any], writes: list[str], tmp_path: Path, monkeypatch: Patch,
    capsys: Capture,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        at_write(int(share * len(writes)), OSError(errno.ENOSPC, "No space left on device"), patch)
        assert main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")]) == DISK_FAILED
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "No space left" in err and "--resume" in err
    assert resume(tmp_path / "RUN") == 0 and read(tmp_path / "RUN") == whole


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "placebo"])
def test_interrupted__is_reported_on_and_goes_on(
    branch: str, whole: dict[str, Any], tmp_path: Path, monkeypatch: Patch
) -> None:
    noted = FederatedRun._note

    def note(self: FederatedRun, now: str, number: int, *rest: Any) -> Any:
        if (now, number) == (branch, 3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return noted(self, now, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, "_note", note)
        assert main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")]) == 130
    assert read(tmp_path / "RUN")["interrupted"] is not None
    assert resume(tmp_path / "RUN") == 0 and read(tmp_path / "RUN") == whole


@pytest.mark.slow
def test_finished_attacks__are_not_scored_again(
    whole: dict[str, Any], tmp_path: Path, monkeypatch: Patch
) -> None:
    scored, names = Scorer.score_attack, list[str]()

    def noted(self: Scorer, name: str, *given: Any, **more: Any) -> Any:
        names.append(name)
        return scored(self, name, *given, **more)

    monkeypatch.setattr(Scorer, "score_attack", noted)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("fedmia.simulate.publish", lambda *given: (_ for _ in ()).throw(Killed()))
        main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")])
    assert "similarity" in names and "ascent" in names
    names.clear()
    assert resume(tmp_path / "RUN") == 0
    assert names == [] and read(tmp_path / "RUN") == whole


@pytest.mark.slow
def test_finished_run__prints_its_report(finished: Path, capsys: Capture) -> None:
    before = (finished / "report.json").read_bytes()
    assert main(["--resume", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(before)
    assert (finished / "report.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "lars"])
def test_other_optimizers__and_a_momentum_that_is_raised_go_on(
    optimizer: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Killed in a round of the warm-up, then in one after it."""
    flags = (
        "--clients 3 --train.local_epochs 1 --model.width 4 --split.members 24 --rounds 4 "
        "--split.nonmembers 48 --split.known 8 --split.test 20 --device cpu --quiet "
        "--federation.snapshots 1 --attacks similarity --attack.similarity.views 4 --ssl byol "
        f"--train.optimizer {optimizer} --train.warmup_epochs 2 --ssl.momentum_schedule cosine"
    )
    assert main([*shlex.split(flags), "--out", str(tmp_path / "whole")]) == 0
    noted = FederatedRun._note

    def killed_in(last: int) -> Callable[..., Any]:
        def note(self: FederatedRun, now: str, number: int, *rest: Any) -> Any:
            if number == last:
                raise Killed
            return noted(self, now, number, *rest)

        return note

    begin = [*shlex.split(flags), "--out", str(tmp_path / "RUN")]
    for given, last in ((begin, 2), (["--resume", str(tmp_path / "RUN"), "--quiet"], 4)):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(FederatedRun, "_note", killed_in(last))
            main(given)
    assert resume(tmp_path / "RUN") == 0
    assert read(tmp_path / "RUN") == read(tmp_path / "whole")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its third round, on images of its own."""
    folder = tmp_path_factory.mktemp("begun")
    draw_images(folder / "images.npz", 0)
    noted = FederatedRun._note

    def note(self: FederatedRun, now: str, number: int, *rest: Any) -> Any:
        if number == 3:
            raise Killed
        return noted(self, now, number, *rest)

    flags = f"{TINY} --attack.ascent.lr 1 --dataset npz:{folder / 'images.npz'}"
    flags += f" --out {folder / 'RUN'}"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(FederatedRun, "_note", note)
        main(shlex.split(flags))
    return folder / "RUN"


def draw_images(path: Path, seed: int) -> None:
    """300 random images of 10 classes, as an .npz."""
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 256, (300, 8, 8, 1), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(300) % 10)


def refusal(capsys: Capture, *given: str) -> str:
    assert main(["--quiet", *given]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def test_other_images__are_refused(begun: Path, capsys: Capture) -> None:
    images = begun.parent / "images.npz"
    content = images.read_bytes()
    try:
        draw_images(images, 1)
        assert "no longer holds the images" in refusal(capsys, "--resume", str(begun))
    finally:
        images.write_bytes(content)


def test_other_versions__are_refused(begun: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr(checkpoint, "__version__", "9.9.9")
    assert "this is fedmia 9.9.9" in refusal(capsys, "--resume", str(begun))


def test_two_processes__one_is_refused(begun: Path, capsys: Capture) -> None:
    other = Checkpoint(begun / "checkpoint")
    other.hold()
    try:
        assert "another process" in refusal(capsys, "--resume", str(begun))
    finally:
        other.release()


def test_settings_beside_resume__are_refused(begun: Path, tmp_path: Path, capsys: Capture) -> None:
    for more in (("--clients", "5"), ("--out", str(tmp_path)), ("--config", "smoke")):
        message = refusal(capsys, "--resume", str(begun), *more)
        assert f"{more[0]} cannot be given too" in message
    assert "is no run" in refusal(capsys, "--resume", str(tmp_path))
    assert "already holds another run" in refusal(capsys, "--out", str(begun))


@pytest.mark.slow
def test_files__are_written_once_and_pruned(tmp_path: Path, monkeypatch: Patch) -> None:
    """After each index the folder holds what it names and nothing else."""
    write, generations, seen = Checkpoint.write, list[int](), dict[str, tuple[int, int]]()

    def checked(self: Checkpoint, *given: Any) -> None:
        write(self, *given)
        self.wait_for_writes()
        index = json.loads((self.root / checkpoint.INDEX).read_text())
        named = {*index["files"].values(), *(name for *_, name in index["clients"]["files"])}
        there = {p.name: p.stat() for p in self.root.rglob("*.safetensors")}
        assert set(there) == named
        for name, stat in there.items():  # one that is there before stays as it is
            assert seen.setdefault(name, (stat.st_ino, stat.st_mtime_ns)) == (
                stat.st_ino, stat.st_mtime_ns,
            )  # fmt: skip
        generations.append(index["generation"])

    monkeypatch.setattr(Checkpoint, "write", checked)
    assert main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")]) == 0
    assert generations == list(range(1, len(generations) + 1))
    # Rounds of main and of the branch beside it and of placebo, and the beginning of each.
    assert len(generations) == (4 + 1) + (2 + 1) + (4 + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "count"), [(0, 0), (3, 11)])
def test_every__so_many_rounds_and_where_stretches_end(
    every: int, count: int, whole: dict[str, Any], tmp_path: Path, monkeypatch: Patch
) -> None:
    write, calls = Checkpoint.write, list[int]()
    monkeypatch.setattr(
        Checkpoint, "write", lambda self, *given: (calls.append(1), write(self, *given))[1]
    )
    flags = [*shlex.split(TINY), "--checkpoint-every", str(every), "--out", str(tmp_path / "RUN")]
    assert main(flags) == 0
    assert len(calls) == count
    report = read(tmp_path / "RUN")
    assert {**report, "config": None} == {**whole, "config": None}


# -- what a checkpoint holds ----------------------------------------------------------------------


def test_index__takes_its_place_when_all_that_it_names_is_on_disk(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """So that a run that is killed at that very moment, or before or after, goes on."""
    ledger, kept = Ledger(tmp_path / "clients"), Checkpoint(tmp_path)
    swap, calls = os.replace, list[int]()

    def looked(source: Any, target: Any) -> None:
        if Path(target).name == checkpoint.INDEX:
            index = json.loads(Path(source).read_text())
            files = [tmp_path / name for name in index["files"].values()]
            files += [tmp_path / "clients" / name for *_, name in index["clients"]["files"]]
            assert [f.name for f in files if not f.is_file()] == []
            calls.append(len(files))
        swap(source, target)

    monkeypatch.setattr(os, "replace", looked)
    for round in (1, 2, 3):
        for client in range(3 if round < 3 else 1):
            ledger.save("main", client, ClientState({"w": torch.full((2,), 10.0 * round + client)}))
        kept.write({}, {"head": ({"w": torch.full((2,), float(round))}, {"round": round})}, ledger)
        kept.wait_for_writes()
        found = Checkpoint(tmp_path)
        index = found.read()
        assert index is not None and found.get("head")[1] == {"round": round}
        again = Ledger(tmp_path / "clients")
        again.restore(index["clients"])
        states = [again.load("main", client) for client in range(3)]
        last = [10.0 * round + c if round < 3 or not c else 20.0 + c for c in range(3)]
        assert [float(s.tensors["w"][0]) for s in states if s is not None] == last
    assert calls == [4, 4, 4]


@pytest.mark.slow(seconds=25)
@pytest.mark.parametrize(
    ("backend", "checkpoints"), [("inline", [1, 7]), ("ray", [4])], ids=["inline", "ray"]
)
def test_kill_9__in_a_process_of_its_own(
    backend: str, checkpoints: list[int], whole: dict[str, Any], tmp_path: Path
) -> None:
    """After so many checkpoints of the 13, wherever it is then: in the main branch and, gone on,
    in the placebo. At last the report of the run that was left alone."""
    flags = [*shlex.split(TINY), "--backend", backend, "--out", str(tmp_path / "RUN")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    again = ["--resume", str(tmp_path / "RUN"), "--quiet"]
    index = tmp_path / "RUN" / "checkpoint" / checkpoint.INDEX
    for count, given in zip(checkpoints, [flags, again], strict=False):
        run = subprocess.Popen(
            [sys.executable, "-m", "fedmia.simulate", *given], env=environment,
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and run.poll() is None:
            if index.is_file() and json.loads(index.read_text())["generation"] > count:
                break
            time.sleep(0.02)
        assert run.poll() is None
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    done = subprocess.run(
        [sys.executable, "-m", "fedmia.simulate", *again], env=environment, timeout=300,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = read(tmp_path / "RUN")
    assert {**report, "config": {**report["config"], "backend": "inline"}} == whole
