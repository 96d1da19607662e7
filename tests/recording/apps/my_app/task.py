"""The network, the images and the training; nothing here knows who federates or records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Net(nn.Sequential):
    """An encoder of CIFAR-shaped images; a projection head is thrown away after training."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(2048, 32),
        )  # fmt: skip


def write_images(folder: Path, clients: int, images: int = 16) -> None:
    """client0.npz, client1.npz, ..; members.npz: all of them; others0.npz, others1.npz: as many
    images each that nobody holds; all smooth random pictures, 32 x 32 of bytes."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(3 * clients * images, 3, 6, 6, generator=generator)
    smooth = F.interpolate(coarse, 32, mode="bicubic").clamp(0, 1).permute(0, 2, 3, 1)
    members, *others = np.split((smooth * 255).byte().numpy(), 3)
    sets = {f"client{c}": own for c, own in enumerate(np.split(members, clients))}
    sets |= {"members": members, "others0": others[0], "others1": others[1]}
    for name, x in sets.items():
        np.savez(folder / f"{name}.npz", x=x)


def read_images(folder: Path, name: str) -> Tensor:
    x = torch.from_numpy(np.load(folder / f"{name}.npz")["x"])
    return x.permute(0, 3, 1, 2).float() / 255


def views(images: Tensor) -> Tensor:
    """Each image cropped, flipped, brighter or darker."""
    down, right = (int(n) for n in torch.randint(0, 9, (2,)))
    images = F.pad(images, (4, 4, 4, 4))[..., down : down + 32, right : right + 32]
    images = images.flip(-1) if torch.rand(()) < 0.5 else images
    return images * (0.6 + 0.8 * torch.rand(len(images), 1, 1, 1))


def train(net: nn.Module, images: Tensor, epochs: int) -> float:
    """SimCLR: of all views in a batch, the other one of the same image is to be found."""
    head = nn.Linear(32, 16)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], 1e-3)
    loss = torch.zeros(())
    net.train()
    for _ in range(epochs):
        for batch in images[torch.randperm(len(images))].split(16):
            z = F.normalize(head(net(torch.cat([views(batch), views(batch)]))))
            similar = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
            loss = F.cross_entropy(similar, torch.arange(len(z)).roll(len(batch)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return float(loss.detach())
