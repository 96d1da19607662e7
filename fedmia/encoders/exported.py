"""`FILE.pt2`: a program that torch.export saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from fedmia.encoders import untrained
from fedmia.encoders._program import Program, load_black_box
from fedmia.encoders.base import EncoderFacts, EncoderForm, LoadedEncoder, LoadOptions
from fedmia.settings.errors import InputError
from fedmia.untrusted.programs import read_program


class TorchProgram(Program):
    """An exported program, run on the device of its weights.

    Args:
        program: that `torch.export` saved.
        facts: of the encoder.
        least: permute the weight tensors of so many dimensions or more; None: leave all.

    Raises:
        InputError: it takes more than one tensor, or none of floats.
    """

    def __init__(self, program: ExportedProgram, facts: EncoderFacts, least: int | None) -> None:
        inputs = set(program.graph_signature.user_inputs)
        values = [n.meta.get("val") for n in program.graph.nodes if n.name in inputs]
        takes = f"{facts.where} takes {len(inputs)} inputs"
        if len(values) != 1 or not isinstance(values[0], Tensor):
            raise InputError(f"{takes}; an encoder takes one, the images")
        super().__init__(facts, values[0].shape)
        self.device, self.dtype = facts.load_options.device, values[0].dtype
        if not self.dtype.is_floating_point:
            raise InputError(f"{facts.where} takes {self.dtype}; an encoder takes floats")
        if self.device.type != "cpu":
            program = move_to_device_pass(program, str(self.device))
        self.module: Any = program.module()
        if least is not None:
            untrained.permute_tensors(self.module.state_dict(), facts, least)

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
        facts = EncoderFacts(Path(source).name, load_options)

        def program(least: int | None) -> TorchProgram:
            return TorchProgram(read_program(Path(source)), facts, least)

        return load_black_box(program(None), program)
