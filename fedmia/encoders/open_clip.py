"""`open_clip:NAME`: the image tower of an architecture of open_clip."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from fedmia.encoders._preprocessing import (
    note_resizing,
    note_unread,
    own_constants,
    square_side,
)
from fedmia.encoders.base import Constants, EncoderFacts, EncoderForm, LoadedEncoder
from fedmia.encoders.hooked import hook_backbone, refuse_large
from fedmia.encoders.hub import Hub, read_json
from fedmia.encoders.modules import build, load_weights, load_white_box
from fedmia.records.note import Note
from fedmia.settings.errors import InputError

CONFIG = "open_clip_config.json"
PIXELS = ("size", "mode", "mean", "std", "interpolation", "resize_mode", "fill_color")
# What of a tower shapes no vector of whole images of another size, or is read apart.
ASIDE = (
    "image_size", "patch_dropout", "output_tokens", "timm_model_pretrained", "timm_drop",
    "timm_drop_path",
)  # fmt: skip


class OpenClipModel(Hub, EncoderForm):
    """The image tower of an architecture of open_clip."""

    written = "open_clip:NAME"
    order = 8
    prefix = library = "open_clip"
    extra = "clip"
    takes_checkpoint = True

    def load_name(self, library: Any, facts: EncoderFacts, name: str) -> LoadedEncoder:
        """The image tower of `name`; the text tower is not built.

        Size and normalisation are those of an open_clip_config.json beside the checkpoint, else the
        architecture's, where the user gives none. One that describes another tower, or pixels that
        are not audited, is refused.
        """
        parts, config = importlib.import_module("open_clip.model"), library.get_model_config(name)
        own_size = facts.load_options.size
        vision = {**config["vision_cfg"], "timm_model_pretrained": False}
        pixels, where = _read_configuration(facts, config)
        size = square_side(facts, f"{where}: size", pixels.get("size", vision.get("image_size")))
        if size and not own_size:
            refuse_large(facts.where, size)
        facts.size = own_size or size or 224
        vision["image_size"] = facts.size

        def make() -> Any:
            options = parts.CLIPVisionCfg(**vision)
            quick = bool(config.get("quick_gelu", False))
            return parts._build_vision_tower(config["embed_dim"], options, quick)

        module = build(facts, make).eval()
        load_weights(facts, module)
        mean, std = pixels.get("mean"), pixels.get("std")
        if mean is not None and std is not None:
            facts.constants = own_constants(where, mean, std)
        elif facts.constants is None:
            facts.constants = _constants(library, name, facts.notes)
        return load_white_box(facts, hook_backbone(facts, module, (3,)))


def _read_configuration(
    facts: EncoderFacts, config: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """What the file beside the checkpoint says of pixels, `config` or nothing, and what names it.

    Raises:
        InputError: it describes another tower than `config`, or pixels that are not RGB.
    """
    checkpoint = facts.load_options.checkpoint
    if checkpoint is None or not (path := checkpoint.parent / CONFIG).is_file():
        return {}, facts.where
    content = read_json(path)
    model, pixels = content.get("model_cfg") or {}, dict(content.get("preprocess_cfg") or {})
    own, described = _tower(config), _tower(model)
    for name in described | own if described else ():
        if (described.get(name) or None) != (own.get(name) or None):
            both = f"{described.get(name)!s:.60}, {facts.where} has {own.get(name)!s:.60}"
            raise InputError(f"{path}: {name} {both}: give the name of that architecture")
    if pixels.get("mode", "RGB") != "RGB":
        raise InputError(f"{path}: mode {pixels['mode']}, images are audited in RGB")
    note_resizing(facts, str(path), pixels)
    note_unread(facts, str(path), pixels, PIXELS)
    if pixels.get("size") is None:
        pixels["size"] = (model.get("vision_cfg") or {}).get("image_size")
    return {n: value for n, value in pixels.items() if value is not None}, str(path)


def _tower(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of an architecture shapes the vectors of images, {} where it has no image tower."""
    vision = config.get("vision_cfg")
    if not isinstance(vision, Mapping):
        return {}
    whole = {n: config.get(n) for n in ("embed_dim", "quick_gelu")}
    return whole | {f"vision_cfg.{n}": value for n, value in vision.items() if n not in ASIDE}


def _constants(library: Any, name: str, notes: list[Note]) -> Constants:
    """The normalisation that all public weights of the architecture share, else OpenAI's."""
    pretrained, usual = library.pretrained, library.constants
    own = (usual.OPENAI_DATASET_MEAN, usual.OPENAI_DATASET_STD)
    tags = pretrained.list_pretrained_tags_by_model(name)
    configurations = [pretrained.get_pretrained_cfg(name, tag) for tag in tags]
    constants = {
        (tuple(c.get("mean") or own[0]), tuple(c.get("std") or own[1])) for c in configurations
    }
    if len(constants) == 1:
        return constants.pop()
    if constants:
        notes.append(Note("public-normalisations-differ"))
    return own
