"""Files of encoders in the forms of public code, from random weights with the official key names.

The networks are torchvision's and timm's; how each code base wraps, names and saves them is
transcribed here, and `Form.make` returns what the wrapped network computes.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, ResNet

SIZE = 32


@dataclass(frozen=True)
class Made:
    """What a file should hold.

    Attributes:
        contents: what torch.save writes. backbone, head: of the encoder in it, in evaluation.
        key: of `--checkpoint-key`, None: the form's own choice.
    """

    contents: Any
    backbone: nn.Module
    head: nn.Module | None
    key: str | None = None


def spread(module: nn.Module) -> nn.Module:
    """Statistics as training leaves them, in place of zeros and ones."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            if part.weight is not None:
                nn.init.uniform_(part.weight, 0.5, 1.5)
    return module.eval()


def resnet(cifar: int | None = None) -> Any:
    """Four blocks without a classifier; `cifar`: with the small stem of that padding."""
    module = ResNet(BasicBlock, [1, 1, 1, 1])
    module.fc = nn.Identity()
    if cifar is not None:
        module.conv1 = nn.Conv2d(3, 64, 3, 1, cifar, bias=False)
        module.maxpool = nn.Identity()
    return spread(module)


def vit(width: int = 192, heads: int = 3, size: int = SIZE) -> nn.Module:
    """timm's, two blocks deep, patches of 8."""
    from timm.models.vision_transformer import VisionTransformer

    module = VisionTransformer(size, 8, 3, 0, embed_dim=width, depth=2, num_heads=heads)
    nn.init.normal_(module.pos_embed)
    nn.init.normal_(module.cls_token)
    return module.eval()


def mlp(*widths: int, last: bool = False) -> Any:
    """Linear, batch norm, ReLU ..; `last`: a batch norm without weights at the end."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
        layers.append(nn.Linear(a, b, bias=False))
        if i < len(widths) - 2:
            layers += [nn.BatchNorm1d(b), nn.ReLU()]
    end = [nn.BatchNorm1d(widths[-1], affine=False)] if last else []
    return spread(nn.Sequential(*layers, *end))


def state(wrapped: str = "", **parts: nn.Module) -> dict[str, Tensor]:
    """`a.b.` for the keyword `a__b`, before the names of that module; `wrapped` before all."""
    return {
        f"{wrapped}{name.replace('__', '.')}.{n}": t
        for name, part in parts.items()
        for n, t in part.state_dict().items()
    }


def moco_v1() -> Made:
    net, head = resnet(), nn.Linear(512, 16)
    names = state("module.", encoder_q=net, encoder_q__fc=head, encoder_k=resnet())
    queue = {"module.queue": torch.rand(16, 32), "module.queue_ptr": torch.zeros(1)}
    return Made({"epoch": 1, "arch": "resnet18", "state_dict": names | queue}, net, head)


def moco_v2() -> Made:
    net, head = resnet(), nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 16))
    key, keyhead = resnet(), copy.deepcopy(head)
    names = state(encoder_q=net, encoder_q__fc=head, encoder_k=key, encoder_k__fc=keyhead)
    return Made({"state_dict": names}, net, head)


def moco_key() -> Made:
    form_file = moco_v2()
    net, head = resnet(), nn.Linear(512, 16)
    names = state(encoder_k=net, encoder_k__fc=head)
    left = {n: t for n, t in form_file.contents["state_dict"].items() if "encoder_k" not in n}
    return Made({"state_dict": left | names}, net, head, "encoder_k")


def moco_notebook() -> Made:
    net, head = resnet(cifar=1), nn.Linear(512, 16)
    parts = [net.conv1, net.bn1, net.relu, net.layer1, net.layer2, net.layer3, net.layer4]
    parts += [net.avgpool, nn.Flatten(1), head]
    names = state(encoder_q__net=nn.Sequential(*parts), encoder_k__net=nn.Sequential(*parts))
    return Made({"state_dict": names}, net, head)


def moco_v3_resnet() -> Made:
    net, head = resnet(), mlp(512, 64, 16, last=True)
    names = state(
        "module.", base_encoder=net, base_encoder__fc=head, momentum_encoder=resnet(),
        momentum_encoder__fc=mlp(512, 64, 16, last=True), predictor=mlp(16, 64, 16),
    )  # fmt: skip
    return Made({"state_dict": names}, net, head)


def moco_v3_vit() -> Made:
    net, head = vit(384, 12), mlp(384, 64, 64, 16, last=True)
    names = state("module.", base_encoder=net, base_encoder__head=head, predictor=mlp(16, 64, 16))
    return Made({"state_dict": names}, net, head)


def simsiam() -> Made:
    net = resnet()
    head = nn.Sequential(
        *mlp(512, 512, 512)[:-1], nn.Linear(512, 512, bias=False), nn.BatchNorm1d(512), nn.ReLU(),
        nn.Linear(512, 64), nn.BatchNorm1d(64, affine=False),
    )  # fmt: skip
    names = state("module.", encoder=net, encoder__fc=head, predictor=mlp(64, 16, 64))
    return Made({"state_dict": names}, net, spread(head))


def dino(of: str = "teacher", net: Callable[[], nn.Module] = vit) -> Made:
    both = {}
    for who, outer in (("student", "module."), ("teacher", "")):
        backbone = net()
        width = 512 if isinstance(backbone, ResNet) else 192
        layers = [nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8)]
        head = nn.Sequential(*layers)
        last = {"weight_g": torch.ones(24, 1), "weight_v": torch.randn(24, 8)}
        names = state(outer, backbone=backbone, head__mlp=head)
        names |= {f"{outer}head.last_layer.{n}": t for n, t in last.items()}
        both[who] = names, backbone, head
    args = argparse.Namespace(arch="vit_small", output_dir=Path("."), norm_last_layer=True)
    contents = {who: names for who, (names, _, _) in both.items()}
    contents |= {"optimizer": {"state": {}}, "epoch": 3, "args": args}
    contents["dino_loss"] = {"center": torch.zeros(1, 24)}
    return Made(contents, *both[of][1:], None if of == "teacher" else of)


def mae() -> Made:
    net = vit()
    decoder = {"mask_token": torch.zeros(1, 1, 32), "decoder_pos_embed": torch.zeros(1, 17, 32)}
    decoder |= state(decoder_embed=nn.Linear(192, 32), decoder_pred=nn.Linear(32, 192))
    args = argparse.Namespace(model="mae_vit_base_patch16", mask_ratio=0.75)
    return Made({"model": net.state_dict() | decoder, "epoch": 1, "args": args}, net, None)


def solo_learn() -> Made:
    net, head = resnet(cifar=2), nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 16))
    names = state(
        backbone=net, classifier=nn.Linear(512, 10), projector=head, momentum_backbone=resnet(2),
        momentum_projector=copy.deepcopy(head),
    )  # fmt: skip
    names["queue"] = torch.rand(2, 16, 32)
    version = {"pytorch-lightning_version": "2.0", "hyper_parameters": {"cfg": {"method": "moco"}}}
    return Made({"state_dict": names, **version}, net, head)


def lightly(cifar: bool = False) -> Made:
    net = resnet()
    parts = [net.conv1, net.bn1, net.relu, net.maxpool, net.layer1, net.layer2, net.layer3]
    parts += [net.layer4, net.avgpool]
    if cifar:  # lightly's own ResNet holds no ReLU that an nn.Sequential of its children would run
        net = resnet(cifar=1)
        net.relu = nn.Identity()
        parts = [net.conv1, net.bn1, net.layer1, net.layer2, net.layer3, net.layer4, net.avgpool]
    head = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 16))
    names = state(backbone=nn.Sequential(*parts), projection_head__layers=head)
    names |= state(backbone_momentum=nn.Sequential(*parts), projection_head_momentum__layers=head)
    if cifar:
        names = {
            n.replace(".downsample.", ".shortcut."): t.repeat(4) if "running" in n else t
            for n, t in names.items()
        }  # of a batch norm in four parts
    return Made({"state_dict": names}, net, head)


def simclr() -> Made:
    net, head = resnet(cifar=1), mlp(512, 64, 16)
    parts = [net.conv1, net.bn1, net.relu, net.layer1, net.layer2, net.layer3, net.layer4]
    return Made(state(f=nn.Sequential(*parts, net.avgpool), g=head), net, head)


def kuangliu() -> Made:
    net = resnet(cifar=1)
    names = state("module.", **dict(net.named_children())) | state(linear=nn.Linear(512, 10))
    return Made(
        {"net": {n.replace("downsample", "shortcut"): t for n, t in names.items()}}, net, None
    )


PLAIN: tuple[Callable[[], Made], ...] = (
    moco_v1, moco_v2, moco_key, moco_notebook, moco_v3_resnet, moco_v3_vit, simsiam, dino, mae,
    solo_learn, lightly, simclr, kuangliu,
)  # fmt: skip
FORMS: dict[str, Callable[[], Made]] = {form.__name__: form for form in PLAIN} | {
    "dino_student": lambda: dino("student"),
    "dino_resnet": lambda: dino("teacher", resnet),
    "lightly_cifar": lambda: lightly(cifar=True),
}


def make(form: str, path: Path) -> Made:
    """Write a file of that form; its weights depend on nothing but its name."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(sum(form.encode()))
        drawn = FORMS[form]()
        torch.save(drawn.contents, path)
    return drawn
