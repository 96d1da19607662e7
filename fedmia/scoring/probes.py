"""What an encoder is good for: probes on images apart from all others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clients.site import Site
from fedmia.data.images import IntArray
from fedmia.data.split import Split
from fedmia.probes.utility import knn_accuracy, linear_accuracy
from fedmia.results import Probe
from fedmia.ssl.base import State


@dataclass
class Probes:
    """Utility of a state's pooled features on images apart from all others.

    Args:
        labels: class of each image of the data.
    """

    site: Site
    labels: IntArray
    split: Split

    @torch.no_grad()
    def features(self, state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features and labels of the fitting half, then of the testing half."""
        torch.set_num_threads(self.site.threads)
        method = self.site.method(-1, None)
        method.load_shared(state)
        method.eval()

        def pooled(indices: IntArray) -> Tensor:
            parts = [indices[i : i + 1024] for i in range(0, len(indices), 1024)]
            found = [method.encoder.features(self.site.pixels(p), ["avgpool"]) for p in parts]
            return torch.cat([f["avgpool"].float().cpu() for f in found])

        fit, test = self.split.test_fit, self.split.test_eval
        ours, theirs = (torch.from_numpy(self.labels[half]) for half in (fit, test))
        return pooled(fit), ours, pooled(test), theirs

    def knn(self, state: State) -> float:
        """Weighted-kNN accuracy in [0, 1]."""
        return knn_accuracy(*self.features(state))

    def both(self, state: State) -> dict[str, Probe]:
        """kNN and linear probe."""
        found, n = self.features(state), len(self.split.test_eval)
        return {"knn": Probe(knn_accuracy(*found), n), "linear": Probe(linear_accuracy(*found), n)}
