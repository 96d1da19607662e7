"""Batch norm over parts of the batch, as several GPUs compute it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SPLITS = 8  # GPUs of MoCo's public recipe


class SplitBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics are those of an eighth of the batch, as with eight GPUs.

    It is that of MoCo's public CIFAR-10 notebook. A batch that eight does not divide has fewer
    parts, which the notebook refuses; outside training it is batch norm. The running statistics are
    the mean over the parts.

    Attributes:
        blocks: whether a part is images that follow each other, in place of every eighth one. A key
            encoder deals so what the encoder deals otherwise: as MoCo's shuffling does, this hides
            from the loss which images were normalised together.
    """

    blocks = False

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `(B, C, H, W)`."""
        parts = math.gcd(len(input), SPLITS)
        if not self.training or parts == 1:
            return super().forward(input)
        assert self.running_mean is not None and self.running_var is not None
        B, C, H, W = input.shape
        # (B / parts, parts C, H, W): the images of a part in one column of channels.
        x = input.view(parts, B // parts, C, H, W).transpose(0, 1) if self.blocks else input
        mean, var = self.running_mean.repeat(parts), self.running_var.repeat(parts)
        out = F.batch_norm(
            x.reshape(B // parts, parts * C, H, W), mean, var,
            self.weight.repeat(parts), self.bias.repeat(parts), True, self.momentum or 0.0,
            self.eps,
        )  # fmt: skip
        with torch.no_grad():
            self.running_mean.copy_(mean.view(parts, C).mean(dim=0))
            self.running_var.copy_(var.view(parts, C).mean(dim=0))
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        out = out.view(B // parts, parts, C, H, W)
        return (out.transpose(0, 1) if self.blocks else out).reshape(B, C, H, W)


def deal_in_blocks(module: nn.Module) -> None:
    """Let every split batch norm of `module`, a key encoder, deal a batch otherwise, in place."""
    for layer in module.modules():
        if isinstance(layer, SplitBatchNorm):
            layer.blocks = True
