"""Encoders in the layouts of public code: the features of their library, or one line of refusal.

Random weights of the official widths (few blocks where the depth tells nothing) are saved as each
code base saves them, and loaded as an audit loads them. What an encoder should compute comes from
transformers, open_clip, timm or torchvision. The exit code is 1 where features differ by more than
1e-5 of the largest, or a refusal is no single line. transformers and open_clip must be installed.

    python benchmarks/foreign_encoders.py [--only TEXT] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from fedmia.encoders.base import load
from fedmia.options.errors import InputError
from fedmia.runtime.environment import describe, version

RESULTS = Path(__file__).parent / "results" / "foreign_encoders.json"
BOUND = 1e-5
SIDE = 56
Compute = Callable[[Tensor], Tensor]
NORM = partial(nn.LayerNorm, eps=1e-6)
# transformers' names -> those of the code that it converts from.
OFFICIAL = (
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.(projection\.)?", "patch_embed.proj."),
    (r"^embeddings\.", ""), (r"^(encoder\.layer|model\.layer|layers)\.(\d+)\.", r"blocks.\2."),
    (r"layernorm_before", "norm1"), (r"layernorm_after", "norm2"),
    (r"attention\.o_proj", "attn.proj"), (r"attention\.([qkv])_proj", r"attn.\1"),
    (r"layer_scale([12])\.lambda1", r"ls\1.gamma"), (r"lambda_([12])$", r"gamma_\1"),
    (r"mlp\.up_proj", "mlp.fc1"), (r"mlp\.down_proj", "mlp.fc2"),
    (r"relative_position_bias\.", "attn."), (r"^pooler\.layernorm\.", "fc_norm."),
    (r"^layernorm\.", "norm."),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A file, the ways to bring it, and what comes of each.

    Attributes:
        contents: what is saved, or a function that writes the file.
        ways: what is given as the encoder, `` for the file alone, and what it should compute; text
            is what the refusal should say.
        name: of the file. size: pixels a side.
    """

    contents: Any
    ways: Mapping[str, Compute | str]
    name: str = "file.pth"
    size: int = SIDE
    more: Mapping[str, Any] = field(default_factory=dict)


def draw_parameters(module: Any) -> Any:
    """Vectors and tables away from where they start, attention that differs between heads."""
    for name, tensor in module.named_parameters():
        if tensor.ndim < 2 or any(word in name for word in ("token", "pos", "table")):
            tensor.data += 0.2 * torch.randn_like(tensor)
        elif re.search(r"qkv|[qk]_proj", name):
            tensor.data *= 4
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d | nn.BatchNorm1d) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module.eval()


def renamed(tensors: Mapping[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    tensors_renamed = {}
    for name, tensor in tensors.items():
        for old, new in rules:
            name = re.sub(old, new, name)
        tensors_renamed[name] = tensor
    return tensors_renamed


def official(model: nn.Module, split_bias: bool = False) -> dict[str, Tensor]:
    """A ViT of transformers in its first names: queries, keys and values are one matrix, both
    halves of a gated MLP too; `split_bias`: biases of queries and values apart, as in BEiT."""
    state = renamed(model.state_dict(), *OFFICIAL)
    for i in range(sum(n.endswith(".attn.q.weight") for n in state)):
        at = f"blocks.{i}.attn."
        state[f"{at}qkv.weight"] = torch.cat([state.pop(f"{at}{n}.weight") for n in "qkv"])
        zeros = torch.zeros_like(state[f"{at}q.bias"])
        query, key, value = (state.pop(f"{at}{n}.bias", zeros) for n in "qkv")
        if split_bias:
            state |= {f"{at}q_bias": query, f"{at}v_bias": value}
        else:
            state[f"{at}qkv.bias"] = torch.cat([query, key, value])
        if f"blocks.{i}.mlp.gate_proj.weight" in state:
            mlp = f"blocks.{i}.mlp."
            for kind in ("weight", "bias"):
                gate, up = (state.pop(f"{mlp}{n}.{kind}") for n in ("gate_proj", "fc1"))
                state[f"{mlp}w12.{kind}"] = torch.cat([gate, up])
                state[f"{mlp}w3.{kind}"] = state.pop(f"{mlp}fc2.{kind}")
    return state


def hugging(kind: str, width: int, heads: int, depth: int = 2, **more: Any) -> Any:
    """A model of transformers, its parameters drawn."""
    import transformers

    options = {
        "hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": depth,
        "image_size": SIDE, "patch_size": 14, "intermediate_size": 4 * width,
        "layer_norm_eps": 1e-6,
    }  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(**(options | more))
    return draw_parameters(getattr(transformers, f"{kind}Model")(config))


def token(model: Any, **more: Any) -> Compute:
    """The class token after the last norm."""
    return lambda x: model(pixel_values=x, **more).last_hidden_state[:, 0]


def vit(width: int = 384, heads: int = 6, **more: Any) -> Any:
    """timm's, two blocks."""
    from timm.models.vision_transformer import VisionTransformer

    options = {"depth": 2, "num_classes": 0, "norm_layer": NORM} | more
    return draw_parameters(VisionTransformer(SIDE, 14, embed_dim=width, num_heads=heads, **options))


def build_named(name: str, **more: Any) -> Any:
    return draw_parameters(timm.create_model(name, num_classes=0, **more))


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


# C1: what loaded as another network


def mae_huge() -> Case:
    model = hugging("ViTMAE", 1280, 16, mask_ratio=0.0)
    noise = torch.arange(16.0).expand(2, -1)
    decoder = {"mask_token": torch.zeros(1, 1, 8), "decoder_norm.weight": torch.ones(8)}
    return Case({"model": official(model) | decoder}, {"": token(model, noise=noise)})


def widths(width: int) -> Case:
    net = vit(width, 16)
    return Case(net.state_dict(), {"": net})


def seresnet() -> Case:
    net = build_named("seresnet50")
    refused = "64 of its trunk's tensors find no place"
    ways = {"": refused, "timm:resnet50": refused, "timm:seresnet50": net}
    return Case({"state_dict": net.state_dict()}, ways)


def qk_norm() -> Case:
    net = vit(qk_norm=True)
    return Case(net.state_dict(), {"": net})


def registers() -> Case:
    model = hugging("Dinov2WithRegisters", 384, 6)
    return Case(official(model), {"": token(model)})


def registers_named() -> Case:
    model = hugging("Dinov2WithRegisters", 384, 6, 12, image_size=518)
    name = "timm:vit_small_patch14_reg4_dinov2"
    return Case(official(model), {name: token(model)}, size=518)


def layer_scale() -> Case:
    net = build_named("deit3_small_patch16_224")
    tensors = renamed(net.state_dict(), (r"ls([12])\.gamma", r"gamma_\1"))
    ways = {"": net, "timm:deit3_small_patch16_224": net}
    return Case({"model": tensors}, ways, size=224)


def giant() -> Case:
    model = hugging("Dinov2", 1536, 24, use_swiglu_ffn=True)
    return Case(official(model), {"": token(model)})


# C2: what was refused, or said too little


class Bare(nn.Module):
    """A part of a TorchScript archive that holds tensors alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def archive(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A TorchScript archive with these names."""
    root = Bare()
    for name, tensor in tensors.items():
        *parents, own = name.split(".")
        at: nn.Module = root
        for part in parents:
            if part not in at._modules:
                at.add_module(part, Bare())
            at = at.get_submodule(part)
        at.register_buffer(own, tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(root).save(path)


def clip() -> Case:
    import open_clip

    net = open_clip.create_model("ViT-B-32-quickgelu")
    # OpenAI's are in half precision
    net.load_state_dict({n: t.half().float() for n, t in draw_parameters(net).state_dict().items()})
    numbers = ("input_resolution", "context_length", "vocab_size")
    tensors = {n: t.half() for n, t in net.state_dict().items() if n != "attn_mask"}
    tensors |= {n: torch.tensor(224) for n in numbers}

    def before_projection(x: Tensor) -> Tensor:
        projection, net.visual.proj = net.visual.proj, None
        out = net.visual(x)
        net.visual.proj = projection
        return out

    ways = {
        "": "it is a CLIP's: give open_clip:NAME",
        "open_clip:ViT-B-32-quickgelu": net.encode_image,
        "open_clip:ViT-B-32": net.encode_image,
        "timm:vit_base_patch32_clip_quickgelu_224": before_projection,
        "timm:vit_base_patch32_clip_224": before_projection,
    }
    return Case(partial(archive, tensors), ways, "ViT-B-32.pt", 224)


def archived_resnet() -> Case:
    net: Any = draw_parameters(models.resnet18(weights=None))
    net.fc = nn.Identity()
    return Case(partial(archive, net.state_dict()), {"": net}, "traced.pt")


def vissl() -> Case:
    net: Any = draw_parameters(models.resnet50(weights=None))
    net.fc = nn.Identity()
    trunk = prefixed("_feature_blocks.", net.state_dict())
    heads = {"0.clf.0.weight": torch.zeros(1000, 2048)}
    model = {"model": {"trunk": trunk, "heads": heads}, "meta": {"config": {}}}
    contents = {"phase_idx": 7, "classy_state_dict": {"base_model": model, "train": False}}
    return Case(contents, {"": net, "torchvision:resnet50": net}, "simclr.torch")


def byol() -> Case:
    arrays = {"res_net50/~/initial_conv": {"w": np.zeros((7, 7, 3, 64), np.float32)}}

    def write(path: Path) -> None:
        path.write_bytes(pickle.dumps({"experiment_state": arrays, "step": 1}))

    return Case(write, {"": "pickle of other code"}, "pretrain_res50x1.pkl")


def ijepa() -> Case:
    target, online = (hugging("IJepa", 1280, 16) for _ in range(2))
    contents = {
        "encoder": prefixed("module.", official(online)),
        "predictor": {"module.predictor_embed.weight": torch.zeros(384, 1280)},
        "target_encoder": prefixed("module.", official(target)),
        "epoch": 300,
    }

    def mean(x: Tensor) -> Tensor:
        return target(pixel_values=x).last_hidden_state.mean(dim=1)

    return Case(contents, {"": mean}, "IN1K-vit.h.14-300e.pth.tar")


def mae_tuned() -> Case:
    net = vit(768, 12, global_pool="avg")
    head = {"head.weight": torch.zeros(1000, 768), "head.bias": torch.zeros(1000)}
    return Case({"model": net.state_dict() | head}, {"": net}, "mae_finetuned_vit_base.pth")


def dinov3() -> Case:
    more = {"num_register_tokens": 4, "patch_size": 16, "image_size": 224, "layer_norm_eps": 1e-5}
    model = hugging("DINOv3ViT", 384, 6, 12, **more)
    tensors = renamed(official(model), ("^register_tokens$", "storage_tokens"))
    mask = torch.cat([torch.ones(384), torch.zeros(384), torch.ones(384)])
    tensors |= {f"blocks.{i}.attn.qkv.bias_mask": mask for i in range(12)}
    tensors["rope_embed.periods"] = 100 ** (2 * torch.arange(16.0) / 32)

    def patches(x: Tensor) -> Tensor:
        """Their mean, which timm's model gives; a class token and four registers come before."""
        return model(pixel_values=x).last_hidden_state[:, 5:].mean(dim=1)

    ways: dict[str, Compute | str] = {
        "": "give timm:NAME, as timm:vit_small_patch16_dinov3",
        "timm:vit_small_patch16_dinov3": "12 of its trunk's tensors find no place",
        "timm:vit_small_patch16_dinov3_qkvb": patches,
    }
    return Case(tensors, ways, "dinov3_vits16_pretrain.pth", 224)


def dinov2_training() -> Case:
    model = hugging("Dinov2", 384, 6, 4)
    # two chunks of two blocks
    chunked = {
        re.sub(r"blocks\.(\d+)", lambda m: f"blocks.{int(m[1]) // 2}.{m[1]}", n): t
        for n, t in official(model).items()
    }
    heads = {"dino_head.mlp.0.weight": torch.zeros(2048, 384)}
    contents = {"teacher": prefixed("backbone.", chunked) | heads}
    return Case(contents, {"": token(model)}, "teacher_checkpoint.pth")


def beit() -> Case:
    more = {"image_size": 224, "patch_size": 16, "use_relative_position_bias": True}
    model = hugging("Beit", 768, 12, 12, layer_scale_init_value=0.1, **more)
    tensors = official(model, split_bias=True)
    index = {f"blocks.{i}.attn.relative_position_index": torch.zeros(197, 197).long()
             for i in range(12)}  # fmt: skip
    ways: dict[str, Compute | str] = {
        "": "give timm:NAME, as timm:beit_base_patch16_224",
        "timm:beit_base_patch16_224": lambda x: model(pixel_values=x).pooler_output,
    }
    return Case({"model": tensors | index}, ways, "beit_base_patch16_224_ft22kto1k.pth", 224)


def beit_early() -> Case:
    """Before fine-tuning: one table of relative positions for all blocks, a norm of the tokens."""
    tensors = beit().contents["model"]
    tensors = renamed(tensors, (r"^fc_norm\.", "norm."))
    table = tensors["blocks.0.attn.relative_position_bias_table"]
    tensors = {n: t for n, t in tensors.items() if "relative_position" not in n}
    tensors |= {"rel_pos_bias.relative_position_bias_table": table}
    tensors |= {"mask_token": torch.zeros(1, 1, 768), "lm_head.bias": torch.zeros(8192)}
    ways = {"timm:beit_base_patch16_224": "is missing"}
    return Case({"model": tensors}, ways, "beit_base_patch16_224_pt22k.pth", 224)


def mmselfsup(width: int, heads: int) -> Case:
    net = vit(width, heads)
    if width == 384:  # MoCo v3's ViT-Small, whose positions are sines
        net.pos_embed.data[:, 0] = 0
    names = renamed(
        net.state_dict(), (r"^norm\.", "ln1."), (r"blocks\.(\d+)\.norm", r"layers.\1.ln"),
        (r"mlp\.fc1", "ffn.layers.0.0"), (r"mlp\.fc2", "ffn.layers.1"), ("blocks", "layers"),
        (r"patch_embed\.proj", "patch_embed.projection"),
    )  # fmt: skip
    neck = {"neck.decoder_embed.weight": torch.zeros(512, width)}
    return Case({"meta": {}, "state_dict": prefixed("backbone.", names) | neck}, {"": net})


def solo() -> Case:
    net = vit(192, 12)
    net.pos_embed.data[:, 0] = 0
    head = {"classifier.weight": torch.zeros(10, 192), "decoder.mask_token": torch.zeros(1, 1, 8)}
    return Case({"state_dict": prefixed("backbone.", net.state_dict()) | head}, {"": net})


def bare_safetensors() -> Case:
    model = hugging("Dinov2", 384, 6)

    def write(path: Path) -> None:
        model.save_pretrained(path.parent)

    ways = {"": "give hf:FOLDER", "hf:.": lambda x: model(pixel_values=x).pooler_output}
    return Case(write, ways, "model.safetensors")


def swav() -> Case:
    net: Any = draw_parameters(models.resnet50(weights=None))
    net.fc = nn.Identity()
    head = nn.Sequential(
        nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, 128)
    )
    names = net.state_dict() | prefixed("projection_head.", draw_parameters(head).state_dict())
    names["prototypes.weight"] = torch.zeros(3000, 128)
    contents = prefixed("module.", names)
    return Case(contents, {"": net}, "swav.pth.tar", more={"head": head})


def safetensors_of_timm() -> Case:
    """What needs no translation still loads."""
    net = build_named("vit_small_patch16_224")

    def write(path: Path) -> None:
        save_file(net.state_dict(), path)

    return Case(write, {"": net, "timm:vit_small_patch16_224": net}, "model.safetensors", 224)


CASES: dict[str, Callable[[], Case]] = {
    "MAE ViT-Huge": mae_huge, "ViT of width 1408": partial(widths, 1408),
    "ViT of width 1664": partial(widths, 1664), "seresnet50": seresnet, "ViT with qk_norm": qk_norm,
    "DINOv2 with registers": registers, "DINOv2 with registers, ViT-S/14": registers_named,
    "DeiT III, gamma_1 and gamma_2": layer_scale, "DINOv2 giant, SwiGLU": giant,
    "OpenAI's CLIP, TorchScript": clip, "a ResNet in a TorchScript archive": archived_resnet,
    "VISSL": vissl, "BYOL, JAX": byol, "I-JEPA": ijepa, "MAE fine-tuned": mae_tuned,
    "DINOv3": dinov3, "DINOv2 in training": dinov2_training, "BEiT fine-tuned": beit,
    "BEiT": beit_early, "mmselfsup, ViT-B": partial(mmselfsup, 768, 12),
    "mmselfsup, MoCo v3's ViT-S": partial(mmselfsup, 384, 12),
    "solo-learn, ViT-Ti of MAE or MoCo v3": solo, "transformers' safetensors": bare_safetensors,
    "SwAV": swav, "timm's safetensors": safetensors_of_timm,
}  # fmt: skip


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest value; 1 for features of another shape."""
    if actual.shape != expected.shape:
        return 1.0
    return float((actual - expected).abs().max() / expected.abs().max())


def tried(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """What came of each way to bring the encoder of that name."""
    torch.manual_seed(sum(name.encode()))
    case = CASES[name]()
    path = folder / case.name
    case.contents(path) if callable(case.contents) else torch.save(case.contents, path)
    pixels = torch.rand(2, 3, case.size, case.size)
    for way, expected in case.ways.items():
        spec = f"hf:{folder}" if way == "hf:." else way or str(path)
        checkpoint = None if way in ("", "hf:.") else path
        row = {"encoder": name, "given": way.replace("hf:.", "hf:FOLDER") or path.name}
        try:
            released = load(spec, checkpoint=checkpoint)
        except InputError as error:
            message = str(error).replace(f"{folder}/", "")
            right = isinstance(expected, str) and expected in message and "\n" not in message
            yield row | {"refused": message, "right": right}
            continue
        except Exception as error:
            message = str(error).replace(f"{folder}/", "")
            yield row | {"refused": f"{type(error).__name__}: {message}", "right": False}
            continue
        encoder = released.method.encoder
        with torch.no_grad():
            x = encoder.normalise(pixels)
            got = encoder.features(pixels, ("avgpool", "encoder"))
            if isinstance(expected, str):
                yield row | {"error": 1.0, "right": False}  # it should have been refused
                continue
            vector = expected(x)
            error = relative_difference(got["avgpool"], vector)
            if "head" in case.more:
                error = max(error, relative_difference(got["encoder"], case.more["head"](vector)))
        yield row | {"error": error, "right": error <= BOUND, "notes": released.notes}


def table(rows: list[dict[str, Any]]) -> str:
    """One line each, as Markdown."""
    lines = ["| encoder | given | features differ by, or the refusal |", "|---|---|---|"]
    for row in rows:
        what = row["refused"] if "refused" in row else f"{row['error']:.1e}"
        wrong = "" if row["right"] else "**wrong** "
        lines.append(f"| {row['encoder']} | {row['given']} | {wrong}{what} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="encoders whose name contains this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in (name for name in CASES if arguments.only in name):
        with tempfile.TemporaryDirectory() as folder:
            for row in tried(name, Path(folder)):
                rows.append(row)
                print(json.dumps(row), flush=True)
    where = describe()
    where["versions"] |= {n: version(n) for n in ("timm", "transformers", "open_clip_torch")}
    report = {"bound": BOUND, "right": all(r["right"] for r in rows), "encoders": rows} | where
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    arguments.out.with_suffix(".md").write_text(table(rows))
    print(f"{sum(r['right'] for r in rows)} of {len(rows)} as they should be")
    return int(not report["right"])


if __name__ == "__main__":
    sys.exit(main())
