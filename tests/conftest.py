"""What many tests share: one torch thread, small textured images, a small MoCo, least views."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import ActiveAttack, Attack, Known, Turn
from fedmia.data.base import Request
from fedmia.data.images import IntArray, digests
from fedmia.data.synthetic import Synthetic
from fedmia.nets.smallnet import SmallNet
from fedmia.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe, SSLMethod, State
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox, ClientView, Labels, ServerView, Shadow, WhiteBox

torch.set_num_threads(1)
PIXELS = 8
CPU = torch.device("cpu")
AUGMENT = Augment(hue=0.1)
VIEWS = {view.threat: view for view in (BlackBox, WhiteBox, ClientView, ServerView)}

Textures = Callable[..., Tensor]
MakeMoCo = Callable[..., MomentumContrast]
MakeView = Callable[..., BlackBox]


@pytest.fixture(scope="session")
def textures() -> Textures:
    """`textures(count, seed)`: uint8 (count, 3, 8, 8), all of one distribution, all different."""

    def make(count: int, seed: int = 0) -> Tensor:
        source = Synthetic(classes=5, images=max(count, 5), pixels=PIXELS)
        return torch.from_numpy(source.load(Request(None, None, None, seed)).images[:count])

    return make


@pytest.fixture(scope="session")
def images(textures: Textures) -> Tensor:
    """Twenty images."""
    return textures(20)


@pytest.fixture(scope="session")
def known(textures: Textures) -> Known:
    """Twelve known members and ten known non-members, neither among `images`."""
    both = textures(22, seed=1)
    return Known(both[:12], both[12:])


@pytest.fixture(scope="session")
def make_moco() -> MakeMoCo:
    """`make_moco(seed=0, images=None, **options)`: an untrained MoCo on a narrow SmallNet."""

    def make(seed: int = 0, images: int | None = None, **options: Any) -> MomentumContrast:
        spec = MoCo(**{"dim": 8, "queue": 16, "temperature": 0.2, **options})
        backbone = SmallNet(width=4).build(3, PIXELS)
        recipe = Recipe((0.5,) * 3, (0.25,) * 3, images)
        return spec.build(backbone, recipe, torch_rng(seed, "test"))

    return make


@pytest.fixture(scope="session")
def held(textures: Textures) -> Tensor:
    """Fourteen images that the attacker holds, none of them among `images` or `known`."""
    return textures(14, seed=2)


@pytest.fixture(scope="session")
def serving(held: Tensor) -> Tensor:
    """The half of `held` that is the bank of every image that is not in it."""
    names = digests(held.numpy())
    return held[sorted(range(len(held)), key=names.__getitem__)[::2]]


class ByBytes(Labels):
    """Any image has a class: the sum of its bytes modulo 3."""

    def of(self, images: Tensor) -> IntArray:
        return images.flatten(1).sum(dim=1).remainder(3).numpy()


@pytest.fixture(scope="session")
def shadows(make_moco: MakeMoCo, textures: Textures) -> tuple[Shadow, ...]:
    """Three encoders of the attacker's own, said to be trained on half of twenty images each."""
    pool = textures(20, seed=3)
    found = []
    for i in range(3):
        order = torch.from_numpy(rng(i, "shadow").permutation(20))
        own = {"held": pool[order[10:]], "labels": ByBytes()}
        view = WhiteBox(make_moco(seed=i + 5), AUGMENT, seed=0, device=CPU, **own)
        found.append(Shadow(view, pool[order[:10]], pool[order[10:]]))
    return tuple(found)


@pytest.fixture(scope="session")
def make_view(held: Tensor, shadows: tuple[Shadow, ...]) -> MakeView:
    """`make_view(attack, method, targets, augment=..., budget=..., signals=..., held=...,
    shadows=...)`; an attack that uses no shadows is given none."""

    def make(attack: Attack, *rest: Any, **more: Any) -> BlackBox:
        own = {"held": held} | (
            {"shadows": shadows, "labels": ByBytes()} if attack.uses_shadows else {}
        )
        return least_view(attack, *rest, **(own | more))

    return make


def least_view(
    attack: Attack,
    method: SSLMethod,
    targets: Tensor,
    augment: Augment = AUGMENT,
    *,
    held: Tensor,
    **more: Any,
) -> BlackBox:
    """The least view that `attack` says is enough, on a copy of `method`.

    A client's view holds two attack rounds: what the attack itself crafted, and the mean of that
    and the weights received. Of an attack that is not active it holds three models: two others,
    then `method` itself. A server's view holds the updates of four clients in two rounds.
    """
    cls = VIEWS[attack.needs]
    values: dict[str, Any] = {"seed": 0, "device": CPU, "held": held, **more}
    if cls is ServerView:
        return cls(copy.deepcopy(method), augment, **uploads(method), **values)
    if cls is not ClientView:
        return cls(copy.deepcopy(method), augment, **values)
    if not isinstance(attack, ActiveAttack):
        return cls(copy.deepcopy(method), augment, received=earlier(method), **values)
    received, sent = {0: method.shared_state()}, {}
    for turn in (0, 1):
        base = received[turn]
        client, draw = copy.deepcopy(method), rng(0, "craft", turn)
        order = Turn(client, base, base, targets, held, turn, augment, draw)
        sent[turn + 1] = attack.craft(order)
        received[turn + 1] = {n: (t + sent[turn + 1][n]) / 2 for n, t in base.items()}
    released = copy.deepcopy(method)
    released.load_shared(received[2])
    return ClientView(released, augment, received=received, sent=sent, targets=targets, **values)


def earlier(method: SSLMethod) -> dict[int, State]:
    """Three rounds of a trajectory that ends with `method`: its weights, ever less disturbed."""
    draw, last = torch_rng(0, "earlier"), method.shared_state()
    return {
        turn: {n: t + noise * t.std(correction=0) * torch.randn(t.shape, generator=draw)
               for n, t in last.items()}
        for turn, noise in enumerate((1.0, 0.5, 0.0))
    }  # fmt: skip


def uploads(method: SSLMethod, clients: int = 4, rounds: int = 2) -> dict[str, Any]:
    """A server's `before` and `updates`: the weights of `method`, disturbed by each client."""
    draw, state = torch_rng(0, "uploads"), method.shared_state()
    updates = {
        r: {
            c: {n: t + 0.05 * torch.randn(t.shape, generator=draw) for n, t in state.items()}
            for c in range(clients)
        }
        for r in range(1, rounds + 1)
    }
    return {"before": dict.fromkeys(updates, state), "updates": updates}
