"""`torchvision:NAME`: an architecture of torchvision without its classifier."""

from __future__ import annotations

import warnings

from torch import Tensor, nn
from torchvision import models

from fedmia.encoders import _resnet
from fedmia.encoders._hooked import SIZES, hooked
from fedmia.encoders._module import seeded, weigh, white_box
from fedmia.encoders.base import IMAGENET, Released, Wanted, unknown_model

HEADS = ("fc", "classifier", "heads", "head")


class AnySize(models.VisionTransformer):
    """torchvision's, without the check of the images' size; that of its positions remains."""

    def _process_input(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.conv_proj(x)
        return tokens.flatten(2).transpose(1, 2)


def load(name: str, wanted: Wanted) -> Released:
    """The classification model `name`; its weights are the checkpoint's, else random.

    The vector is what the classifier was given. Where that is the last map flattened (VGG,
    AlexNet, SqueezeNet), it is the map's mean. A ViT is built for the size asked for.

    Raises:
        InputError: no such model, a size that it does not take, a checkpoint that does not fit.
    """
    known = models.list_models(module=models)
    if name not in known:
        raise unknown_model("torchvision", name, known)
    where, notes = f"torchvision:{name}", list[str]()
    options = {"image_size": wanted.size} if wanted.size and name.startswith("vit_") else {}

    def make() -> nn.Module:
        with warnings.catch_warnings():  # googlenet and inception announce a change of their init
            warnings.simplefilter("ignore")
            made: nn.Module = models.get_model(name, weights=None, **options)
        for head in HEADS:
            if hasattr(made, head):
                setattr(made, head, nn.Identity())
        if isinstance(made, models.VisionTransformer):
            made.__class__ = AnySize
        return made

    module = seeded(make, wanted.seed)
    weights = weigh(module, wanted, where, notes)
    first = next(m for m in module.modules() if isinstance(m, nn.Conv2d))
    channels = (first.in_channels,)
    sizes = _resnet.sizes(module)
    backbone, tried = hooked(module, where, channels, wanted.size, flat_is_map=True, sizes=sizes)
    usual = channels == (3,) and sizes == SIZES  # the library's own, for ImageNet
    own = IMAGENET if usual else None
    return white_box(where, backbone, tried, wanted, notes, own=own, weights=weights)
