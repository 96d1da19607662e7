"""BYOL against loops, and the batch norm of its heads."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.ssl._heads import BatchNorm
from fedmia.ssl.byol import BYOL, BYOLMethod
from tests.ssl.methods import apart, build, pixels, same


def make(**options: Any) -> BYOLMethod:
    return build(BYOL(**{"dim": 8, "hidden": 12, "head_norm": "none", **options}))


def loop_distance(p: Tensor, z: Tensor) -> float:
    """||p/|p| - z/|z| ||^2 of two vectors, number by number."""
    a, b = p.double().tolist(), z.double().tolist()
    la, lb = (math.sqrt(sum(map(operator.mul, v, v))) for v in (a, b))
    return sum((x / la - y / lb) ** 2 for x, y in zip(a, b, strict=True))


def test_losses__naive_twin() -> None:
    method, a, b = apart(make()), pixels(3, 0), pixels(3, 1)
    with torch.no_grad():
        for i, got in enumerate(method.losses(a, b).tolist()):
            want = 0.0
            for online, target in ((a[i : i + 1], b[i : i + 1]), (b[i : i + 1], a[i : i + 1])):
                p = method.predictor(method.encoder(online))[0]
                want += loop_distance(p, method.key_encoder(target)[0])
            assert got == pytest.approx(want, abs=1e-5)


def test_output_losses__naive_twin() -> None:
    z1, z2 = pixels(4, 0).flatten(1)[:, :8].double(), pixels(4, 1).flatten(1)[:, :8].double()
    want = [loop_distance(p, z) for p, z in zip(z1, z2, strict=True)]
    assert make().output_losses(z1, z2).tolist() == pytest.approx(want, abs=1e-9)


def test_batch_norm__of_one_image_reads_the_running_statistics() -> None:
    mine, plain = BatchNorm(4), nn.BatchNorm1d(4)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
    torch.testing.assert_close(mine(x), plain(x))
    before = {n: t.clone() for n, t in mine.state_dict().items()}
    torch.testing.assert_close(mine(x[:1]), plain.eval()(x[:1]))
    assert same(mine.state_dict(), before)


def test_batch_norm__of_tokens_is_that_of_all_of_them() -> None:
    norm, x = BatchNorm(4), torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    got = norm(x)
    want = (x - x.mean((0, 1))) / (x.var((0, 1), correction=0) + norm.eps).sqrt()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(norm.running_mean, 0.1 * x.mean((0, 1)))
