"""SimCLR (Chen et al., 2020) on scikit-learn's digits; nothing here knows who federates."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import v2

MEMBERS = 128  # images that clients train on; nobody has the other 1,669
VIEW = v2.Compose([v2.RandomResizedCrop(8, scale=(0.5, 1)), v2.ColorJitter(0.4, 0.4)])


class DigitNet(nn.Module):
    """From pixels in [0, 1], (B, 1, 8, 8), to the vectors that the loss compares, (B, 64)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, stride in ((1, 32, 1), (32, 64, 2), (64, 128, 1)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.encoder = nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(512, 128)
        )
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(128, 64))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.encoder(pixels))


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Images, uint8 (1797, 1, 8, 8), members first, and their labels."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    images = (pixels * 255 / 16).round().astype(np.uint8).reshape(-1, 1, 8, 8)
    return images[order], labels[order]


def read_own(client: int, clients: int, alpha: float) -> Tensor:
    """Pixels of a client: of each digit it gets a share, from Dirichlet(alpha)."""
    images, labels = read_digits()
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(clients, alpha), 10)
    owners = np.array([rng.choice(clients, p=shares[label]) for label in labels[:MEMBERS]])
    return torch.from_numpy(images[:MEMBERS][owners == client]) / 255


def loss(net: nn.Module, pixels: Tensor) -> Tensor:
    """NT-Xent of each image: among the other views of the batch, find the one of the same image."""
    views = torch.stack([VIEW(one) for one in torch.cat([pixels, pixels])])
    z = F.normalize(net(views))
    similar = (z @ z.T / 0.5).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(z)).roll(len(pixels))
    return F.cross_entropy(similar, partner, reduction="none").view(2, -1).mean(0)


def train(net: nn.Module, pixels: Tensor, epochs: int, lr: float) -> float:
    """Train in place; the mean loss of the last epoch."""
    optimizer, losses = torch.optim.Adam(net.parameters(), lr), [0.0]
    net.train()
    for _ in range(epochs):
        losses = []
        for batch in pixels[torch.randperm(len(pixels))].split(64):
            each = loss(net, batch)
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            losses += each.tolist()
    return float(np.mean(losses))
