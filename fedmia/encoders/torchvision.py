"""`torchvision:NAME`: an architecture of torchvision without its classifier."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from torch import Tensor, nn

from fedmia.encoders import _resnet
from fedmia.encoders._errors import unknown_model_error
from fedmia.encoders.base import IMAGENET, EncoderForm, LoadContext, LoadedEncoder, LoadOptions
from fedmia.encoders.hooked import hook_backbone
from fedmia.encoders.modules import build_seeded, load_weights, load_white_box

HEADS = ("fc", "classifier", "heads", "head")


def patches(self: Any, x: Tensor) -> Tensor:
    """Cut images (B, C, H, W) into patches (B, N, D), as torchvision's ViT does, but of any size.

    The check of the positions' number remains.
    """
    tokens: Tensor = self.conv_proj(x)
    return tokens.flatten(2).transpose(1, 2)


class TorchvisionModel(EncoderForm):
    """An architecture of torchvision without its classifier."""

    written = "torchvision:NAME"
    order = 6
    prefix = "torchvision"
    takes_checkpoint = True

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The classification model `source`; its weights are the checkpoint's, else random.

        The vector is what the classifier was given. Where that is the last map flattened (VGG,
        AlexNet, SqueezeNet), it is the map's mean. A ViT is built for the size asked for.

        Raises:
            InputError: no such model, a size that it does not take, a checkpoint that does not fit.
        """
        models: Any = importlib.import_module("torchvision.models")  # slow
        known = models.list_models(module=models)
        if source not in known:
            raise unknown_model_error("torchvision", source, known)
        sized = load_options.size and source.startswith("vit_")
        options = {"image_size": load_options.size} if sized else {}

        def make() -> nn.Module:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # googlenet and inception change their init one day
                network: nn.Module = models.get_model(source, weights=None, **options)
            for head in HEADS:
                if hasattr(network, head):
                    setattr(network, head, nn.Identity())
            if isinstance(network, models.VisionTransformer):
                members = {"_process_input": patches}
                network.__class__ = type("AnySize", (models.VisionTransformer,), members)
            return network

        context = LoadContext(f"torchvision:{source}", load_options)
        module = build_seeded(make, load_options.seed)
        load_weights(context, module)
        first = next(m for m in module.modules() if isinstance(m, nn.Conv2d))
        if not _resnet.adapt_sizes(context, module) and first.in_channels == 3:
            context.constants = context.constants or IMAGENET  # the library's own
        backbone = hook_backbone(context, module, (first.in_channels,), flat_is_map=True)
        return load_white_box(context, backbone)
