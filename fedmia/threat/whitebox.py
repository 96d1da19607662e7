"""Also the weights: layers, copies, losses against the queue or against keys of images held."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from fedmia.data.images import digests, rank_digests
from fedmia.settings.errors import InputError, unknown_name
from fedmia.ssl.base import SSLMethod, State
from fedmia.threat.blackbox import BlackBox
from fedmia.threat.needs import Meter, Threat
from fedmia.threat.owner_loss import read_owner_loss
from fedmia.threat.signals import Signals


class Sightings(Protocol):
    """What was kept of a training, by branch and round (`fedmia.rounds.base.Rounds`)."""

    def models(self, branch: str) -> Mapping[int, State]:
        """The global models, by round."""

    def updates(self, branch: str) -> Mapping[int, Mapping[int, State]]:
        """What each client sent, by round and client."""

    def before(self, branch: str) -> Mapping[int, State]:
        """What the clients of a round received, for the rounds of `updates`."""


Loss = Callable[[SSLMethod, Tensor, Tensor], Tensor]  # of outputs of two views (B, P) each: (B,)


def training_loss(method: SSLMethod, z1: Tensor, z2: Tensor) -> Tensor:
    """(B,) the method's own loss of encoder outputs (`SSLMethod.output_losses`)."""
    return method.output_losses(z1, z2)


class WhiteBox(BlackBox):
    """Also the weights: layers, losses, copies."""

    threat = Threat("white_box", "outsider")

    @classmethod
    def granted(
        cls, rounds: Sightings, branch: str, last: int, some: Collection[int] | None
    ) -> dict[str, Any]:
        """What this vantage has beside a model: further arguments of the view.

        Args:
            rounds: what was kept of the training.
            branch: of the federation.
            last: round of the model; nothing later is granted.
            some: rounds whose models the attacker received; None: all.

        Returns:
            Arguments by name, whose states are read when they are asked for.
        """
        return {}

    @property
    def layers(self) -> tuple[str, ...]:
        """Names that `features` knows."""
        return self._method.encoder.layers

    @torch.no_grad()
    def features(self, images: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
        """Layer outputs of the plain images uint8 (N, C, H, W), flattened: (N, D) each; N queries.

        Args:
            images: each is queried once, however many layers are asked for.
            layers: some of the view's `layers`.

        Returns:
            float32 outputs by the layer's name, on the CPU.

        Raises:
            InputError: a layer that the encoder lacks.
        """
        layer_names = tuple(layers)
        for name in layer_names:
            if name not in self.layers:
                raise unknown_name("layer", name, self.layers)
        self.charge(len(images))
        passed: dict[tuple[bytes, ...], dict[str, Tensor]] = {}

        def compute(x: Tensor, layer: str) -> Tensor:
            names = tuple(digests(x.numpy()))
            if names not in passed:  # once for all layers that lack the same images
                passed[names] = self._outputs(x, layer_names)
            return passed[names][layer]

        return {
            name: self._signals.get(("features", name), images, partial(compute, layer=name))
            for name in layer_names
        }

    def _outputs(self, images: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        rows: dict[str, list[Tensor]] = {name: [] for name in layers}
        for part in self.passes(images):
            outputs = self.forward(part.to(self.device).float() / 255, layers)
            for name in layers:
                rows[name].append(outputs[name].flatten(1).float().cpu())
        return {name: torch.cat(some) for name, some in rows.items()}

    @torch.no_grad()
    def losses(
        self, images: Tensor, pairs: int, negatives: str, loss: Loss = training_loss
    ) -> Tensor:
        """`loss` of images, or that of the network's owner, where it is known: of plain images.

        Args:
            images: uint8 (N, C, H, W).
            pairs: of the image's fixed views, over which `loss` is averaged; 2 N pairs queries, and
                `bank_queries`. The owner's loss takes N queries.
            negatives: one of NEGATIVES.
            loss: of (method, z1, z2).

        Returns:
            (N,), on the CPU.
        """
        if self._method.own_loss is not None:
            self.charge(len(images))
            return self._signals.get(("own loss",), images, self._own_losses)
        return self.views_and_losses(images, 2 * pairs, negatives, loss)[1]

    def _own_losses(self, images: Tensor) -> Tensor:
        """(N,) the owner's loss, its random choices the same at every call."""
        loss, encoder = self._method.own_loss, self._method.encoder
        assert loss is not None
        network = getattr(encoder.backbone, "module", encoder)
        return read_owner_loss(loss, network, images, self.device, self._seed)

    @torch.no_grad()
    def views_and_losses(
        self, images: Tensor, views: int, negatives: str, loss: Loss = training_loss
    ) -> tuple[Tensor, Tensor]:
        """`embed_views` (N, views, P), and `losses` (N,) of the same views paired first half with
        second; N x views queries, and `bank_queries`.

        Args:
            images: uint8 `(N, C, H, W)`.
            views: an image; of an odd number the last has no pair.
            negatives: one of NEGATIVES.
            loss: of (method, z1, z2), differing by nothing but the rows.

        Returns:
            the projections and the losses, on the CPU.
        """
        self.charge(views * len(images) + self.bank_queries(negatives))
        rows = self._rows(images, views)[:, :, self._columns("encoder")]
        method, pairs = self._with_own_bank(), views // 2

        def read(some: Tensor) -> Tensor:
            z = rows[some].to(self.device)
            each = [loss(method, z[:, i], z[:, pairs + i]) for i in range(pairs)]
            return torch.stack(each).mean(dim=0).cpu()

        return rows, self.by_negatives(method, negatives, images, read)

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

        `held` images are keys in two halves, split by content. Each image uses the other half as
        negatives. So a known image is never its own negative and has as many negatives as any
        other: what is fitted on known images holds for those under test. Each half fills the bank
        once, whether an image meets it or not; these queries are not counted here.

        Args:
            method: whose bank is filled; with `queue` it is left as it is.
            negatives: one of NEGATIVES.
            images: uint8 `(N, C, H, W)`.
            read: rows of `images`, (n,) -> (n, ...).

        Returns:
            what `read` returned, in the order of the images.
        """
        if negatives != "held":
            return read(torch.arange(len(images)))
        parts: list[tuple[Tensor, Tensor]] = []
        for half, rows in zip(self._halves[0], self._rows_by_half(images), strict=True):
            with torch.no_grad():
                method.fill_bank(half)
            if len(rows):
                parts.append((rows, read(rows)))
        whole = torch.cat([rows for rows, _ in parts])
        return torch.cat([values for _, values in parts])[whole.argsort()]

    def groups(self, images: Tensor, negatives: str) -> list[Tensor]:
        """The rows of `images` that `by_negatives` reads together; no query."""
        if negatives != "held":
            return [torch.arange(len(images))]
        return [rows for rows in self._rows_by_half(images) if len(rows)]

    def _rows_by_half(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of `images` that meet the first half of those held, and the second."""
        inside = self._halves[1]
        first = torch.tensor([name in inside for name in digests(images.numpy())], dtype=torch.bool)
        return first.nonzero()[:, 0], (~first).nonzero()[:, 0]

    @cached_property
    def _halves(self) -> tuple[tuple[Tensor, Tensor], set[bytes]]:
        assert self._held is not None
        return split_in_halves(self._held)

    # -- copies --------------------------------------------------------------------------------

    def copy_method(self) -> SSLMethod:
        """A copy of the model that the attacker may train; the released one stays as it is."""
        return copy.deepcopy(self._method)

    def _with_own_bank(self) -> SSLMethod:
        """A copy that shares the weights, so only its bank may change."""
        method, shared = self._method, dict[int, Any]()
        for child in method.children():
            if own := {id(w): w for w in child.parameters()}:
                shared |= own | {id(child): child}
        return copy.deepcopy(method, shared)

    def of_weights(
        self, state: State, *, signals: Signals | None = None, meter: Meter | None = None
    ) -> WhiteBox:
        """A view of the same network with other shared weights, through the same pixels.

        Args:
            state: shared weights by name.
            signals: rows known of it; None: none yet.
            meter: counts its queries; None: this view's own.

        Returns:
            a view with the same images held, without shadows and labels.
        """
        method = self.copy_method()
        method.load_shared(state)
        return WhiteBox(
            method,
            self.augment,
            seed=self._seed,
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


def split_in_halves(images: Tensor) -> tuple[tuple[Tensor, Tensor], set[bytes]]:
    """Images held, uint8 (N, C, H, W), in two halves by content, and the names of those in the
    second: they meet the first as negatives, and all other images the second."""
    names = digests(images.numpy())
    order = rank_digests(names)
    second = order[::2]
    first = order[1::2] or second  # one image alone serves everybody
    return (images[first], images[second]), {names[i] for i in second}
