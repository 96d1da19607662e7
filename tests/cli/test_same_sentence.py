"""The same bad input through flags, YAML and Python: one line each, the same sentence but for how
the option is named."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedmia
from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE
from fedmia.options.errors import InputError
from fedmia.options.yamlfile import dump

SIDES: dict[str, Any] = {"encoder": "x.pth", "members": "digits", "nonmembers": "synthetic"}
OWN_ATTACK = """
from fedmia.attacks import Attack
from fedmia.settings import option
from fedmia.threat import Threat
from dataclasses import dataclass


@dataclass
class Norm(Attack):
    paper, needs = "none", Threat("black_box", "outsider")
    views: int = option(8, "views", ge=1)

    def score(self, view, images):
        return images.double().numpy().mean(axis=(1, 2, 3))
"""
# Command, flags, the same as a tree of settings, and what the sentence says.
BAD: list[tuple[str, str, dict[str, Any], str]] = [
    # a number out of its range, of another type, or none
    ("simulate", "--clients 0", {"federation": {"clients": 0}}, "must be >= 1, got 0"),
    ("simulate", "--rounds 0", {"federation": {"rounds": 0}}, "must be >= 1, got 0"),
    ("simulate", "--rounds 2.5", {"federation": {"rounds": 2.5}}, "must be int, got 2.5"),
    ("simulate", "--rounds three", {"federation": {"rounds": "three"}}, "int, got 'three'"),
    ("simulate", "--seed -1", {"seed": -1}, "must be >= 0, got -1"),
    ("simulate", "--train.lr 0", {"train": {"lr": 0}}, "must be > 0, got 0"),
    ("simulate", "--train.lr nan", {"train": {"lr": float("nan")}}, "must be finite, got nan"),
    ("simulate", "--mean 128", {"data": {"mean": [128]}}, "128/255 = 0.502"),
    ("simulate", "--mean .5,.5", {"data": {"mean": [0.5, 0.5]}}, "one a channel, got 2"),
    ("simulate", "--size 4", {"data": {"size": 4}}, "must be >= 8, got 4"),
    ("simulate", "--split.members -5", {"split": {"members": -5}}, "must be >= 2, got -5"),
    ("audit", "--known 1", {"known": 1}, "must be >= 2, got 1"),
    ("audit", "--known 2.5", {"known": 2.5}, "must be int or none, got 2.5"),
    ("audit", "--mean 128", {"mean": [128]}, "128/255 = 0.502"),
    ("audit", "--query-budget 0", {"query_budget": 0}, "must be >= 1, got 0"),
    ("audit", "--shadow.epochs 0", {"shadow": {"epochs": 0}}, "must be >= 1, got 0"),
    ("audit", "--augment.crop_min 2", {"augment": {"crop_min": 2}}, "must be <= 1, got 2"),
    # a name or a choice that there is not
    ("simulate", "--attacks similarty", {"attacks": ["similarty"]}, "did you mean 'similarity'?"),
    ("simulate", "--strategy fedsgd", {"strategy": "fedsgd"}, "unknown strategy 'fedsgd'"),
    ("simulate", "--model resnet19", {"model": "resnet19"}, "did you mean 'resnet18'?"),
    ("simulate", "--model nosuch:Net", {"model": "nosuch:Net"}, "No module named 'nosuch'"),
    ("simulate", "--dataset mnist", {"data": "mnist"}, "unknown dataset 'mnist'"),
    ("simulate", "--defense dpsdg", {"defense": "dpsdg"}, "did you mean 'dpsgd'?"),
    ("simulate", "--attacker activ", {"attacker": "activ"}, "did you mean 'active'?"),
    ("simulate", "--backend dask", {"backend": "dask"}, "(known: inline, ray)"),
    ("simulate", "--device tpu", {"device": "tpu"}, "auto, cpu, cuda or cuda:N, got 'tpu'"),
    ("audit", "--attacks similarty", {"attacks": ["similarty"]}, "did you mean 'similarity'?"),
    ("audit", "--channels rbg", {"channels": "rbg"}, "did you mean 'rgb'?"),
    ("audit", "--precision float16", {"precision": "float16"}, "did you mean 'bfloat16'?"),
    ("audit", "--skip-unreadable maybe", {"skip_unreadable": "maybe"}, "bool, got 'maybe'"),
    ("audit", "--sweep 1,0", {"sweep": "1,0"}, "known=N,N,.. or query_budget=N,N,.., got '1,0'"),
    # options of plugins
    (
        "simulate", "--partition.alpha 0", {"partition": {"name": "dirichlet", "alpha": 0}},
        "must be > 0, got 0",
    ),
    (
        "simulate", "--partition.alhpa 1", {"partition": {"name": "dirichlet", "alhpa": 1}},
        "did you mean 'alpha'?",
    ),
    (
        "simulate", "--partition iid --partition.alpha 1",
        {"partition": {"name": "iid", "alpha": 1}}, "is no option of partition 'iid', but of",
    ),
    ("simulate", "--attack.similarity.views 0", {"attack": {"similarity": {"views": 0}}}, ">= 2"),
    (
        "simulate", "--attacks own_norm:Norm --attack.norm.views 3",
        {"attacks": ["own_norm:Norm"], "attack": {"norm": {"views": 3}}},
        "options of 'own_norm:Norm' are",
    ),
    (
        "audit", "--attacks own_norm:Norm --attack.norm.views 3",
        {"attacks": ["own_norm:Norm"], "attack": {"norm": {"views": 3}}},
        "options of 'own_norm:Norm' are",
    ),
    ("simulate", "--split.scored 1", {"split": {"scored": 1}}, "must be >= 2, got 1"),
    ("simulate", "--split.scored all", {"split": {"scored": "all"}}, "int or none, got 'all'"),
    (
        "simulate", "--ssl mae --ssl.mask_unit 0", {"ssl": {"name": "mae", "mask_unit": 0}},
        "must be >= 1, got 0",
    ),
    ("simulate", "--ssl.mask_unit 2", {"ssl": {"mask_unit": 2}}, "of ssl 'moco', but of cae, mae"),
    ("simulate", "--ssl.rotation 200", {"ssl": {"rotation": 200}}, "must be <= 180, got 200"),
    ("simulate", "--ssl.rotate 90", {"ssl": {"rotate": 90}}, "did you mean 'rotation'?"),
    (
        "simulate", "--ssl.operations rotation", {"ssl": {"operations": ["rotation"]}},
        "the recipe has no rotation to be done; give rotation other than 0",
    ),
    ("simulate", "--ssl.mixup -1", {"ssl": {"mixup": -1}}, "must be >= 0, got -1"),
    (
        "simulate", "--ssl dino --ssl.mixup 1", {"ssl": {"name": "dino", "mixup": 1}},
        "is no option of ssl 'dino', but of byol, moco",
    ),
    ("simulate", "--ssl.adversarial 8", {"ssl": {"adversarial": 8}}, "must be <= 1, got 8"),
    (
        "simulate", "--ssl.adversarial .1 --defense dpsgd",
        {"ssl": {"adversarial": 0.1}, "defense": "dpsgd"}, "needs gradients of views",
    ),
    *(
        (
            "simulate", f"--attacks partcrop --attack.partcrop.{name} {text}",
            {"attacks": ["partcrop"], "attack": {"partcrop": {name: value}}}, says,
        )
        for name, text, value, says in (
            ("activation", "RELU", "RELU", "value 'RELU'; did you mean 'relu'?"),
            ("norm", "layr", "layr", "value 'layr'; did you mean 'layer'?"),
            ("norm", "3", 3, "value '3' (known: l2, layer, none, rms)"),
            ("norm", "null", None, "value 'null' (known: l2, layer, none, rms)"),
        )
    ),
    (
        "audit", "--shadow.ssl.rotation 200", {"shadow": {"ssl": {"rotation": 200}}},
        "must be <= 180, got 200",
    ),
    # settings that do not suit one another
    (
        "simulate", "--attacker none --attacks ascent",
        {"attacker": "none", "attacks": ["ascent"]}, "it uploads crafted updates",
    ),
    (
        "simulate", "--malicious 11 --clients 10 --attacker active",
        {"malicious": 11, "federation": {"clients": 10}, "attacker": "active"}, "is at most 9",
    ),
]  # fmt: skip
# Command, flags, keyword arguments, and what the sentence says; found when the command runs.
LATE: list[tuple[str, str, dict[str, Any], str]] = [
    ("simulate", "--dataset folder:nowhere", {"dataset": "folder:nowhere"}, "no such folder"),
    (
        "simulate", "--dataset digits --split.members 5000", {"split": {"members": 5000}},
        "5044 images needed, digits has 1797",
    ),
    (
        "simulate", "--split.scored 5000", {"split": {"scored": 5000}},
        "of 200 members 40 are known, so at most 160 can be scored",
    ),
    (
        "simulate", "--ssl mae --model vit-tiny --ssl.mask_unit 9",
        {"ssl": {"name": "mae", "mask_unit": 9}, "model": "vit-tiny"},
        "must be under the 4 patches of an image's side, got 9",
    ),
    (
        "audit", "--encoder vit --members digits --nonmembers synthetic",
        {"encoder": "vit"}, "hf:vit",
    ),
    (
        "audit", "--encoder vit/model.safetensors --members digits --nonmembers synthetic",
        {"encoder": "vit/model.safetensors"}, "hf:vit",
    ),
    (
        "audit", "--encoder nosuch.pth --members digits --nonmembers synthetic",
        {"encoder": "nosuch.pth"}, "'nosuch.pth': no such file",
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an attack of one's own and a folder as transformers saves it."""
    (tmp_path / "own_norm.py").write_text(OWN_ATTACK)
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "vit" / "model.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_norm", raising=False)
    return tmp_path


def caught(call: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as error:
        call()
    return error.value


def parsed(command: str, words: list[str]) -> InputError:
    return caught(lambda: parse(AUDIT if command == "audit" else SIMULATE, words))


def sentence(error: InputError) -> str:
    """The message before its options are spelled; 2 and 2.0 are one number."""
    return re.sub(r"\b(\d+)\.0\b", r"\1", error.text)


@pytest.mark.parametrize(("command", "flags", "tree", "says"), BAD)
def test_flags_yaml_python__one_line_and_the_same_sentence(
    command: str, flags: str, tree: dict[str, Any], says: str, tmp_path: Path
) -> None:
    sides = SIDES if command == "audit" else {}
    words = [part for name, value in sides.items() for part in (f"--{name}", value)]
    file = tmp_path / "settings.yaml"
    file.write_text(dump({**sides, **tree}))
    errors = [
        parsed(command, [*words, *flags.split()]),
        parsed(command, ["--config", str(file)]),
        caught(lambda: fedmia.audit_encoder(*sides.values(), **tree))
        if sides
        else caught(lambda: fedmia.run_simulation(tree, quiet=True)),
    ]
    assert all("\n" not in str(error) and says in str(error) for error in errors), errors
    sentences = {
        sentence(error).removeprefix(f"{file}: ") for error in errors
    }  # YAML names its file
    assert len(sentences) == 1, errors


@pytest.mark.parametrize(("command", "flags", "options", "says"), LATE)
def test_what_only_the_run_finds__is_the_same_line(
    command: str, flags: str, options: dict[str, Any], says: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if command == "audit":
        from fedmia.audit import main
    else:
        from fedmia.simulate import main
    sides = {**SIDES, **options} if command == "audit" else options
    file = tmp_path / "settings.yaml"
    file.write_text(dump({k.replace("dataset", "data"): v for k, v in sides.items()}))
    lines = []
    for words in (flags.split(), ["--config", str(file)]):
        assert main([*words, "--quiet", "--out", str(tmp_path / "OUT")]) == 2
        lines.append(capsys.readouterr().err.removeprefix("fedmia: error: ").strip())
    out = str(tmp_path / "OUT")
    lines.append(
        str(caught(lambda: fedmia.audit_encoder(*sides.values(), out=out)))
        if command == "audit"
        else str(caught(lambda: fedmia.run_simulation(**options, out=out, quiet=True)))
    )
    assert all("\n" not in line and says in line for line in lines), lines
    assert not (tmp_path / "OUT").exists()
    # One option as a flag, a key, an argument.
    ways = r"--encoder |encoder[:=] ?(?=hf)|(--)?(ssl|split)\.\w+([:=] ?| )"
    spelled = {re.sub(ways, "OPTION ", one.replace(f" in {file}", "")) for one in lines}
    assert len(spelled) == 1, lines


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"clients": 3}, "unknown option clients; did you mean 'federation.clients'?"),
        ({"momentm": 0.9}, "unknown option momentm; did you mean 'train.momentum'?"),
        ({"atacks": "all"}, "unknown option atacks; did you mean 'attacks'?"),
        ({"rotation": 90}, "unknown option rotation; did you mean 'ssl.rotation'?"),
        ({"split": {"score": 9}}, "unknown option split.score; did you mean 'split.scored'?"),
    ],
)
def test_key_of_a_section_at_the_top__names_its_path(tree: dict[str, Any], says: str) -> None:
    assert str(caught(lambda: fedmia.run_simulation(tree, quiet=True))) == says
