"""iBOT against loops over patches and outputs, its masks, its two centres, its mask token."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.settings.errors import InputError
from fedmia.ssl.dino import DINO
from fedmia.ssl.ibot import IBOT, OnlineTokenizer
from tests.ssl import methods
from tests.ssl.methods import PATCHED, pixels

SMALL = {"dim": 8, "hidden": 12, "prototypes": 6, "head_norm": "none"}


def build(pool: str = "cls", **options: Any) -> OnlineTokenizer:
    spec = IBOT(**{**SMALL, "unmasked": 0.0, **options})
    return methods.build(spec, net=replace(PATCHED, pool=pool))


def apart(method: OnlineTokenizer) -> OnlineTokenizer:
    """`method` with another teacher and centres that are not zero."""
    method.centre += torch.linspace(-0.2, 0.2, 6)
    method.patch_centre += torch.linspace(0.3, -0.1, 6)
    return methods.apart(method)


def cross(teacher: Tensor, student: Tensor, centre: Tensor, T: float) -> float:
    """-sum P_t log P_s of one token, the student's temperature .1."""
    t = [math.exp((a - c) / T) for a, c in zip(teacher.tolist(), centre.tolist(), strict=True)]
    s = [math.exp(a / 0.1) for a in student.tolist()]
    return -sum(a / sum(t) * math.log(b / sum(s)) for a, b in zip(t, s, strict=True))


def rows_of(method: Any, encoder: Any, image: Tensor, gone: list[bool], pool: str) -> list[Tensor]:
    """What of one image comes before the head: the pooled vector, then the 16 patches."""
    net, plain = encoder.backbone, method.encoder.normalise(image[None])[0]
    tokens = [net.cls.weight[0, 0]]
    for p in range(16):
        cut = plain[:, 2 * (p // 4) :][:, :2, 2 * (p % 4) :][:, :, :2]
        embedded = net.embed(cut.permute(1, 2, 0).flatten())
        token = method.mask_token.weight[0, 0] if gone[p] else embedded
        tokens.append(token + net.positions.weight.flatten(1, 2)[0, p])
    y = torch.stack(tokens)[None]
    for name in net.layers:
        for block in net.get_submodule(name):
            y = block(y)
    last = net.norm(y)[0]
    return [last[0] if pool == "cls" else last[1:].mean(0), *last[1:]]


def scores_of(encoder: Any, prototypes: Any, rows: list[Tensor]) -> list[Tensor]:
    directions = F.normalize(prototypes.weight, dim=1)
    return [directions @ F.normalize(encoder.head(row), dim=0) for row in rows]


@torch.no_grad()
@pytest.mark.parametrize(("shared", "pool"), [(True, "cls"), (False, "mean")])
def test_losses__naive_twin(shared: bool, pool: str) -> None:
    """L_cls + L_MIM of Sec. 3 for one image at a time, patches in loops."""
    method = apart(build(shared_head=shared, pool=pool))
    method.mask_token.weight.add_(0.5)
    a, b = pixels(3, 0), pixels(3, 1)
    hidden = method.hidden(a), method.hidden(b)

    def scores(encoder: Any, prototypes: Any, image: Tensor, gone: list[bool]) -> list[Tensor]:
        return scores_of(encoder, prototypes, rows_of(method, encoder, image, gone, pool))

    for i, got in enumerate(method.losses(a, b).tolist()):
        whole = [False] * 16
        gone = [h[i].tolist() for h in hidden]
        assert 0 < sum(gone[0]) < 16
        t = [scores(method.key_encoder, method.key_prototypes, x[i], whole) for x in (a, b)]
        s = [
            scores(method.encoder, method.prototypes, x[i], g)
            for x, g in zip((a, b), gone, strict=True)
        ]
        first, last = slice(0, 6), slice(-6, None)
        want = sum(
            cross(t[u][0][first], s[1 - u][0][first], method.centre, 0.04) / 2 for u in (0, 1)
        )
        for u in (0, 1):
            terms = [
                cross(t[u][1 + p][last], s[u][1 + p][last], method.patch_centre, 0.07)
                for p in range(16)
                if gone[u][p]
            ]
            want += sum(terms) / len(terms) / 2
        assert got == pytest.approx(want, rel=1e-4)


@torch.no_grad()
def test_losses__without_masks_are_those_of_dino() -> None:
    """All that iBOT adds hangs on masks: with none, the known answer is the other method's loss."""
    method = build(mask=0.01, mask_spread=0.0)  # no patch of 16
    dino = methods.build(DINO(**SMALL), net=PATCHED)
    dino.load_shared({n: t for n, t in method.shared_state().items() if "mask_token" not in n})
    dino.begin_first_round()
    method.begin_first_round()
    a, b = pixels(4, 0), pixels(4, 1)
    torch.testing.assert_close(method.losses(a, b), dino.losses(a, b))


def test_hidden__shares_are_those_of_the_paper_and_keyed_by_view_and_weights() -> None:
    method, x = build(unmasked=0.5), pixels(400)
    hidden = method.hidden(x)
    count = hidden.sum(dim=1)
    some = count[count > 0]
    assert 160 < len(some) < 240 and (int(some.min()), int(some.max())) == (1, 7)  # of 16, .1 to .5
    assert float(some.float().mean()) / 16 == pytest.approx(
        0.3 - 0.5 / 16, abs=0.02
    )  # rounded down
    assert (hidden[count > 0].float().mean(dim=0) > 0.15).all()  # every place
    assert torch.equal(method.hidden(x[7:9]), hidden[7:9])
    with torch.no_grad():
        method.encoder.backbone.cls.weight.add_(0.1)  # a step
    assert not torch.equal(method.hidden(x), hidden)


@torch.no_grad()
def test_after_step__both_centres_follow_the_teachers_scores() -> None:
    method, views = apart(build()), [pixels(3, 0), pixels(3, 1)]
    before = method.centre.clone(), method.patch_centre.clone()
    teacher = method.key_encoder
    net = teacher.backbone
    tokens = [net.encode(net.tokens(teacher.normalise(x)).flatten(1, 2))[-1] for x in views]
    scores = torch.cat([method.key_prototypes(teacher.head(t)) for t in tokens])
    method.losses(*views)
    method.after_step()
    torch.testing.assert_close(method.centre, 0.9 * before[0] + 0.1 * scores[:, 0].mean(0))
    patches = scores[:, 1:].mean((0, 1))
    torch.testing.assert_close(method.patch_centre, 0.9 * before[1] + 0.1 * patches)


def test_build__refuses_shares_out_of_range() -> None:
    with pytest.raises(InputError, match=r"IBOT: option mask_spread: 0\.4, must be at most 0\.3"):
        IBOT(mask_spread=0.4)
