"""`package.module:factory`: a module that the user's own code builds."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from fedmia.encoders import checkpoint
from fedmia.encoders._remote import Function, load_function
from fedmia.encoders.base import EncoderFacts, EncoderForm, LoadedEncoder, LoadOptions
from fedmia.encoders.hooked import CHANNELS, hook_backbone, try_blank_pixels
from fedmia.encoders.modules import build_seeded, copy_module, load_white_box, strip_wrappers
from fedmia.nets.base import Backbone
from fedmia.records.note import Note
from fedmia.settings.errors import InputError
from fedmia.ssl.base import Encoder
from fedmia.untrusted.limits import first_line


class Factory(EncoderForm):
    """A module that the user's own code builds."""

    written = "package.module:factory"
    order = 10
    takes_checkpoint = True

    def takes(self, spec: str) -> bool:
        module, _, name = spec.partition(":")
        return all(map(str.isidentifier, [*module.split("."), name]))

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The module, or the function of pixels, that the factory returns when it is called
        without arguments.

        fedmia's own `Encoder` and `Backbone` keep their layers. Any other module returns vectors
        (B, D), maps (B, D, h, w) or tokens; its stages are found by hooks.

        Raises:
            InputError: it cannot be imported or called, returns no module, or takes no images.
        """
        facts = EncoderFacts(source, load_options)
        encoder = build_seeded(lambda: _call_factory(source), load_options.seed)
        if not isinstance(encoder, nn.Module):
            return load_function(facts, encoder, source, load_options.batch, load_options.rate)
        module = strip_wrappers(encoder)
        if load_options.checkpoint is not None:
            facts.weights = checkpoint.load_checkpoint(facts, module)
        return wrap(facts, module)


def wrap(facts: EncoderFacts, module: nn.Module, channels: int | None = None) -> LoadedEncoder:
    """Any torch module as an encoder to attack.

    A copy of it is moved to the device, its weights made trainable and of torch's default dtype,
    set to evaluation. It is a white box where a gradient of its outputs reaches its weights.

    Args:
        facts: names the encoder.
        module: from pixels (B, C, H, W) to vectors (B, D), maps (B, D, h, w) or tokens (B, N, D).
        channels: of the images; None: what its first convolution takes.

    Returns:
        The encoder with its control.

    Raises:
        InputError: it takes no images, or returns something else.
    """
    facts.note_precision(module.state_dict().values())
    module = copy_module(module, facts.where)
    module.to("cpu", torch.get_default_dtype()).eval()  # blank pixels are tried there
    convs = [m.in_channels for m in module.modules() if isinstance(m, nn.Conv2d)]
    counts = (channels,) if channels else (convs[0],) if convs else CHANNELS
    if isinstance(module, Encoder):
        facts.load_options.refuse_constants(f"the encoder of {facts.where}")
    network: Any = module
    if isinstance(module, Encoder | Backbone):
        try_blank_pixels(facts, module, counts)
    else:
        network = hook_backbone(facts, module, counts)
    access = "white_box" if _has_gradient(facts, network) else "black_box"
    return load_white_box(facts, network, access=access)


@torch.enable_grad()
def _has_gradient(facts: EncoderFacts, network: nn.Module) -> bool:
    """Whether a gradient of the outputs reaches a weight, with a note where none does. A copy is
    asked, as modules may keep what they computed."""
    network = copy_module(network, facts.where).requires_grad_(True)
    out = network(facts.blank)
    if not out.requires_grad:
        facts.notes.append(Note("no-gradient", {"encoder": facts.where}))
    return bool(out.requires_grad)


def _call_factory(spec: str) -> nn.Module | Function:
    from fedmia.settings import registry  # a module in memory needs none

    factory = registry.load_outside("encoder", spec)
    if isinstance(factory, type) and issubclass(factory, EncoderForm):
        raise InputError(f"encoder '{spec}' is a form of encoders: give {spec}:SOURCE")
    if not callable(factory) or isinstance(factory, nn.Module):
        raise InputError(f"encoder '{spec}' is not a function that returns a torch module")
    try:
        module = factory()
    except Exception as error:  # the user's own code
        why = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"encoder '{spec}' fails when called without arguments: {why}") from None
    if not callable(module):
        kinds = "a torch module or a function of pixels"
        raise InputError(f"encoder '{spec}' returned {type(module).__name__}, not {kinds}")
    return cast("nn.Module | Function", module)
