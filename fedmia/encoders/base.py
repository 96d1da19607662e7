"""An encoder that somebody brings to an audit: what it is, where it may come from, first look."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from fedmia.records.note import Note
from fedmia.settings import Options
from fedmia.settings.errors import InputError, opt
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.storage.runfolder import Trust
from fedmia.threat.needs import ACCESS
from fedmia.threat.stored import Stored
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.text import read_json
from fedmia.untrusted.torchfile import NUMPY, why_unread

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIZES = (224, 96, 64, 32, 28)  # tried where no size is told
PLAIN = ((0.5,), (0.25,))  # one channel, or any other number of them

Constants = tuple[tuple[float, ...], tuple[float, ...]]
Constant = Sequence[float] | float | None  # of the channels, as users write it


@dataclass(frozen=True)
class Weights:
    """Where an encoder's weights come from.

    Attributes:
        form: of the file, in a few words.
        loaded: number of its tensors that were loaded.
        dropped: names of its tensors that were not.
        missing: names of tensors that the encoder has and the file lacks: they are random.
        head: the projection head that the file holds too, or None.
        round: of the run whose model it is; None: the encoder is not of a run.
    """

    form: str
    loaded: int = 0
    dropped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    head: nn.Module | None = None
    round: int | None = None


class Remote(Protocol):
    """What asks an API or a function for its outputs.

    Attributes:
        sent: images that it was asked about.
    """

    sent: int

    def remember(self, file: Path | None) -> None:
        """From now on ask about each image once; `file` keeps the answers for a resume."""


@dataclass
class LoadedEncoder:
    """A released encoder, ready to be attacked.

    Attributes:
        name: what the report calls it.
        method: holds the encoder, in evaluation mode, and a bank of negatives.
        augment: augmentation of the attacker's views.
        untrained: makes the control: the same encoder without what training put into it.
        untrained_how: how the control is made, one line.
        access: `white_box` where layers and weights are at hand, else `black_box`.
        channels: of the images that it takes, None: not known.
        size: pixels a side of the images, None: any.
        fixed_size: whether it takes no other size.
        notes: what the reader of the report should know.
        weights: where its weights come from.
        remote: asks an API or a function for its outputs; None: they are computed here.
        stored: has its vectors in its place; None: it is at hand.
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
    notes: list[Note] = field(default_factory=list)
    weights: Weights = field(default_factory=lambda: Weights("torch module"))
    remote: Remote | None = None
    stored: Stored | None = None


@dataclass(frozen=True)
class LoadOptions:
    """Options of loading an encoder. None leaves a choice to the encoder.

    Attributes:
        checkpoint: file of weights.
        size: pixels a side.
        mean: mean of each channel, pixels in [0, 1]; one value serves for all channels.
        std: standard deviation of each channel, likewise.
        device: where the encoder runs.
        seed: of random weights, of the untrained control and of the first bank.
        key: which of the checkpoint's networks, by the name that its code gives it; None: the one
            that its authors evaluate.
        allow_missing: whether weights that the checkpoint lacks may stay random.
        trust_plugins: whether plugins from outside may be imported that the folder of a run names:
            all, none, or those of these names.
        embedding: name of the output that is audited; None: the one that is known to be it.
        access: `black_box` or `white_box`; None: all that the encoder grants.
        rate: most images a second that an API or a function is asked about; None: no limit.
        batch: most images that it is asked about at once.
    """

    checkpoint: Path | None = None
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    device: torch.device = torch.device("cpu")
    seed: int = 0
    key: str | None = None
    allow_missing: bool = False
    trust_plugins: Trust = False
    embedding: str | None = None
    access: str | None = None
    rate: float | None = None
    batch: int = 64

    @classmethod
    def from_user(
        cls, *, mean: Constant = None, std: Constant = None, device: torch.device | str = "cpu",
        **rest: Any,
    ) -> LoadOptions:  # fmt: skip
        """The options as users write them: a number for all channels, a device by its name.

        Args:
            mean: one value, or one a channel; None: left to the encoder.
            std: likewise.
            device: where the encoder runs, or its name.
            rest: other options, by name.

        Returns:
            The options.
        """
        return cls(
            mean=channel_constants(mean), std=channel_constants(std), device=torch.device(device),
            **rest,
        )  # fmt: skip

    def refuse_constants(self, whose: str) -> None:
        """Raise InputError where a normalisation or an output is named to an encoder that holds its
        own."""
        own = {
            "data.mean": self.mean, "data.std": self.std, "encoder.embedding": self.embedding,
        }  # fmt: skip
        for path, value in own.items():
            if value is not None:
                raise InputError(f"{opt(path)}: {whose} holds its own")

    def channel_constants(
        self, channels: int, own: Constants | None, notes: list[Note]
    ) -> Constants:
        """Mean and standard deviation, one value a channel.

        Args:
            channels: number of channels of the images.
            own: the encoder's own normalisation, or None.
            notes: gets one where neither the user nor the encoder gives one.

        Returns:
            The user's values, else `own`, else ImageNet's for 3 channels and 0.5 and 0.25 for
            others.

        Raises:
            InputError: the number of values is neither one nor `channels`, or a deviation is not
                positive.
        """
        if own is None and (self.mean is None or self.std is None):
            notes.append(Note("unknown-normalisation", {"channels": channels}))
        usual = own or (IMAGENET if channels == 3 else PLAIN)
        mean, std = self.mean or usual[0], self.std or usual[1]
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                count = f"{len(values)} values for images of {channels} channels"
                raise InputError(f"{opt(f'data.{name}')}: {count}")
        if min(std) <= 0:
            raise InputError(f"{opt('data.std')}: {min(std)}, must be > 0")
        if not 0 <= min(mean) <= max(mean) <= 1:
            raise InputError(
                f"{opt('data.mean')}: {max(mean, key=abs):g} is the encoder's own, must be in "
                f"[0, 1], as pixels are: give {opt('data.mean')} and {opt('data.std')}"
            )
        return tuple(mean) * (channels // len(mean)), tuple(std) * (channels // len(std))


@dataclass(frozen=True)
class EncoderForm(Options, ABC):
    """A form in which `--encoder` names an encoder. One file a form.

    `package.module:Class:SOURCE` brings a form from outside; two parts alone name a factory. A form
    has no options, as `--encoder` is all that names it.

    Attributes:
        written: how the user writes it.
        order: its place among the others, where a message lists them.
        prefix: what the user writes before a `:`, `` where the form has none.
        suffixes: of the form's files, () where it is no file.
        takes_checkpoint: whether it is an architecture alone, whose weights are a checkpoint's.
        takes_key: whether its own file may hold several networks.
    """

    written: ClassVar[str]
    order: ClassVar[int] = 0
    prefix: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()
    takes_checkpoint: ClassVar[bool] = False
    takes_key: ClassVar[bool] = False

    def takes(self, spec: str) -> bool:
        """Whether `spec`, the value of `--encoder`, is of this form."""
        if self.prefix:
            return spec.removeprefix(f"{self.prefix}:") not in ("", spec)
        return Path(spec).suffix in self.suffixes

    @abstractmethod
    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """Load the encoder that `source` names; nothing is downloaded.

        Args:
            source: what the user gave, without the form's prefix.

        Returns:
            The encoder with its control.

        Raises:
            InputError: there is no such encoder, it is broken, or its extra is not installed.
        """


@dataclass
class EncoderFacts:
    """What is known of an encoder as it is loaded.

    Attributes:
        where: what messages and the report call the encoder.
        load_options: the user's options.
        size: pixels a side that it asks for where the user gives none; None: not known.
        sizes: likewise, tried then.
        constants: the normalisation that goes with its weights; None: not known.
        notes: what the reader of the report should know.
        weights: where its weights come from.
        blank: blank pixels (1, C, S, S), the first that it took; set by `try_blank_pixels`.
        fixed_size: whether it takes no other size.
    """

    where: str
    load_options: LoadOptions
    size: int | None = None
    sizes: Sequence[int] = SIZES
    constants: Constants | None = None
    notes: list[Note] = field(default_factory=list)
    weights: Weights = field(default_factory=lambda: Weights("torch module"))
    blank: torch.Tensor = field(init=False)
    fixed_size: bool = False

    def note_precision(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note those that are not of the precision that all weights are brought to."""
        kinds = {t.dtype for t in tensors if t.is_floating_point()} - {torch.get_default_dtype()}
        if kinds:
            names = sorted(str(kind).removeprefix("torch.") for kind in kinds)
            self.notes.append(Note("weights-as-float32", {"kinds": names}))


def channel_constants(values: Constant) -> tuple[float, ...] | None:
    """One value or one a channel, as `LoadOptions` has them."""
    return None if values is None else tuple(float(v) for v in np.ravel(np.asarray(values)))


def load(spec: str, **options: Any) -> LoadedEncoder:
    """Load the encoder that a user names. Nothing is ever downloaded.

    Args:
        spec: a value of `--encoder`, such as `RUN@10`, `FILE.onnx` or `timm:NAME`.
        options: of `LoadOptions.from_user`.

    Returns:
        The encoder with its control.

    Raises:
        InputError: no such encoder, weights that do not fit, an extra that is not installed.
    """
    load_options = LoadOptions.from_user(**options)
    checkpoint, key, size = load_options.checkpoint, load_options.key, load_options.size
    if size is not None and size < 1:
        raise InputError(f"{opt('data.size')}: {size}, must be >= 1")
    form, source = find_form(spec)
    if key is not None and checkpoint is None and not form.takes_key:
        without = f"is given without {opt('encoder.checkpoint', 'FILE')}"
        raise InputError(f"{opt('encoder.checkpoint_key', key)} {without}")
    if checkpoint is not None and not form.takes_checkpoint:
        *most, last = [one.written.partition(",")[0] for one in forms() if one.takes_checkpoint]
        goes = f"a checkpoint goes with {', '.join(most)} and {last}"
        raise InputError(
            f"{opt('encoder.checkpoint', checkpoint)}: '{spec}' holds its own weights; {goes}"
        )
    for file in (spec, f"{spec}.data"):  # the second has the weights of a large .onnx
        check_file_type(Path(file), "encoder")
    return finish(form.load(source, load_options), load_options)


def finish(loaded: LoadedEncoder, load_options: LoadOptions) -> LoadedEncoder:
    """The encoder on its device, in evaluation mode, with the access that the user allows.

    Args:
        loaded: the encoder; changed in place.

    Returns:
        The encoder.

    Raises:
        InputError: access that it does not grant, the name of an output where it has one only, or
            limits of requests where none is sent.
    """
    granted = ACCESS[: ACCESS.index(loaded.access) + 1]
    access, embedding = load_options.access, load_options.embedding
    if access is not None and access not in granted:
        must = f"must be {' or '.join(granted)}"
        raise InputError(f"{opt('encoder.access')} to {loaded.name}: '{access}', {must}")
    if embedding is not None and not hasattr(loaded.method.encoder.backbone, "named_outputs"):
        raise InputError(
            f"{opt('encoder.embedding', embedding)}: {loaded.name} has one embedding only"
        )
    for name, default in {"rate": None, "batch": LoadOptions.batch}.items():
        if loaded.remote is None and (value := getattr(load_options, name)) != default:
            what = f"{opt(f'encoder.{name}', value)} has no effect on {loaded.name}"
            raise InputError(f"{what}: only an API or a function is sent requests")
    loaded.access = access or loaded.access
    loaded.method.to(load_options.device).eval()
    return loaded


def forms() -> list[EncoderForm]:
    """Every form in the registry, in the order in which messages list them."""
    from fedmia.settings import registry  # who brings a module needs no form

    built = [registry.build("encoder", name, {}) for name in registry.names("encoder")]
    return sorted(built, key=lambda form: form.order)


def find_form(spec: str) -> tuple[EncoderForm, str]:
    """The form that takes `spec`, and what its `load` is given.

    Raises:
        InputError: no form takes it, or a file that is not there.
    """
    from fedmia.settings import registry

    known = forms()
    module, *rest = spec.split(":", 2)
    outside = len(rest) == 2 and all(map(str.isidentifier, [*module.split("."), rest[0]]))
    if outside and module not in {form.prefix for form in known}:
        return registry.build("encoder", f"{module}:{rest[0]}", {}), rest[1]
    for form in sorted(known, key=lambda form: not form.prefix):  # a prefix comes before all else
        if form.takes(spec):
            if form.suffixes and not Path(spec).is_file():
                raise InputError(f"encoder '{spec}': {why_unread(spec)}")
            if not form.prefix and (folder := _hugging_face_folder(Path(spec))):
                give = opt("encoder.name", f"hf:{folder}")
                raise InputError(f"encoder '{spec}' is of a folder of transformers': give {give}")
            return form, spec.removeprefix(f"{form.prefix}:") if form.prefix else spec
    missing, suffix = " (no such folder)" if "/" in spec or "@" in spec else "", Path(spec).suffix
    if suffix in NUMPY:
        missing = f" ({why_unread(spec)})"
    elif Path(spec).is_file():
        missing = f" (a file that ends in '{suffix}')"
    listed = ", ".join(form.written for form in known)
    raise InputError(f"unknown encoder '{spec}'{missing}; give one of {listed}")


def _hugging_face_folder(path: Path) -> Path | None:
    """The folder that holds a model of transformers, where `path` is it or its file of weights."""
    folder = path.parent if path.name == "model.safetensors" else path
    try:
        content = read_json(folder / "config.json")
    except (OSError, ValueError):
        return None
    return folder if isinstance(content, dict) and "model_type" in content else None
