"""Also the weights: layers, gradients, copies."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from fedmia.errors import unknown
from fedmia.ssl.base import SSLMethod, State
from fedmia.threat.blackbox import BlackBox
from fedmia.threat.needs import Meter, Threat
from fedmia.threat.signals import Signals


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
                raise unknown("layer", name, self.layers)
        self.charge(len(images))
        key = ("features", *wanted)
        shape = (*key, *images.shape[1:])

        def compute(x: Tensor) -> Tensor:
            rows = []
            for part in self.passes(x):
                scaled = part.to(self.device).float() / 255
                outputs = self.forward(scaled, wanted)
                found = [outputs[name].flatten(1) for name in wanted]
                self._signals.widths[shape] = tuple(f.shape[1] for f in found)
                rows.append(torch.cat([f.float().cpu() for f in found], dim=1))
            return torch.cat(rows)

        rows = self._signals.get(key, images, compute)
        parts = rows.split(self._signals.widths[shape], dim=1)
        return dict(zip(wanted, parts, strict=True))

    @torch.no_grad()
    def losses(self, images: Tensor, pairs: int, negatives: str) -> Tensor:
        """Contrastive loss (N,) of uint8 (N, C, H, W), mean over `pairs` pairs of the image's
        fixed views; 2 N pairs queries, and those of `holder(negatives)`."""
        self.charge(2 * pairs * len(images) + self.bank_queries(negatives))
        return self._paired(images, self._encoded(images, 2 * pairs), negatives)

    @torch.no_grad()
    def views_and_losses(self, images: Tensor, views: int, negatives: str) -> tuple[Tensor, Tensor]:
        """`embed_views` (N, views, P), and `losses` (N,) of the same views paired first half with
        second; N x views queries, and those of `holder(negatives)`."""
        self.charge(views * len(images) + self.bank_queries(negatives))
        rows = self._encoded(images, views)
        return rows, self._paired(images, rows, negatives)

    def _encoded(self, images: Tensor, views: int) -> Tensor:
        return self._rows(images, views)[:, :, self._columns("encoder")]

    def _paired(self, images: Tensor, rows: Tensor, negatives: str) -> Tensor:
        """Mean loss (N,) of the images' rows (N, V, P), view i with view V//2 + i."""
        method, pairs = self.copy_method(), rows.shape[1] // 2

        def read(some: Tensor) -> Tensor:
            z = rows[some].to(self.device)
            each = [method.output_losses(z[:, i], z[:, pairs + i]) for i in range(pairs)]
            return torch.stack(each).mean(dim=0).cpu()

        return self.by_negatives(method, negatives, images, read)

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
