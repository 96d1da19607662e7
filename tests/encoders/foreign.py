"""Files in the layouts of public code that differ from timm's and torchvision's by more than names.

Each is drawn at random, small but of the widths that tables go by; `NETS` holds what the library
of each computes: timm's own transformer, where its options say the same as the other code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.nets.resnet import BasicBlock, ResNet
from tests.encoders.forms import SIZE, Made, spread, state

State = Mapping[str, Tensor]


def vit(width: int = 192, heads: int = 3, **options: Any) -> Any:
    """timm's, patches of 8, a small MLP; every parameter drawn, those that start as zeros too."""
    from timm.models.vision_transformer import VisionTransformer

    norm = partial(nn.LayerNorm, eps=1e-6)
    usual = {"depth": 1, "num_classes": 0, "mlp_ratio": 32 / width, "norm_layer": norm}
    module = VisionTransformer(SIZE, 8, embed_dim=width, num_heads=heads, **(usual | options))
    return drawn(module)


def drawn(module: nn.Module) -> Any:
    """Vectors and tables around where they start; matrices so that heads attend differently."""
    for name, tensor in module.named_parameters():
        if tensor.ndim < 2 or "token" in name or "pos" in name or "table" in name:
            tensor.data += 0.3 * torch.randn_like(tensor)
        elif "qkv" in name or "q_proj" in name or "k_proj" in name:
            tensor.data *= 4
    return module.eval()


def resnet() -> Any:
    """The house's narrow one, which has torchvision's names; 48 outputs."""
    return spread(ResNet(BasicBlock, (1, 1, 1, 1), 3, 6, "batch", "cifar"))


def renamed(tensors: State, *rules: tuple[str, str]) -> dict[str, Tensor]:
    """`re.sub(old, new)` on every name, rule after rule."""
    state = {}
    for name, tensor in tensors.items():
        for old, new in rules:
            name = re.sub(old, new, name)
        state[name] = tensor
    return state


def qk_norm() -> Made:
    net = vit(64, 2, qk_norm=True)
    return Made(net.state_dict(), net, None)


def registers() -> Made:
    """DINOv2's hub: the class token has a position in the table, registers have none."""
    net = vit(reg_tokens=4, no_embed_class=True, init_values=0.1)
    tensors = renamed(net.state_dict(), ("reg_token", "register_tokens"))
    own = torch.randn(1, 1, 192)
    tensors["cls_token"] = tensors["cls_token"] - own
    tensors["pos_embed"] = torch.cat([own, tensors["pos_embed"]], dim=1)
    return Made(tensors | {"mask_token": torch.ones(1, 192)}, net, None)


def layer_scale() -> Made:
    net = vit(init_values=0.1)
    return Made(renamed(net.state_dict(), (r"ls([12])\.gamma", r"gamma_\1")), net, None)


def dinov2_giant() -> Made:
    from timm.layers import SwiGLUPacked

    net = vit(init_values=0.1, mlp_layer=SwiGLUPacked, act_layer=nn.SiLU)
    tensors = renamed(net.state_dict(), (r"mlp\.fc1", "mlp.w12"), (r"mlp\.fc2", "mlp.w3"))
    return Made(tensors | {"mask_token": torch.ones(1, 192)}, net, None)


def dinov2_training() -> Made:
    """Blocks in chunks, each after as many places as blocks came before."""
    net = vit(depth=2, init_values=0.1)
    names = renamed(net.state_dict(), (r"blocks\.(\d+)\.", r"blocks.\1.\1."))
    teacher = {f"backbone.{n}": t for n, t in names.items()} | state(dino_head=nn.Linear(192, 8))
    return Made({"teacher": teacher}, net, None)


def dinov2_model() -> Made:
    form_file = dinov2_training()
    teacher = {f"teacher.{n}": t for n, t in form_file.contents["teacher"].items()}
    student = {n.replace("teacher", "student", 1): t + 1 for n, t in teacher.items()}
    return Made({"model": student | teacher, "iteration": 1}, form_file.backbone, None)


def ijepa(of: str = "target_encoder") -> Made:
    """No class token, the last norm before the pooling."""
    both = {n: vit(class_token=False, global_pool="avg", fc_norm=False) for n in JEPA}
    contents = {n: {f"module.{k}": t for k, t in m.state_dict().items()} for n, m in both.items()}
    contents["predictor"] = {"module.predictor_embed.weight": torch.ones(8, 192)}
    key = None if of == "target_encoder" else of
    return Made(contents | {"epoch": 1}, both[of], None, key)


JEPA = ("encoder", "target_encoder")


def mae_tuned() -> Made:
    """Fine-tuned with global pooling: patches are averaged, then normed."""
    net = vit(global_pool="avg")
    return Made({"model": net.state_dict() | state(head=nn.Linear(192, 10))}, net, None)


def mmselfsup(width: int = 192, heads: int = 3, sines: bool = False, last: str = "ln1") -> Made:
    net = vit(width, heads)
    if sines:
        net.pos_embed.data[:, 0] = 0
    names = renamed(
        net.state_dict(),
        (r"^norm\.", f"{last}."),
        (r"blocks\.(\d+)\.norm", r"layers.\1.ln"),
        (r"mlp\.fc1", "ffn.layers.0.0"),
        (r"mlp\.fc2", "ffn.layers.1"),
        ("blocks", "layers"),
        (r"patch_embed\.proj", "patch_embed.projection"),
    )
    tensors = {f"backbone.{n}": t for n, t in names.items()} | state(neck=nn.Linear(width, 8))
    return Made({"meta": {"epoch": 1}, "state_dict": tensors}, net, None)


def solo_vit() -> Made:
    """solo-learn's ViT-Tiny under MoCo v3 and MAE has twelve heads, and positions of sines."""
    net, head = vit(192, 12), nn.Linear(192, 8)
    net.pos_embed.data[:, 0] = 0
    names = state(backbone=net, projector=head, classifier=nn.Linear(192, 10))
    return Made({"state_dict": names}, net, head)


def vissl() -> Made:
    net = resnet()
    trunk = {f"_feature_blocks.{n}": t for n, t in net.state_dict().items()}
    model = {"trunk": trunk, "heads": state(**{"0__clf__0": nn.Linear(48, 8)})}
    classy = {"base_model": {"model": model, "meta": {}}, "train": True}
    return Made({"phase_idx": 1, "classy_state_dict": classy}, net, None)


def swav() -> Made:
    net = resnet()
    head = nn.Sequential(nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16)).eval()
    names = state("module.", projection_head=head, prototypes=nn.Linear(16, 30, bias=False))
    names |= {f"module.{n}": t for n, t in net.state_dict().items()}
    return Made(names, net, head)


def squeezing() -> Made:
    """A ResNet whose blocks squeeze and excite."""
    net = resnet()
    extra = state("layer1.0.", se__fc1=nn.Conv2d(6, 3, 1), se__fc2=nn.Conv2d(3, 6, 1))
    return Made({"state_dict": net.state_dict() | extra}, net, None)


PLAIN: tuple[Callable[[], Made], ...] = (
    qk_norm, registers, layer_scale, dinov2_giant, dinov2_training, dinov2_model, ijepa, mae_tuned,
    mmselfsup, solo_vit, vissl, swav,
)  # fmt: skip
LOADED: dict[str, Callable[[], Made]] = {form.__name__: form for form in PLAIN} | {
    "ijepa encoder": partial(ijepa, "encoder"),
    "mmselfsup older": partial(mmselfsup, last="norm1"),
    "mmselfsup moco v3": partial(mmselfsup, 384, 12, sines=True),
}


def dinov3(zero: bool = False, patch: int = 8) -> tuple[Made, nn.Module]:
    """DINOv3's hub layout of a small timm Eva, and another for it to go into.

    One bias for queries, keys and values with a mask over that of the keys, periods of the
    rotary positions, layer scale by other names.
    """
    from timm.models.eva import Eva

    def make() -> Any:
        return Eva(
            SIZE, patch, embed_dim=64, depth=1, num_heads=1, num_classes=0, mlp_ratio=0.5,
            num_reg_tokens=4, use_abs_pos_emb=False, use_rot_pos_emb=True, rope_type="dinov3",
            rope_temperature=100, init_values=0.1, qkv_bias=not zero, use_fc_norm=False,
            norm_layer=partial(nn.LayerNorm, eps=1e-5), global_pool="token",
        )  # fmt: skip

    net = drawn(make())
    tensors = renamed(
        net.state_dict(), ("reg_token", "storage_tokens"), (r"gamma_([12])$", r"ls\1.gamma")
    )
    query, value = (tensors.pop(f"blocks.0.attn.{n}_bias", torch.zeros(64)) for n in "qv")
    tensors["blocks.0.attn.qkv.bias"] = torch.cat([query, torch.zeros(64), value])
    masked = torch.cat([torch.ones(64), torch.zeros(64), torch.ones(64)])
    aside = {
        "blocks.0.attn.qkv.bias_mask": masked, "mask_token": torch.ones(1, 64),
        "rope_embed.periods": torch.ones(16), "local_cls_norm.weight": torch.ones(64),
    }  # fmt: skip
    return Made(tensors | aside, net, None), make()


def beit() -> tuple[Made, nn.Module]:
    """BEiT as its authors fine-tune it."""
    from timm.models.beit import Beit

    def make() -> Any:
        return Beit(
            SIZE, 8, embed_dim=64, depth=1, num_heads=1, num_classes=0, mlp_ratio=0.5,
            use_abs_pos_emb=False, use_rel_pos_bias=True, init_values=0.1,
        )  # fmt: skip

    net = drawn(make())
    index = {"blocks.0.attn.relative_position_index": torch.zeros(17, 17, dtype=torch.long)}
    head = state(head=nn.Linear(64, 10))
    return Made({"model": net.state_dict() | index | head}, net, None), make()


class Wrapped(nn.Module):
    """A backbone of its own class, beside a number and a list of numbers."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, self.size, self.sizes = backbone, SIZE, [SIZE, SIZE]

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x) * self.size * self.sizes[0]


class Counted(nn.Module):
    """An image tower beside numbers that are tensors."""

    def __init__(self, visual: nn.Module, openai: bool) -> None:
        super().__init__()
        self.visual, self.ln_final = visual, nn.LayerNorm(8)
        if openai:
            for name in ("input_resolution", "context_length", "vocab_size"):
                self.register_buffer(name, torch.tensor(SIZE))

    def forward(self, x: Tensor) -> Tensor:
        return self.ln_final(self.visual(x))


def clip(openai: bool = True) -> nn.Module:
    """The names of OpenAI's CLIP, and the numbers by which its archives are known."""
    tower = nn.Sequential()
    tower.add_module("conv1", nn.Conv2d(3, 8, 8, 8, bias=False))
    tower.add_module("ln_pre", nn.LayerNorm(4))
    return Counted(tower, openai)


def hugging_face() -> dict[str, Tensor]:
    return {
        "vit.embeddings.cls_token": torch.zeros(1, 1, 8),
        "vit.encoder.layer.0.attention.attention.query.weight": torch.zeros(8, 8),
    }


def pre_norm() -> dict[str, Tensor]:
    """CLIP's ViT by timm's names: a norm before the blocks, which no file alone is built with."""
    return vit().state_dict() | state(norm_pre=drawn(nn.LayerNorm(192)))


def distilled() -> dict[str, Tensor]:
    """A distilled DeiT: a second token."""
    net = vit()
    table = torch.cat([net.pos_embed, net.pos_embed[:, :1]], dim=1)
    return net.state_dict() | {"dist_token": torch.zeros(1, 1, 192) + 1, "pos_embed": table}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "squeeze and excite": (
        lambda: squeezing().contents,
        r"4 of its trunk's tensors find no place in file.pth \(layer1.0.se.fc1.weight, .*, \.\.\): "
        "it is of another network; name that: timm:NAME.*; .*allow_missing .* leaves them out",
    ),
    "CLIP's ViT": (pre_norm, "2 of its trunk's tensors find no place.*norm_pre.weight"),
    "a norm before the classifier": (
        lambda: vit().state_dict() | state(head__norm=drawn(nn.LayerNorm(192))),
        "2 of its trunk's tensors find no place.*head.norm.weight",
    ),
    "distilled DeiT": (distilled, "no ViT that its shapes tell; name it with timm:NAME"),
    "a width of any number of heads": (
        lambda: vit(64, 2).state_dict(), "no ViT that its shapes tell; name it with timm:NAME",
    ),
    "BEiT": (
        lambda: beit()[0].contents, "as timm:beit_base_patch16_224, with .*checkpoint .*file.pth"
    ),
    "DINOv3": (
        lambda: dinov3()[0].contents, "as timm:vit_small_patch16_dinov3, with .*checkpoint .*file"
    ),
    "CLIP": (lambda: clip().state_dict(), "it is a CLIP's: give open_clip:NAME with .*checkpoint "),
    "Hugging Face": (hugging_face, "its names are transformers': give hf:FOLDER, with its config"),
}  # fmt: skip
