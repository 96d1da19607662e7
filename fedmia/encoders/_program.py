"""A program without a training side, as an encoder: it maps pixels to outputs, and no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedmia.encoders import untrained
from fedmia.encoders._outputs import OutputReader
from fedmia.encoders.base import SIZES, EncoderFacts, LoadedEncoder, Weights
from fedmia.encoders.hooked import CHANNELS, try_blank_pixels
from fedmia.encoders.modules import LoadedEncoderMethod, load_with_control
from fedmia.nets.base import Trunk
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt
from fedmia.ssl.base import Encoder


class Program(ABC):
    """What a file of an exported program computes. Copies share it: nothing changes it.

    Args:
        facts: of the encoder.
        shape: of its input (B, C, H, W); what is no integer is any.

    Attributes:
        batch: B; None: it takes any.
        channels: C, likewise.
        size: H and W, likewise.
        reader: of its outputs; None: not called yet.
        form: what it is, for the report.

    Raises:
        InputError: not (B, C, H, W) with C of 1 to 4 and H = W.
    """

    reader: OutputReader | None = None
    form: ClassVar[str] = "exported program"

    def __init__(self, facts: EncoderFacts, shape: Sequence[Any]) -> None:
        self.facts = facts
        sides = [n if isinstance(n, int) else None for n in shape]
        listed = ", ".join("any" if n is None else str(n) for n in sides)
        takes = f"{facts.where} takes ({listed})"
        if len(sides) != 4:
            raise InputError(f"{takes}; an encoder takes images (B, C, H, W)")
        self.batch, self.channels, height, self.size = sides
        if self.channels is not None and self.channels > 4:
            raise InputError(f"{takes}: the channels must come second")
        if height != self.size:
            raise InputError(f"{takes}; only square images are audited")

    @abstractmethod
    def run(self, pixels: Tensor) -> Any:
        """Outputs for a batch (B, C, H, W) that the program takes, on the device of `pixels`."""

    def __deepcopy__(self, memo: object) -> Program:
        return self

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Vector (N, D) and map (N, D, h, w) or None, of any number of images.

        A program of a fixed batch is fed whole batches, the last one filled up with blank images.
        """
        vectors, maps, count = list[Tensor](), list[Tensor](), self.batch or len(pixels)
        for part in pixels.split(count):
            blank = pixels.new_zeros(count - len(part), *pixels.shape[1:])
            outputs = self.run(torch.cat([part, blank]))
            self.reader = self.reader or OutputReader(outputs, self.facts)
            vector, one = self.reader(outputs)
            if len(vector) != count:
                where = self.facts.where
                raise InputError(f"{where} returns {len(vector)} vectors for {count} images")
            vectors.append(vector[: len(part)].float())
            maps += [] if one is None else [one[: len(part)].float()]
        return torch.cat(vectors), torch.cat(maps) if maps else None


class ProgramBackbone(Trunk):
    """A program's vector, and its map where it returns one."""

    def __init__(self, program: Program, has_map: bool) -> None:
        super().__init__()
        self.program = program
        self.named_outputs = program.reader
        self.layers = ("map",) if has_map else ()

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        vector, one = self.program(x)
        return {} if one is None or not self.layers else {"map": one}, vector


def load_black_box(
    program: Program, permuted: Callable[[int], Program] | None = None
) -> LoadedEncoder:
    """The program as a released encoder.

    Args:
        permuted: makes the program with the entries of its weight tensors permuted, those of
            fewer dimensions than its argument left alone; None: it has no weights.

    Raises:
        InputError: a size other than the program's, or outputs that no encoder gives.
    """
    facts, size, load_options = program.facts, program.size, program.facts.load_options
    facts.weights = Weights(program.form)
    if size is not None and load_options.size not in (None, size):
        takes = f"{facts.where} takes {size}x{size} images only"
        raise InputError(f"{opt('data.size', load_options.size)}: {takes}")
    facts.size, facts.sizes = size or facts.size, (size,) if size else SIZES
    channels = CHANNELS if program.channels is None else (program.channels,)
    try_blank_pixels(facts, program, channels)
    vector, one = program(torch.cat([facts.blank] * 2))
    own, notes = facts.constants, facts.notes
    mean, std = load_options.channel_constants(facts.blank.shape[1], own, notes)
    if program.batch is not None:
        facts.notes.append(Note("fixed-batch", {"encoder": facts.where, "images": program.batch}))

    def method(of: Program) -> LoadedEncoderMethod:
        of.reader = program.reader
        encoder = Encoder(ProgramBackbone(of, one is not None), nn.Identity(), mean, std)
        loaded = LoadedEncoderMethod(encoder, vector.shape[1], load_options.seed)
        return loaded.to(load_options.device).eval()

    def control(least: int) -> LoadedEncoderMethod:
        if permuted is None:
            raise untrained.refusal(facts, untrained.NO_WEIGHTS)
        return method(permuted(least))

    return load_with_control(facts, "black_box", method(program), control)
