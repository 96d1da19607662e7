"""An encoder that somebody else trained, as the method that attacks expect."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.seeding import torch_rng
from fedmia.ssl.base import Encoder, SSLMethod, State
from fedmia.ssl.moco import info_nce

BANK = 1024  # random negatives before `fill_bank`
TEMPERATURE = 0.2  # MoCo v2's: what the encoder was trained with is not known
CHUNK = 256  # images a forward pass of `fill_bank`


class ReleasedMethod(SSLMethod):
    """A foreign encoder and a bank of negatives; it is attacked, never trained here.

    Args:
        width: P, length of the encoder's output.
        seed: of the unit vectors that the bank holds at first.
    """

    queue: Tensor  # (K, P) unit vectors

    def __init__(
        self, encoder: Encoder, width: int, seed: int, temperature: float = TEMPERATURE
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.temperature = temperature
        draws = torch.randn(BANK, width, generator=torch_rng(seed, "released", "bank"))
        self.register_buffer("queue", F.normalize(draws, dim=1), persistent=False)

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        raise RuntimeError("a released encoder is not trained here")

    def after_step(self) -> None:
        raise RuntimeError("a released encoder is not trained here")

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """InfoNCE of outputs (B, P) in both directions, added, against the bank: (B,)."""
        z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
        T, bank = self.temperature, self.queue.to(z1.dtype)
        return info_nce(z1, z2, bank, T) + info_nce(z2, z1, bank, T)

    @torch.no_grad()
    def fill_bank(self, pixels: Tensor) -> None:
        keys = [self.encoder(part).float() for part in pixels.split(CHUNK)]
        self.queue = F.normalize(torch.cat(keys), dim=1)

    def local_state(self) -> State:
        return {}

    def load_local(self, state: State) -> None:
        """There is none."""
