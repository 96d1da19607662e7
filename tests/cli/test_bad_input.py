"""Bad input of every command but an audit, whose table is in tests/auditing: each refusal once, by
flags; one line, exit code 2, no folder left. tests/test_bad_inputs.py holds the commonest ones."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from fedmia import simulate
from tests.snapshots import Snapshot

Capture = pytest.CaptureFixture[str]
OWN_ATTACK = """
from dataclasses import dataclass
from fedmia.attacks import Attack
from fedmia.settings import option
from fedmia.threat import Threat

@dataclass
class Norm(Attack):
    paper, needs = "none", Threat("black_box", "outsider")
    views: int = option(8, "views", ge=1)

    def score(self, view, images):
        return images.double().numpy().mean(axis=(1, 2, 3))
"""
REFUSED = {
    "simulate": """
--nothing.like.it 3
smoke
-c 3
--clients
--quiet=yes
--clients 3 --clients 3
--out A --out B
--clients 3 --federation.clients 4
--seeds 3
--out=
--config .
--attacks similarity,similarity
--attacks internal --attack.similarity.views 3
--attacks own_norm:Norm --attack.norm.views 3
--attack.nothing.views 3
--model nosuch:Net
--observe tensorbord
--observe=
--std 0
--federation.placebo 1
--federation.placebo none
--mean 0.1 --std 1,1,1
--mean 0,0,0 --std 1,1,1
--data.image_column x
--dataset parquet
--dataset digits:x
--dataset folder:/no/such/folder
--partition.alpa 1
--partition natural --partition.column ward
--partition file
--partition file:a.csv --partition.path b.csv
--clients 1 --attacker active
--clients 100 --split.members 144
--split.known 144 --split.members 144
--split.nonmembers 48 --split.known 48
--ssl.symmetric yes
--ssl.operations rotation
--ssl.mask_unit 2
--ssl mae --model vit-tiny --ssl.mask_unit 9
--ssl dino --ssl.mixup 1
--ssl.adversarial .1 --defense dpsgd
--ssl moco --ssl.queue_source public
--defense.epsilon 8
--defense dpsgd --defense.epsilon 1e-4
--defense dpsgd --model.norm batch
--defense dpsgd --pretrain pooled
--defense gaussian --ssl simclr --ssl.head_norm batch
--defense logistic --defended-clients 1,1
--clients 10 --defense logistic --attacker active --defended-clients 9
--defense dpsgd,gaussian --defense.epsilon 8
--defense gaussian --defense.dpsgd.epsilon 8
--defense laplace,gaussian
--defense dpsgd,gaussian --defense.gaussian.scale -3
--pretrain public
--pretrain pooled --pretrain-epochs 0
--pretrain none --pretrain-epochs 3
--attacker active --rounds 1
--rounds 3 --train.local_epochs 2 --train.warmup_epochs 6
--pretrain pooled --pretrain-epochs 3 --train.warmup_epochs 3
--strategy scaffold --train.optimizer adamw
--clients 4 --min-clients 2 --federation.participation 0.25
--ray-address auto
--backend ray --device cuda:1
--backend ray --gpus-per-client 1.5
--backend ray --ray-address nowhere
""",
    "study": """
smoke smoke
--over
--over strateg=fedavg
--over rounds=
--over seed=1,2
--over seeds=1,2
--over rounds=2,2
--over rounds=2 --over rounds=3
--over strategy=fedavg,fedpro
--over partition=dirichlet --over partition.alpha=1,0
--over clients=4,1 --attacker active
--strategy.mu 1 --over strategy=fedprox
--jobs 0
--defenses none
--defenses fedavg
--defenses dpsgd,none,dpsgd
--defenses dpsgd --defense gaussian
--defenses dpsgd --attacks none
--defenses dpsgd --clients 1
--defenses gaussian,dpsgd --ssl simclr
--defenses dpsgd --strengths dpsgd=
--defenses dpsgd --strengths dpsgd=1,-1
--defenses dpsgd --strengths dpsgd=1,1.0
--defenses dpsgd --strengths dpsgd=1 --strengths dpsgd=2
--defenses dpsgd --strengths dpsgd.epsilom=1
--defenses dpsgd --strengths 'dpsgd=1;dpsgd.epsilon=1'
--defenses dpsgd --strengths laplace=1
--defenses fedprox --strengths fedprox=1
""",
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with an attack of one's own. What should have been refused does not run."""

    def train(*_: object, **__: object) -> None:
        raise AssertionError("not refused")

    monkeypatch.setattr(simulate, "train", train)
    (tmp_path / "own_norm.py").write_text(OWN_ATTACK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def refused(line: str, out: Path, capsys: Capture, command: str = "simulate") -> str:
    """The one line that a command into `out` is refused with; nothing is made."""
    before = {path: path.is_dir() or path.read_bytes() for path in Path.cwd().rglob("*")}
    main = import_module({"study": "fedmia.study.__main__"}.get(command, f"fedmia.{command}")).main
    words = shlex.split(line) if "--out" in line else [*shlex.split(line), "--out", str(out)]
    assert main(words) == 2, line
    printed, err = capsys.readouterr()
    assert printed == "" and err.count("\n") == 1 and err.startswith("fedmia: error: "), line
    after = {path: path.is_dir() or path.read_bytes() for path in Path.cwd().rglob("*")}
    assert after == before, line
    return err.removeprefix("fedmia: error: ").strip()


@pytest.mark.parametrize("command", REFUSED)
def test_flags__one_line_each(command: str, capsys: Capture, snapshot: Snapshot) -> None:
    """The names that are known are left out: they change with every new one."""
    said = list[str]()
    for line in REFUSED[command].strip().splitlines():
        reason = refused(line, Path("new/RUN"), capsys, command)
        reason = re.sub(r"(known|presets): [^)]+", r"\1: ..", reason)
        said.append(f"{line}\n  {reason}")
    snapshot("\n".join(said))


def test_out__what_is_there_stays(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "RUN"
    out.mkdir()
    refused("--mean 0,0,0 --std 1,1,1", out, capsys)
    (tmp_path / "notes.txt").write_text("mine")
    assert "is a file" in refused("--clients 4", tmp_path / "notes.txt", capsys)
    assert "cannot be made" in refused("--clients 4", tmp_path / "notes.txt" / "RUN", capsys)
    (out / "config.yaml").write_text("seed: 7")
    assert "already holds another run" in refused(f"--config {out}/config.yaml", out, capsys)
