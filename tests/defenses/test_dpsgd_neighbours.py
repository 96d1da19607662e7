"""DP-SGD's guarantee against its definition: neighbouring data, and what may differ after a step.

Neighbours differ in one image, replaced by a null record: it is drawn as ever, and trains nothing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedmia.defenses._persample import image_gradients, private_optimizer, private_step
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.stack import DefenseStack
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.seeding import torch_rng
from fedmia.ssl.base import SSLMethod, State, TrainingData
from fedmia.ssl.byol import BYOL
from fedmia.ssl.cae import CAE
from fedmia.ssl.dino import DINO
from fedmia.ssl.ibot import IBOT
from fedmia.ssl.mae import MAE
from fedmia.ssl.moco import MoCo, MoCoV2
from fedmia.ssl.saim import SAIM
from fedmia.ssl.train import Job
from fedmia.testing.material import textures as pictures
from tests.made_up_runs import stated_epsilon

CLIP = 0.05
NARROW: Any = {"decoder_width": 8, "decoder_heads": 2, "decoder_depth": 1}


def build(spec: Any) -> SSLMethod:
    net: Any = SmallNet(width=4)
    if isinstance(spec, CAE | IBOT | MAE | SAIM):
        net = ViTTiny(width=12, heads=3, depth=4, patch=2)
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, 12, pictures(9, seed=5).numpy(), 4)
    method: SSLMethod = spec.build(
        net.build(3, 8), training_data, torch_rng(0, "neighbours")
    ).train()
    method.begin_first_round()
    return method


@pytest.fixture
def job_on(make_job: Any) -> Callable[..., Job]:
    """`job_on(spec, ..)`: `make_job` on a method of its own."""
    return lambda spec, **train: make_job(build(spec), **train)


DINOS = {n: DINO(dim=8, hidden=8, prototypes=6, head_norm=n, freeze_epochs=0)
         for n in ("none", "layer")}  # fmt: skip


BYOLS = {n: BYOL(dim=8, hidden=8, head_norm=n) for n in ("none", "layer")}


IBOT_ALONE = IBOT(dim=8, hidden=8, prototypes=6, head_norm="none", freeze_epochs=0)


PUBLIC = MoCo(dim=8, queue=6, queue_source="public")


OWN = replace(PUBLIC, queue_source="own")


MASKED = MAE(**NARROW, bank=6)


METHODS: dict[str, Any] = {
    "byol": BYOLS["layer"],
    "byol, no norm": BYOLS["none"],
    "cae": CAE(**NARROW, regressor_depth=1, bank=6),
    "mae": MASKED,
    "mae, long sequences": replace(MASKED, mask_unit=2),
    "saim": SAIM(bank=6),
    "moco": PUBLIC,
    "resets": replace(PUBLIC, key="reset", queue_policy="reset"),
    "mocov2": MoCoV2(dim=8, queue=6, queue_source="public", symmetric=True),
}

SIBLINGS = ("byol, no norm", "cae", "mae, long sequences", "saim")


def views(rows: list[int], step: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of the images at `rows`, each a function of the image and the step alone."""
    base = pictures(12, seed=7).float() / 255
    noise = 0.1 * torch.rand(2, *base.shape, generator=torch_rng(step, "views"))
    both = (base + noise).clamp(0, 1)[:, rows]
    return both[0], both[1]


def carried(job: Job) -> State:
    """All that goes on from a step or leaves: weights, momentum, local state. MAE's bank apart,
    which observers read and no gradient does (asserted below)."""
    local = job.method.local_state()
    if "bank" in local:
        del local["bank"], local["pointer"]
    buffers = [job.optimizer.state[w].get("momentum_buffer") for w in job.method.trainable()]
    momenta = {f"momentum.{i}": b for i, b in enumerate(buffers) if b is not None}
    return job.method.shared_state() | local | momenta


def apart(one: Job, two: Job) -> list[str]:
    """Names of what differs, to the bit."""
    a, b = carried(one), carried(two)
    assert a.keys() == b.keys()
    return [n for n in a if not torch.equal(a[n], b[n])]


def clipped_sum(job: Job, batch: tuple[Tensor, Tensor], noise: int) -> Tensor:
    """A step of the job, with noise of a seed; the clipped sum before the noise."""
    generator = torch.Generator().manual_seed(noise)
    with private_optimizer(job, 0.5, CLIP, 4.0, generator) as private:
        gradients: list[Tensor] = []

        def note(_: object) -> None:
            gradients.append(torch.cat([w.summed_grad.flatten() for w in job.method.trainable()]))

        private.attach_step_hook(note)
        private_step(job, private, batch, 100)
        private.zero_grad(set_to_none=True)
    return gradients[0]


def same_update(one: Job, two: Job) -> None:
    """`two` gets the noised update of `one`: the weights and what the optimizer makes of it."""
    two.method.load_shared(one.method.shared_state())
    for a, b in zip(one.method.trainable(), two.method.trainable(), strict=True):
        momentum = one.optimizer.state[a]["momentum_buffer"]
        two.optimizer.state[b]["momentum_buffer"] = momentum.clone()


def neighbours(job_on: Any, spec: Any) -> tuple[list[float], list[list[str]]]:
    """Four steps, the last in a new round, on neighbouring data, whose image 3 is in the first and
    the last batch, with one update: distances of the clipped sums, what differs after each step."""
    one, two = jobs = [job_on(spec, weight_decay=0.1) for _ in range(2)]
    distances, differing = [], []
    for step, rows in enumerate(([0, 5, 8, 1, 3], [4, 6, 9], [], [2, 3, 7])):
        if step == 3:
            for job in jobs:
                job.method.begin_round()
        left = [r for r in rows if r != 3]
        sums = clipped_sum(one, views(rows, step), step), clipped_sum(two, views(left, step), step)
        distances.append(float((sums[0] - sums[1]).norm()))
        same_update(one, two)
        for job in jobs:
            job.method.after_step()
        differing.append(apart(one, two))
    return distances, differing


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SIBLINGS)) for one in METHODS]
)
def test_neighbours__sums_differ_by_the_clip_and_nothing_else_does(name: str, job_on: Any) -> None:
    distances, differing = neighbours(job_on, METHODS[name])
    assert CLIP * 0.99 < distances[0] <= CLIP * (1 + 1e-4), "the clip must bind to be tested"
    assert distances[1] == distances[2] == 0.0 and 0 < distances[3] <= CLIP * (1 + 1e-4)
    assert differing == [[], [], [], []]


def test_neighbours__own_queue_breaks_it(job_on: Any) -> None:
    """The control: the image's key stays, and moves the sum of a step that it is not in."""
    distances, differing = neighbours(job_on, OWN)
    assert differing[0] == ["queue", "pointer"]
    assert distances[1] > CLIP * 0.1


@pytest.mark.parametrize(
    ("spec", "centres"),
    [
        (DINOS["none"], ["centre"]),
        pytest.param(IBOT_ALONE, ["centre", "key.patch_centre"], marks=pytest.mark.slow),
    ],
)
def test_neighbours__dino_breaks_it_by_its_centre_alone(
    spec: Any, centres: list[str], job_on: Any
) -> None:
    """So its epsilon is heuristic, and says why; likewise iBOT's two."""
    distances, differing = neighbours(job_on, spec)
    assert distances[0] <= CLIP * (1 + 1e-4) and distances[1] > 0
    assert differing[0] == ["key.seen", *centres]


@pytest.mark.parametrize(
    ("spec", "standing", "word"),
    [
        (BYOLS["layer"], "guaranteed", "No image's loss"),
        (DINOS["none"], "heuristic", "the centre"),
        (IBOT_ALONE, "heuristic", "the centres"),
        (MASKED, "guaranteed", "No image's loss"),
        (PUBLIC, "guaranteed", "No image's loss"),
        (OWN, "heuristic", "queue"),
    ],
)
def test_statement__fits_the_method(spec: Any, standing: str, word: str, job_on: Any) -> None:
    defense, memory = DPSGD(noise_multiplier=2.0), dict[str, Any]()
    job = job_on(spec, local_epochs=1, batch_size=12)  # one step
    before = job.method.shared_state()
    defense.train(job, memory)
    epsilon: Any = defense.privacy(memory)
    assert epsilon.standing == standing and word in epsilon.assumptions
    assert "null record" in epsilon.assumptions
    assert ("queue" in epsilon.assumptions) == (word == "queue")
    assert "seeded generator" in stated_epsilon(epsilon).assumptions
    assert any(not torch.equal(t, before[n]) for n, t in job.method.shared_state().items())


def test_mae_bank__moves_neither_gradients_nor_what_leaves(job_on: Any) -> None:
    """It holds outputs for observers, so it is all of the local state that rests on images."""
    sums, sent = [], []
    for fill in (1, 2):
        job = job_on(MASKED)
        job.method.fill_bank(pictures(6, seed=fill).float() / 255)
        sums.append(clipped_sum(job, views([0, 1, 2], 0), 0))
        job.method.after_step()
        sent.append(job.method.shared_state())
    assert torch.equal(sums[0], sums[1])
    assert all(torch.equal(t, sent[1][n]) for n, t in sent[0].items())


def test_public_queue__moves_by_a_public_number(job_on: Any) -> None:
    """Whatever size the Poisson batch has, the empty one too."""
    ends = []
    for rows in ([], [4], list(range(12))):
        job = job_on(PUBLIC)
        clipped_sum(job, views(rows, 0), 0)
        job.method.load_shared(build(PUBLIC).shared_state())
        job.method.after_step()
        ends.append(job.method.local_state())
    for end in ends[1:]:
        assert all(torch.equal(t, end[n]) for n, t in ends[0].items())
    assert int(ends[0]["public"][1]) == 6 + 4


def test_public_queue__holds_keys_of_public_views(job_on: Any) -> None:
    """From the first batch on: of the key encoder that the received weights are, each of nine
    public images in turn, alone."""
    job = job_on(PUBLIC)
    method, first, alone = job.method, job.method.queue.clone(), copy.deepcopy(job.method.public)

    def keys(start: int, count: int) -> Tensor:
        rows = []
        for at in range(start, start + count):
            alone.images, alone.taken = pictures(9, seed=5)[[at % 9]], start
            rows.append(method.key_encoder(alone.views(1)))
        return normalize(torch.cat(rows), dim=1).detach()

    assert torch.allclose(first, keys(0, 6), atol=1e-6)
    clipped_sum(job, views([1, 2], 0), 0)
    method.after_step()
    assert torch.allclose(method.queue, torch.cat([keys(6, 4), first[4:]]), atol=1e-6)


@pytest.mark.parametrize("spec", [MASKED, replace(OWN, symmetric=True), DINOS["none"], IBOT_ALONE])
def test_split_step__is_the_whole_one(spec: Any, job_on: Any) -> None:
    """To rounding, and in what goes into the queue; noised once."""
    ends = []
    for most in (100, 2):
        job = job_on(spec)
        with private_optimizer(job, 0.5, CLIP, 4.0, torch.Generator().manual_seed(1)) as private:
            hooked: list[int] = []
            private.attach_step_hook(hooked.append)  # type: ignore[arg-type]
            losses, norms = private_step(job, private, views([3, 0, 5, 8, 1], 0), most)
            private.zero_grad(set_to_none=True)
        job.method.after_step()
        assert len(hooked) == 1 and losses.shape == norms.shape == (5,)
        everything = job.method.shared_state() | job.method.local_state()
        ends.append(everything | {"losses": losses, "norms": norms})
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("factor", [torch.inf, 1e25])
def test_private_step__makes_a_null_record_of_a_gradient_without_a_finite_norm(
    factor: float, job_on: Any
) -> None:
    """Either it is not finite itself, or every entry is and the sum of their squares is not."""
    whole, job = views([0, 1, 2], 0), job_on(PUBLIC)
    losses, scales = job.method.losses, torch.tensor([1.0, factor, 1.0])
    job.method.losses = lambda *both: losses(*both) * scales[: len(both[0])]
    with private_optimizer(job, 0.0, CLIP, 4.0, torch.Generator()) as private:
        image_gradients(job, whole)
        finite = all(w.grad_sample.isfinite().all() for w in job.method.trainable())
        assert finite == math.isfinite(factor)
        private.zero_grad(set_to_none=True)
        _, norms = private_step(job, private, whole, 100)
        private.zero_grad(set_to_none=True)
    assert norms[1] == 0.0 and (norms[[0, 2]] > 0).all() and norms.isfinite().all()
    job.method.load_shared(build(PUBLIC).shared_state())
    expected = clipped_sum(job_on(PUBLIC), views([0, 2], 0), 0)
    assert torch.allclose(clipped_sum(job, whole, 0), expected, atol=1e-6)


@pytest.mark.parametrize("spec", [OWN, PUBLIC, DINOS["none"], IBOT_ALONE])
def test_null_record__does_not_end_the_steps_after_it(spec: Any, job_on: Any) -> None:
    """Its key or score is remembered as zeros: one that is not finite would be in every later
    loss."""
    ends = []
    for value in (None, torch.nan):
        job, whole = job_on(spec), views([0, 1, 2], 0)
        if value is not None:
            whole[0][1] = whole[1][1] = value
        with private_optimizer(job, 0.0, CLIP, 4.0, torch.Generator()) as private:
            private_step(job, private, whole, 2)
            job.method.after_step()
            private.zero_grad(set_to_none=True)
            losses, norms = private_step(job, private, views([3, 4, 5], 1), 2)
        ends.append(norms)
        assert bool(losses.isfinite().all()) and bool((norms > 0).all())
    assert float((ends[0] - ends[1]).norm() / ends[0].norm()) < 0.5


def test_metrics__what_is_told_rests_on_no_image(job_on: Any) -> None:
    told, kept = [], []
    stack = DefenseStack([("dpsgd", DPSGD(noise_multiplier=2.0))])
    for brightness in (1.0, 0.2):
        job, memory = job_on(PUBLIC), dict[str, Any]()
        job.images = (job.images * brightness).astype(np.uint8)
        leaving = stack.leaving_metrics(stack.train(job, memory))
        leaving.pop("seconds")
        kept.append(memory["dpsgd"].pop("metrics"))
        told.append((leaving, memory))  # else, it holds nothing that rests on images
    assert told[0] == told[1] and told[0][0].keys() == {"noise_std", "lr"}
    assert kept[0] != kept[1]
