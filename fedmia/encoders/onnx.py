"""`FILE.onnx`: a program that ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmia.encoders import untrained
from fedmia.encoders._preprocessing import read_settings
from fedmia.encoders._program import Program, load_black_box
from fedmia.encoders.base import EncoderFacts, EncoderForm, LoadedEncoder, LoadOptions
from fedmia.encoders.hub import import_extra
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.untrusted.limits import first_line
from fedmia.untrusted.text import parse_json

EXTRA = "a .onnx encoder"  # what needs the libraries
DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
# Kinds of numbers that weights are stored as; 64-bit integers are shapes and indices.
WEIGHTS = ("float16", "float32", "float64", "bfloat16", "int8", "uint8")


class Session(Program):
    """An inference session, on the GPU where ONNX Runtime can use it.

    Args:
        model: path, or the bytes of a model.
        facts: of the encoder.

    Raises:
        InputError: the model cannot be read, takes more than one input, or no floats.
    """

    def __init__(self, model: str | bytes, facts: EncoderFacts) -> None:
        where, device = facts.where, facts.load_options.device
        runtime = import_extra("onnxruntime", EXTRA, "onnx")
        providers: list[Any] = ["CPUExecutionProvider"]
        if device.type == "cuda" and "CUDAExecutionProvider" in runtime.get_available_providers():
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        # As many threads as torch itself uses, and sums in one order.
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self.session = runtime.InferenceSession(model, options, providers=providers)
            inputs = self.session.get_inputs()
        except Exception as error:  # the runtime's own exceptions have no common base
            why = first_line(error)
            raise InputError(f"cannot read '{where}' as an ONNX model: {why}") from None
        if len(inputs) != 1:
            takes = f"{where} takes {len(inputs)} inputs"
            raise InputError(f"{takes}; an encoder takes one, the images")
        if inputs[0].type not in DTYPES:
            raise InputError(f"{where} takes {inputs[0].type}; an encoder takes floats")
        self.input, self.dtype = inputs[0].name, DTYPES[inputs[0].type]
        super().__init__(facts, inputs[0].shape)

    def run(self, pixels: Tensor) -> Any:
        fed = {self.input: pixels.detach().cpu().numpy().astype(self.dtype)}
        try:
            out = self.session.run(None, fed)
        except Exception as error:
            raise RuntimeError(first_line(error)) from None
        outputs = zip([one.name for one in self.session.get_outputs()], out, strict=True)
        return {n: torch.from_numpy(v).to(pixels.device) for n, v in outputs if hasattr(v, "dtype")}


class OnnxFile(EncoderForm):
    """A program that ONNX Runtime runs."""

    written = "FILE.onnx"
    order = 3
    suffixes = (".onnx",)

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The model in `source`: images (B, C, H, W) to vectors, maps, tokens, or several of them.

        Raises:
            InputError: ONNX Runtime is not installed, or the file is no encoder.
        """
        facts = EncoderFacts(Path(source).name, load_options)

        def permuted(least: int) -> Session:
            return Session(permuted_model(source, facts, least), facts)

        session = Session(source, facts)
        metadata = session.session.get_modelmeta().custom_metadata_map
        read_settings(facts, f"'{source}'", {n: _value(t) for n, t in metadata.items()}, ())
        return load_black_box(session, permuted)


def _value(text: str) -> Any:
    """What a text of a model's metadata says."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def permuted_model(path: str, facts: EncoderFacts, least: int) -> bytes:
    """A copy of a model whose weights are permuted within each tensor.

    Weights are initializers and constants.

    Args:
        path: of the model.
        facts: names it, and has the seed of the permutations.
        least: tensors of fewer dimensions stay as they are.

    Returns:
        Bytes of the model.

    Raises:
        InputError: it has no weights, or is too large to be held in one piece.
    """
    onnx = import_extra("onnx", EXTRA, "onnx")
    model = onnx.load(path)
    weights = [(t.name, t) for t in model.graph.initializer]
    for node in model.graph.node:
        if node.op_type == "Constant":
            weights += [(node.output[0], a.t) for a in node.attribute if a.HasField("t")]
    count = 0
    for name, tensor in weights:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype.name not in WEIGHTS or values.ndim < least or values.size < 2:
            continue
        generator = rng(facts.load_options.seed, "untrained", name)
        mixed = generator.permutation(values.reshape(-1)).reshape(values.shape)
        tensor.CopyFrom(onnx.numpy_helper.from_array(mixed, tensor.name))
        count += 1
    if not count:
        raise untrained.refusal(facts, untrained.NO_WEIGHTS)
    try:
        serialized: bytes = model.SerializeToString()
    except Exception as error:  # protobuf's limit of 2 GiB
        raise untrained.refusal(facts, first_line(error)) from None
    return serialized
