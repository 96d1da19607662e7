"""`FILE.pth`, `.ckpt`, `.safetensors` ..: a checkpoint alone, whose shapes tell the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmia.encoders import _resnet, _vit
from fedmia.encoders._preprocessing import read_settings
from fedmia.encoders.base import EncoderFacts, EncoderForm, LoadedEncoder, LoadOptions
from fedmia.encoders.checkpoint import COUNTERS, load_tensors
from fedmia.encoders.hooked import hook_backbone, try_blank_pixels
from fedmia.encoders.modules import build_seeded, load_white_box
from fedmia.encoders.reparametrised import join_parts
from fedmia.encoders.schemes import EncoderMatch, find_encoder
from fedmia.encoders.timm import TimmBackbone
from fedmia.settings.errors import InputError, opt
from fedmia.untrusted.torchfile import read_weights

SUFFIXES = (".pth", ".pt", ".ckpt", ".tar", ".bin", ".torch", ".pkl", ".safetensors")


class WeightsFile(EncoderForm):
    """A checkpoint alone, whose shapes tell the network."""

    written = f"FILE{SUFFIXES[0]} ({', '.join(SUFFIXES[1:])})"
    order = 4
    suffixes = SUFFIXES
    takes_key = True

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The ResNet or ViT in the file `source`, built as its tensors' names and shapes tell.

        Raises:
            InputError: the file cannot be read, or holds neither.
        """
        path = Path(source)
        facts = EncoderFacts(path.name, replace(load_options, checkpoint=path))
        content, where = read_weights(path), f"weights '{path}'"
        joined = join_parts(content, where, (), facts.notes)
        match = find_encoder(joined, path, load_options.key, _count_known)
        vit = _vit.canonical_names(match.trunk)
        if _vit.is_vit(vit):
            form = match.scheme.form
            module = build_seeded(lambda: _vit.build(facts, vit, form), load_options.seed)
            facts.weights = load_tensors(facts, module.eval(), match, vit)
            facts.size, channels = module.patch_embed.img_size[0], (vit[_vit.PATCHES].shape[1],)
            read_settings(facts, where, content, module.state_dict())
            try_blank_pixels(facts, module, channels)
            facts.fixed_size = True
            return load_white_box(facts, TimmBackbone(module, *facts.blank.shape[1:3]))
        tensors, relu = _resnet.canonical_names(match.trunk)
        if not _resnet.is_resnet(tensors):
            names = "timm:NAME, torchvision:NAME or package.module:factory"
            way = match.advice(source, path.name)
            way = way or f"give {names} with {opt('encoder.checkpoint', source)}"
            neither = "its tensors are neither a ResNet's nor a ViT's by name"
            raise InputError(f"encoder '{source}': {neither}; {way}")
        net: Any = build_seeded(lambda: _resnet.build(tensors, path.name), load_options.seed)
        _resnet.adapt(net, tensors, relu, match.scheme.padding, facts)
        facts.weights = load_tensors(facts, net, match, tensors)
        read_settings(facts, where, content, net.state_dict())
        _resnet.adapt_sizes(facts, net)
        return load_white_box(facts, hook_backbone(facts, net, (net.conv1.in_channels,)))


def _count_known(one: EncoderMatch) -> float:
    """How many tensors belong to a network that can be built; 0 for no such network."""
    if _vit.is_vit(vit := _vit.canonical_names(one.trunk)):
        return sum(n.startswith(("blocks.", "patch_embed.", "norm.")) for n in vit)
    tensors = _resnet.canonical_names(one.trunk)[0]
    parts = ("layer", "conv1.", "bn1.")
    known = sum(n.startswith(parts) and not n.endswith(COUNTERS) for n in tensors)
    return known if _resnet.is_resnet(tensors) else 0
