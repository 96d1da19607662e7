"""Encoders and images that are in memory already, as an audit takes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmia.encoders._hooked import CHANNELS, find_input_size
from fedmia.encoders._module import copy_module, load_white_box, strip_wrappers
from fedmia.encoders._remote import Function, load_function
from fedmia.encoders.base import LoadContext, LoadedEncoder, LoadOptions, finish
from fedmia.encoders.factory import wrap
from fedmia.options.errors import InputError
from fedmia.ssl.base import SSLMethod

Images = Tensor | NDArray[np.uint8]
Encoder = nn.Module | SSLMethod | LoadedEncoder | Function
KINDS = "a torch module, a function, a method of fedmia.ssl or a LoadedEncoder"
IN_MEMORY = "in memory"  # in the settings of an audit, of images that no source can read


def load_module(
    encoder: Encoder,
    load_options: LoadOptions,
    *,
    name: str | None = None,
    channels: int | None = None,
) -> LoadedEncoder:
    """A copy of a module in memory, ready to be attacked.

    Args:
        encoder: a module from normalised pixels (B, C, H, W) to vectors (B, D), maps (B, D, h, w)
            or tokens (B, N, D); a function from pixels in [0, 1], float32 (B, C, H, W), to vectors
            (B, D), which is asked and no more; a method of `fedmia.ssl`; or what `load` returned.
        load_options: the user's options; they give the device.
        name: what the report calls it; None: its class.
        channels: of the images; None: what its first convolution takes.

    Returns:
        The encoder with its control.

    Raises:
        InputError: it is none of these, or takes no such images.
    """
    if isinstance(encoder, LoadedEncoder):
        load_options.refuse_constants(encoder.name)
        own = {"method": copy_module(encoder.method, encoder.name), "notes": [*encoder.notes]}
        return finish(replace(encoder, name=name or encoder.name, **own), load_options)
    if callable(encoder) and not isinstance(encoder, nn.Module):
        context = LoadContext(name or encoder_name(encoder), load_options)
        return finish(load_function(context, encoder, context.where), load_options)
    if not isinstance(encoder, nn.Module):
        raise InputError(f"encoder must be {KINDS}, got {type(encoder).__name__}")
    context = LoadContext(name or encoder_name(encoder), load_options)
    if not isinstance(encoder, SSLMethod):
        loaded = wrap(context, encoder, channels)
    else:
        load_options.refuse_constants(f"the encoder of {context.where}")
        module = copy_module(encoder, context.where)
        inner = module.to("cpu").eval().encoder  # blank pixels are tried there
        own = inner.mean.shape[1]  # 1 where one constant serves all channels
        counts = (channels,) if channels else (own, *(c for c in CHANNELS if c != own))
        loaded = load_white_box(context, module, find_input_size(context, inner, counts))
    return finish(loaded, load_options)


def encoder_name(encoder: Encoder) -> str:
    """What a report calls an encoder without a name: its class."""
    if isinstance(encoder, LoadedEncoder):
        return encoder.name
    if not isinstance(encoder, nn.Module):
        return getattr(encoder, "__name__", type(encoder).__name__)
    return type(strip_wrappers(encoder)).__name__


def as_tensor(images: Images, what: str) -> Tensor:
    """Images as a tensor on the CPU.

    Args:
        images: uint8 (N, C, H, W), C in {1, 3}, a tensor or an array.
        what: how an error calls them.

    Returns:
        uint8 (N, C, H, W).

    Raises:
        InputError: the images are anything else.
    """
    expected = f"{what} must be uint8 (N, C, H, W), 0 to 255, with 1 or 3 channels"
    if not isinstance(images, Tensor | np.ndarray):
        raise InputError(f"{expected}, a tensor or an array; got {type(images).__name__}")
    shape = tuple(images.shape)
    if images.dtype not in (torch.uint8, np.uint8) or len(shape) != 4 or shape[1] not in (1, 3):
        raise InputError(f"{expected}; got {str(images.dtype).removeprefix('torch.')} {shape}")
    if isinstance(images, Tensor):
        return images.detach().cpu()
    return torch.from_numpy(np.ascontiguousarray(images))
