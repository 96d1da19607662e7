"""Encoders in foreign layouts: their library's features from every weight, or one line."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from fedmia.encoders import _vit, checkpoint
from fedmia.encoders.base import EncoderFacts, LoadOptions, load
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.encoders import foreign
from tests.encoders.conftest import refused
from tests.encoders.forms import SIZE, Made, resnet, state
from tests.encoders.test_forms import check
from tests.encoders.test_torch_files import Planted

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    pytest.importorskip("timm")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def saved(contents: Any, tmp_path: Path) -> Path:
    torch.save(contents, tmp_path / "file.pth")
    return tmp_path / "file.pth"


@pytest.mark.parametrize("form", foreign.LOADED)
def test_foreign__loads_whole_and_computes_the_same(form: str, tmp_path: Path) -> None:
    made = foreign.LOADED[form]()
    path = tmp_path / ("file.torch" if form == "vissl" else "file.pth")
    torch.save(made.contents, path)
    check(load(str(path), key=made.key), made)


@pytest.mark.parametrize("form", foreign.REFUSED)
def test_foreign__is_refused_in_one_line(form: str, tmp_path: Path) -> None:
    make, message = foreign.REFUSED[form]
    refused(message, saved(make(), tmp_path))


def fitted(module: nn.Module, made: Made, tmp_path: Path) -> list[str]:
    """Load the file into `module`, whose features are then the library's; notes."""
    loading = EncoderFacts("timm:NAME", LoadOptions(saved(made.contents, tmp_path)))
    weights = checkpoint.load_checkpoint(loading, module, adapt=True)
    pixels = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(pixels), made.backbone(pixels))
    assert weights.missing == ()
    return sentences(loading.notes)


@pytest.mark.parametrize("zero", [False, True])
def test_timm__its_own_converter_reads_dinov3(zero: bool, tmp_path: Path) -> None:
    """A bias of zeros may stay out where the architecture has none; any other may not."""
    made, module = foreign.dinov3(zero)
    assert any("timm's own code converted" in n for n in fitted(module, made, tmp_path))
    if zero:
        made.contents["blocks.0.attn.qkv.bias"][0] = 1
        with pytest.raises(InputError, match="1 of its trunk's tensors.*attn.qkv.bias"):
            fitted(module, made, tmp_path)


def test_timm__another_last_norm_or_size_of_patches_is_another_network(tmp_path: Path) -> None:
    """BEiT's last norm, before fine-tuning, is not the one behind the pooling."""
    made, module = foreign.beit()
    fitted(module, made, tmp_path)
    early = foreign.renamed(made.contents["model"], (r"^fc_norm\.", "norm."))
    with pytest.raises(InputError, match=r"'fc_norm.weight' is missing \(\d+ of \d+ tensors"):
        fitted(module, Made(early, made.backbone, None), tmp_path)
    with pytest.raises(InputError, match=r"'patch_embed.proj.weight' is \(64, 3, 8, 8\), .* needs"):
        fitted(foreign.dinov3(patch=16)[1], foreign.dinov3()[0], tmp_path)


def test_timm__a_last_norm_does_not_move_behind_the_pooling() -> None:
    """As timm moves it where a file was trained on masked images alone."""
    module = foreign.dinov3(zero=True)[1]
    early = {"mask_token": torch.ones(1, 1, 64), "norm.weight": torch.ones(64)}
    assert checkpoint.convert_names(module, early).keys() == early.keys()


def test_vit__an_mlp_of_any_width(tmp_path: Path) -> None:
    """61 over 448 times 448 is less than 61 in floating point, and timm rounds down."""
    net = foreign.vit(448, 7, mlp_ratio=61.5 / 448)
    check(load(str(saved(net.state_dict(), tmp_path))), Made(None, net, None))


def test_timm__registers_by_name(tmp_path: Path) -> None:
    module = foreign.vit(reg_tokens=4, no_embed_class=True, init_values=0.1)
    fitted(module, foreign.registers(), tmp_path)


@pytest.mark.slow
def test_name__what_finds_no_place_is_refused(tmp_path: Path) -> None:
    """A network that squeezes and excites is not the one of the same name without."""
    net, squeezed = models.resnet18(weights=None), foreign.squeezing().contents["state_dict"]
    extra = {n: t for n, t in squeezed.items() if ".se." in n}
    path = saved(net.state_dict() | extra, tmp_path)
    refused("4 of its trunk's tensors", "torchvision:resnet18", checkpoint=path)


def test_allow_missing__leaves_strangers_out_with_a_note(tmp_path: Path) -> None:
    path = saved(foreign.squeezing().contents, tmp_path)
    released = load(str(path), allow_missing=True)
    assert any(
        n.startswith("4 of the file's weights find no place") for n in sentences(released.notes)
    )
    assert len(released.weights.dropped) == 4


@pytest.mark.parametrize(
    ("width", "heads"),
    [(192, 3), (384, 6), (768, 12), (1024, 16), (1152, 16), (1280, 16), (1408, 16), (1536, 24),
     (1664, 16), (1088, None), (100, None), (128, None), (640, 10)],
)  # fmt: skip
def test_heads__by_width(width: int, heads: int | None) -> None:
    patches = {_vit.PATCHES: torch.empty(width, 1, 1, 1), "pos_embed": torch.ones(1, 2, 1)}
    assert _vit.heads(patches, "MAE") == heads
    twelve = 12 if width in (192, 384) else heads
    assert _vit.heads(patches, "MoCo v3") == twelve
    assert _vit.heads(patches, "solo-learn") == heads
    sines = patches | {"pos_embed": torch.zeros(1, 2, 1)}
    assert _vit.heads(sines, "solo-learn") == twelve and _vit.heads(sines, "MAE") == heads
    eight = {f"blocks.{i}.norm1.weight": torch.ones(1) for i in range(8)}  # the first ViT-S
    assert _vit.heads(patches | eight, "state dict") == (8 if width == 768 else heads)


@pytest.mark.slow
def test_solo_learn__its_padding_goes_with_a_name_too(tmp_path: Path) -> None:
    """A 3x3 first convolution of padding 2, which no shape tells; the classifier stays out."""
    net: Any = models.resnet18(weights=None)
    net.fc, net.maxpool = nn.Identity(), nn.Identity()
    net.conv1 = nn.Conv2d(3, 64, 3, 1, 2, bias=False)
    head = nn.Linear(512, 16)
    names = state(backbone=net.eval(), projector=head, classifier=nn.Linear(512, 10))
    path = saved({"state_dict": names}, tmp_path)
    released = load("torchvision:resnet18", checkpoint=path)
    check(released, Made(None, net, head))
    assert released.weights.dropped == ("classifier.weight", "classifier.bias")
    assert not any("nothing was trained" in n for n in sentences(released.notes))


def test_swav__its_head_is_read_and_said(tmp_path: Path) -> None:
    released = load(str(saved(foreign.swav().contents, tmp_path)))
    assert any("is that of the file's projection head" in n for n in sentences(released.notes))
    assert released.weights.dropped == ("module.prototypes.weight",)


def test_hugging_face__its_weights_lead_to_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(foreign.hugging_face(), file)
    refused("give hf:FOLDER", file)
    refused(r"'conv1.weight' is missing .*; .*hf:FOLDER", "torchvision:resnet18", checkpoint=file)


def test_pickle__of_byol_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """DeepMind's: haiku's parameters as arrays, and a class of the experiment's."""
    path = tmp_path / "pretrain_res50x1.pkl"
    arrays = {"res_net50/initial_conv": {"w": np.zeros((7, 7, 3, 64), np.float32)}}
    for experiment in (arrays, Made(arrays, nn.Identity(), None)):
        path.write_bytes(pickle.dumps({"experiment_state": experiment}))
        refused("pickle of other code .*save its tensors by name", path)


def test_torchscript__its_tensors_are_read_and_its_code_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive holds code: nothing may compile it, so torch.jit.load is not at hand."""
    net = resnet()
    torch.jit.trace(net, torch.zeros(1, 3, SIZE, SIZE)).save(tmp_path / "traced.pt")
    torch.jit.script(foreign.Wrapped(net)).save(tmp_path / "scripted.pt")
    monkeypatch.delattr(torch.jit, "load")
    for file in ("traced.pt", "scripted.pt"):
        check(load(str(tmp_path / file)), Made(None, net, None))


def test_torchscript__a_pickle_that_asks_for_more_is_refused(tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(2, 2)).save(tmp_path / "whole.pt")
    victim, planted = tmp_path / "victim", tmp_path / "planted.pt"
    payload = pickle.dumps(Planted(victim), 2)
    with ZipFile(tmp_path / "whole.pt") as whole, ZipFile(planted, "w") as bad:
        for name in whole.namelist():
            bad.writestr(name, payload if name.endswith("/data.pkl") else whole.read(name))
    refused("it asks for 'posix.system'.*nothing of it was run", planted)
    assert not victim.exists()


def test_torchscript__openais_clip_leads_to_its_name(tmp_path: Path) -> None:
    torch.jit.script(foreign.clip()).save(tmp_path / "ViT-B-32.pt")
    refused("give open_clip:NAME with encoder.checkpoint ", tmp_path / "ViT-B-32.pt")
