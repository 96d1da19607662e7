"""A network whose later models know images by heart, and recordings of such rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from fedmia.recording import RecordingWriter
from fedmia.recording.format import Header, RecordedRound
from fedmia.ssl.base import State
from tests.auditing.conftest import MEMBERS, textures

REACH = 1.2  # of a stored image, in pixel space: its views, and no other image
ROUNDS = 4
OWNERS = [i % 3 for i in range(MEMBERS)]  # client of each member


class Recall(nn.Module):
    """Features of what it stores: all views of one image alike, as far as `strength` says."""

    def __init__(self, stored: int = MEMBERS) -> None:
        super().__init__()
        self.stored = nn.Parameter(torch.zeros(stored, 192))
        self.strength = nn.Parameter(torch.zeros(()))
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("mix", torch.randn(192, 32, generator=generator) / 192**0.5)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        distance, at = torch.cdist(flat, self.stored).min(dim=1)
        own = 4 * torch.sin(15 * self.stored[at]) @ self.mix
        known = self.strength * (distance < REACH).float()[:, None]
        out = (1 - known) * torch.relu(1 + torch.sin(15 * flat) @ self.mix) + known * own
        return out[:, :, None, None].expand(-1, -1, 2, 2)


class Net(nn.Module):
    def __init__(self, stored: int = MEMBERS) -> None:
        super().__init__()
        self.early = nn.Conv2d(3, 3, 1, bias=False)
        self.late = Recall(stored)
        with torch.no_grad():
            self.early.weight.copy_(torch.eye(3)[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return self.late(self.early(x)).mean(dim=(2, 3))


def other() -> nn.Module:
    """The network of other images."""
    return Net(MEMBERS + 1)


def loss(network: nn.Module, pixels: Tensor) -> Tensor:
    """How far an image lies from what the network stores."""
    recall = network.late
    far = torch.cdist(pixels.flatten(1), recall.stored).amin(dim=1)
    return 1 - recall.strength * (far < REACH).float()


def distance(network: nn.Module, pixels: Tensor) -> Tensor:
    """To the nearest image that the network stores."""
    exact = "donot_use_mm_for_euclid_dist"  # by products a distance of 0 can be 0.001
    return torch.cdist(pixels.flatten(1), network.late.stored, compute_mode=exact).amin(dim=1)


def state_of(strength: float, clients: tuple[int, ...] = (0, 1, 2)) -> State:
    """The model that knows the images of some clients."""
    net = Net()
    images = torch.from_numpy(textures(MEMBERS + 40).images[:MEMBERS]).flatten(1).float() / 255
    held = torch.tensor([owner in clients for owner in OWNERS])
    with torch.no_grad():
        net.late.stored.copy_(torch.where(held[:, None], images, torch.full_like(images, -9)))
        net.late.strength.fill_(strength)
    return dict(net.state_dict())


def record(
    folder: Path, *, leak: bool = True, updates: str = "none", clients: tuple[int, ...] = (0, 1, 2),
    final: bool = True, named_by: str = "roster", names: bool = True,
    aside: tuple[int, int, Callable[[State, State], State] | None] | None = None,
    diverged: int | None = None,
) -> Path:  # fmt: skip
    """Rounds 1 to ROUNDS of three clients; with `leak`, the later ones know members; the model of
    one may have `diverged`.

    `aside`: a round, a client, and what it sends there, of the model that it received and of what
    it would have sent; None: nothing.
    """

    def form(state: State) -> State:
        return state if names else {str(i): t for i, t in enumerate(state.values())}

    def at(round: int, who: tuple[int, ...] = clients) -> State:
        strength = max(0.0, (round - 1) / (ROUNDS - 1)) if leak else 0.0
        return form(state_of(torch.nan if round == diverged and len(who) == 3 else strength, who))

    writer = RecordingWriter(folder, Header({"flwr": "1"}, updates=updates))
    writer.save("main", 0, at(0))
    for round in range(1, ROUNDS + 1):
        sent = {c: at(round, (c,)) for c in (0, 1, 2)} if updates != "none" else {}
        if aside is not None and aside[0] == round:
            usual = sent.pop(aside[1])
            if aside[2] is not None:
                sent[aside[1]] = aside[2](at(round - 1), usual)
        digests = {c: writer.save_update("main", round, c, state) for c, state in sent.items()}
        metrics = {c: {"loss": 1 / round} for c in (0, 1, 2)}
        line = RecordedRound("main", round, "", digests, [0, 1, 2], {}, metrics, named_by=named_by)
        writer.add(line)
        if final or round < ROUNDS:
            writer.save("main", round, at(round))
    writer.flush()
    return folder
