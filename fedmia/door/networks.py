"""A function that returns a torch module, as a network to train."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import ClassVar

import torch
from torch import nn

from fedmia.encoders.base import EncoderFacts, LoadOptions
from fedmia.encoders.hooked import hook_backbone
from fedmia.nets.base import Backbone, Net
from fedmia.settings import session
from fedmia.settings.errors import InputError


class FactoryNet(Net):
    """A network that a function of the session builds. A subclass holds the function."""

    factory: ClassVar[Callable[..., nn.Module]]
    called: ClassVar[str] = "model"

    def build(self, channels: int, size: int) -> Backbone:
        factory = type(self).factory
        takes = signature(factory).parameters
        values = {"channels": channels, "size": size}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what a layer draws by itself is the same on every client
            module = factory(**{name: v for name, v in values.items() if name in takes})
        if not isinstance(module, nn.Module):
            raise InputError(f"model '{self.called}' returned {type(module).__name__}, no module")
        if isinstance(module, Backbone):
            return module
        options = LoadOptions(None, size, None, None, torch.device("cpu"), 0)
        facts = EncoderFacts(self.called, options)
        training = module.training
        backbone = hook_backbone(facts, module.eval(), (channels,))
        if not hasattr(backbone, "width"):
            with torch.no_grad():
                backbone.width = backbone(torch.zeros(1, channels, size, size)).shape[1]
        module.train(training)
        return backbone


def name_network(factory: Callable[..., nn.Module]) -> str:
    """The name of a network in settings.

    Args:
        factory: returns a torch module from pixels (B, C, H, W) to vectors (B, D) or maps (B, D,
            h, w); it may take `channels` and `size`. It is called for each client, and must return
            a new module each time.

    Returns:
        `python:NAME@HASH`.

    Raises:
        InputError: a module in place of a function.
    """
    if isinstance(factory, nn.Module):
        raise InputError(
            "model must be a function that returns a new module, as every client has its own; got "
            f"a module: model=lambda: {type(factory).__name__}(..)"
        )
    name = getattr(factory, "__name__", "model")
    name = name if name.isidentifier() else "model"
    source = session.source_of_function(factory)
    return session.register_values(
        FactoryNet, name, source, factory=staticmethod(factory), called=name
    )
