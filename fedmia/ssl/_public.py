"""Images that belong to nobody, for a queue that holds no key of a private image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedmia.data.images import ByteArray
from fedmia.nets.keyed import keyed_uniforms
from fedmia.seeding import draw_seed
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State

PUBLIC = "public"  # what local state calls the seed and the number of images taken


class PublicImages(nn.Module):
    """Views of public images, in turn: which come next rests on how many came, on nothing else.

    Each is keyed by its pixels, a seed drawn when built and the number of images taken before.

    Args:
        images: uint8 (N, C, H, W), N >= 1.
        batch: views taken after a step, whatever batch the step saw: that of a Poisson sample is
            not public, and a queue that moved by its size would reveal it.
    """

    images: Tensor  # a buffer, of the run and not of the client: in no state

    def __init__(
        self, images: ByteArray, augment: Augment, batch: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.register_buffer("images", torch.from_numpy(images), persistent=False)
        self.augment = augment
        self.batch = batch
        self.draw(generator)

    def draw(self, generator: torch.Generator) -> None:
        """Begin anew, with another seed."""
        self.seed = draw_seed(generator)
        self.taken = 0

    @torch.no_grad()
    def views(self, count: int) -> Tensor:
        """(count, C, H, W) in [0, 1] of the next images; after the last comes the first again."""
        places = torch.arange(count, device=self.images.device) + self.taken
        chosen = self.images[places % len(self.images)]
        # An image that comes twice in one call gets the same view twice, as it has the same key.
        uniforms = keyed_uniforms(chosen.float(), self.seed + self.taken, self.augment.draws)
        self.taken += count
        return self.augment(chosen, uniforms)

    def state(self) -> State:
        return {PUBLIC: torch.tensor([self.seed, self.taken])}

    def load(self, state: State) -> None:
        """Restore what `state` gave, where it is there."""
        if PUBLIC in state:
            self.seed, self.taken = (int(value) for value in state[PUBLIC])
