"""Bad input to any command but an audit, whose table is in tests/auditing: one line that names the
value, exit code 2, no folder left, nothing overwritten."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedmia import simulate

ROOT = Path(__file__).resolve().parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What should have been refused fails here, and does not run for a minute."""

    def execute(*_: object) -> None:
        raise AssertionError("not refused")

    monkeypatch.setattr(simulate, "execute", execute)


def refused(flags: str, out: Path, capsys: Capture, command: str = "simulate") -> str:
    """The one line that a command into `out` is refused with; nothing of `out` or over it is
    made."""
    main = import_module(f"fedmia.{command}").main
    before = sorted(p for p in _existing(out).rglob("*"))
    assert main([*shlex.split(flags), "--out", str(out)]) == 2
    printed, err = capsys.readouterr()
    assert printed == "" and err.count("\n") == 1 and err.startswith("fedmia: error: ")
    assert "Traceback" not in err
    assert sorted(p for p in _existing(out).rglob("*")) == before
    return err.removeprefix("fedmia: error: ").strip()


def _existing(out: Path) -> Path:
    return next(p for p in (out, *out.parents) if p.is_dir())


BROUGHT = "--encoder tests.auditing.brought:grey --threads 1 --device cpu "
REFUSED = {
    "simulate": [
        ("--attacks similarty", "unknown attack 'similarty'; did you mean 'similarity'?"),
        ("--attacks similarity,nothing", "unknown attack 'nothing'"),
        ("--strategy fedsgd", "unknown strategy 'fedsgd'"),
        ("--dataset mnist", "unknown dataset 'mnist'"),
        ("--model resnet19", "unknown model 'resnet19'; did you mean 'resnet18'?"),
        ("--ssl mocov9", "unknown ssl 'mocov9'"),
        ("--defense dpsdg", "unknown defense 'dpsdg'; did you mean 'dpsgd'?"),
        ("--partition dirichlt", "unknown partition 'dirichlt'; did you mean 'dirichlet'?"),
        ("--partition natural", "partition natural needs --partition.column NAME"),
        ("--partition natural --partition.column ward", "(folder, npz, parquet); digits has none"),
        ("--partition file", "partition file needs a path: --partition file:PATH"),
        ("--partition file:none.json", "partition file: none.json does not exist"),
        ("--partition file:a.pkl", "a.pkl is no .json, .csv or .npy file"),
        ("--partition file:a.csv --partition.path b.csv", "--partition.path b.csv are two paths"),
        ("--observe tensorbord", "unknown observer 'tensorbord'; did you mean 'tensorboard'?"),
        ("--observe=", "--observe needs a name, got ''"),
        ("--rouns 3", "unknown option --rouns; did you mean '--rounds'?"),
        ("--ssl.quue 3", "--ssl.quue"),
        ("--attack.similarity.vews 3 --attacks similarity", "--attack.similarity.vews"),
        ("--clients 0", "--clients must be >= 1, got 0"),
        ("--clients -3", "--clients must be >= 1, got -3"),
        ("--clients ten", "--clients must be int, got 'ten'"),
        ("--clients", "--clients needs a value"),
        ("--rounds 0", "--rounds must be >= 1, got 0"),
        ("--attacker activ", "unknown --attacker value 'activ'; did you mean 'active'?"),
        ("--clients 3 --attacker active --malicious 3", "--malicious 3 leaves no honest client"),
        ("--clients 3 --attacker passive --malicious 9", "--malicious 9 leaves no honest client"),
        ("--clients 1 --attacker active", "--clients must be >= 2"),
        ("--attacks ascent", "needs --attacker active"),
        ("--partition dirichlet --partition.alpha 0", "--partition.alpha must be > 0, got 0"),
        ("--partition dirichlet --partition.alpha -1", "--partition.alpha must be > 0, got -1"),
        ("--partition dirichlet --partition.alpha nan", "--partition.alpha must be finite"),
        (
            "--clients 100 --split.members 144",
            "split.members 144 gives 100 honest clients fewer than 2",
        ),
        ("--split.members 4000", "needed, digits has 1797 distinct"),
        (
            "--split.known 144 --split.members 144",
            "--split.known 144 of 144 members leaves too few to score",
        ),
        ("--split.nonmembers 48 --split.known 48", "split.nonmembers 48 must be at least 2 more"),
        ("--defense dpsgd --defense.epsilon 0", "--defense.epsilon must be > 0, got 0"),
        ("--defense dpsgd --defense.delta 0", "--defense.delta must be > 0, got 0"),
        ("--defense dpsgd --defense.delta 1", "--defense.delta must be < 1, got 1"),
        (
            "--defense dpsgd --defense.epsilon 1e-4",
            "a client of 9 images: epsilon 0.0001 is too small for 300 steps",
        ),
        (
            "--ssl moco --ssl.queue_source public",
            "--ssl moco trains against public images here and needs --split.public > 0, got 0",
        ),
        ("--defense logistic --defense.epsilon -1", "--defense.epsilon must be > 0, got -1"),
        (
            "--clients 10 --defense logistic --defended-clients 0-10",
            "no client 10; the clients are 0-9",
        ),
        (
            "--clients 10 --defense logistic --attacker active --defended-clients 9",
            "client 9 is malicious",
        ),
        ("--defense logistic --defended-clients abc", "--defended-clients"),
        ("--defended-clients 1", "--defended-clients 1 needs --defense NAME"),
        ("--defense dpsgd --model.norm batch", "batch norm mixes the images of a batch"),
        (
            "--defense dpsgd --ssl simclr",
            "--defense dpsgd with --ssl simclr: the loss of one image",
        ),
        ("--defense gaussian --ssl simclr --ssl.head_norm batch", "running statistics of batch"),
        ("--defense dpsgd --pretrain pooled", "--pretrain pooled with --defense dpsgd"),
        ("--defense gaussian --pretrain pooled", "--pretrain pooled with --defense gaussian"),
        ("--pretrain public", "--pretrain public needs --split.public > 0, got 0"),
        ("--pretrain-epochs -1", "--pretrain-epochs must be >= 0, got -1"),
        (
            "--pretrain-rounds 2",
            "unknown option --pretrain-rounds; did you mean '--pretrain-epochs'",
        ),
        ("--pretrain federated", "unknown --pretrain value 'federated'"),
        ("--attacker active --rounds 1", "--rounds 1 leaves no clean round before an attacked one"),
        (
            "--attacker active --rounds 4 --attack-rounds 4",
            "--attack-rounds 4 of --rounds 4 leaves no clean round; at most 3",
        ),
        ("--seed -1", "--seed must be >= 0, got -1"),
        ("--train.lr 0", "--train.lr must be > 0, got 0"),
        ("--train.batch_size 0", "--train.batch_size must be >= 1, got 0"),
        ("--size 4", "--size must be >= 8, got 4"),
        ("--mean 0.3,0.3,0.3", "--mean"),
        ("--std 1,1,1 --mean 0,0,0", "3 values for images of 1 channels"),
        ("--device tpu", "got 'tpu'"),
        ("--backend spark", "unknown --backend value 'spark'"),
        ("--config no-such.yaml", "no config file or preset 'no-such.yaml'"),
        ("--train.optimizer adam", "unknown --train.optimizer value 'adam'"),
        (
            "--rounds 3 --train.local_epochs 2 --train.warmup_epochs 6",
            "--train.warmup_epochs 6 must be < 6, the epochs of the run",
        ),
        (
            "--pretrain pooled --pretrain-epochs 3 --train.warmup_epochs 3",
            "--train.warmup_epochs 3 must be < 3, --pretrain-epochs",
        ),
        (
            "--strategy scaffold --train.optimizer adamw",
            "--strategy scaffold reads gradients off the clients' steps",
        ),
        (
            "--attacker active --federation.attacked_rate matched",
            "unknown --federation.attacked_rate value 'matched'",
        ),
        ("--dataset parquet", "needs a path"),
        ("--dataset digits:x", "takes no path, got 'digits:x'"),
        ("--dataset cifar10 --data-dir /no/such/folder", "/no/such/folder"),
        ("--dataset tinyimagenet:/no/such/folder", "/no/such/folder"),
        ("--dataset folder:/no/such/folder", "/no/such/folder"),
        (
            "--clients 4 --min-clients 5",
            "--min-clients must be <= 4, the clients of a round, got 5",
        ),
        (
            "--clients 4 --min-clients 2 --federation.participation 0.25",
            "must be <= 1, the clients",
        ),
        ("--client-timeout 0", "--client-timeout must be > 0, got 0"),
        ("--on-failure ignore", "unknown --on-failure value 'ignore' (known: drop, retry, stop)"),
        ("--ray-address auto", "--ray-address auto needs --backend ray"),
        ("--gpus-per-client 0.5", "--gpus-per-client 0.5 needs --backend ray"),
        ("--backend ray --device cuda:1", "clients on Ray get no GPU without --gpus-per-client"),
        ("--backend ray --gpus-per-client 1.5", "a share below 1 or a whole number, got 1.5"),
        ("--backend ray --ray-address nowhere", "must be auto or HOST:PORT, got 'nowhere'"),
        ("--federation.placebo maybe", "--federation.placebo must be bool or auto, got 'maybe'"),
        ("--federation.placebo 1", "--federation.placebo must be bool or auto, got 1"),
        ("--federation.placebo none", "--federation.placebo must be bool or auto, got 'none'"),
    ],
    "tradeoff": [("--defenses gausian", "unknown defence 'gausian'; did you mean 'gaussian'?")],
}


@pytest.mark.parametrize(
    ("command", "flags", "named"),
    [(command, flags, named) for command, rows in REFUSED.items() for flags, named in rows],
)
def test_flags__one_line_names_the_value(
    command: str, flags: str, named: str, tmp_path: Path, capsys: Capture
) -> None:
    assert named in refused(flags, tmp_path / "new" / "RUN", capsys, command)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["parquet", "npz"])
@pytest.mark.parametrize("state", ["missing", "empty", "corrupt", "truncated", "rowless", "folder"])
def test_data_file__one_line_names_it(
    kind: str, state: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / f"images.{kind}"
    if state == "empty":
        path.write_bytes(b"")
    elif state == "corrupt":
        path.write_bytes(b"neither parquet nor a zip archive" * 9)
    elif state == "folder":
        path.mkdir()
    elif state in ("truncated", "rowless"):
        write(path, 0 if state == "rowless" else 40)
        if state == "truncated":
            path.write_bytes(path.read_bytes()[:-40])
    assert str(path) in refused(f"--dataset {kind}:{path}", tmp_path / "new" / "RUN", capsys)
    assert not (tmp_path / "new").exists()


def write(path: Path, images: int) -> None:
    """A data file of that many images, in the format that its name says."""
    x = np.random.default_rng(0).integers(0, 256, (images, 8, 8, 3), dtype=np.uint8)
    y = np.arange(images) % 5
    if path.suffix == ".npz":
        np.savez(path, x=x, y=y)
        return
    rows = pa.array([a.tobytes() for a in x], pa.binary())
    pq.write_table(pa.table({"img": rows, "label": pa.array(y, pa.int64())}), path)


def test_data_file__too_few_images_for_the_clients(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "images.npz"
    write(path, 40)
    flags = f"--dataset npz:{path} --split.members 30 --split.known 8"
    message = refused(flags, tmp_path / "RUN", capsys)
    assert "images needed, images has 40 distinct" in message


def test_out__a_folder_that_holds_another_run_is_left_as_it_is(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "RUN"
    out.mkdir()
    (out / "config.yaml").write_text("seed: 7")
    (out / "report.json").write_text("{}")
    message = refused("--clients 4", out, capsys)
    assert message.startswith(f"--out '{out}' already holds another run")
    assert (out / "config.yaml").read_text() == "seed: 7"
    assert (out / "report.json").read_text() == "{}"


def test_out__a_folder_with_other_files_or_a_file_is_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "already holds 'notes.txt'" in refused("--clients 4", tmp_path, capsys)
    assert "is a file" in refused("--clients 4", tmp_path / "notes.txt", capsys)
    assert "cannot be made" in refused("--clients 4", tmp_path / "notes.txt" / "RUN", capsys)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_out__an_empty_folder_stays_empty(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "RUN"
    out.mkdir()
    refused("--mean 0,0,0 --std 1,1,1", out, capsys)
    assert list(out.iterdir()) == []


def test_config_file__is_not_overwritten_by_its_own_run(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "config.yaml").write_text("seed: 7")
    message = refused(f"--config {tmp_path / 'config.yaml'}", tmp_path, capsys)
    assert "already holds another run" in message


@pytest.mark.slow
def test_process__stderr_is_one_line_and_the_code_is_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedmia.simulate", "--clients", "0", "--out", "RUN"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fedmia: error: --clients must be >= 1, got 0\n"
    assert list(tmp_path.iterdir()) == []
