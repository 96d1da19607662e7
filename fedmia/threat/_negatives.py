"""Negatives of the contrastive loss: the model's own queue, or keys of the images held."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from fedmia.data.images import digests, ranked
from fedmia.errors import InputError
from fedmia.ssl.base import SSLMethod


class Negatives(ABC):
    """What an attacker that holds images fills the bank of a model with."""

    _method: SSLMethod
    _held: Tensor | None
    device: torch.device

    @abstractmethod
    def charge(self, queries: int) -> None:
        """Count `queries` images."""

    def holder(self, negatives: str) -> SSLMethod:
        """A copy of the model whose bank is the holder's `queue`, or keys of the images it `held`.

        Keys of held images are queries, one an image.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        method = copy.deepcopy(self._method)
        if negatives == "held":
            self.arm(method)
        return method

    def bank_queries(self, negatives: str) -> int:
        """What the bank of `holder(negatives)` costs.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        if negatives != "held":
            return 0
        if self._held is None or not len(self._held):
            raise InputError("negatives 'held': this attacker holds no images of its own")
        return len(self._held)

    def arm(self, method: SSLMethod) -> None:
        """Fill the bank of `method` with its keys of the images held; as many queries."""
        self.charge(self.bank_queries("held"))
        assert self._held is not None
        self._fill(method, self._held)

    def by_negatives(
        self,
        method: SSLMethod,
        negatives: str,
        images: Tensor,
        read: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """`read(rows)` of all images, (N, ...), while the bank of `method` holds their negatives.

        `held` images are keys in two halves, told apart by content. An image meets the half that
        it is not in, so a known image is never its own negative and has as many negatives as any
        other: what is fitted on known images holds for those under test. Both halves are filled,
        whoever meets them: keys of all images held, uncounted here.

        Args:
            read: rows of `images`, (n,) -> (n, ...).
        """
        if negatives != "held":
            return read(torch.arange(len(images)))
        halves, inside = self._halves
        # The second half serves all but its own images.
        first = torch.tensor([name in inside for name in digests(images.numpy())], dtype=torch.bool)
        found: list[tuple[Tensor, Tensor]] = []
        for half, rows in zip(
            halves, (first.nonzero()[:, 0], (~first).nonzero()[:, 0]), strict=True
        ):
            self._fill(method, half)
            if len(rows):
                found.append((rows, read(rows)))
        whole = torch.cat([rows for rows, _ in found])
        return torch.cat([values for _, values in found])[whole.argsort()]

    @cached_property
    def _halves(self) -> tuple[tuple[Tensor, Tensor], set[bytes]]:
        """The images held in two halves, and the names of those in the second."""
        assert self._held is not None
        names = digests(self._held.numpy())
        order = ranked(names)
        second = order[::2]
        first = order[1::2] or second  # one image alone serves everybody
        return (self._held[first], self._held[second]), {names[i] for i in second}

    @torch.no_grad()
    def _fill(self, method: SSLMethod, images: Tensor) -> None:
        method.fill_bank(images.to(self.device).float() / 255)
