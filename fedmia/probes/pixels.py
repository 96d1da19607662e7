"""A classifier on pixels alone: whatever it finds is a shift between the sets, not leakage."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

SIDE = 8  # pixels a side that the classifier sees
CHUNK = 1 << 20  # pixels that are read at once


def pixel_features(images: Tensor) -> NDArray[np.float64]:
    """(N, F) of uint8 (N, C, H, W): at most 8 x 8 pixels, their mean, spread and roughness."""
    few = max(1, CHUNK // (images.shape[2] * images.shape[3]))
    return np.concatenate([_features(part) for part in images.split(few)])


def _features(images: Tensor) -> NDArray[np.float64]:
    scaled = images.double() / 255
    small = F.adaptive_avg_pool2d(scaled, SIDE) if scaled.shape[-1] > SIDE else scaled
    rough_y = (scaled[..., 1:, :] - scaled[..., :-1, :]).abs().mean(dim=(1, 2, 3))
    rough_x = (scaled[..., 1:] - scaled[..., :-1]).abs().mean(dim=(1, 2, 3))
    moments = torch.stack(
        [scaled.mean(dim=(1, 2, 3)), scaled.flatten(1).std(dim=1), rough_y, rough_x], dim=1
    )
    return np.asarray(torch.cat([small.flatten(1), moments], dim=1).numpy(), dtype=np.float64)


def pixel_scores(members: Tensor, nonmembers: Tensor, images: Tensor) -> NDArray[np.float64]:
    """Membership scores by a shrunken LDA on `pixel_features`, fitted on the known images.

    Args:
        members, nonmembers: known ones, uint8 (M, C, H, W) and (K, C, H, W).
        images: to be scored, uint8 (N, C, H, W).

    Returns:
        (N,), higher = member.
    """
    features = np.concatenate([pixel_features(members), pixel_features(nonmembers)])
    truth = np.repeat([1, 0], [len(members), len(nonmembers)])
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(
        StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    )
    decided = model.fit(features, truth).decision_function(pixel_features(images))
    return np.asarray(decided, dtype=np.float64)
