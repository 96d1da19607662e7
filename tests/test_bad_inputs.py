"""Bad inputs as the docs and other tests name them: each is refused in one line that names option,
value and way out, with exit code 2 (in Python an InputError); nothing is written."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmia
from fedmia.cli.main import main

FILES = {
    "two.yaml": "seed: 3\nseed: 4",
    "list.yaml": "- seed",
    "sead.yaml": "sead: 3",
    "lr.yaml": "train: {lr: -1}",
    "words.yaml": "federation: {rounds: three}",
    "grid.yaml": "over: {strateg: [fedavg]}",
    "values.yaml": "over: {strategy: fedavg}",
    "strengths.yaml": "defenses: [gaussian]\nstrengths: {gaussian: [-1]}",
    "notes/notes.txt": "mine",
    "OLD/config.yaml": "seed: 7",
    "OLD/report.json": "{}",
    "vit/config.json": '{"model_type": "vit"}',
    "vit/model.safetensors": "",
}
AUDIT = "audit --encoder tests.auditing.brought:tiny"
OWN = f"{AUDIT} --members npz:in.npz --nonmembers npz:out.npz"
# Command, option and value that the line names, and the way out that it shows.
COMMANDS = [
    # names
    ("simulat", "command", "simulat", "did you mean 'simulate'?"),
    ("--audit", "audit", "audit", "did you mean 'audit'?"),
    ("list atack", "plugin", "atack", "did you mean 'attack'?"),
    ("list attack defense", "list", "attack defense", "takes one kind"),
    ("simulate extra", "argument", "extra", "options begin with"),
    ("simulate --cleints 3", "option", "cleints", "did you mean '--clients'?"),
    ("study --sedes 3", "option", "sedes", "did you mean '--seeds'?"),
    ("simulate --epochs 3", "option", "epochs", "did you mean '--train.local_epochs'?"),
    ("simulate --gpus 1", "option", "gpus", "did you mean '--device'?"),
    ("simulate --ssl.rotate 90", "ssl.rotate", "moco", "did you mean 'rotation'?"),
    ("simulate --attack.similarity.vews 3", "vews", "similarity", "did you mean 'views'?"),
    ("simulate --attacks similarty", "attack", "similarty", "did you mean 'similarity'?"),
    ("simulate --strategy fedpro", "strategy", "fedpro", "did you mean 'fedprox'?"),
    ("simulate --dataset mnist", "dataset", "mnist", "known: cifar10"),
    ("simulate --model resnet19", "model", "resnet19", "did you mean 'resnet18'?"),
    ("simulate --defense dpsdg", "defense", "dpsdg", "did you mean 'dpsgd'?"),
    ("simulate --attacker activ", "attacker", "activ", "did you mean 'active'?"),
    ("simulate --backend dask", "backend", "dask", "known: inline, ray"),
    ("study --defenses gausian", "defence", "gausian", "did you mean 'gaussian'?"),
    (f"{OWN} --channels rbg", "channels", "rbg", "did you mean 'rgb'?"),
    (f"{OWN} --augment.crop_mi 0.3", "option", "augment.crop-mi", "augment.crop-min"),
    # types and ranges
    ("simulate --clients ten", "clients", "ten", "must be int"),
    ("simulate --rounds 2.5", "rounds", "2.5", "must be int"),
    ("simulate --seed -1", "seed", "-1", "must be >= 0"),
    ("simulate --train.lr nan", "train.lr", "nan", "must be finite"),
    ("simulate --mean 128", "mean", "128.0", "give 128/255 = 0.502"),
    ("simulate --device tpu", "device", "tpu", "auto, cpu, cuda or cuda:n"),
    ("simulate --defense dpsgd --defense.delta 1", "defense.delta", "1.0", "must be < 1"),
    ("study --seeds 0", "seeds", "0", "must be >= 1"),
    (f"{OWN} --skip-unreadable maybe", "skip-unreadable", "maybe", "must be bool"),
    (f"{OWN} --attack.lpla.p 9", "attack.lpla.p", "9.0", "must be <= 5"),
    (f"{OWN} --sweep seed=1,2", "sweep", "seed=1,2", "must be known=n,n,.."),
    ("study --over rounds", "over", "rounds", "must be option=value,value,.."),
    # settings that contradict one another
    ("simulate --partition iid --partition.alpha 1", "partition.alpha", "iid", "but of dirichlet"),
    (
        "simulate --clients 3 --attacker active --malicious 3",
        "malicious", "3", "malicious is at most 2",
    ),
    ("simulate --attacks ascent", "attack", "ascent", "needs attacker active"),
    ("simulate --split.members 4000", "members", "4044", "digits has 1797 distinct"),
    ("simulate --split.scored 5000", "split.scored", "5000", "at most 180 can be scored"),
    ("simulate --partition natural", "partition", "natural", "needs partition.column name"),
    ("simulate --defense dpsgd --ssl simclr", "ssl", "simclr", "use ssl moco"),
    ("simulate --defended-clients 1", "defended-clients", "1", "without defense name"),
    (
        "simulate --clients 10 --defense logistic --defended-clients 0-10",
        "defended-clients", "10", "the clients are 0-9",
    ),
    (
        "simulate --attacker active --rounds 4 --attack-rounds 4",
        "attack-rounds", "4", "at most 3",
    ),
    ("simulate --clients 4 --min-clients 5", "min-clients", "5", "must be <= 4"),
    ("simulate --gpus-per-client 0.5", "gpus-per-client", "0.5", "machine.backend (--backend) ray"),
    ("study --over strategy=fedavg --over strategy.mu=1", "strategy.mu", "fedavg", "of fedprox"),
    ("study --defenses dpsgd --strengths dpsg=1", "strengths", "dpsg", "did you mean 'dpsgd'?"),
    (f"{AUDIT} --members digits --nonmembers digits", "members", "1797", "byte-equal"),
    (f"{OWN} --known 39 --attacks similarity", "known", "39", "2 of each must remain"),
    (f"{OWN} --attacks encodermi-t", "encodermi-t", "no attack could run", "(shadows) n"),
    # files and folders: missing, of another kind, damaged
    ("simulate --config smok", "config", "smok", "did you mean 'smoke'?"),
    ("simulate --config two.yaml", "seed", "two.yaml", "line 2"),
    ("simulate --config list.yaml", "list.yaml", "list", "must hold a mapping of options"),
    ("simulate --config sead.yaml", "sead", "sead.yaml", "did you mean 'seed'?"),
    ("simulate --config lr.yaml", "train.lr", "-1.0", "must be > 0"),
    ("simulate --config words.yaml", "federation.rounds", "three", "must be int"),
    ("study grid.yaml", "over", "strateg", "did you mean 'strategy'?"),
    ("study values.yaml", "over.strategy", "fedavg", "needs a list of values"),
    ("study strengths.yaml", "strengths", "gaussian=-1", "must be >= 0"),
    ("simulate --out OLD", "out", "old", "name a new folder"),
    ("simulate --out notes", "out", "notes.txt", "name a new folder"),
    ("simulate --resume notes", "resume", "notes", "no config.yaml in it"),
    ("simulate --dataset npz:torn.npz", "npz", "torn.npz", "cannot read"),
    ("simulate --partition file:a.pkl", "partition", "a.pkl", ".json, .csv or .npy file"),
    (
        "audit --encoder vit --members digits --nonmembers synthetic",
        "encoder", "vit", "hf:vit",
    ),
    (f"{OWN} --shadow-encoders nowhere", "shadow-encoders", "nowhere", "no such folder"),
    (
        "audit --encoder torchvision:resnet19 --members npz:in.npz --nonmembers npz:out.npz",
        "model", "resnet19", "did you mean 'resnet18'?",
    ),
]  # fmt: skip
# The same of calls in Python.
CALLS: list[tuple[Callable[..., object], dict[str, Any], str, str, str]] = [
    (fedmia.run_simulation, {"cliens": 3}, "option", "cliens", "did you mean 'clients'?"),
    (fedmia.run_simulation, {"clients": 0}, "clients", "0", "must be >= 1"),
    (fedmia.run_simulation, {"train": {"lr": "fast"}}, "train.lr", "fast", "must be float"),
    (fedmia.run_simulation, {"model": "nosuch:net"}, "model", "nosuch:net", "no module named"),
    (fedmia.run_simulation, {"resume": "notes"}, "resume", "notes", "no config.yaml in it"),
    (
        fedmia.audit_encoder, {"members": "npz:in.npz", "others": "npz:gray.npz"},
        "size", "1x8x8", "must have the same channels",
    ),
    (
        fedmia.audit_encoder,
        {"members": "npz:in.npz", "others": "npz:out.npz", "attacks": ["simlarity"]},
        "attack", "simlarity", "did you mean 'similarity'?",
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the files of the inputs; what is not refused is cut short."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    draw = np.random.default_rng(0)
    for name, channels in (("in", 3), ("out", 3), ("gray", 1)):
        x = draw.integers(0, 256, (40, 8, 8, channels), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(40) % 5)
    (tmp_path / "torn.npz").write_bytes((tmp_path / "in.npz").read_bytes()[:-60])
    monkeypatch.chdir(tmp_path)

    def cut_short(*_: object) -> None:
        pytest.fail("not refused within 30 s")

    before = signal.signal(signal.SIGALRM, cut_short)
    signal.alarm(30)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def spell_plainly(text: str) -> str:
    """The text without what a way of giving options adds: `--a_b` is `a-b`."""
    return re.sub(r"--(?=\w)", "", text).replace("_", "-").lower()


def assert_named(message: str, option: str, value: str, way_out: str) -> None:
    message = spell_plainly(message)
    assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", message), message
    assert re.search(rf"(?<!\w){re.escape(value)}(?!\w)", message), message
    assert spell_plainly(way_out) in message, message


def read_tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "option", "value", "way_out"), COMMANDS, ids=lambda text: text)
def test_command__is_refused_in_one_line(
    line: str, option: str, value: str, way_out: str, folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words, before = shlex.split(line), read_tree(folder)
    runs = words[0] in ("simulate", "audit", "study")
    out = ["--out", "RUN"] if runs and not {"--out", "--resume"} & {*words} else []
    try:
        code: object = main([*words, *out])
    except SystemExit as end:
        code = end.code
    printed, errors = capsys.readouterr()
    assert (code, printed) == (2, "")
    *notes, last = errors.splitlines()
    assert last.startswith("fedmia: error: ")
    assert not [line for line in notes if "error" in line or not line.startswith("fedmia: ")]
    assert_named(last, option, value, way_out)
    assert read_tree(folder) == before


@pytest.mark.parametrize(("call", "arguments", "option", "value", "way_out"), CALLS)
def test_call__raises_one_line(
    call: Callable[..., object], arguments: dict[str, Any], option: str, value: str, way_out: str,
    folder: Path,
) -> None:  # fmt: skip
    before = read_tree(folder)
    own = ["tests.auditing.brought:tiny"] if call is fedmia.audit_encoder else []
    out = {} if "resume" in arguments else {"out": "RUN"}
    with pytest.raises(fedmia.InputError) as caught:
        call(*own, **arguments, **out)
    assert "\n" not in str(caught.value)
    assert_named(str(caught.value), option, value, way_out)
    assert read_tree(folder) == before


def test_table__holds_sixty_inputs_of_every_command() -> None:
    assert len({line for line, *_ in COMMANDS}) + len(CALLS) >= 60
    assert {line.split()[0] for line, *_ in COMMANDS} >= {
        "simulate", "audit", "study", "list",
    }  # fmt: skip
