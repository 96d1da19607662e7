"""ResNets of public code: their names, and what the shapes of their tensors tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fedmia.encoders.base import EncoderFacts
from fedmia.nets.base import group_count
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt

FIRST, SECOND = "layer1.0.conv1.weight", "layer1.0.conv2.weight"
STAGES = 4
RELU_FROM, POOL_AT = 3, 4  # number of the first stage, where all before it are numbered
SMALL = (32, 64)  # images of a ResNet with a 3x3 stem
WIDTH = 64  # channels of torchvision's own first stage


def canonical_names(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    """torchvision's names for a ResNet's tensors, and whether a ReLU follows its first norm.

    In an nn.Sequential of a ResNet's children the stages stand in the places 4 to 7, from 3 on
    without max-pooling, and from 2 on where the children hold no ReLU either: then the public
    code (lightly's own ResNet) computes none. Other tensors keep their names.
    """
    stages = sorted({int(m[1]) for n in tensors if (m := re.match(r"(\d+)\.0\.conv1\.weight", n))})
    numbered = len(stages) == STAGES and stages[-1] - stages[0] == STAGES - 1
    places = {str(n): f"layer{i}" for i, n in enumerate(stages, 1)} if numbered else {}
    if places:
        places |= {"0": "conv1", "1": "bn1"}
    renamed = {}
    for name, tensor in tensors.items():
        head, dot, rest = name.partition(".")
        name = places.get(head, head) + dot + rest
        renamed[name.replace(".shortcut.", ".downsample.")] = tensor
    return renamed, not places or stages[0] >= RELU_FROM


def is_resnet(tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors with canonical names are a ResNet's."""
    return tensors.keys() >= {FIRST, SECOND, "conv1.weight"}


def adapt_sizes(facts: EncoderFacts, module: nn.Module) -> bool:
    """Whether the stem is small: then the facts get small sizes to try, as the usual ones are
    slow and not meant."""
    stem = getattr(module, "conv1", None)
    small = isinstance(stem, nn.Conv2d) and stem.stride == (1, 1)
    if small:
        facts.sizes = SMALL
    return small


def adapt(
    module: nn.Module, tensors: Mapping[str, Tensor], relu: bool, padding: int, facts: EncoderFacts
) -> None:
    """Give a ResNet of torchvision's or timm's names the stem and the norms of a file.

    Args:
        tensors: by canonical names.
        relu: whether a ReLU follows the first norm.
        padding: of a 3x3 first convolution.
        facts: names the file; gets notes.

    Raises:
        InputError: the norms lack statistics and the user does not allow that.
    """
    conv, stem = getattr(module, "conv1", None), tensors.get("conv1.weight")
    if not isinstance(conv, nn.Conv2d) or stem is None or stem.ndim != 4:
        return
    (outputs, channels, kernel), options = stem.shape[:3], facts.load_options
    if kernel == 3 and conv.kernel_size != (3, 3):
        module.conv1 = nn.Conv2d(channels, outputs, 3, padding=padding, bias=False)
        module.maxpool = nn.Identity()
        facts.notes.append(Note("small-stem", {"padding": padding}))
    elif channels != conv.in_channels:
        module.conv1 = nn.Conv2d(channels, outputs, kernel, 2, kernel // 2, bias=False)
    if not relu:
        module.add_module("act1" if hasattr(module, "act1") else "relu", nn.Identity())
        facts.notes.append(Note("no-first-relu"))
    if "bn1.weight" in tensors and "bn1.running_mean" not in tensors:
        if not options.allow_missing:
            lacks = "no running_mean and running_var beside bn1.weight"
            way = "save model.state_dict(), which has the buffers of batch norms; "
            way += f"{opt('encoder.allow_missing')} takes the norms for group norms"
            raise InputError(f"weights '{options.checkpoint}': {lacks}: {way}")
        for name, norm in list(module.named_modules()):
            if isinstance(norm, nn.BatchNorm2d):
                count = norm.num_features
                module.set_submodule(name, nn.GroupNorm(group_count(count), count))
        facts.notes.append(Note("norms-without-statistics"))


def build(tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    """torchvision's ResNet of the depth, widths and groups that canonical tensors tell.

    Raises:
        InputError: not four stages of blocks.
    """
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet  # slow to import

    blocks = {tuple(n.split(".")[:2]) for n in tensors if n.count(".") > 2}
    depths = [sum(stage == f"layer{i}" for stage, _ in blocks) for i in range(1, STAGES + 1)]
    if not all(depths) or f"layer{STAGES + 1}.0.conv1.weight" in tensors:
        raise InputError(f"{where}: its ResNet has {sum(map(bool, depths))} stages, not {STAGES}")
    deep, options = "layer1.0.conv3.weight" in tensors, dict[str, Any]()
    channels = tensors[FIRST].shape[0]
    if deep:
        channels = tensors["layer1.0.conv3.weight"].shape[0] // Bottleneck.expansion
        inner, each = tensors[SECOND].shape[:2]
        # torchvision counts the channels of a group as if the stage had 64.
        options = {"groups": inner // each, "width_per_group": each * WIDTH // max(channels, 1)}
    inputs = tensors["conv1.weight"].shape[0]

    class ScaledResNet(ResNet):
        """With `inputs` channels after its stem; `channels` in the first stage, and 2, 4 and 8
        times as many in the later ones."""

        def _make_layer(self, block: Any, planes: int, *rest: Any, **more: Any) -> nn.Sequential:
            if planes == WIDTH:
                self.inplanes = inputs
            return super()._make_layer(block, planes * channels // WIDTH, *rest, **more)

    network = ScaledResNet(Bottleneck if deep else BasicBlock, depths, **options)
    network.conv1 = nn.Conv2d(3, inputs, 7, 2, 3, bias=False)
    network.bn1 = nn.BatchNorm2d(inputs)
    network.add_module("fc", nn.Identity())
    return network
