"""`hf:FOLDER`: an image model as transformers saves it, config.json beside safetensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders._hooked import hook_backbone
from fedmia.encoders._module import build_seeded, load_white_box
from fedmia.encoders.base import (
    Constants,
    EncoderForm,
    LoadContext,
    LoadedEncoder,
    LoadOptions,
    Weights,
    first_line,
    import_extra,
)
from fedmia.encoders.checkpoint import RANDOM
from fedmia.encoders.torchfile import folder_weights, of_configuration, read_json
from fedmia.nets.base import check_network, limit_modules
from fedmia.options.errors import InputError, opt

FILES = ("model.safetensors", "model.safetensors.index.json")
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
        self.interpolates = "interpolate_pos_encoding" in self.takes
        self.resized = resized and self.interpolates
        if self.both:  # nothing of the text's side is read
            for part in ("text_model", "text_projection"):
                model._modules.pop(part, None)

    def forward(self, pixels: Tensor) -> Any:
        """The model's outputs by name, of pixels (B, C, H, W)."""
        options: dict[str, Any] = {"interpolate_pos_encoding": True} if self.resized else {}
        if "noise" in self.takes:
            patch = self.model.config.patch_size
            places = (pixels.shape[2] // patch) * (pixels.shape[3] // patch)
            order = torch.arange(places, device=pixels.device, dtype=pixels.dtype)
            options["noise"] = order.expand(len(pixels), -1)
        call = self.model.get_image_features if self.both else self.model
        return call(pixel_values=pixels, **options)


class HuggingFaceFolder(EncoderForm):
    """An image model as transformers saves it, config.json beside safetensors."""

    written = "hf:FOLDER"
    order = 7
    prefix = "hf"

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The model in the folder `source`, its image tower where it has a text tower too.

        Size and normalisation are those of its preprocessor_config.json. No code of the folder is
        run and nothing is downloaded.

        Raises:
            InputError: transformers is not installed, a folder without a model, weights that are
                missing, or no image model.
        """
        folder = Path(source)
        context = LoadContext(f"hf:{folder.resolve().name}", load_options)
        where, notes = context.where, context.notes
        weights_file = folder_weights(folder, "hf:FOLDER", FILES)
        length = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
        transformers = import_extra("transformers", "hf:FOLDER", "hf")
        try:
            with _silence(transformers.logging), limit_modules(where):
                check_network(where, lambda: _describe_model(transformers, folder), length)
                model, missing, unused = build_seeded(
                    lambda: _build_model(transformers, folder), load_options.seed
                )
        except InputError:
            raise
        except Exception as error:  # of many libraries, which share no class
            raise InputError(f"{where} cannot be loaded: {first_line(error)}") from None
        if missing and not load_options.allow_missing:
            raise InputError(
                f"{weights_file}: tensor '{missing[0]}' is missing ({len(missing)} are); "
                f"{opt('allow_missing')} leaves them random"
            )
        if missing:
            notes.append(RANDOM.format(len(missing)))
        with of_configuration(folder):
            return self._released(context, folder, model, missing, unused)

    def _released(
        self,
        context: LoadContext,
        folder: Path,
        model: Any,
        missing: tuple[str, ...],
        unused: tuple[str, ...],
    ) -> LoadedEncoder:
        """The image tower of the model that was built, as its own image processor has images."""
        where, load_options = context.where, context.load_options
        size, own = read_preprocessing(folder, model, context.notes)
        channels = int(getattr(_vision(model.config), "num_channels", 3))
        names = list(model.state_dict())
        tower = ImageTower(model, load_options.size not in (None, size))
        if "pixel_values" not in tower.takes:
            raise InputError(f"{where}: {model.config.model_type} is no model of images")
        text = tuple(sorted(set(names) - set(model.state_dict())))
        backbone, tried = hook_backbone(context, tower.float(), (channels,), size)
        tower.resized = tower.interpolates  # parts of an image; its own size is as it was
        patch = getattr(_vision(model.config), "patch_size", 1)
        backbone.patch = patch if isinstance(patch, int) else 1
        count = len(names) - len(text) - len(missing)
        form = f"transformers {model.config.model_type}"
        context.weights = Weights(form, count, (*unused, *text), missing)
        return load_white_box(context, backbone, tried, own, size)


def _build_model(transformers: Any, folder: Path) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """The model, the names that the file lacks, and those of it that were not used."""
    config = transformers.AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if hasattr(config, "mask_ratio"):
        config.mask_ratio = 0.0
    model, info = transformers.AutoModel.from_pretrained(
        folder,
        config=config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    missing = sorted(map(str, info["missing_keys"]))
    if any(n.startswith(POOLER) for n in missing):
        model.pooler, missing = None, [n for n in missing if not n.startswith(POOLER)]
    return model.eval(), tuple(missing), tuple(sorted(map(str, info["unexpected_keys"])))


def _describe_model(transformers: Any, folder: Path) -> nn.Module:
    """The network that config.json describes, without its weights."""
    config = transformers.AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    model: nn.Module = transformers.AutoModel.from_config(config, trust_remote_code=False)
    return model


def _vision(config: Any) -> Any:
    """The part of a configuration that is about images."""
    return getattr(config, "vision_config", config)


def read_preprocessing(
    folder: Path, model: Any, notes: list[str]
) -> tuple[int | None, Constants | None]:
    """Size and normalisation that the model's own image processor gives, None where unknown.

    Args:
        folder: may hold a preprocessor_config.json.
        model: whose configuration tells the size where the processor does not.
        notes: gets a line where there is no processor.

    Returns:
        Pixels a side; mean and deviation.
    """
    size, path = getattr(_vision(model.config), "image_size", None), "preprocessor_config.json"
    processor: Mapping[str, Any] = {}
    if (folder / path).is_file():
        processor = read_json(folder / path)
    else:
        notes.append(f"The folder has no {path}.")
    for key in ("size", "crop_size"):  # what is cropped last counts
        value = processor.get(key) if key == "size" or processor.get("do_center_crop") else None
        if isinstance(value, Mapping):
            value = value.get("height", value.get("shortest_edge"))
        size = value if isinstance(value, int) else size
    if processor.get("do_normalize") is False:
        return _side(size), ((0.0,), (1.0,))
    if "image_mean" in processor and "image_std" in processor:
        mean, std = (tuple(map(float, processor[k])) for k in ("image_mean", "image_std"))
        return _side(size), (mean, std)
    return _side(size), None


def _side(size: Any) -> int | None:
    first = size[0] if isinstance(size, list | tuple) and size else size
    return first if isinstance(first, int) else None


@contextmanager
def _silence(logging: Any) -> Iterator[None]:
    """Without the bars and tables of what transformers loads: the report has it."""
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
