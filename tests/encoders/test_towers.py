"""Image towers of transformers and open_clip: their own features and preprocessing, no download."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedmia.encoders.base import LoadedEncoder, load
from fedmia.encoders.describe import describe, probe_encoder
from fedmia.encoders.hf import _preprocessing
from fedmia.options.errors import InputError

SIDE = 32
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip
TEXT = {**SMALL, "vocab_size": 50, "num_hidden_layers": 1}
TEXT = {k: v for k, v in TEXT.items() if k not in ("image_size", "patch_size")}
HALF = {"image_size": SIDE // 2}
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


def same(released: LoadedEncoder, wanted: Any) -> None:
    """The encoder's vector is the library's, for pixels with its normalisation."""
    assert released.weights.missing == ()
    pixels = torch.randint(0, 256, (3, 3, SIDE, SIDE), dtype=torch.uint8)
    assert probe_encoder(released, pixels) == []
    encoder = released.method.encoder
    normal = (pixels / 255 - Tensor(MEAN).view(3, 1, 1)) / Tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels / 255), wanted(normal), atol=1e-5, rtol=1e-5)
        features = encoder.features(pixels / 255, ["map"])["map"]
    assert features.shape == (3, 32, 4, 4)


def test_hf__vit(hf: Any, tmp_path: Path) -> None:
    model = hf.ViTForImageClassification(hf.ViTConfig(**SMALL))
    released = load(saved(model, tmp_path))
    same(released, lambda x: model.vit(x).last_hidden_state[:, 0])
    assert released.weights.form == "transformers vit"
    assert released.weights.dropped == ("classifier.bias", "classifier.weight")
    assert load(f"hf:{tmp_path}", size=48).method.encoder(torch.rand(1, 3, 48, 48)).shape == (1, 32)


@pytest.mark.parametrize("kind", ["ViT", "Dinov2"])
def test_hf__crops_have_positions_of_their_own_grid(hf: Any, tmp_path: Path, kind: str) -> None:
    model = getattr(hf, f"{kind}Model")(getattr(hf, f"{kind}Config")(**SMALL)).eval()
    with torch.no_grad():
        next(t for n, t in model.named_parameters() if "position" in n).normal_()
    released = load(saved(model, tmp_path))
    parts, encoder = torch.rand(2, 3, 16, 16), released.method.encoder
    more = {} if kind == "Dinov2" else {"interpolate_pos_encoding": True}
    with torch.no_grad():
        want = model(pixel_values=encoder.normalise(parts), **more).pooler_output
        torch.testing.assert_close(encoder(parts), want, atol=1e-5, rtol=1e-5)
    assert describe(released, SIDE).crops.startswith("multiples of 8 pixels")
    assert released.size == SIDE


def test_hf__masked_autoencoder_sees_every_patch(hf: Any, tmp_path: Path) -> None:
    """Its own forward pass masks and shuffles at random: `same` asks twice."""
    small = {f"decoder_{n}": v for n, v in SMALL.items() if n[:3] not in ("ima", "pat")}
    model = hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**SMALL, **small))
    released = load(saved(model, tmp_path))
    model.vit.embeddings.config.mask_ratio = 0.0
    same(released, lambda x: model.vit(x).last_hidden_state[:, 0])


def test_hf__clip_without_its_text_tower(hf: Any, tmp_path: Path) -> None:
    model = hf.CLIPModel(hf.CLIPConfig(vision_config=SMALL, text_config=TEXT, projection_dim=12))
    released = load(saved(model, tmp_path))
    same(released, lambda x: model.get_image_features(pixel_values=x).pooler_output)
    assert not any("text" in n for n in released.method.encoder.state_dict())


def test_hf__what_is_missing_is_said(hf: Any, tmp_path: Path) -> None:
    spec = saved(hf.ViTModel(hf.ViTConfig(**SMALL), add_pooling_layer=False), tmp_path)
    assert load(spec).weights.missing == ()  # a pooler that was never saved is not built
    file = tmp_path / "model.safetensors"
    tensors = {n: t for n, t in load_file(file).items() if "layernorm.weight" not in n}
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"tensor 'layernorm.weight' is missing.*allow_missing"):
        load(spec)
    assert load(spec, allow_missing=True).weights.missing == ("layernorm.weight",)
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_hf__code_in_the_folder_does_not_run(hf: Any, tmp_path: Path) -> None:
    spec = saved(hf.ViTModel(hf.ViTConfig(**SMALL)), tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content |= {
        "model_type": "own",
        "auto_map": {k: "own.Own" for k in ("AutoConfig", "AutoModel")},
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'victim')!r}, 'w')\nOwn = None\n")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(spec)
    assert not (tmp_path / "victim").exists()


def test_hf__a_model_of_text_is_no_encoder(hf: Any, tmp_path: Path) -> None:
    model = hf.BertModel(hf.BertConfig(**TEXT))
    with pytest.raises(InputError, match="bert is no model of images"):
        load(saved(model, tmp_path))


def test_hf__folders_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match="no such folder.*nothing is downloaded"):
        load("hf:facebook/dino-vits16")
    with pytest.raises(InputError, match="has no config.json"):
        load(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InputError, match="no weights in .*: it has no model.safetensors"):
        load(f"hf:{tmp_path}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(InputError, match=r"needs the extra: pip install '\.\[hf\]'"):
        load(f"hf:{tmp_path}")


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
    (tmp_path / "half.json").write_text(json.dumps(config | {"vision_cfg": vision | HALF}))
    clip.add_model_config(tmp_path)
    half, own = clip.create_model("half").eval(), model.state_dict()
    clip.model.resize_pos_embed(own, half)  # as open_clip loads weights at another size
    half.load_state_dict(own)
    parts = torch.rand(2, 3, SIDE // 2, SIDE // 2)
    with torch.no_grad():
        want = half.encode_image(encoder.normalise(parts))
        torch.testing.assert_close(encoder(parts), want, atol=1e-5, rtol=1e-5)
    assert released.fixed_size
    assert load("open_clip:fedmia-tiny", checkpoint=tmp_path / "epoch.pt", size=48).size == 48
    with pytest.raises(InputError, match="did you mean 'fedmia-tiny'"):
        load("open_clip:fedmia-tine")


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
    assert any("QuickGELU" in n for n in released.notes) == (openai and name == "tiny")


def test_open_clip__the_normalisation_of_its_public_weights(library: Any) -> None:
    """That which all of an architecture's share; where they differ, or there are none, OpenAI's."""

    def constants() -> tuple[float, float, bool]:
        released = load("open_clip:tiny")
        mean, std = (t.flatten()[0].item() for t in
                     (released.method.encoder.mean, released.method.encoder.std))  # fmt: skip
        return round(mean, 4), round(std, 4), any("differ" in n for n in released.notes)

    assert constants() == (0.48, 0.26, False)
    library.tags["laion"] = {"mean": (0.5,) * 3, "std": (0.4,) * 3}
    assert constants() == (0.5, 0.4, False)
    library.tags["openai"] = {}
    assert constants() == (0.48, 0.26, True)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [({}, (MEAN, STD)), ({"do_normalize": False}, ([0.0], [1.0]))],
)
def test_hf__pixels_that_its_processor_does_not_normalise(
    more: dict[str, Any], wanted: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    """`do_normalize: false` beside a mean and a deviation: these are not used."""
    config = {"image_mean": MEAN, "image_std": STD, "size": SIDE} | more
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    model = types.SimpleNamespace(config=types.SimpleNamespace(image_size=2 * SIDE))
    size, own = _preprocessing(tmp_path, model, [])
    assert size == SIDE and own == tuple(tuple(v) for v in wanted)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"size": {"height": 40, "width": 48}}, 40),
        ({"size": {"shortest_edge": 40}}, 40),
        ({"size": 40, "crop_size": 32}, 40),
        ({"size": 40, "crop_size": 32, "do_center_crop": False}, 40),
        ({"size": {"shortest_edge": 40}, "crop_size": {"height": 32}, "do_center_crop": True}, 32),
        ({"size": {"longest_edge": 40}}, 2 * SIDE),
        ({}, 2 * SIDE),
        (None, 2 * SIDE),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_hf__the_size_is_that_of_the_pixels_that_its_model_gets(
    told: dict[str, Any] | None, wanted: int, nested: bool, tmp_path: Path
) -> None:
    """What is cropped last counts, and only where it is cropped; else the model's own."""
    if told is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(told | {"image_mean": MEAN}))
    config = types.SimpleNamespace(image_size=[2 * SIDE, 3 * SIDE] if nested else 2 * SIDE)
    config = types.SimpleNamespace(vision_config=config, image_size=7) if nested else config
    notes: list[str] = []
    # A mean without a deviation is no normalisation.
    assert _preprocessing(tmp_path, types.SimpleNamespace(config=config), notes) == (wanted, None)
    assert len(notes) == (told is None)


def test_open_clip__missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match=r"needs the extra: pip install '\.\[clip\]'"):
        load("open_clip:ViT-B-32")
