"""Mix-up and adversarial views (PartCrop, Table 7): naive twins, known answers, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.defenses.base import TrainingConditions
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.logit_dp import LogitDP
from fedmia.nets.keyed import keyed_uniforms
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl import SSLMethod
from fedmia.ssl._harder import MIX_TEMPERATURE, SHARES, START, adversarial_view
from fedmia.ssl.moco import MoCo
from fedmia.ssl.simclr import SimCLR
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.ssl import (
    forgets_images_unless_it_says_so,
    losses_are_one_finite_number_an_image,
    losses_are_per_image_unless_coupled,
    training_repeats_and_moves_the_weights,
)
from tests.ssl.methods import case

MIXING = ["moco", "mocov2", "simclr", "mocov3", "byol"]
TWO_VIEWS = [*MIXING, "dino", "swav", "vicreg"]
HARDER = {"adversarial": 8 / 255, "adversarial_steps": 2}


@pytest.mark.parametrize("name", ["moco", "mocov3", "byol", "dino", "swav"])
def test_promises__hold_with_added_losses(name: str) -> None:
    with_mixup = {"mixup": 1.0} if name in MIXING else {}
    one = case(name, rotation=180.0, **HARDER, **with_mixup)
    for check in (
        losses_are_one_finite_number_an_image,
        losses_are_per_image_unless_coupled,
        forgets_images_unless_it_says_so,
        training_repeats_and_moves_the_weights,
    ):
        check(one)


@pytest.mark.parametrize("name", TWO_VIEWS)
def test_step_losses__without_strength_are_the_losses(name: str) -> None:
    one = case(name)
    views = one.views()
    assert torch.equal(one.build().step_losses(*views), one.build().losses(*views))


# -- mix-up


def key_of(method: Any, name: str, view: Tensor) -> Tensor:
    encoder = method.encoder if name == "simclr" else method.key_encoder
    return F.normalize(encoder(view), dim=1)


def query_of(method: Any, name: str, mixed: Tensor) -> Tensor:
    z = method.encoder(mixed)
    return F.normalize(method.predictor(z) if name in ("mocov3", "byol") else z, dim=1)


@pytest.mark.parametrize("name", MIXING)
def test_mixup__is_the_papers_pair_by_pair(name: str) -> None:
    """MixCo, Eq. 3: cross-entropy with the shares as labels; i-Mix's distances for BYOL."""
    off = {"head_norm": "none"} if name == "byol" else {}
    one = case(name, mixup=0.5, **off)
    (a, b), method = one.views(5), one.build()
    losses = method.losses(a, b)
    got = ((method.step_losses(a, b) - losses) / 0.5).tolist()
    keys = [key_of(method, name, view[None])[0].detach() for view in b]
    negatives = list(method.queue) if name.startswith("moco") and name != "mocov3" else []
    for i in range(2):
        share = float(keyed_uniforms(a[i : i + 1], SHARES, 1))
        mixed = share * a[i] + (1 - share) * a[i + 2]
        q = query_of(method, name, mixed[None])[0].detach()
        if name == "byol":
            losses = [float((q - keys[n]).square().sum()) for n in (i, i + 2)]
        else:
            scores = [math.exp(float(q @ k) / MIX_TEMPERATURE) for k in [*keys, *negatives]]
            losses = [-math.log(scores[n] / sum(scores)) for n in (i, i + 2)]
        want = share * losses[0] + (1 - share) * losses[1]
        assert got[i] == pytest.approx(want, rel=1e-4)
        assert got[i + 2] == pytest.approx(want, rel=1e-4)
    assert got[4] == 0  # the odd one


def test_mixup__shares_are_uniform_and_fresh_for_other_views() -> None:
    views = torch.rand(4000, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    share = keyed_uniforms(views, SHARES, 1)[:, 0]
    assert abs(float(share.mean()) - 0.5) < 0.02 and abs(float(share.var()) - 1 / 12) < 0.01


def test_mixup__is_no_option_where_it_is_not_defined() -> None:
    for name in set(TWO_VIEWS) - set(MIXING):
        with pytest.raises(InputError, match="mixup"):
            registry.build("ssl", name, {"mixup": 1.0})


# -- adversarial views


def test_adversarial_view__known_answer() -> None:
    """A loss that rises with every pixel is climbed to the bound, and no further than white; the
    start takes at most epsilon, and one step of it makes that good."""
    view = torch.tensor([0.5, 0.99, 0.0, 0.2]).view(1, 1, 2, 2)
    for steps in (1, 2, 8):
        moved = adversarial_view(lambda x, _: x.sum((1, 2, 3)), view, view, 0.1, steps)
        assert bool((moved >= view - 1e-6).all()) and not moved.requires_grad
    assert moved.flatten().tolist() == pytest.approx([0.6, 1.0, 0.1, 0.3])


def test_adversarial_view__is_the_papers_step_by_step() -> None:
    one = case("moco")
    (a, b), method = one.views(3), one.build().eval()
    epsilon, steps, rate = 8 / 255, 6, 2 / 255
    got = adversarial_view(method.losses, a, b, epsilon, steps)
    for i in range(3):
        image, other = a[i : i + 1], b[i : i + 1]
        x = image + (2 * keyed_uniforms(image, START, image.numel()).view_as(image) - 1) * epsilon
        x = x.clamp(0, 1)
        for _ in range(steps):
            x.requires_grad_()
            (slope,) = torch.autograd.grad(method.losses(x, other)[0], x)
            x = (x + rate * slope.sign()).clamp(0, 1)
            x = torch.max(torch.min(x, image + epsilon), image - epsilon).detach()
        # A gradient close to 0 may have either sign.
        assert float(((got[i : i + 1] - x).abs() > 1e-6).float().mean()) < 0.02
    assert float((got - a).abs().max()) <= epsilon + 1e-6
    assert bool((method.losses(got, b) > method.losses(a, b)).all())


@pytest.mark.parametrize("name", TWO_VIEWS)
def test_adversarial__adds_its_loss_and_moves_nothing(name: str) -> None:
    """Both losses count; what the step remembers, and every running statistic, is as if the
    adversarial views had been given in training mode alone."""
    one = case(name, **HARDER)
    (a, b), got, want = one.views(), one.build(), one.build()
    moved = adversarial_view(one.build().eval().losses, a, b, 8 / 255, 2)
    added = want.losses(moved, b)
    losses = want.losses(a, b)
    assert torch.equal(got.step_losses(a, b), added + losses) and got.training
    for one_, other in zip(got.latest, want.latest, strict=True):
        assert torch.equal(one_, other)
    for (key, one_), other in zip(
        got.state_dict().items(), want.state_dict().values(), strict=True
    ):
        assert torch.equal(one_, other), key


# -- where they stand


@pytest.mark.parametrize("defense", [DPSGD(), LogitDP()])
@pytest.mark.parametrize("options", [{"mixup": 1.0}, {"adversarial": 0.03}])
def test_private_training__refuses_added_losses(defense: DPSGD, options: Any) -> None:
    for ssl in (MoCo(**options), SimCLR(**options)):
        with pytest.raises(InputError, match=next(iter(options))):
            defense.check(TrainingConditions("group", ssl))
    LogitDP().check(TrainingConditions("group", SimCLR(rotation=180.0)))
    DPSGD().check(TrainingConditions("group", MoCo(rotation=180.0)))


class ShortSimCLR(SimCLR):
    def extra_losses(self, method: SSLMethod, view1: Tensor, view2: Tensor) -> Tensor:
        return method.encoder(view1).square().sum(dim=1)


@pytest.mark.parametrize("defense", [DPSGD(), LogitDP()])
def test_private_training__refuses_a_term_of_the_loss(defense: DPSGD) -> None:
    """It would train without the term, in silence."""
    with pytest.raises(InputError, match=r"ShortSimCLR\.extra_losses adds has no gradient"):
        defense.check(TrainingConditions("group", ShortSimCLR()))


def test_chance_loss__is_of_the_plain_loss_alone() -> None:
    for cls in (MoCo, SimCLR):
        assert cls().chance_loss(40, 8) is not None
        assert cls(mixup=1.0).chance_loss(40, 8) is None
        assert cls(adversarial=0.03).chance_loss(40, 8) is None
    assert ShortSimCLR().chance_loss(40, 8) is None


def test_job__trains_on_the_step_losses() -> None:
    one, train = case("moco", mixup=1.0, **HARDER), Train()
    method = one.build()
    job = Job(
        method=method, optimizer=make_optimizer(method, train), images=np.zeros((4, 3, 8, 8)),
        augment=one.spec.augment, train=train, rng=rng(0, "train"), step=0, total_steps=1,
        device=torch.device("cpu"),
    )  # fmt: skip
    assert torch.equal(job.forward(*one.views()), one.build().step_losses(*one.views()))
