"""The bank of negatives: a ring of earlier outputs, and InfoNCE against it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.records.note import Note
from fedmia.ssl.base import State


class Bank(nn.Module):
    """A ring of unit vectors that takes batches of any size in the place of its oldest.

    Args:
        rows: (K, P), what it holds at first.
    """

    rows: Tensor  # a buffer

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.pointer = 0

    @classmethod
    def random(cls, K: int, dim: int, generator: torch.Generator) -> Bank:
        """Random directions, the negatives until there are outputs.

        Args:
            K: rows.
            dim: length of a row, P.
            generator: of the directions.

        Returns:
            A bank of rows (K, dim).
        """
        rows = torch.empty(K, dim)
        if not rows.is_meta:  # only its size is asked for
            rows = F.normalize(rows.normal_(generator=generator), dim=1)
        return cls(rows)

    def __len__(self) -> int:
        return self.rows.shape[-2]

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Overwrite the oldest rows with `keys` (B, P); of more than K only the last K stay. Of
        several clients each (N, K, P) has keys (N, B, P)."""
        if K := len(self):
            keys = keys[..., -K:, :].to(self.rows.dtype)
            first = min(keys.shape[-2], K - self.pointer)
            for some in keys.split([first, keys.shape[-2] - first], dim=-2):
                self.rows[..., self.pointer : self.pointer + some.shape[-2], :] = some
                self.pointer = (self.pointer + some.shape[-2]) % K

    @torch.no_grad()
    def fill(self, outputs: Tensor) -> None:
        """Replace all rows by `outputs` (N, P), scaled to unit length."""
        unit = F.normalize(outputs.to(self.rows.dtype), dim=1)  # drawn ones are a CPU's
        self.rows = unit.to(self.rows.device)
        self.pointer = 0

    def losses(self, z1: Tensor, z2: Tensor, T: float) -> Tensor:
        """InfoNCE of outputs (B, P) in both directions, added, against the rows: (B,).

        L1 + L2 of Algorithm 1 of Chen et al.
        """
        z1, z2, negatives = F.normalize(z1, dim=1), F.normalize(z2, dim=1), self.rows.to(z1.dtype)
        return info_nce(z1, z2, negatives, T) + info_nce(z2, z1, negatives, T)

    def state(self, name: str) -> State:
        """Copies of the rows, called `name`, and of the `pointer`."""
        return {name: self.rows.detach().clone(), "pointer": torch.tensor(self.pointer)}

    def load(self, name: str, state: State) -> None:
        """Restore what `state` gave, where there is a `name`."""
        if name in state:
            self.rows = state[name].to(self.rows.device).clone()
            self.pointer = int(state["pointer"])


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


def bank_length(length: int, images: int | None) -> int:
    """K, cut to half of the holder's images: a longer one holds each image's own earlier output."""
    return length if images is None else max(1, min(length, images // 2))


def revisit_probability(K: int, images: int, views: int) -> float:
    """Share of steps in which an image meets its own earlier key among K, from the second epoch on.

    Its last key came g images ago, g being spread as the sum of two uniforms over [0, N]: each
    epoch has an order of its own. A queue of K keys, `views` of each image, spans K / views.
    """
    span = K / (views * max(images, 1))
    return span**2 / 2 if span <= 1 else 1 - max(0.0, 2 - span) ** 2 / 2


def long_note(K: int, images: int, met: float) -> list[Note]:
    """Notes on a queue that is longer than half of the holder's images.

    Args:
        K: keys of the queue.
        images: that the holder has.
        met: as of `revisit_probability`, in [0, 1].

    Returns:
        One note.
    """
    return [Note("queue-long", {"keys": K, "images": images, "met": met})]


def cut_note(bank: str, length: int, images: int, own: str | None = None) -> list[Note]:
    """A note where `bank_length` cuts a bank.

    Args:
        bank: its name.
        length: as asked for.
        images: of its holder.
        own: what of an image's own a longer one would hold; None: nothing.

    Returns:
        One note, or none.
    """
    K = bank_length(length, images)
    note = Note(
        "bank-cut", {"bank": bank, "length": length, "half": K, "images": images, "own": own}
    )
    return [] if length == K else [note]
