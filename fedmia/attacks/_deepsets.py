"""DeepSets: a network whose answer does not depend on the order of a set's elements."""

from __future__ import annotations

from torch import Tensor, nn


class DeepSets(nn.Module):
    """rho(mean over elements of phi(element)) for sets of numbers (Zaheer et al., 2017, Thm. 2).

    EncoderMI names the public code of DeepSets and no sizes. As in that code's classifier the
    elements are averaged and units are ELU; the widths are our own.

    Args:
        width: units of phi's two layers and of rho's hidden one.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(1, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))

    def forward(self, sets: Tensor) -> Tensor:
        """(B, K) sets of K numbers -> (B, 1)."""
        out: Tensor = self.rho(self.phi(sets[:, :, None]).mean(dim=1))
        return out
