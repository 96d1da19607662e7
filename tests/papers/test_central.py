"""An encoder of a table, trained without Flower: images apart, opened by an audit, resumed to the
bit, and its disk."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fedmia.encoders.base import load
from fedmia.recording import Recording
from tests.papers.finished import numbers, papers
from tests.pictures import painting
from tests.storage.disk import DELETED, KEPT, LOST, Disk, failing, recorded

SIDES = ("members", "nonmembers")
TREE: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "synthetic", "pixels": 16, "images": 120},
    "members": 24,
    "nonmembers": 40,
    "model": {"name": "smallnet", "width": 4},
    "ssl": {"name": "moco", "queue": 8},
    "train": {"optimizer": "sgd", "lr": 0.05, "batch_size": 10},
    "epochs": 4,
    "keep": [2],
}


def train(folder: Path, **changed: Any) -> tuple[int, str]:
    """`python -m research.papers.central FILE FOLDER`: the exit code, and what it said."""
    file, said = folder.with_suffix(".yaml"), StringIO()
    file.write_text(yaml.safe_dump(TREE | changed), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said):
        patch.setattr(sys, "argv", ["central", str(file), str(folder)])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)  # runpy's
            runpy.run_module("research.papers.central", run_name="__main__")
    return int(str(ended.value.code)), said.getvalue()


def trained(folder: Path, **changed: Any) -> Path:
    assert train(folder, **changed) == (0, "")
    return folder


def slow_clock(monkeypatch: pytest.MonkeyPatch, last: float = np.inf) -> None:
    """Every look at the clock finds 21 seconds gone, so that progress is written after each epoch;
    the process ends at the last one."""
    ticks = iter(range(1000))

    def clock() -> float:
        if (tick := next(ticks)) > last:
            raise KeyboardInterrupt
        return 21.0 * tick

    monkeypatch.setattr(time, "perf_counter", clock)


def state(folder: Path, epoch: int) -> dict[str, torch.Tensor]:
    return Recording(folder / "recording").load("main", epoch)[0]


def images(folder: Path, side: str) -> list[bytes]:
    return [image.tobytes() for image in np.load(folder / f"{side}.npz")["x"]]


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Disk, Path]]:
    """A table of norms made from nothing, the disk under it, and its encoder."""
    out = tmp_path_factory.mktemp("table") / "OUT"
    with pytest.MonkeyPatch.context() as patch, recorded(out, patch) as disk, painting():
        ran = papers("lpla-fig-4 --scale smoke --targets 1 --device cpu --quiet", out)
        assert ran.code == 0, ran.err
    (job,) = (out / "jobs").glob("encoder-*")
    yield out, disk, job / "results"


@pytest.mark.slow(seconds=2)
def test_finished_job__is_on_the_disk_before_it_is_called_so(made: Any) -> None:
    out, disk, encoder = made
    job = encoder.parent.relative_to(out)
    for fate in (LOST, KEPT, DELETED):
        done = [t for t in disk.states[fate] if t.get(f"{job}/done.json")]
        losses = (encoder / "losses.json").read_bytes()
        assert done and all(t[f"{job}/results/losses.json"] == losses for t in done)
        assert all(t[f"{job}/results/recording/rounds.jsonl"] for t in done)


@pytest.mark.slow(seconds=1)
def test_table__holds_the_norms_of_each_side_under_the_stored_models(made: Any) -> None:
    out, _, encoder = made
    table = json.loads((out / "tables" / "lpla-fig-4.json").read_text("utf-8"))
    norms = json.loads((encoder / "losses.json").read_text("utf-8"))["norms"]
    assert {*norms} == {"1", "2"}
    for epoch, sides in norms.items():
        network = load(f"{encoder}@{epoch}")
        for side, mean, column in zip(SIDES, sides, ("members", "non-members"), strict=True):
            pixels = np.load(encoder / f"{side}.npz")["x"].transpose(0, 3, 1, 2)
            with torch.no_grad():
                out = network.method.encoder.features(torch.from_numpy(pixels) / 255, ["avgpool"])
            assert mean == pytest.approx(float(out["avgpool"].norm(dim=1).mean()), rel=1e-4)
            assert numbers(table)[epoch, column] == mean
    assert norms["1"] != norms["2"] and norms["2"][0] != norms["2"][1]
    losses = json.loads((encoder / "losses.json").read_text("utf-8"))["losses"]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)


def test_images__no_member_is_a_non_member_and_seeds_draw_others(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", epochs=1, keep=[])
    other, more = (
        trained(tmp_path / name, epochs=1, keep=[], **changed)
        for name, changed in (("other", {"seed": 4}), ("more", {"members": 60}))
    )
    members, others = (images(one, side) for side in SIDES)
    assert (len(members), len(others)) == (24, 40) == (len({*members}), len({*others}))
    assert not {*members} & {*others}
    assert {*members} != {*images(other, "members")}
    assert others == images(more, "nonmembers") and len(images(more, "members")) == 60
    assert (load(str(one)).channels, load(str(one)).size) == (3, 16)


def test_interrupted_training__ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the first progress, after it, and with models that are stored already."""
    whole = trained(tmp_path / "whole")
    for last in (2, 5, 7):
        cut = tmp_path / f"cut-{last}"
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            slow_clock(patch, last)
            train(cut)
        assert not (cut / "losses.json").exists()
        assert (cut / "progress.safetensors").is_file() == (last > 2)
        trained(cut)
        assert not (cut / "progress.safetensors").exists()
        for epoch in (0, 2, 4):
            assert equal(state(whole, epoch), state(cut, epoch)), (last, epoch)
        for key in ("losses", "norms"):
            one, other = (json.loads((f / "losses.json").read_text())[key] for f in (whole, cut))
            assert one == other, key
        rounds = [(f / "recording" / "rounds.jsonl").read_bytes() for f in (whole, cut)]
        assert rounds[0] == rounds[1] and rounds[0].count(b"\n") == 3
    assert not equal(state(whole, 0), state(whole, 4))


def test_full_disk__one_line_and_the_same_bits_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = trained(tmp_path / "whole"), tmp_path / "full"
    with monkeypatch.context() as patch, failing(folder, patch, "progress.safetensors", 2):
        slow_clock(patch)
        code, said = train(folder)
    line = f"cannot write '{folder}/progress.safetensors': No space left on device"
    assert code == 74
    assert said == f"fedmia: the run failed: {line}: free some space there\n"
    trained(folder)
    assert equal(state(whole, 4), state(folder, 4))


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"members": 100}, "members 100: synthetic has 120 images"), ({"keep": [4]}, "4")],
)
def test_settings__that_do_not_fit_are_refused(changed: Any, said: str, tmp_path: Path) -> None:
    code, line = train(tmp_path / "run", **changed)
    assert code == 2 and line.count("\n") == 1 and said in line.replace(" (--members)", "")


@pytest.mark.slow(seconds=2)
def test_job_whose_disk_fails__ends_the_command_and_what_was_begun_stays(tmp_path: Path) -> None:
    """A job that was begun goes on; one whose folder cannot be written ends all with 74."""
    line = "lpla-fig-4 --scale smoke --targets 1 --device cpu --quiet"
    assert papers(f"{line} --minutes 1e-9", tmp_path).code == 130
    (job,) = (tmp_path / "jobs").glob("encoder-*")
    (job / "results").write_text("no folder")
    ran = papers(line, tmp_path)
    assert ran.code == 74 and "cannot write" in ran.err and ran.err.count("fedmia: ") == 1
    assert not (job / "done.json").exists() and (job / "results").read_text() == "no folder"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["smallnet", "vit-tiny"])
def test_folder__opens_as_an_encoder(tmp_path: Path, model: str) -> None:
    """A ViT has no convolution that tells its channels."""
    own = trained(tmp_path / "run", model={"name": model}, ssl="simclr", epochs=1, keep=[])
    loaded = load(str(own))
    assert (loaded.channels, loaded.size, loaded.weights.round) == (3, 16, 1)


@pytest.mark.slow
def test_training__imports_neither_flower_nor_ray() -> None:
    code = (
        "import sys, research.papers.central, research.papers.run\n"
        "print([m for m in ('flwr', 'ray', 'opacus') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
