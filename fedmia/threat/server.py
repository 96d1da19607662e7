"""The server's view: also each client's own update, before it is averaged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State
from fedmia.storage.states import States
from fedmia.threat.client import ClientView
from fedmia.threat.needs import Meter, Threat
from fedmia.threat.whitebox import Sightings, WhiteBox

Measure = Callable[[WhiteBox, Tensor], Tensor]


class ServerView(ClientView):
    """The view of an honest but curious server, which aggregates as it should.

    Args:
        method: the released model; its bank of negatives is the holder's own.
        augment: augmentation of the attacker's views.
        updates: round -> client -> the weights that it sent, from which the update is their
            difference to `before`. States may be read from disk at every access.
        before: round -> the global weights that the clients received, for the same rounds.
        rest: arguments of `ClientView`.
    """

    threat = Threat("white_box", "server")

    def __init__(
        self,
        method: SSLMethod,
        augment: Augment,
        *,
        updates: Mapping[int, Mapping[int, State]] | None = None,
        before: Mapping[int, State] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(method, augment, **rest)
        self.updates = {} if updates is None else updates
        self.before = {} if before is None else before

    @classmethod
    def granted(
        cls, rounds: Sightings, branch: str, last: int, some: Collection[int] | None
    ) -> dict[str, Any]:
        updates = {r: sent for r, sent in rounds.updates(branch).items() if r <= last}
        before = rounds.before(branch)
        known = States([r for r in updates if r in before], before.__getitem__)
        received = super().granted(rounds, branch, last, some)
        return received | {"updates": updates, "before": known}

    def clients(self, round: int) -> tuple[int, ...]:
        """Ids of the clients that sent an update in `round`, ascending.

        Raises:
            KeyError: a round whose updates were not kept.
        """
        return tuple(sorted(self.updates[round]))

    def on_updates(
        self, images: Tensor, round: int, name: tuple[object, ...], measure: Measure, queries: int
    ) -> Tensor:
        """A measurement of each image on the model that each client sent, (clients, N).

        Args:
            images: uint8 (N, C, H, W).
            round: one of `updates`.
            name: of the measurement; what has one name is computed once.
            measure: of (the client's model, images without known rows) -> (n,).
            queries: what it costs on one model.

        Returns:
            float64, clients in the order of `clients`.

        Raises:
            KeyError: a round whose updates were not kept.
        """
        clients = self.clients(round)
        self.charge(queries * len(clients))
        rows = [torch.zeros(0, len(images), dtype=torch.float64)]
        for client in clients:

            def compute(x: Tensor, client: int = client) -> Tensor:
                # Charged above. A meter of its own: the attacker's may be paused meanwhile.
                model = self.of_weights(self.updates[round][client], meter=Meter())
                return measure(model, x).double().cpu()

            key = ("update", round, client, *name)
            rows.append(self._signals.get(key, images, compute)[None])
        return torch.cat(rows)

    def gradient_cosines(
        self, images: Tensor, round: int, pairs: int, negatives: str
    ) -> tuple[Tensor, Tensor]:
        """How each client's update of `round` follows each image.

        The cosine between the update, over the encoder's weights, and minus the gradient of the
        image's own loss at the weights that the client received. 2 N pairs queries, forward and
        backward, and `bank_queries`.

        Args:
            images: uint8 (N, C, H, W).
            round: one of `updates` and `before`.
            pairs: pairs of the image's fixed views over which its loss is averaged.
            negatives: `queue` or `held`, the latter keyed by the weights received.

        Returns:
            Cosines float64 (clients, N), 0 where an update or a gradient is zero, and the
            gradients' L2 norms (N,).

        Raises:
            KeyError: a round whose updates were not kept.
        """
        clients = self.clients(round)
        self.charge(2 * pairs * len(images) + self.bank_queries(negatives))

        def compute(x: Tensor) -> Tensor:
            method = self.copy_method()
            received = self.before[round]
            method.load_shared(received)
            weights = [(n, w) for n, w in method.encoder.named_parameters() if w.requires_grad]
            sent = (self.updates[round][client] for client in clients)
            steps = [_flatten(state[n] - received[n] for n, _ in weights) for state in sent]
            unit = F.normalize(torch.stack(steps).to(self.device), dim=1)
            wrt = [w for _, w in weights]

            def read(rows: Tensor) -> Tensor:
                return torch.stack(
                    [self._cosines_along(method, wrt, one, pairs, unit) for one in x[rows]]
                )

            return self.by_negatives(method, negatives, x, read)

        columns = self._signals.get(("gradient", round, pairs, negatives), images, compute).T
        return columns[:-1], columns[-1]

    def _cosines_along(
        self, method: SSLMethod, weights: Sequence[Tensor], image: Tensor, pairs: int, unit: Tensor
    ) -> Tensor:
        """Cosines (K,) of one image's descent with `unit` (K, P), then its gradient's length."""
        view = self.view_pixels(image[None], 2 * pairs)[:, 0]
        loss = method.probe_losses(view[:pairs], view[pairs:]).mean()
        gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
        gradient = _flatten(gradients)
        length = gradient.norm()
        cosines = unit @ -gradient / length.clamp_min(torch.finfo(gradient.dtype).tiny)
        return torch.cat([cosines, length[None]]).double().cpu()


def _flatten(tensors: Iterable[Tensor]) -> Tensor:
    """One vector (P,) of them all."""
    return torch.cat([t.flatten() for t in tensors])
