"""The settings of an encoder that is trained on one machine, nothing federated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from fedmia.runtime.device import DEVICES, check_device
from fedmia.settings import option, registry
from fedmia.settings.choices import Layer, PluginChoice
from fedmia.settings.commands.data import Data
from fedmia.settings.errors import InputError, opt
from fedmia.settings.fields import Settings, plugin, plugins, section
from fedmia.ssl.train import Train


@dataclass(frozen=True)
class Central(Settings):
    """One encoder: its images, its network, its method, its training.

    It is a federation of one client without Flower: the images, the network and each epoch have
    random streams of their own, so a training that was interrupted goes on as if it was not.

    Attributes:
        train: options of the training; `local_epochs` is not used, `epochs` counts all of them.
        defense: defences of the training, in the order in which they act.

    Raises:
        InputError: on construction, for an unknown plugin or option or a value out of range.
    """

    seed: int = option(0, "root of all randomness", ge=0)
    data: Data = section(Data, head="name")
    members: int = option(1000, "images that the encoder is trained on", ge=4)
    nonmembers: int = option(1000, "images of the same source that it never sees", ge=4)
    model: PluginChoice = plugin("model", "smallnet", "encoder")
    ssl: PluginChoice = plugin("ssl", "moco", "self-supervised method")
    train: Train = section(Train)
    epochs: int = option(100, "passes over the members", ge=1)
    keep: tuple[int, ...] = option((), "epochs whose model is kept beside the last one", ge=0)
    defense: tuple[Layer, ...] = plugins("defense", "defences of the training")
    device: str = option("auto", DEVICES)
    threads: int = option(1, "CPU threads (sums depend on it)", ge=1)

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build of the values that are given; views and the learning rate are written out."""
        incomplete = super().complete(**values)
        train = incomplete.train.fill_rate(registry.load("ssl", incomplete.ssl.name).lr)
        ssl = incomplete.data.fill_views(incomplete.ssl)
        return replace(incomplete, ssl=ssl, train=replace(train, local_epochs=1))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device, "device")
        late = [epoch for epoch in self.keep if epoch >= self.epochs]
        if late:
            raise InputError(
                f"{opt('keep', late[0])}: only epochs before {self.epochs} can be kept"
            )
