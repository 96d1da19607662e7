"""Projection and prediction heads: linear layers with ReLU between them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

HEAD_NORMS = ("layer", "batch", "none")


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that reads its running statistics where a batch is one image.

    The last batch of an epoch may be: it has no statistics of its own, and torch refuses it.
    Of several tokens an image, (B, n, D), statistics are over all.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() == 3:
            return self.forward(input.flatten(0, 1)).unflatten(0, input.shape[:2])
        if self.training and len(input) == 1:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(input, mean, var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(input)


def mlp(
    width: int, hidden: int, out: int, layers: int, norm: str = "layer", last_norm: bool = False
) -> nn.Sequential:
    """`layers` linear layers, width -> hidden -> ... -> out, with norm and ReLU between them.

    Papers put batch norm here. It is not the default: a batch's statistics tell which of its
    images belong together, tie one image's loss to the others (no per-image gradient, so no
    DP-SGD), are poor on the small batches of a client, and their running averages would have to
    be averaged between clients. Layer norm does the same scaling on each image alone.

    Args:
        width, hidden, out: lengths of the input, of every layer between, and of the output.
        layers: >= 1; 1 is a linear layer, which has no use for `hidden`.
        norm: after every linear layer but the last: `layer`, `batch` or `none`.
        last_norm: also after the last one, without scale and shift.
    """
    widths = [width, *[hidden] * (layers - 1), out]
    parts: list[nn.Module] = []
    for i, (before, after) in enumerate(zip(widths, widths[1:], strict=False), 1):
        last = i == layers
        normed = norm != "none" and (last_norm or not last)
        # Batch norm subtracts the mean over the batch, and with it any bias.
        parts.append(nn.Linear(before, after, bias=not (normed and norm == "batch")))
        if normed:
            layer = nn.LayerNorm(after, elementwise_affine=not last)
            parts.append(BatchNorm(after, affine=not last) if norm == "batch" else layer)
        if not last:
            parts.append(nn.ReLU())
    return nn.Sequential(*parts)
