"""A run's folder as an encoder: the snapshot's weights, where no federation is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from fedmia.encoders.base import load
from fedmia.encoders.describe import probe_encoder
from fedmia.recording import Recording, RecordingWriter
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.bank import Bank
from tests.encoders.conftest import refused
from tests.made_up_runs import write_report


@pytest.fixture(scope="module")
def run(bank: Bank) -> Path:
    """A finished run of four rounds, whose models were all kept."""
    return bank.run("server")


def test_run__is_its_snapshot(run: Path) -> None:
    released = load(str(run))
    assert (released.name, released.access) == ("server@4", "white_box")
    assert (released.channels, released.size, released.fixed_size) == (1, 8, False)
    assert released.method.encoder.map_layer == "layer4"
    for turn, method in ((4, released.method), (0, released.untrained())):
        state = Recording(run / "recording").models()[turn]
        ours = method.shared_state()
        assert ours.keys() == state.keys()
        assert all(torch.equal(ours[n], t) for n, t in state.items())
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    assert probe_encoder(released, images) == [] and released.notes == []
    assert "round 0" in released.untrained_how
    assert released.augment.crop_min == 0.9


def test_run__of_a_pretrained_model_has_the_first_one_as_its_control(
    run: Path, tmp_path: Path
) -> None:
    """Round 0 of a run that was pre-trained on its clients' images knows the members."""
    shutil.copytree(run, tmp_path / "RUN")
    recording = RecordingWriter(tmp_path / "RUN/recording")
    before = recording.load("main", 1)
    recording.save("untrained", 0, before[0])
    recording.flush()
    state = load(str(tmp_path / "RUN")).untrained().shared_state()
    assert all(torch.equal(state[n], t) for n, t in before[0].items())


def test_run__a_round_by_number(run: Path) -> None:
    weights = Recording(run / "recording").models()[1]
    state = load(f"{run}@1").method.shared_state()
    assert all(torch.equal(state[n], t) for n, t in weights.items())
    assert [load(f"{run}{at}").weights.round for at in ("", "@1")] == [4, 1]
    assert load("tests.auditing.brought:tiny").weights.round is None
    refused(r"kept no round 9; nearest is 4 \(kept: 0, 1, 2, 3, 4\)", f"{run}@9")


def test_run__with_a_model_that_diverged_is_refused_by_its_round(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, folder := tmp_path / "RUN")
    recording = RecordingWriter(folder / "recording")
    last = recording.load("main", 4)[0]
    recording.save("main", 5, {n: torch.zeros_like(t) for n, t in last.items()})
    recording.save("untrained", 0, {n: t * torch.inf for n, t in last.items()})
    recording.flush()
    refused("the model of round 5: every weight is zero", str(folder))
    with pytest.raises(InputError, match="the model of round 0: '.*' is not finite"):
        load(f"{folder}@2").untrained()


def test_run__seed_constants_and_size(run: Path) -> None:
    first, again = load(str(run), seed=4), load(str(run), seed=4)
    assert torch.equal(first.method.get_buffer("bank.rows"), again.method.get_buffer("bank.rows"))
    mean = [0.1]
    released = load(str(run), mean=mean, size=16)
    torch.testing.assert_close(released.method.encoder.mean.flatten(), torch.tensor(mean))
    assert released.size == 16 and "trained on 8x8" in sentences(released.notes)[0]


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_run__size_that_nothing_tells(copy: Path) -> None:
    tree = yaml.safe_load((copy / "config.yaml").read_text())
    tree["data"] = {"name": f"parquet:{copy}/gone.parquet"}
    (copy / "config.yaml").write_text(yaml.safe_dump(tree))
    (copy / "report.json").unlink()
    refused("give data.size", copy)
    assert load(str(copy), size=8).size == 8
    write_report(copy, {"split": {"size": 8}})
    assert load(str(copy)).size == 8


def test_run__broken_folders(run: Path, copy: Path, tmp_path: Path) -> None:
    refused("is no run: .*runs inside it: .*server", run.parent)
    (tmp_path / "empty").mkdir()
    refused("is no run", tmp_path / "empty")
    config = (copy / "config.yaml").read_text()
    for text, message in (
        (config.replace("width: 4", "width: 8"), "does not fit its config.yaml"),
        (config.replace("width: 4", "widht: 4"), "did you mean 'width'"),
        ("model: [", "config.yaml: not valid YAML"),
    ):
        (copy / "config.yaml").write_text(text)
        refused(message, copy)
    (copy / "config.yaml").write_text(config)
    for file in (copy / "recording/models/main").iterdir():
        file.write_bytes(b"x")
    refused("0004.safetensors.* is not the file that was recorded", copy)
    (copy / "recording/rounds.jsonl").write_text("")
    refused("holds no models in recording/models/main", copy)
    refused("holds its own weights", run, checkpoint=Path("w.pt"))
