"""Also the weights: layers, gradients, copies."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from fedmia.ssl.base import SSLMethod, State
from fedmia.threat.blackbox import CHUNK, BlackBox
from fedmia.threat.needs import Threat


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
        wanted = list(layers)
        one = torch.zeros(1, *images.shape[1:], device=self.device)
        widths = [v[0].numel() for v in self._method.encoder.features(one, wanted).values()]
        self.charge(len(images))

        def compute(x: Tensor) -> Tensor:
            scaled = x.to(self.device).float() / 255
            found = self._method.encoder.features(scaled, wanted)
            return torch.cat([found[name].flatten(1).float().cpu() for name in wanted], dim=1)

        def chunked(x: Tensor) -> Tensor:
            return torch.cat([compute(part) for part in x.split(CHUNK)])

        rows = self._signals.get(("features", *wanted), images, chunked)
        return dict(zip(wanted, rows.split(widths, dim=1), strict=True))

    @torch.no_grad()
    def losses(self, images: Tensor, pairs: int, negatives: str) -> Tensor:
        """Contrastive loss (N,) of uint8 (N, C, H, W), mean over `pairs` pairs of the image's
        fixed views; 2 N pairs queries, and those of `holder(negatives)`."""
        self.charge(2 * pairs * len(images) + self.bank_queries(negatives))
        return self._paired(self._encoded(images, 2 * pairs), negatives)

    @torch.no_grad()
    def views_and_losses(self, images: Tensor, views: int, negatives: str) -> tuple[Tensor, Tensor]:
        """`embed_views` (N, views, P), and `losses` (N,) of the same views paired first half with
        second; N x views queries, and those of `holder(negatives)`."""
        self.charge(views * len(images) + self.bank_queries(negatives))
        rows = self._encoded(images, views)
        return rows, self._paired(rows, negatives)

    def _encoded(self, images: Tensor, views: int) -> Tensor:
        return self._rows(images, views)[:, :, self._columns(images.shape[1:], "encoder")]

    def _paired(self, rows: Tensor, negatives: str) -> Tensor:
        """Mean loss (N,) of rows (N, V, P), view i with view V//2 + i."""
        method, pairs = self.copy_method(), rows.shape[1] // 2
        if negatives == "held":
            self._fill(method)
        z = rows.to(self.device)
        each = [method.output_losses(z[:, i], z[:, pairs + i]) for i in range(pairs)]
        return torch.stack(each).mean(dim=0).cpu()

    def copy_method(self) -> SSLMethod:
        """A copy of the model that the attacker may train; the released one stays as it is."""
        return copy.deepcopy(self._method)

    def state(self) -> State:
        """Copies of the released weights."""
        return self._method.shared_state()
