"""Work that attacks share: signals computed once on a model, views drawn once for all models."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor

from fedmia.data.images import digests

# Signals that a model's weights and an image decide alone, not the negatives that a loss reads.
OUTPUTS = ("views", "plain", "responses", "features")


class Signals:
    """Rows already computed on one model, by image: work shared by attacks, never their counts.

    Attributes:
        rows: by what was computed, then by the image's digest.
        widths: lengths of the outputs that stand side by side in a row, by what they are.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[object, ...], dict[bytes, Tensor]] = {}
        self.widths: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._rounds: dict[int, Signals] = {}

    def of_round(self, round: int) -> Signals:
        """Rows of the model of another round of the same federation."""
        return self._rounds.setdefault(round, type(self)())

    def outputs(self) -> Signals:
        """Those that an attacker with other images of its own has, too, of the same model."""
        same = type(self)()
        same.rows = {key: rows for key, rows in self.rows.items() if key[0] in OUTPUTS}
        same.widths = self.widths
        return same

    def get(
        self, key: tuple[object, ...], images: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """(N, ...) signal of uint8 `images`; `compute` is asked for the rows not yet known."""
        return self.grow(key, images, 1, lambda x, *_: compute(x)[:, None])[:, 0]

    def grow(
        self,
        key: tuple[object, ...],
        images: Tensor,
        columns: int,
        compute: Callable[[Tensor, int, int], Tensor],
    ) -> Tensor:
        """A signal whose column j does not depend on how many are asked for.

        Args:
            key: tells signals apart.
            images: uint8 `(N, C, H, W)`.
            columns: the first so many.
            compute: (images, first, last) -> (B, last - first, ...), the columns that lack.

        Returns:
            rows, `(N, columns, ...)`.
        """
        known = self.rows.setdefault(key, {})
        names = digests(images.numpy())
        have = [len(known[n]) if n in known else 0 for n in names]
        for first in sorted({h for h in have if h < columns}):
            short = [i for i, h in enumerate(have) if h == first]
            fresh = compute(images[short], first, columns)
            for j, i in enumerate(short):
                row = torch.cat([known[names[i]], fresh[j]]) if first else fresh[j].clone()
                known[names[i]] = row
        return torch.stack([known[n][:columns] for n in names])


class PixelCache:
    """Augmented views already drawn, by image: they depend on no model, so all views share them.

    Safe to share between threads.

    Args:
        limit: most bytes kept; what does not fit is drawn again.

    Attributes:
        used: bytes kept.
        rows: (views, C, H, W) by seed, augmentation and device, then by the image's digest.
    """

    def __init__(self, limit: int = 1 << 28) -> None:
        self.limit = limit
        self.used = 0
        self.rows: dict[tuple[object, ...], dict[bytes, Tensor]] = {}
        self._lock = Lock()

    def get(
        self, key: tuple[object, ...], images: Tensor, views: int, draw: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """(views, N, C, H, W); view j does not depend on how many are asked for.

        Args:
            key: tells seeds, augmentations and devices apart.
            images: uint8 `(N, C, H, W)`.
            views: an image.
            draw: images -> their views, `(views, n, C, H, W)`.

        Returns:
            pixels in [0, 1], `(views, N, C, H, W)`.
        """
        stored = self.rows.setdefault(key, {})
        names = digests(images.numpy())
        rows = {
            n: stored[n][:views] for n in names if n in stored
        }  # another thread may replace them
        short = [i for i, n in enumerate(names) if n not in rows or len(rows[n]) < views]
        if not short:
            return torch.stack([rows[n] for n in names], dim=1)
        fresh = draw(images[short])
        new_views = {names[i]: fresh[:, j] for j, i in enumerate(short)}
        with self._lock:
            for name, row in new_views.items():  # in the place of none or of fewer views
                old = stored.get(name)
                size = row.nbytes - (0 if old is None else old.nbytes)
                if size > 0 and self.used + size <= self.limit:
                    self.used += size
                    stored[name] = row.clone()
        if len(short) == len(names):
            return fresh
        return torch.stack([new_views[n] if n in new_views else rows[n] for n in names], dim=1)
