"""A program without a training side, as an encoder: it maps pixels to outputs, and no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders._hooked import CHANNELS, SIZES, find_input_size
from fedmia.encoders._module import LoadedEncoderMethod, load_with_control
from fedmia.encoders._outputs import OutputNames, choose_outputs, read_outputs
from fedmia.encoders.base import LoadContext, LoadedEncoder, LoadOptions, Weights
from fedmia.nets.base import Trunk
from fedmia.options.errors import InputError, opt
from fedmia.ssl.base import Encoder


class Program(ABC):
    """What a file of an exported program computes. Copies share it: nothing changes it.

    Attributes:
        where: what messages call it.
        batch: B of its input (B, C, H, W); None: it takes any.
        channels: C, likewise.
        size: H and W, likewise.
        context: of its loading.
        output_names: which of its outputs are read; None: not called yet.
    """

    context: LoadContext
    output_names: OutputNames | None = None
    where: str
    batch: int | None
    channels: int | None
    size: int | None

    @abstractmethod
    def run(self, pixels: Tensor) -> Any:
        """Outputs for a batch (B, C, H, W) that the program takes, on the device of `pixels`."""

    def __deepcopy__(self, memo: object) -> Program:
        return self

    def read_shape(self, shape: list[Any]) -> None:
        """Read batch, channels and size off the input's shape; what is no integer is any.

        Raises:
            InputError: not (B, C, H, W) with C of 1 to 4 and H = W.
        """
        sides = [n if isinstance(n, int) else None for n in shape]
        shape_text = ", ".join("any" if n is None else str(n) for n in sides)
        if len(sides) != 4:
            raise InputError(
                f"{self.where} takes ({shape_text}); an encoder takes images (B, C, H, W)"
            )
        self.batch, self.channels, height, width = sides
        if self.channels is not None and self.channels > 4:
            raise InputError(f"{self.where} takes ({shape_text}): the channels must come second")
        if height != width:
            raise InputError(f"{self.where} takes ({shape_text}); only square images are audited")
        self.size = width

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Vector (N, D) and map (N, D, h, w) or None, of any number of images.

        A program of a fixed batch is fed whole batches, the last one filled up with blank images.
        """
        if self.batch is None:
            return self._read(pixels)
        vectors, maps = [], []
        for part in pixels.split(self.batch):
            blank = pixels.new_zeros(self.batch - len(part), *pixels.shape[1:])
            vector, one = self._read(torch.cat([part, blank]))
            vectors.append(vector[: len(part)])
            if one is not None:
                maps.append(one[: len(part)])
        return torch.cat(vectors), torch.cat(maps) if maps else None

    def _read(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs = self.run(pixels)
        self.output_names = self.output_names or choose_outputs(outputs, self.context)
        vector, one = read_outputs(outputs, self.output_names)
        if len(vector) != len(pixels):
            raise InputError(f"{self.where} returns {len(vector)} vectors for {len(pixels)} images")
        return vector.float(), None if one is None else one.float()


class ProgramBackbone(Trunk):
    """A program's vector, and its map where it returns one."""

    def __init__(self, program: Program, has_map: bool) -> None:
        super().__init__()
        self.program = program
        self.named_outputs = program.output_names
        self.layers = ("map",) if has_map else ()

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        vector, one = self.program(x)
        return {} if one is None or not self.layers else {"map": one}, vector


def load_black_box(
    program: Program, permuted: Callable[[int], Program], load_options: LoadOptions
) -> LoadedEncoder:
    """The program as a released encoder.

    Args:
        permuted: makes the program with the entries of its weight tensors permuted, those of
            fewer dimensions than its argument left alone.

    Raises:
        InputError: a size other than the program's, or outputs that no encoder gives.
    """
    where = program.where
    context = LoadContext(where, load_options, weights=Weights("exported program"))
    if program.size is not None and load_options.size not in (None, program.size):
        raise InputError(
            f"{opt('size', load_options.size)}: {where} takes {program.size}x{program.size} images "
            "only"
        )
    program.context = context
    channels = CHANNELS if program.channels is None else (program.channels,)
    sizes = SIZES if program.size is None else (program.size,)
    tried = find_input_size(context, program, channels, program.size, sizes)
    vector, one = program(torch.zeros(2, tried.channels, tried.size, tried.size))
    mean, std = load_options.channel_constants(tried.channels, None, context.notes)
    if program.batch is not None:
        note = f"{where} takes {program.batch} images at a time: the last are filled up."
        context.notes.append(note)

    def method(of: Program) -> LoadedEncoderMethod:
        of.output_names = program.output_names
        encoder = Encoder(ProgramBackbone(of, one is not None), nn.Identity(), mean, std)
        return (
            LoadedEncoderMethod(encoder, vector.shape[1], load_options.seed)
            .to(load_options.device)
            .eval()
        )

    own, control = method(program), lambda least: method(permuted(least))
    return load_with_control(context, "black_box", own, control, tried)
