"""A run's folder as an encoder: the snapshot's weights, where no federation is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fedmia.encoders.base import load
from fedmia.encoders.describe import probe_encoder
from fedmia.options.errors import InputError
from fedmia.report.figures import draw
from fedmia.simulate import main
from fedmia.storage.snapshot import SnapshotStore

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--dataset synthetic --data.pixels 8 --data.images 60 --data.classes 2 --clients 1 --rounds 2 "
    "--split.members 12 --split.known 4 --attacks none --train.local_epochs 1 "
    "--model.width 4 --ssl.dim 8 --quiet"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one client and two rounds."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "draw_all", lambda scores, report: {})
        assert main([*FLAGS.split(), "--out", str(folder)]) == 0
    return folder


def test_run__is_its_snapshot(run: Path) -> None:
    released = load(str(run))
    assert (released.name, released.access) == ("tiny@2", "white_box")
    assert (released.channels, released.size, released.fixed_size) == (3, 8, False)
    assert released.method.encoder.map_layer == "layer4"
    for turn, method in ((2, released.method), (0, released.untrained())):
        state = SnapshotStore(run / "snapshots").load("main", turn).state
        ours = method.shared_state()
        assert ours.keys() == state.keys()
        assert all(torch.equal(ours[n], t) for n, t in state.items())
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    assert probe_encoder(released, images) == [] and released.notes == []
    assert "round 0" in released.untrained_how
    assert released.augment.crop_min == 0.2


def test_run__a_round_by_number(run: Path) -> None:
    weights = SnapshotStore(run / "snapshots").load("main", 1).state
    state = load(f"{run}@1").method.shared_state()
    assert all(torch.equal(state[n], t) for n, t in weights.items())
    with pytest.raises(InputError, match=r"kept no round 9; nearest is 2 \(kept: 0, 1, 2\)"):
        load(f"{run}@9")


def test_run__says_which_of_its_models_it_is(run: Path) -> None:
    """An encoder of no run has no round."""
    assert [load(f"{run}{at}").weights.round for at in ("", "@1")] == [2, 1]
    assert load("tests.auditing.brought:tiny").weights.round is None


def test_run__same_seed_same_bank(run: Path) -> None:
    first, again = load(str(run), seed=4), load(str(run), seed=4)
    assert torch.equal(first.method.get_buffer("bank.rows"), again.method.get_buffer("bank.rows"))


def test_run__constants_and_size(run: Path) -> None:
    released = load(str(run), mean=[0.1, 0.2, 0.3], size=16)
    torch.testing.assert_close(
        released.method.encoder.mean.flatten(), torch.tensor([0.1, 0.2, 0.3])
    )
    assert released.size == 16 and "trained on 8x8" in released.notes[0]


def test_run__size_that_nothing_tells(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    tree = yaml.safe_load((copy / "config.yaml").read_text())
    tree["data"] = {"name": f"parquet:{tmp_path}/gone.parquet"}
    (copy / "config.yaml").write_text(yaml.safe_dump(tree))
    report = (copy / "report.json").read_text()
    (copy / "report.json").write_text("{}")
    with pytest.raises(InputError, match="give size"):
        load(str(copy))
    assert load(str(copy), size=8).size == 8
    (copy / "report.json").write_text('{"split": {"size": 8}}')
    assert load(str(copy)).size == 8
    (copy / "report.json").write_text(report)


def test_run__broken_folders(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run: .*runs inside it: tiny"):
        load(str(run.parent))
    with pytest.raises(InputError, match="is no run"):
        load(str(tmp_path))
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace("width: 4", "width: 8"))
    with pytest.raises(InputError, match="does not fit its config.yaml"):
        load(str(copy))
    (copy / "config.yaml").write_text(config.replace("width: 4", "widht: 4"))
    with pytest.raises(InputError, match="did you mean 'width'"):
        load(str(copy))
    (copy / "config.yaml").write_text("model: [")
    with pytest.raises(InputError, match="config.yaml is not valid YAML"):
        load(str(copy))
    (copy / "config.yaml").write_text(config)
    for file in (copy / "snapshots" / "main").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(InputError, match="snapshot of round 2 in .* cannot be read"):
        load(str(copy))
    shutil.rmtree(copy / "snapshots" / "main")
    with pytest.raises(InputError, match="holds no snapshots"):
        load(str(copy))
    with pytest.raises(InputError, match="holds its own weights"):
        load(str(run), checkpoint=Path("w.pt"))


@pytest.mark.slow
def test_run__where_no_federation_is_installed(run: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('flwr', 'ray', 'opacus', 'onnx', 'timm'): sys.modules[name] = None\n"
        "from fedmia.encoders.base import load\n"
        f"assert load({str(run)!r}).size == 8\n"
        "assert not {'clients', 'strategies'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
