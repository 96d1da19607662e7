"""`FILE.pth`, `.ckpt`, `.safetensors` ..: a checkpoint alone, whose shapes tell the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmia.encoders import _resnet, _vit
from fedmia.encoders._hooked import find_input_size, hook_backbone
from fedmia.encoders._module import build_seeded, load_white_box
from fedmia.encoders.base import EncoderForm, LoadContext, LoadedEncoder, LoadOptions
from fedmia.encoders.checkpoint import load_tensors
from fedmia.encoders.schemes import EncoderMatch, find_encoder
from fedmia.encoders.timm import TimmBackbone
from fedmia.encoders.torchfile import read
from fedmia.options.errors import InputError, opt

SUFFIXES = (".pth", ".pt", ".ckpt", ".tar", ".bin", ".torch", ".pkl", ".safetensors")


class WeightsFile(EncoderForm):
    """A checkpoint alone, whose shapes tell the network."""

    written = f"FILE{SUFFIXES[0]} ({', '.join(SUFFIXES[1:])})"
    order = 4
    suffixes = SUFFIXES
    takes_key = True

    def load(self, source: str, wanted: LoadOptions) -> LoadedEncoder:
        """The ResNet or ViT in the file `source`, built as its tensors' names and shapes tell.

        Raises:
            InputError: the file cannot be read, or holds neither.
        """
        path = Path(source)
        loading = LoadContext(path.name, replace(wanted, checkpoint=path))
        found = find_encoder(read(path), path, wanted.key, _known)
        vit = _vit.canonical_names(found.trunk)
        if _vit.is_vit(vit):
            module = build_seeded(lambda: _vit.build(loading, vit, found.scheme.form), wanted.seed)
            loading.weights = load_tensors(loading, module.eval(), found, vit)
            size, channels = module.patch_embed.img_size[0], module.patch_embed.proj.in_channels
            tried = find_input_size(loading, module, (channels,), size)._replace(fixed=True)
            return load_white_box(loading, TimmBackbone(module, tried.channels, tried.size), tried)
        given, relu = _resnet.canonical_names(found.trunk)
        if not _resnet.is_resnet(given):
            usual = "give timm:NAME, torchvision:NAME or package.module:factory with "
            raise InputError(
                f"encoder '{source}': its tensors are neither a ResNet's nor a ViT's by name; "
                f"{found.advice(source, path.name) or usual + opt('checkpoint', source)}"
            )
        net: Any = build_seeded(lambda: _resnet.build(given, path.name), wanted.seed)
        loading.notes += _resnet.adapt(net, given, relu, found.scheme.padding)
        loading.weights = load_tensors(loading, net, found, given)
        sizes = _resnet.sizes(net)
        return load_white_box(
            loading, *hook_backbone(loading, net, (net.conv1.in_channels,), sizes=sizes)
        )


def _known(one: EncoderMatch) -> float:
    """How many tensors belong to a network that can be built; 0 for no such network."""
    if _vit.is_vit(vit := _vit.canonical_names(one.trunk)):
        return sum(n.startswith(("blocks.", "patch_embed.", "norm.")) for n in vit)
    given = _resnet.canonical_names(one.trunk)[0]
    return sum(n.startswith(("layer", "conv1.", "bn1.")) for n in given) * _resnet.is_resnet(given)
