"""`FILE.pt2`: a program that torch.export saved."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from fedmia.encoders import untrained
from fedmia.encoders._archive import check_program
from fedmia.encoders._program import Program, load_black_box
from fedmia.encoders.base import EncoderForm, LoadedEncoder, LoadOptions, first_line
from fedmia.options.errors import InputError


class TorchProgram(Program):
    """An exported program, run on the device of its weights.

    Args:
        program: that `torch.export` saved.
        where: what errors call it.
        load_options: the user's options.
        least: permute the weight tensors of so many dimensions or more; None: leave all.

    Raises:
        InputError: it takes more than one tensor, or none of floats.
    """

    def __init__(
        self, program: ExportedProgram, where: str, load_options: LoadOptions, least: int | None
    ) -> None:
        self.where, self.device = where, load_options.device
        inputs = set(program.graph_signature.user_inputs)
        values = [n.meta.get("val") for n in program.graph.nodes if n.name in inputs]
        if len(values) != 1 or not isinstance(values[0], Tensor):
            raise InputError(
                f"{where} takes {len(inputs)} inputs; an encoder takes one, the images"
            )
        self.dtype = values[0].dtype
        if not self.dtype.is_floating_point:
            raise InputError(f"{where} takes {self.dtype} pixels; an encoder takes floats")
        self.read_shape(list(values[0].shape))
        if self.device.type != "cpu":
            program = move_to_device_pass(program, str(self.device))
        self.module: Any = program.module()
        own = self.module.state_dict()
        if least is not None and not untrained.permute_tensors(own, load_options.seed, least):
            raise InputError(f"{where}: {untrained.NOTHING}")

    def run(self, pixels: Tensor) -> Any:
        return self.module(pixels.to(self.device, self.dtype))


class ExportedFile(EncoderForm):
    """A program that torch.export saved."""

    written = "FILE.pt2"
    order = 2
    suffixes = (".pt2",)

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The program in `source`: images (B, C, H, W) to vectors, maps, tokens or several of them.

        Raises:
            InputError: it cannot be read, or is no encoder.
        """
        where, logger = Path(source).name, logging.getLogger("torch.export")

        def program(least: int | None) -> TorchProgram:
            try:
                with ExitStack() as after:
                    after.callback(setattr, logger, "disabled", logger.disabled)
                    logger.disabled = True  # it logs a traceback before it raises
                    check_program(Path(source))
                    read = torch.export.load(source)
            except InputError:
                raise
            except Exception as error:  # whatever a file that is no archive makes torch raise
                raise InputError(
                    f"cannot read '{source}' as an exported program: {first_line(error)}"
                ) from None
            return TorchProgram(read, where, load_options, least)

        return load_black_box(program(None), program, load_options)
