"""Also the weights: layers, copies, losses against the queue or against keys of images held."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from fedmia.data.images import digests, rank_digests
from fedmia.options.errors import InputError, unknown_name
from fedmia.ssl.base import SSLMethod, State
from fedmia.threat.blackbox import BlackBox
from fedmia.threat.needs import Meter, Threat
from fedmia.threat.signals import Signals

Loss = Callable[[SSLMethod, Tensor, Tensor], Tensor]  # of outputs of two views (B, P) each: (B,)


def training_loss(method: SSLMethod, z1: Tensor, z2: Tensor) -> Tensor:
    """The method's own."""
    return method.output_losses(z1, z2)


class WhiteBox(BlackBox):
    """Also the weights: layers, losses, copies."""

    threat = Threat("white_box", "outsider")

    @property
    def layers(self) -> tuple[str, ...]:
        """Names that `features` knows."""
        return self._method.encoder.layers

    @torch.no_grad()
    def features(self, images: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
        """Layer outputs of the plain images uint8 (N, C, H, W), flattened: (N, D) each; N queries.

        Raises:
            InputError: a layer that the encoder lacks.
        """
        wanted = tuple(layers)
        for name in wanted:
            if name not in self.layers:
                raise unknown_name("layer", name, self.layers)
        self.charge(len(images))
        passed: dict[tuple[bytes, ...], dict[str, Tensor]] = {}

        def compute(x: Tensor, layer: str) -> Tensor:
            names = tuple(digests(x.numpy()))
            if names not in passed:  # once for all layers that lack the same images
                passed[names] = self._outputs(x, wanted)
            return passed[names][layer]

        return {
            name: self._signals.get(("features", name), images, partial(compute, layer=name))
            for name in wanted
        }

    def _outputs(self, images: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        rows: dict[str, list[Tensor]] = {name: [] for name in layers}
        for part in self.passes(images):
            found = self.forward(part.to(self.device).float() / 255, layers)
            for name in layers:
                rows[name].append(found[name].flatten(1).float().cpu())
        return {name: torch.cat(some) for name, some in rows.items()}

    @torch.no_grad()
    def losses(
        self, images: Tensor, pairs: int, negatives: str, loss: Loss = training_loss
    ) -> Tensor:
        """`loss` (N,) of uint8 (N, C, H, W), mean over `pairs` pairs of the image's fixed views;
        2 N pairs queries, and `bank_queries`."""
        return self.views_and_losses(images, 2 * pairs, negatives, loss)[1]

    @torch.no_grad()
    def views_and_losses(
        self, images: Tensor, views: int, negatives: str, loss: Loss = training_loss
    ) -> tuple[Tensor, Tensor]:
        """`embed_views` (N, views, P), and `losses` (N,) of the same views paired first half with
        second; N x views queries, and `bank_queries`."""
        self.charge(views * len(images) + self.bank_queries(negatives))
        rows = self._rows(images, views)[:, :, self._columns("encoder")]
        method, pairs = self.copy_method(), views // 2

        def read(some: Tensor) -> Tensor:
            z = rows[some].to(self.device)
            each = [loss(method, z[:, i], z[:, pairs + i]) for i in range(pairs)]
            return torch.stack(each).mean(dim=0).cpu()

        return rows, self.by_negatives(method, negatives, images, read)

    def shared(
        self, key: tuple[object, ...], images: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """(N, ...) rows of uint8 `images` that views of this model compute once for each key.

        Queries that `compute` counts are counted where it runs.
        """
        return self._signals.get(key, images, compute)

    # -- negatives -----------------------------------------------------------------------------

    @property
    def held(self) -> Tensor | None:
        """uint8 (H, C, H, W) images that the attacker holds: its own and the known ones."""
        return self._held

    def bank_queries(self, negatives: str) -> int:
        """What the bank of these negatives costs: a query for the key of each image `held`, nothing
        for the holder's own `queue`.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        if negatives != "held":
            return 0
        if self._held is None or not len(self._held):
            raise InputError("negatives 'held': this attacker holds no images of its own")
        return len(self._held)

    def by_negatives(
        self, method: SSLMethod, negatives: str, images: Tensor, read: Callable[[Tensor], Tensor]
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
        found: list[tuple[Tensor, Tensor]] = []
        for half, rows in zip(self._halves[0], self._meeting(images), strict=True):
            self._fill(method, half)
            if len(rows):
                found.append((rows, read(rows)))
        whole = torch.cat([rows for rows, _ in found])
        return torch.cat([values for _, values in found])[whole.argsort()]

    def groups(self, images: Tensor, negatives: str) -> list[Tensor]:
        """The rows of `images` that `by_negatives` reads together; no query."""
        if negatives != "held":
            return [torch.arange(len(images))]
        return [rows for rows in self._meeting(images) if len(rows)]

    def _meeting(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of `images` that meet the first half of those held, and the second."""
        inside = self._halves[1]
        first = torch.tensor([name in inside for name in digests(images.numpy())], dtype=torch.bool)
        return first.nonzero()[:, 0], (~first).nonzero()[:, 0]

    @cached_property
    def _halves(self) -> tuple[tuple[Tensor, Tensor], set[bytes]]:
        assert self._held is not None
        return in_halves(self._held)

    @torch.no_grad()
    def _fill(self, method: SSLMethod, images: Tensor) -> None:
        method.fill_bank(images)

    # -- copies --------------------------------------------------------------------------------

    def copy_method(self) -> SSLMethod:
        """A copy of the model that the attacker may train; the released one stays as it is."""
        return copy.deepcopy(self._method)

    def of_weights(
        self, state: State, *, signals: Signals | None = None, meter: Meter | None = None
    ) -> WhiteBox:
        """A view of the same network with other shared weights, through the same pixels.

        Args:
            signals: rows known of it. meter: counts its queries; None: this view's own.
        """
        method = self.copy_method()
        method.load_shared(state)
        return WhiteBox(
            method,
            self.augment,
            seed=self.seed,
            device=self.device,
            held=self._held,
            signals=signals,
            pixels=self._pixels,
            meter=self._meter if meter is None else meter,
            precision=self.precision,
        )

    def state(self) -> State:
        """Copies of the released weights."""
        return self._method.shared_state()


def in_halves(held: Tensor) -> tuple[tuple[Tensor, Tensor], set[bytes]]:
    """Images held, uint8 (N, C, H, W), in two halves by content, and the names of those in the
    second: they meet the first as negatives, and all other images the second."""
    names = digests(held.numpy())
    order = rank_digests(names)
    second = order[::2]
    first = order[1::2] or second  # one image alone serves everybody
    return (held[first], held[second]), {names[i] for i in second}
