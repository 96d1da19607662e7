"""What an encoder is good for: probes on images apart from all others."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clients.site import Site
from fedmia.data.images import ImageSet
from fedmia.data.split import Split
from fedmia.probes.utility import knn_accuracy, linear_accuracy
from fedmia.results import Probe
from fedmia.ssl.base import State


@dataclass
class Probes:
    """Utility of a state's pooled features on images apart from all others."""

    site: Site
    data: ImageSet
    split: Split

    def features(
        self, state: State
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features and labels of the fitting half, then of the testing half."""
        torch.set_num_threads(self.site.threads)
        method = self.site.method(-1, None)
        method.load_shared(state)
        method.eval()
        out: list[torch.Tensor] = []
        for indices in (self.split.test_fit, self.split.test_eval):
            pixels = torch.from_numpy(self.data.images[indices])
            with torch.no_grad():
                parts = [
                    method.encoder.features(p.to(self.site.device).float() / 255, ["avgpool"])
                    for p in pixels.split(1024)
                ]
            out += [
                torch.cat([p["avgpool"].float().cpu() for p in parts]),
                torch.from_numpy(self.data.labels[indices]),
            ]
        fit, fit_labels, test, test_labels = out
        return fit, fit_labels, test, test_labels

    def knn(self, state: State) -> float:
        """Weighted-kNN accuracy in [0, 1]."""
        return knn_accuracy(*self.features(state))

    def both(self, state: State) -> dict[str, Probe]:
        """kNN and linear probe."""
        found, n = self.features(state), len(self.split.test_eval)
        return {"knn": Probe(knn_accuracy(*found), n), "linear": Probe(linear_accuracy(*found), n)}
