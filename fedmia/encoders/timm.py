"""`timm:NAME`: an architecture of timm without its classifier."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders import _resnet
from fedmia.encoders._outputs import grid, is_map
from fedmia.encoders._preprocessing import note_resizing, own_constants, square_side
from fedmia.encoders.base import (
    EncoderFacts,
    EncoderForm,
    LoadedEncoder,
)
from fedmia.encoders.hooked import STAGES, capture_outputs, refuse_large, try_blank_pixels
from fedmia.encoders.hub import Hub
from fedmia.encoders.modules import build, load_weights, load_white_box
from fedmia.nets.base import MODULES, Trunk, check_network, limit_modules
from fedmia.records.note import Note
from fedmia.settings.errors import InputError


class TimmBackbone(Trunk):
    """`forward_features` gives the map or the tokens, `forward_head` the vector.

    Args:
        module: built with `num_classes=0`, in evaluation mode.
        channels: of blank pixels, from which the stages are found.
        size: of these, pixels a side.
    """

    def __init__(self, module: Any, channels: int, size: int) -> None:
        super().__init__()
        self.module = module
        self.prefix = int(getattr(module, "num_prefix_tokens", 0))
        if getattr(module, "dynamic_img_size", False):
            self.patch = int(module.patch_embed.patch_size[0])
        infos = getattr(module, "feature_info", None) or []
        names = [i["module"] for i in infos if isinstance(i, dict) and "module" in i][-STAGES:]
        modules = {name for name, _ in module.named_modules()}
        with torch.no_grad(), capture_outputs(module, [n for n in names if n in modules]) as fired:
            last = self._as_map(module.forward_features(torch.zeros(1, channels, size, size)))
        maps = {name: value for name, value in fired if is_map(value) and last is not None}
        self.hooked = tuple(maps)
        ends = last is None or any(value is last for value in maps.values())
        self.layers = self.hooked if ends else (*self.hooked, "map")

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        with capture_outputs(self.module, self.hooked) as fired:
            out = self.module.forward_features(x)
        outputs = dict(fired)
        last = self._as_map(out)
        if self.layers and last is not None:
            outputs[self.layers[-1]] = last
        return outputs, self.module.forward_head(out).flatten(1)

    def _as_map(self, out: Any) -> Tensor | None:
        """(B, D, h, w) of what `forward_features` returned, or None."""
        if not isinstance(out, Tensor):
            return None
        if out.ndim == 4:
            nhwc = getattr(self.module, "output_fmt", "NCHW") == "NHWC"
            return out.permute(0, 3, 1, 2) if nhwc else out
        if out.ndim == 3:
            patches = out.shape[1] - self.prefix
            side = round(patches**0.5)
            return grid(out, side) if side > 1 and side**2 == patches else None
        return None


class TimmModel(Hub, EncoderForm):
    """An architecture of timm without its classifier, or a folder of timm's."""

    written = "timm:NAME, timm:FOLDER"
    order = 5
    prefix = library = extra = "timm"
    takes_checkpoint = True

    def folder(self, source: str) -> Path | None:
        folder = Path(source.removeprefix("local-dir:"))
        is_path = folder.is_dir() or str(folder) != source or len(folder.parts) > 1
        return folder if is_path else None

    def knows(self, library: Any, name: str) -> bool:
        return bool(library.is_model(name))  # also with the tag of public weights

    def load_name(self, library: Any, facts: EncoderFacts, name: str) -> LoadedEncoder:
        """Size and normalisation are those of timm's data configuration where the user gives
        none."""
        fixed = library.get_pretrained_cfg(name, allow_unregistered=True).fixed_input_size
        return _load_model(library, facts, name, facts.load_options.size if fixed else None)

    def load_folder(
        self, library: Any, facts: EncoderFacts, weights_file: Path, config: dict[str, Any]
    ) -> LoadedEncoder:
        """The model of a folder, unless its config.json describes more than its weights fill."""
        folder, own = weights_file.parent, facts.load_options
        where = f"{folder}/config.json"
        facts.load_options = replace(own, checkpoint=own.checkpoint or weights_file)
        fields, args = config.get("pretrained_cfg", config), config.get("model_args") or {}
        depth = args.get("depth")  # timm lists the rates of all blocks at first
        if isinstance(depth, int) and depth > MODULES:
            raise InputError(f"{where} gives the depth {depth:.20g}; at most {MODULES:,} is read")
        pool = args.get("global_pool", config.get("global_pool") or None)
        if pool == "":
            raise InputError(f"{where}: global_pool '' makes maps; an encoder makes vectors")
        shape = fields.get("input_size")
        if shape is not None and not (isinstance(shape, list) and len(shape) == 3):
            raise InputError(f"{where}: input_size {shape}, must be [channels, height, width]")
        side = square_side(facts, f"{where}: img_size", args.get("img_size"))
        side = side or square_side(facts, f"{where}: input_size", shape)
        if side and not own.size:
            refuse_large(where, side)
        sized = own.size or side
        note_resizing(facts, where, fields)
        name, length = f"local-dir:{folder}", weights_file.stat().st_size
        with limit_modules("config.json"):
            check_network(where, lambda: _build_model(library, name, facts, sized, pool), length)
            return _load_model(library, facts, name, sized, pool)


def _load_model(
    timm: Any, facts: EncoderFacts, name: str, sized: int | None, pool: Any = None
) -> LoadedEncoder:
    """The encoder with the size and the normalisation of its checkpoint's settings, else of timm's
    data configuration; a ResNet that got a small stem from its file has not the latter, and takes
    images as they are."""
    module: Any = _build_model(timm, name, facts, sized, pool).eval()
    data = timm.data.resolve_model_data_config(module)  # takes a 0 for none
    config = getattr(module, "pretrained_cfg", None) or {}
    fixed, side = bool(config.get("fixed_input_size")), sized or int(data["input_size"][-1])
    facts.size = side if fixed else None
    load_weights(facts, module)
    stem = getattr(module, "conv1", None)
    channels = stem.in_channels if isinstance(stem, nn.Conv2d) else int(data["input_size"][0])
    if not _resnet.adapt_sizes(facts, module):
        usual = fixed or facts.size is None
        facts.size = facts.size or side
        if usual and facts.load_options.size is None:
            facts.notes.append(Note("size-of-configuration", {"size": facts.size}))
        values = (data[n] if config.get(n) is None else config[n] for n in ("mean", "std"))
        own = own_constants(f"the configuration of {facts.where}", *values)
        if facts.constants is None and (channels == 3 or {*map(len, own)} <= {1, channels}):
            facts.constants = own
    try_blank_pixels(facts, module, (channels,))
    facts.fixed_size |= fixed  # its parts alone may have another size
    return load_white_box(facts, TimmBackbone(module, *facts.blank.shape[1:3]))


def _build_model(timm: Any, name: str, facts: EncoderFacts, sized: int | None, pool: Any) -> Any:
    """timm's model without a classifier, for images of side `sized` where it asks for a size, that
    pools as `pool` says; one that resamples its positions for other images, if it can."""
    side = {} if sized is None else {"img_size": sized}
    make = partial(timm.create_model, name, pretrained=False, num_classes=0)
    sides: tuple[dict[str, Any], ...] = ({**side, "dynamic_img_size": True}, side, {})
    pools = ({"global_pool": pool}, {}) if pool is not None else ({},)
    for options in ({**one, **other} for other in pools for one in sides):
        with suppress(TypeError):  # a network that has no such option
            return build(facts, partial(make, **options), TypeError)
    return build(facts, make)
