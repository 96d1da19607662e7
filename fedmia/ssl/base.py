"""What a self-supervised method is: per-image losses, and what of its state is shared or kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedmia.data.images import ByteArray
from fedmia.nets.base import Backbone
from fedmia.records.note import Note
from fedmia.settings import Options
from fedmia.settings.errors import opt, wrong_value
from fedmia.ssl.augment import Augment

State = dict[str, Tensor]
LR = 0.06  # learning rate of SGD where neither the user nor the method names one
# Pixels of a forward pass over many images: 1,024 of 32x32, three of 518x518, whose activations in
# a large transformer take some 300 MiB each.
PART = 1 << 20


def iterate_parts(images: Tensor, device: torch.device) -> Iterator[Tensor]:
    """Images (N, C, H, W), in [0, 1] or uint8, as floats in [0, 1] on `device`, in order: parts of
    at most PART pixels and 1,024 images, or of one image."""
    for part in images.split(max(1, min(1024, PART // images[0, 0].numel()))):
        here = part.to(device)
        yield here.float() / 255 if here.dtype == torch.uint8 else here


def outputs(encoder: Encoder, pixels: Tensor) -> Tensor:
    """`encoder(pixels)`, differentiable.

    In evaluation mode, where no image's output depends on another's, more than PART pixels go in
    parts: what the gradient needs is recomputed in the backward pass, one part at a time.

    Args:
        encoder: in training mode, all images go at once.
        pixels: (B, C, H, W) in [0, 1].

    Returns:
        (B, P).
    """
    if encoder.training or pixels[:, 0].numel() <= PART:
        out: Tensor = encoder(pixels)
        return out
    few = max(1, PART // 4 // pixels[0, 0].numel())
    again = partial(checkpoint, encoder, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([again(part) for part in pixels.split(few)])


class Encoder(nn.Module):
    """Normalisation, backbone and projection head: pixels in [0, 1] -> (B, P).

    Its output is what the papers call the encoder's; `avgpool` is what probes are fitted on.

    Args:
        backbone: pixels to a pooled vector `(B, D)`.
        head: projection head, `(B, D)` to `(B, P)`.
        mean, std: of the pixels, one value a channel.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, backbone: Backbone, head: nn.Module, mean: Iterable[float], std: Iterable[float]
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        # Constants of the data, not state: neither averaged nor saved.
        shape = (1, -1, 1, 1)
        self.register_buffer("mean", torch.tensor(list(mean)).view(shape), persistent=False)
        self.register_buffer("std", torch.tensor(list(std)).view(shape), persistent=False)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names that `features` knows, from the pixels to the output."""
        return (*self.backbone.layers, "avgpool", "encoder")

    @property
    def map_layer(self) -> str | None:
        """The layer that is a map (B, D, h, w) of the image's parts, None where there is none."""
        return self.backbone.layers[-1] if self.backbone.layers else None

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels (B, C, H, W) in [0, 1] with the data's mean and deviation taken out."""
        return (pixels - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) pixels in [0, 1] -> (B, P), not normalised in length."""
        out: Tensor = self.head(self.backbone(self.normalise(pixels)))
        return out

    def features(self, pixels: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
        """Outputs of some layers from one forward pass.

        Args:
            pixels: (B, C, H, W) in [0, 1].
            layers: names among `self.layers`: stages, `avgpool`, or `encoder`, the head's output.

        Returns:
            (B, ...) by name.
        """
        names = list(layers)
        inner = [name for name in names if name != "encoder"]
        if "encoder" in names and "avgpool" not in inner:
            inner.append("avgpool")
        features = self.backbone.features(self.normalise(pixels), inner)
        if "encoder" in names:
            features["encoder"] = self.head(features["avgpool"])
        return {name: features[name] for name in names}


class SSLMethod(nn.Module, ABC):
    """A method in training on one client.

    `losses` is per image, because DP-SGD and the attacks need it so. The state splits in two:
    what the federation averages (`shared_state`, float tensors only) and what stays with the
    client (`local_state`: key encoder, queue, counters).
    """

    encoder: Encoder
    # The loss with which a network from outside was trained, where its owner gives it: of (its
    # module, pixels (B, C, H, W) in [0, 1]), of each image (B,).
    own_loss: Callable[[nn.Module, Tensor], Tensor] | None = None
    progress: float = 0.0  # share of the run's steps that are over, set before each step
    # Of the batch, for `after_step`: a row an image in each. A batch may come to `losses` in parts;
    # then they are joined.
    latest: tuple[Tensor, ...] = ()

    @abstractmethod
    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Training loss of each image, (B,), differentiable, from two views (B, C, H, W) in [0, 1].
        What `after_step` needs of the batch goes into `latest`."""

    def step_losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """What a step of training minimises, (B,): `losses`, and what options add to them."""
        return self.losses(view1, view2)

    def forward(self, view1: Tensor, view2: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`step_losses`, and what they leave for `after_step`."""
        return self.step_losses(view1, view2), self.latest

    @abstractmethod
    def after_step(self) -> None:
        """What follows the optimizer's step: momentum update, queue."""

    @property
    def remembers(self) -> str:
        """What it keeps of an image that shapes the gradients of others later, as a queue of own
        keys does; empty: nothing but the shared weights and averages of them.

        Where it is something, no bound on one image's gradient bounds what that image does, and
        the epsilon of DP-SGD is heuristic.
        """
        return "what the method keeps of earlier images"

    @abstractmethod
    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Loss of each image as an observer of the shared weights computes it, (B,), of the
        encoder's outputs (B, P) for two views. Negatives are the holder's own. Leaves the state
        untouched and is differentiable."""

    def probe_losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """`output_losses` of two views (B, C, H, W) in [0, 1], in one forward pass."""
        z1, z2 = self.encoder(torch.cat([view1, view2])).split(len(view1))
        return self.output_losses(z1, z2)

    @abstractmethod
    def fill_bank(self, pixels: Tensor) -> None:
        """Replace the holder's negatives by keys of `pixels` (N, C, H, W), in [0, 1] or uint8 on
        any device."""

    @property
    def stackable(self) -> bool:
        """Whether several clients may train in one pass (`fedmia.ssl.stacked`): `after_step` treats
        each number by itself, and all else that a step needs is a tensor of the state."""
        return False

    @property
    def comes_back(self) -> bool:
        """Whether shared and local state are all that a client's next round rests on, so that any
        method of the same options continues from them, on any client. If not, each round begins
        with one built anew."""
        return True

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        """Become that of a new holder of `images` images, except what `load_shared` and
        `begin_first_round` set next: draws a bank and the like, and no weight. True if it can; if
        not, which is the default, one is built in its place."""
        return False

    @abstractmethod
    def local_state(self) -> State:
        """Copies of what the client keeps between rounds."""

    @abstractmethod
    def load_local(self, state: State) -> None:
        """Restore what `local_state` gave."""

    def shared_modules(self) -> Mapping[str, nn.Module]:
        """What the federation averages, by the prefix of its names: the encoder, without one.

        A method with a predictor, prototypes or a decoder adds it, as `"predictor."`.
        """
        return {"": self.encoder}

    def trainable(self) -> list[nn.Parameter]:
        """Parameters that the optimizer steps and the federation averages."""
        return [w for module in self.shared_modules().values() for w in module.parameters()]

    def shared_parameters(self) -> list[str]:
        """Names of `trainable` in `shared_state`."""
        modules = self.shared_modules().items()
        return [prefix + n for prefix, module in modules for n, _ in module.named_parameters()]

    def shared_state(self) -> State:
        """Copies of the float tensors that the federation averages, by name."""
        return {
            prefix + name: tensor.detach().clone()
            for prefix, module in self.shared_modules().items()
            for name, tensor in module.state_dict().items()
            if tensor.is_floating_point()
        }

    def load_shared(self, state: State) -> None:
        """Load averaged tensors; names that `state` lacks (local batch norm) keep their value.

        Raises:
            ValueError: a parameter that `state` lacks, or a tensor that belongs nowhere.
        """
        remaining, modules = dict(state), self.shared_modules()
        for prefix in sorted(modules, key=len, reverse=True):  # the bare one takes what remains
            load_state(modules[prefix], under(prefix, remaining), prefix)
            remaining = {n: t for n, t in remaining.items() if not n.startswith(prefix)}

    def begin_first_round(self) -> None:
        """What happens between loading the first global weights and the first batch ever."""

    def begin_round(self) -> None:
        """What happens between loading the global weights and the first batch. Default: nothing."""


@dataclass(frozen=True)
class TrainingData:
    """What a method is built for: the images that it trains on, and what is done with them.

    Attributes:
        mean, std: normalisation of the pixels, one value a channel.
        images: number of images the holder trains on (caps its queue or bank), or None for no cap.
        public: uint8 (N, C, H, W) that belong to nobody, where the holder has such.
        batch: images a step.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: int | None = None
    public: ByteArray | None = field(default=None, compare=False)
    batch: int = 16


def on_device(state: Mapping[str, Tensor], device: torch.device | str) -> State:
    """The state on a device."""
    return {name: tensor.to(device) for name, tensor in state.items()}


def copies(prefix: str, module: nn.Module) -> State:
    """Copies of a module's tensors, `prefix` before their names."""
    return {prefix + n: t.detach().clone() for n, t in module.state_dict().items()}


def load_state(module: nn.Module, state: State, prefix: str = "") -> None:
    """Copy a state into a module's tensors: what `load_state_dict` does, in a third of its time.

    Args:
        module: changes in place; a buffer that the state lacks stays as it is.
        state: tensors by name.
        prefix: of the names in an error.

    Raises:
        ValueError: a parameter that the state lacks, or a tensor that has no place, or one of
            another shape.
    """
    own = module.state_dict(keep_vars=True)
    fitting = {n for n, t in state.items() if n in own and own[n].shape == t.shape}
    missing = {n for n, t in own.items() if isinstance(t, nn.Parameter) and n not in state}
    if wrong := [prefix + name for name in (*(state.keys() - fitting), *missing)]:
        raise ValueError(f"state does not fit the method: {', '.join(sorted(wrong)[:5])}")
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every value is finite. Lengths tell it in a tenth of the time, and a GPU is waited
    for once."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    lengths = list(torch._foreach_norm(floats)) if floats else []
    whole = not lengths or bool(torch.stack(lengths).isfinite().all())
    return whole or all(bool(tensor.isfinite().all()) for tensor in floats)


def under(prefix: str, state: Mapping[str, Tensor]) -> State:
    """The tensors whose names begin with `prefix`, not copied, by their names without it."""
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}


class SSL(Options, ABC):
    """A self-supervised method's options. Subclasses are frozen dataclasses."""

    lr: ClassVar[float] = LR  # at which it learns on small batches
    # Images of a batch without which its loss says nothing: 2 where it compares those of a batch.
    least_batch: ClassVar[int] = 1

    @property
    def coupled(self) -> bool:
        """Whether one image's loss depends on the other images of its batch: then no gradient
        belongs to one image alone, and DP-SGD cannot bound it."""
        return False

    @classmethod
    def check_batch(cls, path: str, size: int) -> None:
        """Refuse batches of which it learns nothing.

        Args:
            path: of the option.
            size: images of a batch.

        Raises:
            InputError: naming the least size.
        """
        if size < cls.least_batch:
            why = f">= {cls.least_batch} with {cls.__name__}, which compares the images of a batch"
            raise wrong_value(opt(path), size, why)

    @property
    @abstractmethod
    def augment(self) -> Augment:
        """The augmentation of the views it trains on."""

    @property
    def public(self) -> bool:
        """Whether it trains against public images, `TrainingData.public`."""
        return False

    @abstractmethod
    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> SSLMethod:
        """The untrained method around `backbone`, whose weights are not yet set, on the CPU: every
        weight is drawn from `generator`."""

    def extra_losses(self, method: SSLMethod, view1: Tensor, view2: Tensor) -> Tensor | None:
        """A term that each step of training adds to the loss of each image.

        Args:
            method: in training; its `encoder`, `predictor` and the like may be called.
            view1, view2: (B, C, H, W) in [0, 1].

        Returns:
            (B,), differentiable, or None where there is no such term, the default.
        """
        return None

    def chance_loss(self, images: int, batch: int) -> float | None:
        """Mean training loss over `images` images, in batches of `batch`, of an encoder whose
        output is the same for all; None where the method's loss has no such value."""
        return None

    def notes(self, images: int) -> list[Note]:
        """Notes for a holder of `images` images, such as that its queue was cut."""
        return []
