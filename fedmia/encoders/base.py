"""An encoder that somebody brings to an audit: what it is, where it may come from, first look."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedmia.encoders._again import changed
from fedmia.options.errors import InputError, nearest, opt
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, in_parts
from fedmia.storage.runfolder import Trust

FORMS = (
    "RUN or RUN@ROUND (a run folder of fedmia), FILE.pt2, FILE.onnx, FILE.pth (.pt, .ckpt, .tar, "
    ".bin, .torch, .pkl, .safetensors), timm:NAME, timm:FOLDER, torchvision:NAME, hf:FOLDER, "
    "open_clip:NAME, package.module:factory"
)
FILES = {".pt2": "exported", ".onnx": "onnxfile"} | dict.fromkeys(
    (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".torch", ".pkl"), "weightsfile"
)
LIBRARIES = {
    "timm": "timmname",
    "torchvision": "torchvisionname",
    "hf": "huggingface",
    "open_clip": "openclip",
}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PLAIN = ((0.5,), (0.25,))  # one channel, or any other number of them
# What modules and programs raise on pixels that they do not take.
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, IndexError)

Constants = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Weights:
    """What was understood of where an encoder's weights come from.

    Attributes:
        form: of the file, in a few words. loaded: how many of its tensors were loaded.
        dropped: names of those that were not.
        missing: names of the encoder's own that the file lacks: they are random.
        head: the projection head that the file holds too, or None.
        round: of the run whose model it is, None of no run.
    """

    form: str
    loaded: int = 0
    dropped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    head: nn.Module | None = None
    round: int | None = None


@dataclass
class Released:
    """A released encoder, ready to be attacked.

    Attributes:
        name: what the report calls it.
        method: holds the encoder, in evaluation mode, and a bank of negatives.
        augment: recipe of the attacker's views.
        untrained: makes the control: the same encoder without what training put into it.
        untrained_how: how the control is made, one line.
        access: `white_box` where layers and weights are at hand, else `black_box`.
        channels: of the images that it takes, None: not known.
        size: pixels a side of the images, None: any.
        fixed_size: whether it takes no other size.
        notes: what the reader of the report should know.
        weights: where its weights come from.
    """

    name: str
    method: SSLMethod
    augment: Augment
    untrained: Callable[[], SSLMethod]
    untrained_how: str
    access: str
    channels: int | None
    size: int | None
    fixed_size: bool
    notes: list[str] = field(default_factory=list)
    weights: Weights = field(default_factory=lambda: Weights("torch module"))


@dataclass(frozen=True)
class Wanted:
    """What the user says besides the encoder's name; None leaves it to the encoder.

    Attributes:
        checkpoint: file of weights. size: pixels a side.
        mean, std: normalisation of the pixels, one value or one a channel.
        key: which of the checkpoint's networks, by the name that its code gives it.
        allow_missing: whether weights that the checkpoint lacks may stay random.
        trust: whether plugins from outside may be imported that the folder of a run names: all,
            none, or those of these names.
    """

    checkpoint: Path | None = None
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    device: torch.device = torch.device("cpu")
    seed: int = 0
    key: str | None = None
    allow_missing: bool = False
    trust: Trust = False

    def refuse_checkpoint(self, spec: str) -> None:
        """Raise InputError where a checkpoint is given to a form that holds its own weights."""
        if self.checkpoint is not None:
            raise InputError(
                f"{opt('checkpoint', self.checkpoint)}: '{spec}' holds its own weights; a "
                "checkpoint goes with timm:NAME, torchvision:NAME, open_clip:NAME and "
                "package.module:factory"
            )

    def refuse_constants(self, whose: str) -> None:
        """Raise InputError where a normalisation is given to an encoder that holds its own."""
        if self.mean is not None or self.std is not None:
            raise InputError(f"{opt('mean')} and {opt('std')}: {whose} holds its own")

    def constants(self, channels: int, own: Constants | None, notes: list[str]) -> Constants:
        """Mean and standard deviation, one value a channel: given, else `own`, else usual ones.

        Raises:
            InputError: a number of values that is neither one nor the number of channels.
        """
        usual = IMAGENET if channels == 3 else PLAIN
        if own is None and (self.mean is None or self.std is None):
            notes.append(
                "The encoder does not tell how its pixels were normalised: "
                + ("ImageNet's constants" if channels == 3 else "mean 0.5, deviation 0.25")
                + f" stand for what {opt('mean')} and {opt('std')} leave open."
            )
        mean = self.mean or (own or usual)[0]
        std = self.std or (own or usual)[1]
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                raise InputError(
                    f"{opt(name)}: {len(values)} values for images of {channels} channels"
                )
        if min(std) <= 0:
            raise InputError(f"{opt('std')} must be > 0, got {min(std)}")
        return tuple(mean) * (channels // len(mean)), tuple(std) * (channels // len(std))


def constants(values: Sequence[float] | float | None) -> tuple[float, ...] | None:
    """One value or one a channel, as `Wanted` has them."""
    return None if values is None else tuple(float(v) for v in np.ravel(np.asarray(values)))


def load(
    spec: str,
    *,
    checkpoint: Path | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    key: str | None = None,
    allow_missing: bool = False,
    trust_plugins: Trust = False,
) -> Released:
    """The encoder that `spec` names, in one of `FORMS`. Nothing is ever downloaded.

    Args:
        checkpoint: weights for the forms that are an architecture only.
        size: pixels a side that the images are resized to.
        mean, std: normalisation of pixels in [0, 1]; the encoder's own where None.
        seed: of random weights, of the untrained control and of the first bank.
        key: which of a checkpoint's networks, e.g. `student`; None: the one that its authors
            evaluate.
        allow_missing: whether weights that the checkpoint lacks may stay random.
        trust_plugins: import plugins from outside that the settings of a run's folder name.

    Raises:
        InputError: no such encoder, weights that do not fit, an extra that is not installed.
    """
    if size is not None and size < 1:
        raise InputError(f"{opt('size')} must be >= 1, got {size}")
    where = torch.device(device)
    wanted = Wanted(
        checkpoint, size, constants(mean), constants(std), where, seed, key, allow_missing,
        trust_plugins,
    )  # fmt: skip
    module, rest = _form(spec)
    if key is not None and checkpoint is None and module != "weightsfile":
        raise InputError(
            f"{opt('checkpoint_key', key)} is given without {opt('checkpoint', 'FILE')}"
        )
    # A form's libraries are imported when it is asked for.
    loader = importlib.import_module(f"fedmia.encoders.{module}").load
    found: Released = loader(rest, wanted)
    found.method.to(wanted.device).eval()
    return found


def _form(spec: str) -> tuple[str, str]:
    """Module of the loader that takes `spec`, and what it is given."""
    path = Path(spec)
    prefix, _, rest = spec.partition(":")
    if prefix in LIBRARIES and rest:
        return LIBRARIES[prefix], rest
    folder, at, turn = spec.rpartition("@")
    if path.is_dir() or (at and turn.isdigit() and Path(folder).is_dir()):
        return "run", spec
    if at and turn.isdigit() and Path(folder).is_file():
        raise InputError(f"encoder '{spec}': '{folder}' is a file; the folder of a run has rounds")
    if path.suffix in FILES:
        if not path.is_file():
            raise InputError(f"encoder '{spec}': no such file")
        return FILES[path.suffix], spec
    names = [*prefix.split("."), rest]
    if rest and all(name.isidentifier() for name in names):
        return "factory", spec
    missing = " (no such folder)" if "/" in spec or at else ""
    missing = f" (a file that ends in '{path.suffix}')" if path.is_file() else missing
    raise InputError(f"unknown encoder '{spec}'{missing}; give one of {FORMS}")


@torch.no_grad()
def probe(released: Released, images: Tensor, *, allow_random: bool = False) -> list[str]:
    """Embed a few of the user's images, and say what is odd about the features.

    Args:
        images: uint8 (N, C, H, W), N >= 1, as they will be audited.
        allow_random: take an encoder that answers one image in two ways, with a note.

    Returns:
        Notes: outputs that are the same for all images, or not the same for one image asked for
        twice, a map of one place.

    Raises:
        InputError: no images, channels or size that the encoder does not take, features that
            are not finite, or not the same when they are asked for again.
    """
    check_images(released, images)
    encoder = released.method.encoder.eval()
    odd, outputs, changes = dict.fromkeys(encoder.layers, 0), list[Tensor](), set[str]()
    for part in in_parts(images, encoder.mean.device):
        try:
            found = encoder.features(part, encoder.layers)
        except InputError:
            raise
        except FAILURES as error:
            shape = "x".join(map(str, images.shape[1:]))
            raise InputError(
                f"{released.name} fails on images of {shape} ({opt('size')} resizes them): "
                f"{first(error)}"
            ) from None
        for name, value in found.items():
            odd[name] += int((~torch.isfinite(value.flatten(1))).any(dim=1).sum())
        outputs.append(found["encoder"].float().cpu())
        changes |= changed(found, encoder.features(part, encoder.layers))
    for name, bad in odd.items():
        if bad:
            raise InputError(
                f"{released.name}: layer '{name}' is not finite for {bad} of {len(images)} images "
                f"(NaN or infinity in the weights, or a wrong {opt('mean')} or {opt('std')})"
            )
    notes, out = [], torch.cat(outputs)
    if len(out) > 1 and torch.equal(out, out[:1].expand_as(out)):
        notes.append(f"{released.name} gives the same output for all {len(out)} images looked at.")
    if changes:
        earliest = min(changes, key=encoder.layers.index)
        line = (
            f"{released.name} answers the same image differently when it is asked again, from "
            f"layer '{earliest}' on (dropout or random masks in its forward pass)"
        )
        if not allow_random:
            raise InputError(f"{line}: its scores would depend on chance; {opt('allow_random')}")
        notes.append(f"{line}: its scores depend on chance.")
    if encoder.map_layer is not None and found[encoder.map_layer].shape[2:] == (1, 1):
        notes.append(
            f"The last map of {released.name} is 1x1 for images of this size, which has no parts "
            f"to compare; {opt('size')} enlarges them."
        )
    return notes


def check_images(released: Released, images: Tensor) -> None:
    """Raise InputError unless the encoder takes the channels and the size of the images."""
    if not len(images):
        raise InputError(f"no image to show to {released.name}")
    channels, height, width = images.shape[1:]
    if released.channels is not None and channels != released.channels:
        raise InputError(
            f"the images have {channels} channels, {released.name} takes {released.channels}"
        )
    if released.fixed_size and released.size is not None and {height, width} != {released.size}:
        raise InputError(
            f"the images are {height}x{width} pixels, {released.name} takes "
            f"{released.size}x{released.size}: {opt('size', released.size)} resizes them"
        )


def first(error: BaseException) -> str:
    """First line of an exception's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def unknown_model(library: str, name: str, known: Sequence[str]) -> InputError:
    """The error for a model that a library lacks; its list is too long to print."""
    return InputError(
        f"unknown {library} model '{name}'{nearest(name, known)} ({len(known)} are known)"
    )
