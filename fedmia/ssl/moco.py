"""MoCo v1 (He et al., CVPR 2020) and v2 (Chen et al., 2020).

Views and heads are those of the public ImageNet code; momentum, queue and v1's temperature those of
its CIFAR-10 notebook, whose views differ: crops from 0.08 of the area, hue 0.1, jitter at p 0.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import Backbone, initialise
from fedmia.nets.split_norm import deal_in_blocks
from fedmia.records.note import Note
from fedmia.settings import option
from fedmia.ssl._harder import nce_against
from fedmia.ssl._options import HarderSSL, key_option, mixup_option, operations_option
from fedmia.ssl._public import PublicImages
from fedmia.ssl._twoview import KeyedTwoView
from fedmia.ssl.augment import Augment
from fedmia.ssl.bank import Bank, bank_length, cut_note, info_nce, long_note, revisit_probability
from fedmia.ssl.base import PART, Encoder, State, TrainingData


class MomentumContrast(KeyedTwoView):
    """Query encoder, momentum key encoder, and a queue of keys, the bank that it trains against.

    With `public` images the queue holds keys of these alone, from the first batch on: no image of
    the holder's shapes another's gradient but through the weights.

    Args:
        encoder: the query encoder.
        spec: the options.
        K: length of the queue.
        generator: the stream of the queue's random keys.
    """

    bank: Bank
    BANK = "queue"

    def __init__(self, encoder: Encoder, spec: MoCo, K: int, generator: torch.Generator) -> None:
        super().__init__(encoder, spec, bank=Bank.random(K, spec.dim, generator))
        self.public: PublicImages | None = None
        deal_in_blocks(self.key_encoder)

    @property
    def remembers(self) -> str:
        return "the key of an image that is in the queue" if self.public is None else ""

    @property
    def queue(self) -> Tensor:
        """Keys (K, P) of unit length."""
        return self.bank.rows

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """L(q1, k2), or the mean of both directions if symmetric (keys enqueued once, after)."""
        with torch.no_grad():
            k2 = F.normalize(self.key_encoder(view2), dim=1)
            k1 = F.normalize(self.key_encoder(view1), dim=1) if self.spec.symmetric else None
        negatives = self.queue.clone()  # the step after backward writes into the queue
        q1 = F.normalize(self.encoder(view1), dim=1)
        loss = info_nce(q1, k2, negatives, self.spec.temperature)
        keys: tuple[Tensor, ...] = (k2,)
        if k1 is not None:
            q2 = F.normalize(self.encoder(view2), dim=1)
            loss = (loss + info_nce(q2, k1, negatives, self.spec.temperature)) / 2
            keys += (k1,)
        if self.public is None:
            self.latest = keys
        return loss

    def against(self, mixed: Tensor, view2: Tensor) -> Tensor:
        """MixCo's: the batch's keys and the queue share one softmax."""
        with torch.no_grad():
            k = F.normalize(self.key_encoder(view2), dim=1)
        q = F.normalize(self.encoder(mixed), dim=1)
        return nce_against(q, k, self.queue.clone().to(q.dtype))

    def after_step(self) -> None:
        """The momentum update, then the batch's keys, or as many new ones of public images."""
        super().after_step()
        if self.public is not None:
            self._enqueue_public(self.public.batch)

    def begin_first_round(self) -> None:
        super().begin_first_round()
        self._enqueue_public(len(self.bank))

    def begin_round(self) -> None:
        super().begin_round()
        if self.spec.queue_policy == "reset":
            self._enqueue_public(len(self.bank))

    @torch.no_grad()
    def _enqueue_public(self, count: int) -> None:
        """Keys of the next public images, where it has such."""
        if self.public is None:
            return
        views = self.public.views(count)
        for part in views.split(max(1, PART // views[0].numel())):
            self.bank.enqueue(F.normalize(self.key_encoder(part), dim=1))

    def bank_rows(self, images: int | None) -> int:
        return int(self.spec.keys(images))

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        super().renew(images, generator)
        if self.public is not None:
            self.public.draw(generator)
        return True

    @property
    def stackable(self) -> bool:
        own = self.public is None and self.comes_back and not self.spec.harder
        return own and type(self).after_step is MomentumContrast.after_step

    @property
    def comes_back(self) -> bool:
        return self.spec.queue_policy == "keep"

    def local_state(self) -> State:
        """The key encoder, and the queue where the policy keeps it."""
        state = super().local_state()
        if self.spec.queue_policy == "reset":
            del state["queue"], state["pointer"]
        return state if self.public is None else state | self.public.state()

    def load_local(self, state: State) -> None:
        super().load_local(state)
        if self.public is not None:
            self.public.load(state)


@dataclass(frozen=True)
class MoCo(HarderSSL):
    """MoCo v1: momentum key encoder, queue, linear head.

    Attributes:
        operations: which random operations make a view; None: all of the method's.
        mixup: weight of the loss of mixed pairs of images; 0: none.
        key: whether the key encoder stays with the client or starts each round from the global
            weights.
    """

    name: ClassVar[str] = "moco"
    paper: ClassVar[str] = "He et al., CVPR 2020, arXiv 1911.05722"
    momentum_schedule: ClassVar[str] = "constant"  # as in both papers
    # The public ImageNet code's of v1: gray first, then always the jitter.
    paper_views: ClassVar[Augment] = Augment(jitter_p=1.0, gray_first=True)
    lr: ClassVar[float] = 0.02  # in batches of 32 it memorises small clients more than at .03

    dim: int = option(128, "length of the projected vector", ge=2)
    queue: int = option(4096, "K, keys in the queue", ge=1)
    queue_limit: str = option(
        "half",
        "longest queue: half of the client's images, or none, and then an image may meet its own "
        "earlier keys as negatives, which the report says",
        choices=("half", "none"),
    )
    momentum: float = option(0.99, "m of the key encoder's moving average", ge=0, le=1)
    temperature: float = option(
        0.1, "T of InfoNCE (0.1 as in the public CIFAR-10 notebook; 0.07 on ImageNet)", gt=0
    )
    operations: tuple[str, ...] | None = operations_option()
    mixup: float = mixup_option()
    symmetric: bool = option(False, "average the loss over both directions")
    key: str = key_option("key encoder")
    queue_policy: str = option(
        "keep",
        "queue when a round begins: the client's own, or anew (random, or of public images)",
        choices=("keep", "reset"),
    )
    queue_source: str = option(
        "own",
        "whose keys the queue holds: the client's own images', or public ones' alone, which makes "
        "the epsilon of DP-SGD a guarantee",
        choices=("own", "public"),
    )

    @property
    def public(self) -> bool:
        """Whether the queue is filled from public images."""
        return self.queue_source == "public"

    def head(self, width: int) -> nn.Module:
        """Projection head on features of length `width`."""
        return nn.Linear(width, self.dim)

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> MomentumContrast:
        """The method around `backbone`, every weight drawn from `generator`.

        A holder that has no public images, as a shadow, fills its queue with its own keys.
        """
        encoder = Encoder(
            backbone, self.head(backbone.width), training_data.mean, training_data.std
        )
        initialise(encoder, generator)
        method = MomentumContrast(encoder, self, self.keys(training_data.images), generator)
        if self.public and training_data.public is not None:
            method.public = PublicImages(
                training_data.public, self.augment, training_data.batch, generator
            )
        return method

    def chance_loss(self, images: int, batch: int) -> float | None:
        """ln(1 + K): the positive is one among the keys of the queue."""
        return None if self.harder else math.log(1 + self.keys(images))

    def keys(self, images: int | None) -> int:
        """Length of the queue of a holder of `images` images."""
        return bank_length(self.queue, images if self.queue_limit == "half" else None)

    def notes(self, images: int) -> list[Note]:
        if self.queue_limit == "none":
            met = (
                0.0 if self.public else revisit_probability(self.queue, images, 1 + self.symmetric)
            )
            return long_note(self.queue, images, met) if self.queue > images // 2 else []
        return cut_note("queue", self.queue, images, None if self.public else "keys")


@dataclass(frozen=True)
class MoCoV2(MoCo):
    """MoCo v2: MoCo with an MLP head, blur, jitter at p 0.8 and temperature 0.2."""

    name: ClassVar[str] = "mocov2"
    paper: ClassVar[str] = "Chen et al., 2020, arXiv 2003.04297"
    paper_views: ClassVar[Augment] = Augment(hue=0.1, blur_p=0.5)  # the public ImageNet code's

    temperature: float = option(0.2, "T of InfoNCE", gt=0)

    def head(self, width: int) -> nn.Module:
        """Linear-ReLU-Linear, without batch norm, as in the public code."""
        return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.dim))
