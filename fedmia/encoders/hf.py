"""`hf:FOLDER`: an image model as transformers saves it, config.json beside safetensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders._preprocessing import (
    note_resizing,
    note_unread,
    own_constants,
    square_side,
)
from fedmia.encoders.base import (
    Constants,
    EncoderFacts,
    EncoderForm,
    LoadedEncoder,
    Weights,
)
from fedmia.encoders.hooked import hook_backbone
from fedmia.encoders.hub import Hub, read_json
from fedmia.encoders.modules import build_seeded, load_white_box
from fedmia.encoders.reparametrised import refuse_parts
from fedmia.nets.base import check_network, limit_modules
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt

PROCESSOR, BOTH = "preprocessor_config.json", "processor_config.json"  # the latter of text too
# What of it may be done: the audit resizes and crops by itself, and reads images as RGB.
READ = (
    "do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb",
    "do_reduce_labels",
)  # fmt: skip
CHANGES = ("offset", "rescale_offset", "include_top")  # pixels, as all that begins with `do_`
# What else is read, or does not change pixels.
KNOWN = (
    *READ, "image_mean", "image_std", "rescale_factor", "size", "crop_size", "crop_pct", "resample",
    "image_processor_type", "feature_extractor_type", "processor_class", "default_to_square",
    "data_format", "input_data_format", "return_tensors", "disable_grouping", "device", "auto_map",
    "_valid_processor_keys",
)  # fmt: skip
RESIZES = "interpolate_pos_encoding"  # what a model takes that resamples its positions
POOLER = "pooler."  # that many models have, and many files lack: then the class token stands


class ImageTower(nn.Module):
    """The image side of a model. A masked autoencoder sees every patch, in order.

    Args:
        model: of transformers.
        resized: whether positions are interpolated to the images' size.
    """

    def __init__(self, model: Any, resized: bool) -> None:
        super().__init__()
        self.model = model
        self.both = hasattr(model, "get_image_features") and hasattr(model, "text_model")
        call = model.get_image_features if self.both else model.forward
        self.takes = set(inspect.signature(call).parameters)
        self.resized = resized and RESIZES in self.takes
        if self.both:  # nothing of the text's side is read
            for part in ("text_model", "text_projection"):
                model._modules.pop(part, None)

    def forward(self, pixels: Tensor) -> Any:
        """The model's outputs by name, of pixels (B, C, H, W)."""
        options: dict[str, Any] = {RESIZES: True} if self.resized else {}
        if "noise" in self.takes:
            patch = self.model.config.patch_size
            places = (pixels.shape[2] // patch) * (pixels.shape[3] // patch)
            order = torch.arange(places, device=pixels.device, dtype=pixels.dtype)
            options["noise"] = order.expand(len(pixels), -1)
        call = self.model.get_image_features if self.both else self.model
        return call(pixel_values=pixels, **options)


class HuggingFaceFolder(Hub, EncoderForm):
    """An image model as transformers saves it, config.json beside safetensors."""

    written = "hf:FOLDER"
    order = 7
    prefix = extra = "hf"
    library = "transformers"
    files = ("model.safetensors", "model.safetensors.index.json")

    def folder(self, source: str) -> Path:
        return Path(source)

    def load_folder(
        self, library: Any, facts: EncoderFacts, weights_file: Path, config: dict[str, Any]
    ) -> LoadedEncoder:
        """The model, its image tower where it has a text tower too. Size and normalisation are
        those of its preprocessor_config.json. No code of the folder is run."""
        model, missing, unused = _read_model(library, facts, weights_file)
        facts.size, facts.constants = read_preprocessing(facts, weights_file.parent, model)
        channels = int(getattr(_vision(model.config), "num_channels", 3))
        names, kind = list(model.state_dict()), model.config.model_type
        tower = ImageTower(model, facts.load_options.size not in (None, facts.size))
        if "pixel_values" not in tower.takes:
            raise InputError(f"{facts.where}: {kind} is no model of images")
        text = sorted(set(names) - set(model.state_dict()))
        count = len(names) - len(text) - len(missing)
        facts.weights = Weights(f"transformers {kind}", count, (*unused, *text), missing)
        backbone = hook_backbone(facts, tower.float(), (channels,))
        tower.resized = RESIZES in tower.takes  # parts of an image; its own size is as it was
        patch = getattr(_vision(model.config), "patch_size", 1)
        backbone.patch = patch if isinstance(patch, int) else 1
        return load_white_box(facts, backbone)


def _read_model(
    transformers: Any, facts: EncoderFacts, weights_file: Path
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """The model, the names that the file lacks, and those of it that were not used."""
    folder, options = weights_file.parent, facts.load_options
    local = {"local_files_only": True, "trust_remote_code": False}
    length = sum(p.stat().st_size for p in folder.glob("*.safetensors"))

    def config() -> Any:
        return transformers.AutoConfig.from_pretrained(folder, **local)

    def describe() -> nn.Module:
        network: nn.Module = transformers.AutoModel.from_config(config(), trust_remote_code=False)
        return network

    def read() -> Any:
        return transformers.AutoModel.from_pretrained(
            folder, config=config(), use_safetensors=True, output_loading_info=True, **local
        )

    with _silence(transformers.logging), limit_modules(facts.where):
        check_network(facts.where, describe, length)
        model, info = build_seeded(read, options.seed)
    refuse_parts(map(str, info["unexpected_keys"]), str(weights_file))
    missing = sorted(map(str, info["missing_keys"]))
    if any(n.startswith(POOLER) for n in missing):
        model.pooler, missing = None, [n for n in missing if not n.startswith(POOLER)]
    if missing and not options.allow_missing:
        raise InputError(
            f"{weights_file}: tensor '{missing[0]}' is missing ({len(missing)} are); "
            f"{opt('encoder.allow_missing')} leaves them random"
        )
    if missing:
        facts.notes.append(Note("weights-missing", {"weights": len(missing)}))
    return model.eval(), tuple(missing), tuple(sorted(map(str, info["unexpected_keys"])))


def _vision(config: Any) -> Any:
    """The part of a configuration that is about images."""
    return getattr(config, "vision_config", config)


def read_preprocessing(
    facts: EncoderFacts, folder: Path, model: Any
) -> tuple[int | None, Constants | None]:
    """Size and normalisation that the model's own image processor gives, None where unknown.

    Args:
        facts: gets notes of what is not done, and where there is no processor.
        folder: may hold a preprocessor_config.json, or a processor_config.json.
        model: whose configuration tells the size where the processor does not.

    Returns:
        Pixels a side; mean and deviation of pixels in [0, 1].

    Raises:
        InputError: the processor changes pixels in a way that is not done here, wants images that
            are not square, or holds something else than numbers.
    """
    path = folder / PROCESSOR
    processor = read_json(path) if path.is_file() else {}
    if not path.is_file() and (folder / BOTH).is_file():
        path = folder / BOTH
        processor = read_json(path).get("image_processor") or {}
    if not processor:
        facts.notes.append(Note("no-processor", {"file": PROCESSOR}))
    where = str(path)
    for key, value in processor.items():
        if value and (key in CHANGES or key.startswith("do_")) and key not in READ:
            raise InputError(f"{where}: '{key}' changes pixels in a way that is not done here")
    note_unread(facts, where, processor, KNOWN)
    resized = processor.get("do_resize") is not False
    of_file = {"size": resized, "crop_size": processor.get("do_center_crop")}
    # What is cropped last counts.
    sides = {
        n: square_side(facts, f"{where}: {n}", processor.get(n))
        for n, done in of_file.items()
        if done
    }
    sizes = [side for side in reversed(sides.values()) if side]
    own = getattr(_vision(model.config), "image_size", None)
    side = sizes[0] if sizes else square_side(facts, f"{folder}/config.json: image_size", own)
    resizing = {"resample": processor.get("resample"), "crop_pct": processor.get("crop_pct")}
    if len(sizes) == 2:
        resizing["crop_pct"] = round(sizes[0] / sizes[1], 3)
    note_resizing(facts, where, resizing if resized else {})
    factor, unit = processor.get("rescale_factor", 1 / 255), 1.0
    if not isinstance(factor, int | float) or not factor > 0:
        raise InputError(f"{where}: rescale_factor {str(factor)[:60]}, must be a number > 0")
    if processor:  # which rescales unless it says that it does not
        unit = 255 * (1 if processor.get("do_rescale") is False else factor)
    if processor.get("do_normalize") is False:
        return side, own_constants(where, 0, 1, unit)
    mean, std = processor.get("image_mean"), processor.get("image_std")
    return side, None if mean is None or std is None else own_constants(where, mean, std, unit)


@contextmanager
def _silence(logging: Any) -> Iterator[None]:
    """Without the bars and tables of what transformers loads: the report has it."""
    with ExitStack() as after:
        after.callback(logging.set_verbosity, logging.get_verbosity())
        if logging.is_progress_bar_enabled():
            after.callback(logging.enable_progress_bar)
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        yield
