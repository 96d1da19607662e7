"""MoCo v1 (He et al., CVPR 2020) with the public CIFAR recipe's options."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import Backbone, initialise
from fedmia.settings.option import option
from fedmia.ssl._options import crop_option, flip_option, jitter_option
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL, Encoder, Recipe, SSLMethod, State


def info_nce(q: Tensor, k: Tensor, negatives: Tensor, T: float) -> Tensor:
    """InfoNCE of each query, (B,): -log exp(q.k/T) / (exp(q.k/T) + sum_n exp(q.n/T)).

    Args:
        q, k: (B, P) of unit length.
        negatives: (K, P) of unit length, K >= 0.
        T: temperature, > 0.
    """
    positive = (q * k).sum(dim=1, keepdim=True)  # Bx1
    logits = torch.cat([positive, q @ negatives.T], dim=1) / T  # Bx(1+K)
    return torch.logsumexp(logits, dim=1) - logits[:, 0]


class MomentumContrast(SSLMethod):
    """Query encoder, momentum key encoder, and a queue of K keys that takes batches of any size."""

    queue: Tensor  # (K, P), a buffer

    def __init__(self, encoder: Encoder, spec: MoCo, K: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = encoder
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.spec = spec
        dim = spec.dim
        queue = F.normalize(torch.randn(K, dim, generator=generator), dim=1)
        self.register_buffer("queue", queue)
        self.pointer = 0
        self._new_keys: list[Tensor] = []
        # Walking the modules at every step costs a tenth of a small encoder's training.
        self._keys: list[Tensor] = list(self.key_encoder.parameters())
        self._queries: list[Tensor] = list(self.encoder.parameters())

    @property
    def K(self) -> int:
        """Length of the queue."""
        return len(self.queue)

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """L(q1, k2), or the mean of both directions if symmetric (keys enqueued once, after)."""
        with torch.no_grad():
            k2 = F.normalize(self.key_encoder(view2), dim=1)
            k1 = F.normalize(self.key_encoder(view1), dim=1) if self.spec.symmetric else None
        negatives = self.queue.clone()  # the step after backward writes into the queue
        q1 = F.normalize(self.encoder(view1), dim=1)
        loss = info_nce(q1, k2, negatives, self.spec.temperature)
        self._new_keys = [k2]
        if k1 is not None:
            q2 = F.normalize(self.encoder(view2), dim=1)
            loss = (loss + info_nce(q2, k1, negatives, self.spec.temperature)) / 2
            self._new_keys.append(k1)
        return loss

    @torch.no_grad()
    def after_step(self) -> None:
        """k <- m k + (1 - m) q on parameters (Eq. 2), then enqueue the batch's keys.

        Batch norm's running statistics stay the key encoder's own, as in the public code.
        """
        torch._foreach_lerp_(self._keys, self._queries, 1 - self.spec.momentum)
        for new in self._new_keys:
            self.enqueue(new)
        self._new_keys = []

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Overwrite the oldest entries with `keys` (B, P); of more than K only the last K stay."""
        keys = keys[-self.K :].to(self.queue.dtype) if self.K else keys[:0]
        at = (torch.arange(len(keys), device=self.queue.device) + self.pointer) % max(self.K, 1)
        self.queue[at] = keys
        self.pointer = (self.pointer + len(keys)) % max(self.K, 1)

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """L1 + L2 of Algorithm 1 (Chen et al.), with the method's own temperature."""
        z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
        T, negatives = self.spec.temperature, self.queue.to(z1.dtype)
        return info_nce(z1, z2, negatives, T) + info_nce(z2, z1, negatives, T)

    @torch.no_grad()
    def fill_bank(self, pixels: Tensor) -> None:
        keys = [self.encoder(part) for part in pixels.split(1024)]
        self.queue = F.normalize(torch.cat(keys), dim=1)
        self.pointer = 0

    def begin_first_round(self) -> None:
        """The key encoder starts as a copy of the global one."""
        self.key_encoder.load_state_dict(self.encoder.state_dict())

    def begin_round(self) -> None:
        """Apply the policies `key` and `queue_policy` to what was kept."""
        if self.spec.key == "reset":
            self.begin_first_round()

    def local_state(self) -> State:
        kept = {f"key.{n}": t.detach().clone() for n, t in self.key_encoder.state_dict().items()}
        if self.spec.queue_policy == "keep":
            kept["queue"] = self.queue.detach().clone()
            kept["pointer"] = torch.tensor(self.pointer)
        return kept

    def load_local(self, state: State) -> None:
        """Restore the queue, and the key encoder where `state` holds one."""
        own = {n.removeprefix("key."): t for n, t in state.items() if n.startswith("key.")}
        if own:
            self.key_encoder.load_state_dict(own)
        if "queue" in state:
            self.queue = state["queue"].to(self.queue.device).clone()
            self.pointer = int(state["pointer"])


@dataclass(frozen=True)
class MoCo(SSL):
    """MoCo v1: momentum key encoder, queue, linear head."""

    paper: ClassVar[str] = "He et al., CVPR 2020, arXiv 1911.05722"

    dim: int = option(128, "length of the projected vector", ge=2)
    queue: int = option(4096, "K, keys in the queue; at most half the client's images", ge=1)
    momentum: float = option(0.99, "m of the key encoder's moving average", ge=0, le=1)
    temperature: float = option(
        0.1, "T of InfoNCE (0.1 as in the public CIFAR recipe; 0.07 on ImageNet)", gt=0
    )
    crop_min: float | None = crop_option()
    flip: float | None = flip_option()
    jitter: float | None = jitter_option()
    symmetric: bool = option(False, "average the loss over both directions")
    key: str = option(
        "keep",
        "key encoder when a round begins: the client's own, or a copy of the global one",
        choices=("keep", "reset"),
    )
    queue_policy: str = option(
        "keep", "queue when a round begins: the client's own, or random", choices=("keep", "reset")
    )

    @property
    def augment(self) -> Augment:
        return self.recipe(jitter_p=1.0, hue=0.4, blur_p=0.0)

    def recipe(self, *, jitter_p: float, hue: float, blur_p: float) -> Augment:
        """The public recipe's views, with this method's crop, flip and jitter in their place."""
        s = 1.0 if self.jitter is None else self.jitter
        return Augment(
            crop_min=0.2 if self.crop_min is None else self.crop_min,
            flip=0.5 if self.flip is None else self.flip,
            jitter_p=jitter_p,
            brightness=0.4 * s,
            contrast=0.4 * s,
            saturation=0.4 * s,
            hue=min(hue * s, 0.5),
            blur_p=blur_p,
        )

    def head(self, width: int) -> nn.Module:
        """Projection head on features of length `width`."""
        return nn.Linear(width, self.dim)

    def queue_length(self, images: int | None) -> int:
        """K, cut to half of the holder's images: a longer queue holds each image's own old key."""
        return self.queue if images is None else max(1, min(self.queue, images // 2))

    def build(
        self, backbone: Backbone, recipe: Recipe, generator: torch.Generator
    ) -> MomentumContrast:
        encoder = Encoder(backbone, self.head(backbone.width), recipe.mean, recipe.std)
        initialise(encoder, generator)
        return MomentumContrast(encoder, self, self.queue_length(recipe.images), generator)

    def notes(self, images: int) -> list[str]:
        K = self.queue_length(images)
        if self.queue == K:
            return []
        return [
            f"queue cut from {self.queue} to {K}, half of {images} images, or each image "
            "would meet its own old key as a negative"
        ]
