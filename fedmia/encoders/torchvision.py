"""`torchvision:NAME`: an architecture of torchvision without its classifier."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from fedmia.encoders import _resnet
from fedmia.encoders.base import IMAGENET, EncoderFacts, EncoderForm, LoadedEncoder
from fedmia.encoders.hooked import hook_backbone
from fedmia.encoders.hub import Hub
from fedmia.encoders.modules import build, load_weights, load_white_box

HEADS = ("fc", "classifier", "heads", "head")


def patches(self: Any, x: Tensor) -> Tensor:
    """Cut images (B, C, H, W) into patches (B, N, D), as torchvision's ViT does, but of any size.

    The check of the positions' number remains.
    """
    tokens: Tensor = self.conv_proj(x)
    return tokens.flatten(2).transpose(1, 2)


class TorchvisionModel(Hub, EncoderForm):
    """An architecture of torchvision without its classifier."""

    written = "torchvision:NAME"
    order = 6
    prefix = "torchvision"
    library = "torchvision.models"
    takes_checkpoint = True

    def names(self, library: Any) -> list[str]:
        return list(library.list_models(module=library))

    def load_name(self, library: Any, facts: EncoderFacts, name: str) -> LoadedEncoder:
        """The vector is what the classifier was given. Where that is the last map flattened (VGG,
        AlexNet, SqueezeNet), it is the map's mean. A ViT is built for the size asked for."""
        size = facts.load_options.size
        options = {"image_size": size} if size and name.startswith("vit_") else {}

        def make() -> nn.Module:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # googlenet and inception change their init one day
                network: nn.Module = library.get_model(name, weights=None, **options)
            for head in HEADS:
                if hasattr(network, head):
                    setattr(network, head, nn.Identity())
            if isinstance(network, library.VisionTransformer):
                members = {"_process_input": patches}
                network.__class__ = type("AnySize", (library.VisionTransformer,), members)
            return network

        module = build(facts, make)
        load_weights(facts, module)
        first = next(m for m in module.modules() if isinstance(m, nn.Conv2d))
        if not _resnet.adapt_sizes(facts, module) and first.in_channels == 3:
            facts.constants = facts.constants or IMAGENET  # the library's own
        backbone = hook_backbone(facts, module, (first.in_channels,), flat_is_map=True)
        return load_white_box(facts, backbone)
