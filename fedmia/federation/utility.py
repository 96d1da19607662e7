"""What an encoder is good for: probes on images apart from all others."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from clients.client_setup import ClientSetup
from fedmia.data.cast import Cast
from fedmia.data.images import IntArray
from fedmia.federation.plan import divergence_hint
from fedmia.probes.utility import NO_PROBES, knn_accuracy, mean_cosine, probe
from fedmia.records import Probe
from fedmia.records.rows import HealthRow
from fedmia.ssl.base import State
from strategies.failure_policy import FederationError


class Probes:
    """Utility of a model's pooled features, on images that have no other role.

    Args:
        client_setup: what all clients of the run share.
        cast: the images in their roles. Of one class alone there is nothing to tell apart: no probe
            runs.
    """

    def __init__(self, client_setup: ClientSetup, cast: Cast) -> None:
        self.client_setup, self.cast = client_setup, cast

    @torch.no_grad()
    def outputs(self, state: State, indices: IntArray, layer: str) -> Tensor:
        """Outputs of one layer of the encoder.

        Args:
            state: model weights by name.
            indices: indices of images.
            layer: name of the layer.

        Returns:
            Outputs (N, D) of the layer.
        """
        torch.set_num_threads(self.client_setup.threads)
        method = self.client_setup.method(-1, None)
        method.load_shared(state)
        method.eval()
        parts = [indices[i : i + 1024] for i in range(0, len(indices), 1024)]
        outputs = [method.encoder.features(self.client_setup.pixels(p), [layer]) for p in parts]
        return torch.cat([f[layer].float().cpu() for f in outputs])

    def features(self, state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features and labels of the half to fit on, then of the half to test on.

        Raises:
            FederationError: features that are not finite, as of weights that training blew up.
        """
        halves = "test_fit", "test_eval"
        fit, test = map(self.cast.ids, halves)
        ours, theirs = (torch.from_numpy(self.cast.classes(half)) for half in halves)
        features = self.outputs(state, fit, "avgpool"), self.outputs(state, test, "avgpool")
        if not all(bool(f.isfinite().all()) for f in features):
            raise FederationError(
                f"training diverged{self._strengths()}: the model answers with numbers that are "
                f"not finite; {divergence_hint(self.client_setup.experiment)}"
            )
        return features[0], ours, features[1], theirs

    def _strengths(self) -> str:
        """The defences, as ` under dpsgd (epsilon 8)`."""
        names = ("epsilon", "noise_multiplier", "scale", "lr")
        clauses = []
        for layer in self.client_setup.experiment.defense:
            options = layer.options
            values = [f"{k} {options[k]:g}" for k in names if options.get(k) is not None]
            clauses.append(f"{layer.name} ({', '.join(values) or 'default strength'})")
        return f" under {' and '.join(clauses)}" if clauses else ""

    def health(self, state: State, loss: float | None) -> HealthRow:
        """Whether the model's features differ between test images.

        Args:
            state: model weights by name.
            loss: mean training loss of the last round; None where it is unknown.

        Returns:
            The finding of whether the model tells images apart.
        """
        client_setup = self.client_setup
        run, method = client_setup.experiment, client_setup.experiment.ssl.plugin("ssl")
        parts = zip(client_setup.parts["members"], client_setup.roles, strict=True)
        sizes = [len(part) for part, role in parts if role == "honest" and len(part)]
        by_size = {size: method.chance_loss(size, run.train.batch_size) for size in set(sizes)}
        each = [by_size[size] for size in sizes]
        chance = None if not each or None in each else float(np.mean(each))
        outputs = self.outputs(state, self.cast.ids("test_eval"), "encoder")
        return HealthRow(cosine=mean_cosine(outputs), loss=loss, chance=chance, collapsed=False)

    @property
    def idle(self) -> bool:
        """Whether there are no two classes to tell apart."""
        return len(np.unique(self.cast.data.labels)) < 2

    def knn(self, state: State) -> float | None:
        """Weighted-kNN accuracy in [0, 1]; None where no probe runs."""
        features = self.features(state)
        return None if self.idle else knn_accuracy(*features)

    def both(self, state: State) -> dict[str, Probe]:
        """Accuracy of the kNN and of the linear probe."""
        return NO_PROBES if self.idle else probe(*self.features(state))
