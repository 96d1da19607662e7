"""Image towers of transformers and open_clip: their own features and preprocessing, no download."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import EncoderFacts, LoadOptions, load
from fedmia.encoders.describe import describe, probe_encoder
from fedmia.encoders.hf import read_preprocessing
from fedmia.report.words.notes import sentences
from tests.encoders.conftest import refused

SIDE = 32
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip
TEXT = {**SMALL, "vocab_size": 50, "num_hidden_layers": 1}
TEXT = {k: v for k, v in TEXT.items() if k not in ("image_size", "patch_size")}
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]


@pytest.fixture(scope="module")
def hf() -> Any:
    return pytest.importorskip("transformers", reason="the extra `hf` is not installed")


@pytest.fixture(scope="module")
def clip() -> Any:
    return pytest.importorskip("open_clip", reason="the extra `clip` is not installed")


def saved(model: Any, folder: Path) -> str:
    """The model in a folder, as transformers keeps one."""
    model.eval().save_pretrained(folder)
    config = {"image_mean": MEAN, "image_std": STD, "size": {"height": SIDE, "width": SIDE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return f"hf:{folder}"


def masked_autoencoder(hf: Any) -> tuple[Any, Any]:
    """Its own forward pass masks and shuffles at random, here nothing."""
    small = {f"decoder_{n}": v for n, v in SMALL.items() if n[:3] not in ("ima", "pat")}
    model = hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**SMALL, **small))

    def wanted(x: Tensor) -> Any:
        model.vit.embeddings.config.mask_ratio = 0.0
        return model.vit(x).last_hidden_state[:, 0]

    return model, wanted


def vit(hf: Any) -> tuple[Any, Any]:
    model = hf.ViTForImageClassification(hf.ViTConfig(**SMALL))
    return model, lambda x: model.vit(x, interpolate_pos_encoding=True).last_hidden_state[:, 0]


def both_towers(hf: Any) -> tuple[Any, Any]:
    model = hf.CLIPModel(hf.CLIPConfig(vision_config=SMALL, text_config=TEXT, projection_dim=12))
    return model, lambda x: model.get_image_features(x, interpolate_pos_encoding=True).pooler_output


@pytest.mark.parametrize("make", [vit, masked_autoencoder, both_towers])
def test_hf__is_the_librarys_own(make: Any, hf: Any, tmp_path: Path) -> None:
    """The vector of whole images and of parts, whose positions are interpolated."""
    model, wanted = make(hf)
    for name, tensor in model.named_parameters():
        if "position" in name:
            nn.init.normal_(tensor)
    released = load(saved(model, tmp_path))
    assert released.weights.missing == () and released.size == SIDE
    encoder = released.method.encoder
    images = torch.randint(0, 256, (3, 3, SIDE, SIDE), dtype=torch.uint8)
    assert probe_encoder(released, images) == []
    mean, std = (Tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    with torch.no_grad():
        for part in (images, images[:, :, :16, :16])[: 1 + (make is not masked_autoencoder)]:
            expected = wanted((part / 255 - mean) / std)
            torch.testing.assert_close(encoder(part / 255), expected, atol=1e-5, rtol=1e-5)
    assert describe(released, SIDE).crops.startswith("multiples of 8 pixels")


def test_hf__code_in_the_folder_does_not_run(hf: Any, tmp_path: Path) -> None:
    spec = saved(hf.ViTModel(hf.ViTConfig(**SMALL)), tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    own = {k: "own.Own" for k in ("AutoConfig", "AutoModel")}
    content |= {"model_type": "own", "auto_map": own}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'victim')!r}, 'w')\nOwn = None\n")
    refused("the configuration in .* cannot be used", spec)
    assert not (tmp_path / "victim").exists()


def test_hf__folders_without_a_model(tmp_path: Path) -> None:
    refused("no such folder.*nothing is downloaded", "hf:facebook/dino-vits16")
    refused("has no config.json", f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    refused("it has no model.safetensors", f"hf:{tmp_path}")


def test_open_clip__tower(clip: Any, tmp_path: Path) -> None:
    vision = {"image_size": SIDE, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32}
    text = {"context_length": 4, "vocab_size": 9, "width": 16, "heads": 2, "layers": 1}
    config = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": text}
    (tmp_path / "fedmia-tiny.json").write_text(json.dumps(config))
    clip.add_model_config(tmp_path)
    model = clip.create_model("fedmia-tiny").eval()
    state = {f"module.{n}": t for n, t in model.state_dict().items()}
    torch.save({"epoch": 1, "state_dict": state}, tmp_path / "epoch.pt")
    released = load("open_clip:fedmia-tiny", checkpoint=tmp_path / "epoch.pt")
    assert released.weights.missing == () and released.weights.form == "open_clip"
    pixels, encoder = torch.rand(2, 3, SIDE, SIDE), released.method.encoder
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels), model.encode_image(encoder.normalise(pixels)))
    torch.testing.assert_close(encoder.mean.flatten(), Tensor(clip.OPENAI_DATASET_MEAN))
    assert released.fixed_size
    assert load("open_clip:fedmia-tiny", checkpoint=tmp_path / "epoch.pt", size=48).size == 48
    refused("did you mean 'fedmia-tiny'", "open_clip:fedmia-tine")


class Quick(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Tower(nn.Module):
    """A tower of open_clip's kind: an activation between two layers."""

    def __init__(self, quick: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 8, 8, bias=False)
        self.mlp = nn.Sequential(Quick() if quick else nn.GELU(), nn.Conv2d(8, 8, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.conv1(x)).mean(dim=(2, 3))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """open_clip with the names `tiny` and `tiny-quickgelu`; `tags` are their public weights."""
    usual = types.SimpleNamespace(OPENAI_DATASET_MEAN=(0.48,) * 3, OPENAI_DATASET_STD=(0.26,) * 3)
    tags: dict[str, dict[str, Any]] = {}
    public = types.SimpleNamespace(
        list_pretrained_tags_by_model=lambda name: list(tags),
        get_pretrained_cfg=lambda name, tag: tags[tag],
    )
    module: Any = types.ModuleType("open_clip")
    module.tags, module.constants, module.pretrained = tags, usual, public
    vision = {"image_size": SIDE}
    module.list_models = lambda: ["tiny", "tiny-quickgelu"]
    module.get_model_config = lambda name: {
        "embed_dim": 8, "vision_cfg": vision, "quick_gelu": "quick" in name
    }  # fmt: skip
    parts: Any = types.ModuleType("open_clip.model")
    parts.CLIPVisionCfg, parts.QuickGELU = dict, Quick
    parts._build_vision_tower = lambda width, options, quick: Tower(quick)
    monkeypatch.setitem(sys.modules, "open_clip", module)
    monkeypatch.setitem(sys.modules, "open_clip.model", parts)
    return module


@pytest.mark.parametrize("name", ["tiny", "tiny-quickgelu"])
@pytest.mark.parametrize("openai", [True, False])
def test_open_clip__openais_weights_go_with_quickgelu(
    library: Any, tmp_path: Path, name: str, openai: bool
) -> None:
    """Whatever the name; other weights keep the activation of theirs."""
    torch.manual_seed(0)
    net = Tower(quick=openai or "quick" in name)
    tensors = {f"visual.{n}": t for n, t in net.state_dict().items()}
    if openai:
        tensors["input_resolution"] = torch.tensor(SIDE)
    torch.save(tensors, tmp_path / "w.pt")
    released = load(f"open_clip:{name}", checkpoint=tmp_path / "w.pt")
    pixels, encoder = torch.rand(2, 3, SIDE, SIDE), released.method.encoder
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels), net(encoder.normalise(pixels)))
    assert any("QuickGELU" in n for n in sentences(released.notes)) == (openai and name == "tiny")


def test_open_clip__asks_for_no_configuration_that_lies_elsewhere(library: Any) -> None:
    """The library itself would download that of `hf-hub:NAME`."""
    refused(r"unknown open_clip model 'hf-hub:a/b'.* \(2 are known\)", "open_clip:hf-hub:a/b")


def test_open_clip__the_normalisation_of_its_public_weights(library: Any) -> None:
    """That which all of an architecture's share; where they differ, or there are none, OpenAI's."""

    def constants() -> tuple[float, float, bool]:
        released = load("open_clip:tiny")
        mean, std = (t.flatten()[0].item() for t in
                     (released.method.encoder.mean, released.method.encoder.std))  # fmt: skip
        return round(mean, 4), round(std, 4), any("differ" in n for n in sentences(released.notes))

    assert constants() == (0.48, 0.26, False)
    library.tags["laion"] = {"mean": (0.5,) * 3, "std": (0.4,) * 3}
    assert constants() == (0.5, 0.4, False)
    library.tags["openai"] = {}
    assert constants() == (0.48, 0.26, True)


def test_open_clip__the_file_beside_the_weights_normalises_and_sizes(
    library: Any, tmp_path: Path
) -> None:
    torch.save({f"visual.{n}": t for n, t in Tower(False).state_dict().items()}, tmp_path / "w.pt")

    def describe_pixels(**fields: Any) -> None:
        content = json.dumps({"preprocess_cfg": fields})
        (tmp_path / "open_clip_config.json").write_text(content)

    describe_pixels(mean=MEAN, std=STD, size=[48, 48])
    released = load("open_clip:tiny", checkpoint=tmp_path / "w.pt")
    assert released.size == 48
    torch.testing.assert_close(released.method.encoder.mean.flatten(), Tensor(MEAN))
    torch.testing.assert_close(released.method.encoder.std.flatten(), Tensor(STD))
    describe_pixels(size=[48, 64])
    named = "open_clip_config.json: size: .*only square"
    refused(named, "open_clip:tiny", checkpoint=tmp_path / "w.pt")
    assert load("open_clip:tiny", checkpoint=tmp_path / "w.pt", size=SIDE).size == SIDE
    describe_pixels(mean=[123.7] * 3, std=[58.4] * 3)
    refused("123.7 is the encoder's own", "open_clip:tiny", checkpoint=tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("settings", "size", "own"),
    [
        ({"size": {"height": 40, "width": 40}}, 40, None),
        ({"size": {"shortest_edge": 40}}, 40, None),
        ({"size": 40, "crop_size": 32}, 40, None),
        ({"size": 40, "crop_size": 32, "do_center_crop": False}, 40, None),
        (
            {"size": {"shortest_edge": 40}, "crop_size": {"height": 32}, "do_center_crop": True},
            32, None,
        ),
        ({"size": {"longest_edge": 40}}, 2 * SIDE, None),
        ({}, 2 * SIDE, None),
        (None, 2 * SIDE, None),
        ({"size": SIDE, "image_std": STD}, SIDE, (MEAN, STD)),
        # Beside a mean and a deviation, which are not used.
        ({"size": SIDE, "image_std": STD, "do_normalize": False}, SIDE, ([0.0], [1.0])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nested", [False, True])
def test_hf__size_and_normalisation_are_those_of_the_pixels_that_its_model_gets(
    settings: dict[str, Any] | None, size: int, own: Any, nested: bool, tmp_path: Path
) -> None:
    """What is cropped last counts, and only where it is cropped; else the model's own. A mean
    without a deviation is no normalisation."""
    if settings is not None:
        text = json.dumps({"image_mean": MEAN} | settings)
        (tmp_path / "preprocessor_config.json").write_text(text)
    config = types.SimpleNamespace(image_size=[2 * SIDE, 2 * SIDE] if nested else 2 * SIDE)
    config = types.SimpleNamespace(vision_config=config, image_size=7) if nested else config
    facts = EncoderFacts("x", LoadOptions())
    constants = None if own is None else tuple(map(tuple, own))
    read = read_preprocessing(facts, tmp_path, types.SimpleNamespace(config=config))
    missing = [note for note in sentences(facts.notes) if "has no preprocessor" in note]
    assert read == (size, constants) and len(missing) == (settings is None)
