"""Encoders that are in memory already, as an audit and an attack take them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedmia.encoders._remote import Function, load_function
from fedmia.encoders.base import EncoderFacts, LoadedEncoder, LoadOptions, finish
from fedmia.encoders.factory import wrap
from fedmia.encoders.hooked import CHANNELS, try_blank_pixels
from fedmia.encoders.modules import copy_module, load_white_box, strip_wrappers
from fedmia.encoders.vectors import VectorSet
from fedmia.settings.errors import InputError
from fedmia.settings.session import source_of_function
from fedmia.ssl.base import SSLMethod

Encoder = nn.Module | SSLMethod | LoadedEncoder | Function
KINDS = "a torch module, a function, a method of fedmia.ssl or a LoadedEncoder"
Loss = Callable[[nn.Module, Tensor], Tensor]
Network = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class InMemory:
    """What a Python session hands to an audit; None: the settings say it.

    Attributes:
        encoder: under audit.
        name: what the report calls the encoder; None: its class.
        owners: of a federation: integers (N,), the client of each member.
        loss: of a federation: with which clients trained, of (network, pixels in [0, 1]).
        order: of a federation: integers (N,), the round in which each member was first trained on.
        vectors: of an encoder that is not at hand, by the option that names them.
    """

    encoder: Encoder | None = None
    name: str | None = None
    owners: object = None
    loss: Loss | None = None
    order: object = None
    vectors: Mapping[str, VectorSet] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """What the settings of an audit say of these: no command could load them, and another
        object has other text.

        Raises:
            InputError: an encoder of another kind.
        """
        texts, one = dict[str, str](), self.encoder
        if one is not None:
            module = one.method if isinstance(one, LoadedEncoder) else one
            if isinstance(module, nn.Module):
                what = f"weights {hash_weights(module)[:12]}"
            elif callable(module) and not isinstance(module, type):
                what = f"function {_short_hash(source_of_function(module).encode())}"
            else:
                raise InputError(f"encoder must be {KINDS}, got {type(one).__name__}")
            texts["encoder"] = f"in memory: {self.name or encoder_name(one)} ({what})"
        if self.owners is not None:
            texts["owners"] = f"in memory: {_short_hash(np.asarray(self.owners).tobytes())}"
        if self.order is not None:
            texts["order"] = f"in memory: {_short_hash(np.asarray(self.order).tobytes())}"
        if self.loss is not None:
            texts["loss"] = f"in memory: {_short_hash(source_of_function(self.loss).encode())}"
        for side, rows in self.vectors.items():
            texts[side] = f"in memory: {rows.digest()[:12]}"
        return texts


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def build_network(net: Network) -> nn.Module:
    """A network that is given, or made by a function that is given."""
    return net if isinstance(net, nn.Module) else net()


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
    if callable(encoder) and not isinstance(encoder, nn.Module | type):
        facts = EncoderFacts(name or encoder_name(encoder), load_options)
        limits = load_options.batch, load_options.rate
        return finish(load_function(facts, encoder, facts.where, *limits), load_options)
    if not isinstance(encoder, nn.Module):
        raise InputError(f"encoder must be {KINDS}, got {type(encoder).__name__}")
    facts = EncoderFacts(name or encoder_name(encoder), load_options)
    if not isinstance(encoder, SSLMethod):
        loaded = wrap(facts, encoder, channels)
    else:
        load_options.refuse_constants(f"the encoder of {facts.where}")
        module = copy_module(encoder, facts.where)
        inner = module.to("cpu").eval().encoder  # blank pixels are tried there
        own = inner.mean.shape[1]  # 1 where one constant serves all channels
        counts = (channels,) if channels else (own, *(c for c in CHANNELS if c != own))
        try_blank_pixels(facts, inner, counts)
        loaded = load_white_box(facts, module)
    return finish(loaded, load_options)


def encoder_name(encoder: Encoder) -> str:
    """What a report calls an encoder without a name: its class."""
    if isinstance(encoder, LoadedEncoder):
        return encoder.name
    if not isinstance(encoder, nn.Module):
        return getattr(encoder, "__name__", type(encoder).__name__)
    return type(strip_wrappers(encoder)).__name__


def hash_weights(module: nn.Module) -> str:
    """SHA-256 of the names and the bytes of a module's tensors, in hexadecimal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        if isinstance(tensor, Tensor) and not is_lazy(tensor):
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
