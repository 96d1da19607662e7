"""Bad input of every command but an audit's own table, which is in tests/auditing: each refusal
once; one line, exit code 2, nothing written."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.commands import fedmia
from tests.snapshots import Snapshot

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
OWN_DEFENCE = """
from fedmia.defenses.weight_decay import WeightDecay
from fedmia.settings.errors import option_error

@dataclass(frozen=True)
class Halving(WeightDecay):
    share: int = option(2, "parts")

    def __post_init__(self):
        super().__post_init__()
        if self.share == 7:
            raise option_error(self, "share: 7, must not be 7")
"""
OWN = "--encoder tests.auditing.brought:tiny --members npz:in.npz --nonmembers npz:out.npz"
REFUSED = {
    "": """
simulat
--audit
list atack
list attack defense
reproduce --out x
head
paper
sweep
tradeoff
diff .
diff nowhere .
diff . . .
diff OLD OLD
""",
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
--defense gaussian --model.norm split
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
--attacker active --rounds 1
--rounds 3 --train.local_epochs 2 --train.warmup_epochs 6
--pretrain pooled --pretrain-epochs 3 --train.warmup_epochs 3
--strategy scaffold --train.optimizer adamw
--clients 4 --min-clients 2 --federation.participation 0.25
--backend ray --device cuda:1
--backend ray --gpus-per-client 1.5
--backend ray --ray-address nowhere
extra
--cleints 3
--gpus 1
--ssl.rotate 90
--attack.similarity.vews 3
--attacks similarty
--dataset mnist
--attacker activ
--backend dask
--clients ten
--clients 1.5
--defense logistic --defended-clients 4-2
--defense logistic --defended-clients 0-99999999
--attacks similarity,,lpla
--federation.client_timeout soon
--dataset cifar10 --data.dir ''
--seed -1
--train.lr nan
--mean 128
--device tpu
--defense dpsgd --defense.delta 1
--partition iid --partition.alpha 1
--attacks ascent
--split.members 4000
--split.scored 5000
--defense dpsgd --ssl simclr
--clients 10 --defense logistic --defended-clients 0-10
--attacker active --rounds 4 --attack-rounds 4
--config smok
--out OLD
--out notes
--resume notes
--dataset npz:torn.npz
--partition file:a.pkl
--attacks lpla --attack.lpla.p 0.05
--attacks partcrop --attack.partcrop.scale_min 0.9 --attack.partcrop.scale_max 0.3
--attacks baseline-e --attack.baseline-e.rows 2
--ssl ibot --model vit-tiny --ssl.mask_spread 0.9
--ssl mae --model vit-tiny --ssl.decoder_width 10
--model vit-tiny --model.width 10
--dataset synthetic --data.channels 2
--strategy dp-fedavg --strategy.canaries 3
--defense gaussian --defense.epsilon 1 --defense.scale 1
--defense early-stopping --defense.after 2 --defense.leak 0.5
--defense crop-range --defense.lower 0.5 --defense.choose true
--defense own_norm:Halving --defense.share 7
--attacker server --clients 2
--attacker server --federation.participation 0.2
--attacker server --federation.keep_updates 0
--attacker server --attacks ascent
--attacker passive --attacks all-for-one
--dataset digits --ssl.operations crop,flip
--dataset digits --fit pad
--groups ward
--groups wards.csv
--observe tensorboard --plan
--junit J.xml
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
--sedes 3
--defenses gausian
--seeds 0
--over rounds
--over strategy=fedavg --over strategy.mu=1
--defenses dpsgd --strengths dpsg=1
--defenses gaussian --strengths gaussian.canaries=3
--encoders x --clients 3
--encoders x --over rounds=1,2
--encoders x --defenses gaussian
--encoder x
--limit 3
--defenses gaussian --over rounds=1,2
--over rounds=0,1
--over strategy=fedavg,fedavg
--view encoders
--encoders RUN,3
--encoders R@1,1
--encoders recorded/recording
""",
    "audit": """
OWN --channels rbg
OWN --augment.crop_mi 0.3
OWN --skip-unreadable maybe
OWN --attack.lpla.p 9
OWN --sweep seed=1,2
--encoder tests.auditing.brought:tiny --members digits --nonmembers digits
OWN --known 39 --attacks similarity
OWN --attacks encodermi-t
--encoder vit --members digits --nonmembers synthetic
OWN --shadow-encoders nowhere
--encoder torchvision:resnet19 --members npz:in.npz --nonmembers npz:out.npz
--encoder tests.auditing.brought:tiny --members synthetic --members.channels 2 --nonmembers digits
OWN --augment.crop_min 0.9 --augment.crop_max 0.3
--encoder a.pth,b.pth --members digits --nonmembers digits
--encoder a.pth --seeds 3
--encoder e --pixel-range 0,9
""",
}
# The same of what a file says.
IN_FILES: dict[str, list[str | bytes]] = {
    "simulate": [
        "", "[1, 2]", "seed: [1", "train:\n  lr: 1\n  lr: 2", "1: 2",
        "seed: !!python/object:os.system x", b"seed: \xff", "sead: 3", "train: {lr: fast}",
        "train: {lrr: 3}", "out: RUN", "train: {lr: -1}", "federation: {rounds: three}",
        "federation: 3", "federation: {clients: '3'}", "seed: true", "attacks: null",
        "partition: null", "partition: {name: 3}", "data: {mean: 0.5}", "defense: 3",
        "defense: [{epsilon: 3}]", "defense: [{name: dpsgd, clients: [12]}]",
        "defense: [{name: dpsgd, clients: []}]", "defense: [{name: dpsgd, clients: abc}]",
        "defense: [{name: dpsgd, clients: [0]}, {name: dpsgd, epsilon: 8, clients: [0]}]",
        "defense: dpsgd\ndefended_clients: []", "{attacks: [ascent], attacker: server}",
        "{attacker: active, malicious: 7, federation: {clients: 3}}",
        "clients: 3\nfederation: {clients: 3}", "over: {strategy: [fedavg]}",
        "base: settings.yaml", "base: nothing", "federation: {attack_rounds: 2}",
        "pretrain: {rounds: 3}\nfederation: {rounds: 4}",
        "base: overfit\nattacker: none\nfederation: {attack_rounds: 1}",
    ],
    "study": [
        "over: {strateg: [fedavg]}", "over: {strategy: fedavg}", "over: 3",
        "over: {strategy.mu: [1]}", "seed: x", "defenses: [gaussian]\nstrengths: {gaussian: 1}",
        "defenses: [gaussian]\nstrengths: {gaussian: [-1]}", "defenses: [gaussian]\nstrengths: 3",
    ],
    "audit": ["encoder: x.onnx\nprecision: bfloat16", "loss: apps:loss\nlimit: 100"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with plugins of one's own and files that lines name; what is not refused is
    cut short."""
    for name, text in {
        "own_norm.py": OWN_ATTACK + OWN_DEFENCE, "notes/notes.txt": "mine",
        "OLD/config.yaml": "seed: 7", "OLD/report.json": "{}", "vit/model.safetensors": "",
        "vit/config.json": '{"model_type": "vit"}', "recorded/recording/recording.json": "{}",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    draw = np.random.default_rng(0)
    for name in ("in", "out"):
        x = draw.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(40) % 5)
    (tmp_path / "torn.npz").write_bytes((tmp_path / "in.npz").read_bytes()[:-60])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def cut_short(*_: object) -> None:
        pytest.fail("not refused within 60 s")

    before = signal.signal(signal.SIGALRM, cut_short)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")
            if "__pycache__" not in path.parts}  # fmt: skip


def refused(command: str, line: str) -> str:
    """The one line that a command into a new folder is refused with; nothing is made. An audit may
    say before it what it guessed."""
    before, words = tree(Path.cwd()), shlex.split(f"{command} {line}")
    runs = command and not {"--out", "--out=", "--resume"} & {*words}
    ran = fedmia(words, Path("new/RUN") if runs else None)
    *notes, last = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, "") and last.startswith("fedmia: error: "), (line, ran)
    assert not notes or command == "audit" and all(n.startswith("fedmia: ") for n in notes), line
    assert not [one for one in notes if "error" in one]
    assert tree(Path.cwd()) == before, line
    # Of names that are known each new one would be another line.
    return re.sub(
        r"(known|presets|commands): [^)]+", r"\1: ..", last.removeprefix("fedmia: error: ")
    )


@pytest.mark.parametrize("command", REFUSED)
def test_line__is_refused_as_stored(command: str, snapshot: Snapshot) -> None:
    lines = REFUSED[command].strip().splitlines()
    reasons = [refused(command, line.replace("OWN", OWN)) for line in lines]
    snapshot("\n".join(f"{line}\n  {why}" for line, why in zip(lines, reasons, strict=True)))


@pytest.mark.parametrize("command", IN_FILES)
def test_file__is_refused_as_stored(command: str, snapshot: Snapshot) -> None:
    said = list[str]()
    for text in IN_FILES[command]:
        Path("settings.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        said.append(f"{text!r}\n  {refused(command, '--config settings.yaml')}")
    snapshot("\n".join(said))


def test_file__a_flag_hides_none_of_its_mistakes() -> None:
    for text in ("train: {lr: fast}", "train: {lrr: 3}"):
        Path("e.yaml").write_text(text)
        assert refused("simulate", "--config e.yaml --train.lr 1") == refused(
            "simulate", "--config e.yaml"
        )
    Path("e.yaml").write_text("loss: apps:loss\nlimit: 100\n")
    line = "--config e.yaml --encoder E --loss none --members digits"
    assert not refused("audit", line).startswith("e.yaml")  # no fault of the file


def test_out__what_is_there_stays() -> None:
    assert "is a file" in refused("simulate", "--clients 4 --out notes/notes.txt")
    assert "cannot be made" in refused("simulate", "--clients 4 --out notes/notes.txt/RUN")
    line = "--config OLD/config.yaml --out OLD"
    assert "already holds another run" in refused("simulate", line)
