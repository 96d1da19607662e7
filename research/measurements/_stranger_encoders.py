"""Encoder files of every form: honest ones to be changed, and hostile ones by hand."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _mutations import safetensors_file
from safetensors.torch import save
from torch import nn

from fedmia.encoders.base import load

SIZE = 16
CODE = "open({!r}, 'w').close()"
Files = dict[str, bytes]
FULL = "model.safetensors"
BIG = 5 << 29  # bytes that a bomb unfolds to


class Planted:
    """A pickle that writes a file when one who trusts it reads it."""

    def __init__(self, call: Callable[..., Any], argument: str) -> None:
        self.call, self.argument = call, argument

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, (self.argument,)


def planted(marker: Path) -> list[Planted]:
    """Payloads by different roads."""
    return [
        Planted(os.system, f"touch {marker}"),
        Planted(eval, CODE.format(str(marker))),
        Planted(exec, CODE.format(str(marker))),
    ]


def saved(value: Any, zipped: bool = True) -> bytes:
    """The bytes that torch.save writes."""
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


@cache
def vit() -> nn.Module:
    """timm's, one block deep; the norms of its queries tell how many heads it has."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    shape = {"embed_dim": 64, "depth": 1, "num_heads": 1, "qk_norm": True}
    return VisionTransformer(SIZE, 8, 3, 0, **shape).eval()


@cache
def tiny() -> nn.Module:
    """A convolution, pooled."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


@cache
def weights() -> Files:
    """Files of weights alone."""
    state = vit().state_dict()
    script = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an old form, which is still brought
        torch.jit.save(torch.jit.trace(vit(), torch.zeros(1, 3, SIZE, SIZE)), script)
    return {
        "zip.pth": saved({"epoch": 3, "state_dict": state}),
        "old.pt": saved(state, zipped=False),
        "plain.safetensors": save(state),
        "script.pt": script.getvalue(),
    }


@cache
def programs() -> Files:
    """Exported programs."""
    buffer = io.BytesIO()
    shapes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(tiny(), (torch.zeros(2, 3, SIZE, SIZE),), dynamic_shapes=shapes)
    torch.export.save(exported, buffer)
    return {"program.pt2": buffer.getvalue(), "program.onnx": onnx_model()}


def onnx_model(**changes: Any) -> bytes:
    """A convolution, pooled, of ONNX's own helpers; `weight`, `extra` change it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    values = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    weight = changes.get("weight") or numpy_helper.from_array(values, "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        *changes.get("extra", ()),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    y = helper.make_tensor_value_info(changes.get("out", "f"), TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx_bytes: bytes = model.SerializeToString()
    assert onnx
    return onnx_bytes


@cache
def folders() -> dict[str, Files]:
    """Folders of a configuration beside weights, by form; transformers' where it is installed."""
    state = save(vit().state_dict())
    timm = {
        "architecture": "vit_tiny_patch16_224",
        "model_args": {
            "img_size": SIZE,
            "patch_size": 8,
            "embed_dim": 64,
            "depth": 1,
            "num_heads": 1,
            "qk_norm": True,
        },
        "pretrained_cfg": {"input_size": [3, SIZE, SIZE], "mean": [0.5] * 3, "std": [0.5] * 3},
    }
    forms = {"timm": {"config.json": json.dumps(timm).encode(), "model.safetensors": state}}
    if find_spec("transformers") is None:
        return forms
    from transformers import ViTConfig, ViTModel

    hf = {
        "model_type": "vit",
        "hidden_size": 64,
        "image_size": SIZE,
        "patch_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 64,
    }
    torch.manual_seed(0)
    own = {k: v for k, v in hf.items() if k != "model_type"}
    processor = {"size": {"height": SIZE, "width": SIZE}, "image_mean": [0.5] * 3}
    processor |= {"image_std": [0.25] * 3, "do_normalize": True}
    forms["hf"] = {
        "config.json": json.dumps(hf).encode(),
        "preprocessor_config.json": json.dumps(processor).encode(),
        "model.safetensors": save(ViTModel(ViTConfig(**own)).state_dict()),
    }
    return forms


def read_encoder(path: Path, form: str = "") -> object:
    """As an audit does: the encoder and its control."""
    loaded = load(f"{form}:{path}" if form else str(path), size=SIZE)
    return loaded.untrained()


def rezip(
    data: bytes, change: Callable[[str, bytes], tuple[str, bytes] | None], more: Files | None = None
) -> bytes:
    """An archive with its members changed, left out or added."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            if (member := change(name, old.read(name))) is not None:
                new.writestr(*member)
        root = old.namelist()[0].split("/")[0]
        for name, content in (more or {}).items():
            new.writestr(name.replace("ROOT", root), content)
    return buffer.getvalue()


def bomb(name: str, size: int = BIG, honest: bytes | None = None) -> bytes:
    """A zip file of one more member than the honest one, which unfolds to `size` zeros: flushed
    blocks of a compressed stream may be repeated, so it is made without compressing them all."""
    part, count = bytes(1 << 24), size >> 24
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)
    packed, check = block * count + packer.flush(), _check_of_zeros(count)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        if honest is not None:
            with zipfile.ZipFile(io.BytesIO(honest)) as old:
                for member in old.namelist():
                    archive.writestr(member, old.read(member))
                name = name.replace("ROOT", old.namelist()[0].split("/")[0])
        archive.writestr(name, packed)
        info = archive.getinfo(name)
        at = info.header_offset + 8  # method, time, sum, sizes of the local header
        buffer.seek(at)
        buffer.write(struct.pack("<HIIII", zipfile.ZIP_DEFLATED, 0, check, len(packed), size))
        info.compress_type, info.CRC, info.file_size = zipfile.ZIP_DEFLATED, check, size
        buffer.seek(0, io.SEEK_END)
    return buffer.getvalue()


@cache
def _check_of_zeros(count: int) -> int:
    check, part = 0, bytes(1 << 24)
    for _ in range(count):
        check = zlib.crc32(part, check)
    return check


def hostile_weights(marker: Path) -> Iterator[tuple[str, bytes]]:
    """By name of the file: each is refused, or read as data."""
    state = vit().state_dict()
    for i, payload in enumerate(planted(marker)):
        for zipped in (True, False):
            yield f"code-{i}-{zipped}.pth", saved({"state_dict": state, "x": payload}, zipped)
        yield f"bare-{i}.pt", pickle.dumps(payload)
        for name in ("constants.pkl", "data.pkl"):
            swap = partial(_swap, f"/{name}", pickle.dumps(payload))
            yield f"script-{name}-{i}.pt", rezip(weights()["script.pt"], swap)
    big = {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4 << 40]}}
    yield "terabytes.safetensors", safetensors_file(json.dumps(big).encode())
    yield "long-header.safetensors", safetensors_file(b"{}", length=1 << 60)
    yield "deep.safetensors", safetensors_file(b'{"a":' * 50000)
    many = {f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for i in range(50000)}
    yield "overlap.safetensors", safetensors_file(json.dumps(many).encode(), b"\0" * 4)
    whole = weights()["zip.pth"]
    yield "bomb.pth", bomb("archive/data.pkl")
    yield "deflated.pth", bomb("ROOT/data/99", honest=whole)
    yield "script-bomb.pt", bomb("ROOT/pad", honest=weights()["script.pt"])
    names = {"../../outside/escaped": b"x", "/tmp/fedmia-escaped": b"x"}
    yield "names.pth", rezip(whole, lambda *m: m, names)
    yield "script-names.pt", rezip(weights()["script.pt"], lambda *m: m, names)
    yield "huge-storage.pth", saved_stretched(1 << 42)
    yield "expanded.pth", saved({n: torch.zeros(1).expand(1 << 33) for n in state})
    first = next(iter(state))
    for name, odd in {
        "keys": {1: torch.zeros(2), None: torch.zeros(2), (1, 2): {}},
        "scalar": {n: torch.tensor(1.0) for n in state},
        "empty": {n: t[:0] for n, t in state.items()},
        "complex": {n: t.to(torch.complex64) for n, t in state.items()},
        "whole": {n: t.long() for n, t in state.items()},
        "half": {n: t.half() for n, t in state.items()},
        "nan": {n: t * float("nan") for n, t in state.items()},
        "flat": {n: t.flatten() for n, t in state.items()},
        "sparse": {n: t.to_sparse() for n, t in state.items()},
        "text": {n: "x" for n in state},
        "list": list(state.values()),
        "one": {first: state[first]},
        "wide": {n: t.repeat(2, *[1] * (t.ndim - 1)) if t.ndim else t for n, t in state.items()},
        "itself": state[first],
        "nothing": {},
        "none": None,
        "number": 3,
        "depth": {n.replace("blocks.0", "blocks.999999999"): t for n, t in state.items()},
        "long-names": {n + "x" * 100_000: t for n, t in state.items()},
        "lines": {n + "\n\x1b[2J": t for n, t in state.items()},
    }.items():
        yield f"odd-{name}.pth", saved(odd)
    yield "memo.pt", b"\x80\x02" + b"]" + b"q\x00h\x00" * 10 + b"2" * 1000 + b"."
    yield "deep-pickle.pt", b"\x80\x02" + b"(" * 500_000 + b"l" * 500_000 + b"."
    yield "long.pt", b"\x80\x02\x8b\xff\xff\xff\x7f"
    yield "nested.pth", saved(_nested(3000))


def _nested(depth: int) -> Any:
    value: Any = torch.zeros(1)
    for _ in range(min(depth, 300)):
        value = [value]
    return value


def saved_stretched(numel: int) -> bytes:
    """A checkpoint whose pickle promises more numbers than the archive holds."""
    whole = saved({"a.weight": torch.zeros(300)})

    def change(name: str, data: bytes) -> tuple[str, bytes]:
        if name.endswith("data.pkl"):  # 300 as BININT2; the numbers that replace it as LONG1
            long = numel.to_bytes(8, "little")
            data = data.replace(b"M" + (300).to_bytes(2, "little"), b"\x8a\x08" + long)
        return name, data

    return rezip(whole, change)


def _swap(end: str, content: bytes, name: str, data: bytes) -> tuple[str, bytes]:
    return (name, content) if name.endswith(end) else (name, data)


def pickled_config(name: str, path: str, is_param: bool) -> bytes:
    """What an exported program says of one tensor that lies in it as a pickle."""
    about = {"path_name": path, "is_param": is_param, "use_pickle": True, "tensor_meta": None}
    return json.dumps({"config": {name: about}}).encode()


def hostile_programs(marker: Path) -> Iterator[tuple[str, bytes]]:
    """Likewise, of exported programs."""
    whole = programs()["program.pt2"]
    code = CODE.format(str(marker))
    payload = saved((planted(marker)[1],))
    yield "code-inputs.pt2", rezip(whole, partial(_swap, "sample_inputs/model.pt", payload))
    for folder in ("weights", "constants"):
        more = {f"ROOT/data/{folder}/model.pt": payload}
        yield f"code-{folder}.pt2", rezip(whole, lambda *m: m, more)
    config = pickled_config("0.weight", "weight_0", is_param=True)

    def pickled(name: str, data: bytes) -> tuple[str, bytes]:
        if name.endswith("model_weights_config.json"):
            return name, config
        return (name, payload) if name.endswith("weight_0") else (name, data)

    yield "code-pickled.pt2", rezip(whole, pickled)
    for prefix in ("custom_obj_0", "opaque_obj_0"):
        constants = pickled_config("c", prefix, is_param=False)
        swap = partial(_swap, "model_constants_config.json", constants)
        own = {f"ROOT/data/constants/{prefix}": pickle.dumps(planted(marker)[1])}
        yield f"code-{prefix}.pt2", rezip(whole, swap, own)

    def model(change: Callable[[str], str]) -> bytes:
        def swap(name: str, data: bytes) -> tuple[str, bytes]:
            return name, change(data.decode()).encode() if name.endswith("model.json") else data

        return rezip(whole, swap)

    symbol = next(s for s in whole.decode("latin-1").split('"expr_str": "')[1:]).split('"')[0]
    yield "code-symbol.pt2", model(lambda t: t.replace(symbol, code.replace('"', "'")))
    named = f'"name": "input={code}"'
    yield "code-name.pt2", model(lambda t: t.replace('"name": "input"', named))
    for target in (
        "torch.hub.load",
        "torch.os.system",
        "torch.load",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.warn.default",
        "_operator.methodcaller",
    ):
        yield (
            f"target-{target}.pt2",
            model(lambda t, target=target: t.replace("torch.ops.aten.flatten.using_ints", target)),
        )  # type: ignore[misc]
    huge = '{"as_int": 999999999999}'
    yield "sizes.pt2", model(lambda t: t.replace('{"as_int": 8}', huge))
    yield "deep.pt2", model(lambda t: "[" * 100_000)
    spec = '\\"type\\": \\"collections.defaultdict\\"'
    yield "spec.pt2", model(lambda t: t.replace('\\"type\\": \\"builtins.dict\\"', spec))
    yield "bomb.pt2", bomb("program/archive_version")
    yield "names.pt2", rezip(whole, lambda *m: m, {"../../outside/escaped": b"x"})
    aot = {"ROOT/data/aotinductor/model/x.wrapper.so": b"\x7fELF"}
    yield "compiled.pt2", rezip(whole, lambda *m: m, aot)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as old:
        old.writestr("version", "8.1")
        for part in ("exported_program.json", "state_dict.pt", "constants.pt", "example_inputs.pt"):
            old.writestr(f"serialized_{part}", payload if part.endswith("pt") else b"{}")
    yield "old.pt2", buffer.getvalue()
    yield from hostile_onnx()


def hostile_onnx() -> Iterator[tuple[str, bytes]]:
    """Weights that lie elsewhere, and shapes that promise much."""
    from onnx import TensorProto, helper

    for i, location in enumerate(
        ("../../outside/keep.safetensors", "/etc/hostname", "missing", "a/../../x", "link")
    ):
        away = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8, 3, 3, 3])
        away.data_location = TensorProto.EXTERNAL
        away.external_data.add(key="location", value=location)
        yield f"external-{i}.onnx", onnx_model(weight=away)
    large = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 3, 1 << 10, 1 << 10])
    large.raw_data = b"\0" * 16
    yield "terabytes.onnx", onnx_model(weight=large)
    size = helper.make_tensor("s", TensorProto.INT64, [1], [1 << 40])
    fill = [
        helper.make_node("Constant", [], ["n"], value=size),
        helper.make_node("ConstantOfShape", ["n"], ["z"]),
    ]
    yield "fill.onnx", onnx_model(extra=fill, out="z")
    custom = [helper.make_node("Evil", ["f"], ["z"], domain="com.evil")]
    yield "custom.onnx", onnx_model(extra=custom, out="z")


def hostile_folders(marker: Path) -> Iterator[tuple[str, str, Files]]:
    """Form, name, files."""
    payload = saved({"state_dict": planted(marker)[1]})
    for form, files in folders().items():
        config = json.loads(files["config.json"])
        settings = {"config.json": files["config.json"]}

        def changed(**values: Any) -> Files:
            return {**files, "config.json": json.dumps({**config, **values}).encode()}  # noqa: B023

        yield form, "code", {**settings, "pytorch_model.bin": payload}
        yield form, "deep", {**files, "config.json": b"[" * 200_000}
        deep = json.loads("[" * 500 + "]" * 500)  # not too deep to be read, but to be copied
        yield form, "deep-value", changed(image_size=deep, model_args={"img_size": deep})
        code = {"evil.py": CODE.format(str(marker)).encode()}
        auto = changed(auto_map={"AutoModel": "evil.Evil"}, model_type="evil")
        yield form, "auto-map", {**auto, **code}
        size = {"embed_dim": 1 << 17, "depth": 12}
        yield form, "huge", changed(hidden_size=1 << 20, model_args=size)
        yield form, "layers", changed(num_hidden_layers=10**7, model_args={"depth": 10**7})
        for side in (10**5, -1, "16", [], None):
            sided = {"input_size": side if side is None else [3, side, side]}
            yield form, f"side-{side}", changed(image_size=side, pretrained_cfg=sided)
        for index in (
            b'{"weight_map": {"a": "../../outside/keep.safetensors"}}',
            b'{"weight_map": {"a": "/etc/passwd"}, "metadata": {}}',
            b'{"weight_map": {"a": ["model.safetensors"]}}',
            b'{"weight_map": []}',
            b"[" * 200_000,
            b"{}",
        ):
            yield form, f"index {index[:40]!r}", {**settings, f"{FULL}.index.json": index}
        for content in (b"[]", b"[" * 200_000, b'{"size": {"height": [1]}}', b'{"size": 99999}'):
            name = "preprocessor_config.json"
            yield form, f"processor {content[:30]!r}", {**files, name: content}
        for values in ({"image_mean": "x", "image_std": {}}, {"image_mean": [], "image_std": []}):
            odd = {**files, "preprocessor_config.json": json.dumps(values).encode()}
            yield form, f"constants {values['image_mean']!r}", odd
