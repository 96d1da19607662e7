"""What a backbone is: named stages, pooled features, explicit initialisation."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_module_registration_hook

from fedmia.nets.split_norm import SplitBatchNorm
from fedmia.settings import Options
from fedmia.settings.errors import InputError, unknown_name
from fedmia.untrusted.limits import check_unfolded

MODULES = 20_000  # of a network that a file describes: large ones have 2,000
NORMS = ("group", "batch", "split")
NORM_HELP = (
    "normalisation: groups of channels, the batch, or eighths of the batch (split), as with MoCo's "
    "eight GPUs"
)


class Backbone(nn.Module):
    """A convolutional or transformer trunk without a head.

    Attributes:
        width: D, length of the pooled feature vector.
        layers: names of the stages, first to last, e.g. `("layer1", ..., "layer4")`.
        patch: sides of the images that it takes are multiples of so many pixels.
    """

    width: int
    layers: tuple[str, ...]
    patch: int = 1

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        """Outputs of every stage for (B, C, H, W) normalised pixels, keyed by `layers`: here of
        the submodules of those names, one after the other."""
        outputs = {}
        for name in self.layers:
            x = self.get_submodule(name)(x)
            outputs[name] = x
        return outputs

    def pool(self, last: Tensor) -> Tensor:
        """(B, D) from the last stage's (B, D, h, w): global average."""
        return last.mean(dim=(2, 3))

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Every stage's output, and the pooled vector (B, D), from one forward pass."""
        stages = self.stages(x)
        return stages, self.pool(stages[self.layers[-1]])

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D)."""
        return self.trunk(x)[1]

    def features(self, x: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
        """Outputs of some layers from one forward pass.

        Args:
            x: normalised pixels (B, C, H, W).
            layers: names of stages, of which the last is a map (B, D, h, w) of the image's parts,
                or `avgpool`, the pooled vector (B, D) whatever pools it.

        Returns:
            outputs by name.

        Raises:
            InputError: a layer that this backbone does not have.
        """
        stages, pooled = self.trunk(x)
        outputs, names = {**stages, "avgpool": pooled}, list(layers)
        for name in names:
            if name not in outputs:
                raise unknown_name("layer", name, [*self.layers, "avgpool"])
        return {name: outputs[name] for name in names}


class Trunk(Backbone, ABC):
    """A backbone that defines `trunk` whole."""

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        return self.trunk(x)[0]


def make_norm(name: str, channels: int) -> nn.Module:
    """`group`: the most groups <= 32 that divide `channels`; `batch`: batch norm, torch defaults;
    `split`: batch norm over eighths of the batch.

    Group norm is the default of the house: it keeps no running statistics to average between
    clients, mixes no images, and per-sample gradients exist (Wu and He, ECCV 2018, 32 groups).

    Args:
        name: of NORMS.
        channels: of the maps that it normalises.

    Returns:
        the layer.
    """
    if name == "batch":
        return nn.BatchNorm2d(channels)
    if name == "split":
        return SplitBatchNorm(channels)
    return nn.GroupNorm(group_count(channels), channels)


def group_count(channels: int) -> int:
    """The largest divisor of `channels` that is at most 32."""
    return max(g for g in range(1, min(32, channels) + 1) if channels % g == 0)


class Net(Options, ABC):
    """An encoder family. Subclasses are frozen dataclasses of options."""

    @abstractmethod
    def build(self, channels: int, size: int) -> Backbone:
        """A backbone for (B, channels, size, size) pixels, weights not yet set; InputError where
        the size does not suit the architecture."""


class SelfInitialisedLayer(nn.Module, ABC):
    """A layer with parameters that `initialise` does not know; it draws them itself.

    `forward` takes one batch, so that Opacus finds the gradient of each image.
    """

    @abstractmethod
    def draw(self, generator: torch.Generator) -> None:
        """Set the layer's own parameters from `generator`."""


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """He-normal convolutions (fan out), uniform 1/sqrt(fan in) linear layers, unit norms without
    any statistics; the rest by its own `draw`.

    Sets every parameter from `generator` alone, so the global generator plays no part.

    Args:
        module: changes in place; nothing is drawn for one on the meta device.
        generator: the only source of values.
    """
    if any(weight.is_meta for weight in module.parameters()):
        return  # only shapes are asked for; to draw none, torch would import its compiler
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(
                layer.weight, mode="fan_out", nonlinearity="relu", generator=generator
            )
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif (
            isinstance(layer, nn.GroupNorm | nn.BatchNorm2d | nn.BatchNorm1d | nn.LayerNorm)
            and layer.weight is not None
        ):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, SelfInitialisedLayer):
            layer.draw(generator)
        if isinstance(layer, _BatchNorm):
            layer.reset_running_stats()


class TooManyModulesError(InputError):
    """A file describes a network of more modules than are built in seconds."""


@contextmanager
def limit_modules(where: str) -> Iterator[None]:
    """Refuse a network that a file describes while it is built inside.

    Args:
        where: names the file, for the error.

    Yields:
        Nothing.

    Raises:
        TooManyModulesError: it has more than `MODULES`.
    """
    count = itertools.count(1)

    def count_module(*_: object) -> None:
        if next(count) > MODULES:
            raise TooManyModulesError(f"the network of {where} has more than {MODULES:,} modules")

    handle = register_module_module_registration_hook(count_module)
    try:
        yield
    finally:
        handle.remove()


def check_network(where: str, make: Callable[[], nn.Module], length: int) -> None:
    """Refuse a network that a file describes, and whose weights the file does not hold.

    Args:
        where: names the file, for the error.
        make: builds the network, here without memory.
        length: bytes of the weights in the file.

    Raises:
        InputError: it is far larger than these, or has more modules than are built in seconds.
    """
    try:
        with torch.device("meta"), limit_modules(where):
            network = make()
    except TooManyModulesError:
        raise
    except Exception:  # some compute while they are built; what else is wrong, building them says
        return
    size = sum(t.numel() * t.itemsize for t in network.state_dict().values())
    check_unfolded(f"the network of {where}", size, length)
