"""`hf:FOLDER` with a stand-in for transformers: what it is asked for, and what its models get."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.encoders.base import LoadedEncoder, load
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError

SIDE, PATCH, WIDTH = 16, 4, 6


class Patches(nn.Module):
    """A class token and a token a patch, with positions of the own size's grid."""

    def __init__(self) -> None:
        super().__init__()
        side = SIDE // PATCH
        self.conv = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.randn(1, WIDTH, side, side))
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, resized: bool = False) -> Tensor:
        maps, places = self.conv(x), self.positions
        if resized:
            places = F.interpolate(places, size=maps.shape[2:], mode="bilinear")
        tokens = (maps + places).flatten(2).mT  # fails at another size unless it is resized
        return self.last(torch.cat([tokens.mean(1, keepdim=True), tokens], dim=1))


class Model(nn.Module):
    """What all of them have; `calls` notes how often positions were interpolated."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.body, self.calls = config, Patches(), list[bool]()
        self.pooler: nn.Module | None = nn.Linear(WIDTH, WIDTH)

    def answer(self, tokens: Tensor) -> dict[str, Tensor | None]:
        pooled = None if self.pooler is None else self.pooler(tokens[:, 0])
        return {"last_hidden_state": tokens, "pooler_output": pooled, "attentions": tokens[:, :1]}


class ViT(Model):
    def forward(self, pixel_values: Tensor, interpolate_pos_encoding: bool = False) -> Any:
        self.calls.append(interpolate_pos_encoding)
        return self.answer(self.body(pixel_values, interpolate_pos_encoding))


class Masked(Model):
    """Keeps 1 - mask_ratio of the patches, in the order of the noise, and shuffles them so."""

    def forward(self, pixel_values: Tensor, noise: Tensor | None = None) -> Any:
        assert noise is not None and noise.shape == (len(pixel_values), (SIDE // PATCH) ** 2)
        tokens = self.body(pixel_values)
        order = noise.argsort(dim=1)[:, : round(noise.shape[1] * (1 - self.config.mask_ratio))]
        kept = tokens[:, 1:].gather(1, order[:, :, None].expand(-1, -1, WIDTH))
        return self.answer(torch.cat([kept[:, :1], kept], dim=1))


class Both(Model):
    """An image tower and one of text, whose own pass needs both."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.text_model, self.text_projection = nn.Linear(2, 3), nn.Linear(3, 2, bias=False)

    def get_image_features(self, pixel_values: Tensor) -> Tensor:
        return self.body(pixel_values)[:, 0]

    def forward(self, input_ids: Tensor, pixel_values: Tensor) -> None: ...


class Text(Model):
    def forward(self, input_ids: Tensor) -> None: ...


Load = Callable[..., LoadedEncoder]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`stand_in.load(kind, ...)`; `stand_in.missing`, `.unexpected` are what a file says."""
    module: Any = types.ModuleType("transformers")
    module.missing, module.unexpected, module.config = [], [], {}
    fields = {"image_size": SIDE, "patch_size": PATCH, "model_type": "tiny", "num_channels": 3}

    def config(folder: Path, **how: Any) -> Any:
        assert (folder, how) == (
            tmp_path, {"local_files_only": True, "trust_remote_code": False}
        )  # fmt: skip
        return types.SimpleNamespace(**fields | module.config)

    def model(folder: Path, *, config: Any, output_loading_info: bool, **how: Any) -> Any:
        assert folder == tmp_path and output_loading_info
        safe = {"use_safetensors": True, "local_files_only": True, "trust_remote_code": False}
        assert how == safe  # no pickle, no download, no code of the folder
        module.model = module.kind(config).train()
        return module.model, {"missing_keys": module.missing, "unexpected_keys": module.unexpected}

    module.AutoConfig = types.SimpleNamespace(from_pretrained=config)
    module.AutoModel = types.SimpleNamespace(from_pretrained=model)
    quiet = ("set_verbosity_error", "disable_progress_bar", "enable_progress_bar")
    module.logging = types.SimpleNamespace(
        get_verbosity=lambda: 30, set_verbosity=lambda level: None,
        is_progress_bar_enabled=lambda: True, **dict.fromkeys(quiet, lambda: None),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "transformers", module)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    normal = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4], "size": SIDE}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(normal))

    def released(kind: type[Model], **more: Any) -> LoadedEncoder:
        module.kind = kind
        return load(f"hf:{tmp_path}", **more)

    module.load = released
    return module


def pixels(side: int = SIDE) -> Tensor:
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_vit__positions_are_resampled_for_parts_and_not_for_its_own_size(stand_in: Any) -> None:
    released = stand_in.load(ViT)
    assert stand_in.model.calls[0] is False  # tried at its own size first, as it was saved
    encoder, model = released.method.encoder, stand_in.model
    for side in (SIDE, SIDE // 2):
        want = model(encoder.normalise(pixels(side)), True)["pooler_output"]
        torch.testing.assert_close(encoder(pixels(side)), want)
    assert model.calls[-1] is True and encoder.backbone.patch == PATCH
    assert (released.size, released.channels, released.weights.form) == (
        SIDE, 3, "transformers tiny"
    )  # fmt: skip
    assert encoder.mean.flatten().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert encoder.std.flatten().tolist() == pytest.approx([0.2, 0.3, 0.4])
    larger = stand_in.load(ViT, size=2 * SIDE)
    assert larger.size == 2 * SIDE and larger.method.encoder(pixels(2 * SIDE)).shape == (2, WIDTH)


def test_masked__every_patch_in_order(stand_in: Any) -> None:
    stand_in.config = {"mask_ratio": 0.75}
    encoder = stand_in.load(Masked).method.encoder
    features = encoder.features(pixels(), ["map"])["map"]
    tokens = stand_in.model.body(encoder.normalise(pixels()))[:, 1:]
    torch.testing.assert_close(features, tokens.mT.reshape(2, WIDTH, SIDE // PATCH, SIDE // PATCH))


def test_both__images_alone_are_read_and_the_text_is_left_out(stand_in: Any) -> None:
    stand_in.unexpected = ["z", "a"]
    released = stand_in.load(Both)
    encoder = released.method.encoder
    want = stand_in.model.body(encoder.normalise(pixels()))[:, 0]
    torch.testing.assert_close(encoder(pixels()), want)
    text = ("text_model.bias", "text_model.weight", "text_projection.weight")
    assert released.weights.dropped == ("a", "z", *text)
    assert released.weights.loaded == 7  # of convolution, positions, both linear layers
    with pytest.raises(InputError, match="tiny is no model of images"):
        stand_in.load(Text)


def test_missing__a_pooler_is_left_out_and_what_else_is_missing_refused(stand_in: Any) -> None:
    stand_in.missing = ["pooler.weight", "pooler.bias"]
    released = stand_in.load(ViT)
    assert released.weights.missing == () and stand_in.model.pooler is None
    encoder = released.method.encoder
    tokens = stand_in.model.body(encoder.normalise(pixels()))
    torch.testing.assert_close(encoder(pixels()), tokens[:, 0])  # the class token stands for it
    stand_in.missing = ["body.last.weight", "body.conv.bias"]
    with pytest.raises(InputError, match=r"'body.conv.bias' is missing \(2 are\)"):
        stand_in.load(ViT)
    model = stand_in.load(ViT, allow_missing=True)
    assert model.weights.missing == ("body.conv.bias", "body.last.weight")
    assert model.weights.loaded == 7 - 2 and stand_in.model.pooler is not None
    assert any("2 of the encoder's weights are random" in note for note in sentences(model.notes))
