"""An encoder trained without Flower: resumed to the bit, images apart, opened by an audit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch

from fedmia.cli.command import DISK_FAILED
from fedmia.encoders.base import load
from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.settings.yamlfile import dump
from fedmia.storage.durable import DiskError
from fedmia.study.scheduler import run_jobs
from papers import central, jobs
from papers.central_settings import Central
from tests.storage.disk import DELETED, KEPT, LOST, failing, recorded

TREE = {
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


def settings(**more: object) -> Central:
    return from_tree(Central, {**TREE, **more})


def state(folder: Path, epoch: int) -> dict[str, torch.Tensor]:
    return Recording(folder / "recording").load("main", epoch)[0]


def test_interrupted_training__ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = central.train_encoder(settings(), tmp_path / "whole")
    monkeypatch.setattr(central, "PAUSE", 0.0)  # progress after every epoch
    steps = iter(range(1000))
    central.train_encoder(settings(), tmp_path / "cut", stop=lambda: next(steps) > 7)
    assert not (tmp_path / "cut" / central.LOSSES).exists()
    assert (tmp_path / "cut" / central.PROGRESS).is_file()
    assert central.train_encoder(settings(), tmp_path / "cut") == whole
    for epoch in (0, 2, 4):
        first, second = state(tmp_path / "whole", epoch), state(tmp_path / "cut", epoch)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(*(next(iter(state(tmp_path / "cut", e).values())) for e in (0, 4)))
    written = [
        json.loads((tmp_path / run / central.LOSSES).read_text()) for run in ("whole", "cut")
    ]
    assert written[0]["norms"] == written[1]["norms"] and [*written[0]["norms"]] == ["2", "4"]


@pytest.mark.slow
def test_killed__models_after_the_last_progress_are_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there was none yet, and where it is of epoch 1 or of the last but one."""
    central.train_encoder(settings(), tmp_path / "run")
    rounds = tmp_path / "run" / "recording" / "rounds.jsonl"
    whole = rounds.read_bytes()
    monkeypatch.setattr(central, "PAUSE", 0.0)  # progress after every epoch
    for cut in (0, 3, 9):
        early = tmp_path / str(cut)
        steps = iter(range(1000))
        central.train_encoder(settings(), early, stop=lambda at=cut, n=steps: next(n) > at)
        for file in early.glob(central.PROGRESS):
            file.rename(tmp_path / "run" / central.PROGRESS)
        central.train_encoder(settings(), tmp_path / "run")
        assert rounds.read_bytes() == whole and whole.count(b"\n") == 3
    (tmp_path / "run" / "config.yaml").unlink()  # written last of what a training begins with
    central.train_encoder(settings(), tmp_path / "run")
    assert rounds.read_bytes() == whole


@pytest.mark.slow
def test_full_disk__one_line_and_the_same_bits_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = central.train_encoder(settings(), tmp_path / "whole")
    monkeypatch.setattr(central, "PAUSE", 0.0)  # progress after every epoch
    folder, file = tmp_path / "full", tmp_path / "settings.yaml"
    file.write_text(dump(TREE))
    with failing(folder, monkeypatch, central.PROGRESS, 5):
        assert central.main([str(file), str(folder)]) == DISK_FAILED
    line = f"cannot write '{folder / central.PROGRESS}': No space left on device"
    assert capsys.readouterr().err == f"fedmia: the run failed: {line}: free some space there\n"
    assert central.main([str(file), str(folder)]) == 0
    assert json.loads((folder / central.LOSSES).read_text())["losses"] == whole
    first, second = state(tmp_path / "whole", 4), state(folder, 4)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_full_disk__ends_the_jobs_and_what_was_begun_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = jobs.JobFolder(tmp_path / "OUT")
    one = jobs.TableJob(jobs.ENCODER, {"data": {"name": "digits"}})

    line = "fedmia: the run failed: cannot write 'x': No space"
    ended = [sys.executable, "-c", f"import sys; print({line!r}); sys.exit({DISK_FAILED})"]
    monkeypatch.setattr(folder, "start", lambda job: folder.path(job).mkdir() or ended)
    with pytest.raises(DiskError, match="^cannot write 'x': No space$"), folder.locked():
        run_jobs(folder.unfinished([one]), 1, Event(), True)
    assert folder.path(one).is_dir() and folder.done(one) is None


def test_finished_job__is_on_the_disk_before_it_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "OUT"
    one = jobs.TableJob(jobs.ENCODER, {"data": {"name": "digits"}})
    with recorded(root, monkeypatch) as disk:
        folder = jobs.JobFolder(root)
        with folder.locked():
            folder.start(one)
            results = folder.path(one) / "results" / "recording"
            results.mkdir(parents=True)
            (results / "x").write_text("y")
            folder.finish(one, 1.0)
    for fate in (LOST, KEPT, DELETED):
        done = [t for t in disk.states[fate] if t.get(f"jobs/{one.key}/{jobs.DONE}")]
        assert done and all(t[f"jobs/{one.key}/results/recording/x"] == b"y" for t in done)


def test_images__no_member_is_a_non_member_and_seeds_draw_others(tmp_path: Path) -> None:
    members, others = central.draw_images(settings())
    assert (len(members), len(others)) == (24, 40)
    assert not set(members.digests()) & set(others.digests())
    again, other_seed, more = (
        central.draw_images(settings(**changed)) for changed in ({}, {"seed": 4}, {"members": 60})
    )
    assert np.array_equal(members.images, again[0].images)
    assert set(members.digests()) != set(other_seed[0].digests())
    assert np.array_equal(others.images, more[1].images)


def test_settings__that_do_not_fit_are_refused() -> None:
    for more, words in (
        ({"members": 100}, "members 100: synthetic has 120 "),
        ({"keep": [4]}, "4"),
    ):
        with pytest.raises(InputError, match=words):
            central.draw_images(settings(**more))


def test_norms__are_those_of_each_side_under_the_stored_models(tmp_path: Path) -> None:
    central.train_encoder(settings(), tmp_path)
    norms = json.loads((tmp_path / central.LOSSES).read_text())["norms"]
    for epoch, sides in norms.items():
        network = load(f"{tmp_path}@{epoch}")
        for side, mean in zip(central.SIDES, sides, strict=True):
            pixels = np.load(tmp_path / f"{side}.npz")["x"].transpose(0, 3, 1, 2)
            with torch.no_grad():
                out = network.method.encoder.features(torch.from_numpy(pixels) / 255, ["avgpool"])
            assert mean == pytest.approx(float(out["avgpool"].norm(dim=1).mean()), rel=1e-4)
    assert norms["2"] != norms["4"] and norms["4"][0] != norms["4"][1]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["smallnet", "vit-tiny"])
def test_folder__opens_as_an_encoder(tmp_path: Path, model: str) -> None:
    """A ViT has no convolution that tells its channels."""
    config = settings(model={"name": model}, ssl="simclr", epochs=1, keep=[])
    central.train_encoder(config, tmp_path / "encoder")
    loaded = load(str(tmp_path / "encoder"))
    assert (loaded.channels, loaded.size, loaded.weights.round) == (3, 16, 1)


@pytest.mark.slow
def test_training__imports_neither_flower_nor_ray() -> None:
    code = (
        "import sys, papers.central, papers.run\n"
        "print([m for m in ('flwr', 'ray', 'opacus') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
