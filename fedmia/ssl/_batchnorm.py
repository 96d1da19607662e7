"""Batch norm in heads, for the methods that collapse without it, on batches of any size."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.ssl._heads import mlp


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that reads its running statistics where a batch is one image.

    The last batch of an epoch may be: it has no statistics of its own, and torch refuses it.
    """

    def forward(self, input: Tensor) -> Tensor:
        if self.training and len(input) == 1:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(input, mean, var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(input)


def head(width: int, hidden: int, out: int, layers: int, norm: str) -> nn.Sequential:
    """`mlp`, its batch norms replaced by those that take a batch of one image."""
    parts = mlp(width, hidden, out, layers, norm)
    return nn.Sequential(
        *(BatchNorm(p.num_features) if isinstance(p, nn.BatchNorm1d) else p for p in parts)
    )
