"""`package.module:factory`: a module that the user's own code builds."""

from __future__ import annotations

import torch
from torch import nn

from fedmia.encoders import checkpoint
from fedmia.encoders._hooked import CHANNELS, find_input_size, hook_backbone
from fedmia.encoders._module import build_seeded, load_white_box
from fedmia.encoders.base import EncoderForm, LoadContext, LoadedEncoder, LoadOptions, first_line
from fedmia.nets.base import Backbone
from fedmia.options.errors import InputError
from fedmia.ssl.base import Encoder


class Factory(EncoderForm):
    """A module that the user's own code builds."""

    written = "package.module:factory"
    order = 9
    takes_checkpoint = True

    def takes(self, spec: str) -> bool:
        module, _, name = spec.partition(":")
        return all(map(str.isidentifier, [*module.split("."), name]))

    def load(self, source: str, wanted: LoadOptions) -> LoadedEncoder:
        """The module that the factory returns, called without arguments, in evaluation mode.

        fedmia's own `Encoder` and `Backbone` keep their layers. Any other module returns vectors
        (B, D), maps (B, D, h, w) or tokens; its stages are found by hooks.

        Raises:
            InputError: it cannot be imported or called, returns no module, or takes no images.
        """
        loading, module = (
            LoadContext(source, wanted),
            build_seeded(lambda: _made(source), wanted.seed),
        )
        if wanted.checkpoint is not None:
            loading.weights = checkpoint.load_checkpoint(loading, module)
        return wrap(loading, module)


def wrap(loading: LoadContext, module: nn.Module, channels: int | None = None) -> LoadedEncoder:
    """Any torch module as a released encoder. The module itself is taken: moved, its weights of
    torch's default dtype and trainable, set to evaluation.

    Args:
        channels: of the images; None: what its first convolution takes.

    Raises:
        InputError: it takes no images, or returns something else than vectors, maps or tokens.
    """
    module.to("cpu", torch.get_default_dtype()).eval()  # blank pixels are tried there
    convs = [m.in_channels for m in module.modules() if isinstance(m, nn.Conv2d)]
    counts = (channels,) if channels else (convs[0],) if convs else CHANNELS
    if isinstance(module, Encoder):
        loading.wanted.refuse_constants(f"the encoder of {loading.where}")
    if isinstance(module, Encoder | Backbone):
        return load_white_box(loading, module, find_input_size(loading, module, counts))
    return load_white_box(loading, *hook_backbone(loading, module, counts))


def _made(spec: str) -> nn.Module:
    from fedmia.options import registry  # a module in memory needs none

    found = registry.load_outside("encoder", spec)
    if isinstance(found, type) and issubclass(found, EncoderForm):
        raise InputError(f"encoder '{spec}' is a form of encoders: give {spec}:SOURCE")
    if not callable(found) or isinstance(found, nn.Module):
        raise InputError(f"encoder '{spec}' is not a function that returns a torch module")
    try:
        module = found()
    except Exception as error:  # the user's own code
        raise InputError(
            f"encoder '{spec}' fails when called without arguments: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from None
    if not isinstance(module, nn.Module):
        raise InputError(f"encoder '{spec}' returned {type(module).__name__}, not a torch module")
    return module
