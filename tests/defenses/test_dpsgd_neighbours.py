"""DP-SGD's guarantee against its definition: neighbouring data, and what may differ after a step.

Neighbours differ in one image, replaced by a null record: it is drawn as ever, and trains nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clients.honest import Honest
from fedmia.defenses._persample import image_gradients, private_optimizer, private_step
from fedmia.defenses._stack import DefenseStack
from fedmia.defenses.dpsgd import DPSGD
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.options.seeding import torch_rng
from fedmia.report.lowerbounds import epsilon_row
from fedmia.ssl._patches import PatchSSL
from fedmia.ssl.base import Recipe, SSLMethod, State
from fedmia.ssl.byol import BYOL
from fedmia.ssl.cae import CAE
from fedmia.ssl.dino import DINO
from fedmia.ssl.ibot import IBOT
from fedmia.ssl.mae import MAE
from fedmia.ssl.moco import MoCo, MoCoV2
from fedmia.ssl.saim import SAIM
from fedmia.ssl.train import Job
from fedmia.testing.material import textures as pictures

CLIP = 0.05
NARROW: Any = {"decoder_width": 8, "decoder_heads": 2, "decoder_depth": 1}
Build = Callable[[], SSLMethod]


def build(spec: Any) -> SSLMethod:
    net: Any = SmallNet(width=4)
    if isinstance(spec, PatchSSL | IBOT):
        net = ViTTiny(width=12, heads=3, depth=4, patch=2)
    recipe = Recipe((0.5,) * 3, (0.25,) * 3, 12, pictures(9, seed=5).numpy(), 4)
    method: SSLMethod = spec.build(net.build(3, 8), recipe, torch_rng(0, "neighbours")).train()
    method.begin_first_round()
    return method


def moco(**options: Any) -> Build:
    return lambda: build(MoCo(**{"dim": 8, "queue": 6, "queue_source": "public", **options}))


def mae() -> SSLMethod:
    return build(MAE(**NARROW, bank=6))


def cae() -> SSLMethod:
    return build(CAE(**NARROW, regressor_depth=1, bank=6))


def byol(norm: str = "layer") -> Build:
    return lambda: build(BYOL(dim=8, hidden=8, head_norm=norm))


def dino(norm: str = "none") -> Build:
    return lambda: build(DINO(dim=8, hidden=8, prototypes=6, head_norm=norm, freeze_epochs=0))


def ibot() -> SSLMethod:
    return build(IBOT(dim=8, hidden=8, prototypes=6, head_norm="none", freeze_epochs=0))


METHODS: dict[str, Build] = {
    "byol": byol(),
    "byol, no norm": byol("none"),
    "cae": cae,
    "mae": mae,
    "mae, long sequences": lambda: build(MAE(**NARROW, bank=6, mask_unit=2)),
    "saim": lambda: build(SAIM(bank=6)),
    "moco": moco(),
    "resets": moco(key="reset", queue_policy="reset"),
    "mocov2": lambda: build(MoCoV2(dim=8, queue=6, queue_source="public", symmetric=True)),
}


def views(rows: list[int], step: int) -> tuple[Tensor, Tensor]:
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
        two.optimizer.state[b]["momentum_buffer"] = one.optimizer.state[a][
            "momentum_buffer"
        ].clone()


def neighbours(make: Build, make_job: Any) -> tuple[list[float], list[list[str]]]:
    """Four steps, the last in a new round, on neighbouring data, whose image 3 is in the first and
    the last batch, with one update: distances of the clipped sums, what differs after each step."""
    one, two = make_job(make(), weight_decay=0.1), make_job(make(), weight_decay=0.1)
    distances, differing = [], []
    for step, rows in enumerate(([0, 5, 8, 1, 3], [4, 6, 9], [], [2, 3, 7])):
        if step == 3:
            one.method.begin_round()
            two.method.begin_round()
        left = [r for r in rows if r != 3]
        sums = clipped_sum(one, views(rows, step), step), clipped_sum(two, views(left, step), step)
        distances.append(float((sums[0] - sums[1]).norm()))
        same_update(one, two)
        for job in (one, two):
            job.method.after_step()
        differing.append(apart(one, two))
    return distances, differing


@pytest.mark.parametrize("name", METHODS)
def test_neighbours__sums_differ_by_the_clip_and_nothing_else_does(
    name: str, make_job: Any
) -> None:
    distances, differing = neighbours(METHODS[name], make_job)
    assert CLIP * 0.99 < distances[0] <= CLIP * (1 + 1e-4), "the clip must bind to be tested"
    assert distances[1] == distances[2] == 0.0 and 0 < distances[3] <= CLIP * (1 + 1e-4)
    assert differing == [[], [], [], []]


def test_neighbours__own_queue_breaks_it(make_job: Any) -> None:
    """The control: the image's key stays, and moves the sum of a step that it is not in."""
    distances, differing = neighbours(moco(queue_source="own"), make_job)
    assert differing[0] == ["queue", "pointer"]
    assert distances[1] > CLIP * 0.1


@pytest.mark.parametrize(
    ("make", "centres"), [(dino(), ["centre"]), (ibot, ["centre", "key.patch_centre"])]
)
def test_neighbours__dino_breaks_it_by_its_centre_alone(
    make: Build, centres: list[str], make_job: Any
) -> None:
    """So its epsilon is heuristic, and says why; likewise iBOT's two."""
    distances, differing = neighbours(make, make_job)
    assert distances[0] <= CLIP * (1 + 1e-4) and distances[1] > 0
    assert differing[0] == ["key.seen", *centres]
    assert "centre" in make().remembers and byol()().remembers == ""


@pytest.mark.parametrize("norm", ["layer", "none"])
@pytest.mark.parametrize("make", [byol, dino])
def test_image_gradients__rest_on_the_image_alone(make: Any, norm: str, make_job: Any) -> None:
    """Whatever else is in the batch: the other images, how many there are."""
    rows = ([0, 1, 2], [0, 7, 8, 9, 4], [0])
    first, *others = (first_gradient(make_job(make(norm)()), views(own, 0)) for own in rows)
    assert float(first.norm()) > 0
    assert all(torch.allclose(other, first, rtol=1e-4, atol=1e-6) for other in others)


def first_gradient(job: Job, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The whole gradient of a batch's first image."""
    with private_optimizer(job, 0.0, CLIP, 4.0, torch.Generator()):
        image_gradients(job, batch)
        return torch.cat([w.grad_sample[0].flatten() for w in job.method.trainable()])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "standing", "word"),
    [
        (byol(), "guaranteed", "No image's loss"),
        (dino(), "heuristic", "the centre"),
        (ibot, "heuristic", "the centres"),
    ],
)
def test_statement__of_methods_without_coupled_heads(
    make: Build, standing: str, word: str, make_job: Any
) -> None:
    defense, memory = DPSGD(noise_multiplier=2.0), dict[str, Any]()
    job = make_job(make())
    before = job.method.shared_state()
    defense.train(job, memory)
    epsilon = defense.privacy(memory)
    assert epsilon is not None and epsilon.standing == standing and word in epsilon.assumptions
    assert any(not torch.equal(t, before[n]) for n, t in job.method.shared_state().items())


def test_mae_bank__moves_neither_gradients_nor_what_leaves(make_job: Any) -> None:
    """It holds outputs for observers, so it is all of the local state that rests on images."""
    sums, sent = [], []
    for fill in (1, 2):
        job = make_job(mae())
        job.method.fill_bank(pictures(6, seed=fill).float() / 255)
        sums.append(clipped_sum(job, views([0, 1, 2], 0), 0))
        job.method.after_step()
        sent.append(job.method.shared_state())
    assert torch.equal(sums[0], sums[1])
    assert all(torch.equal(t, sent[1][n]) for n, t in sent[0].items())


def test_public_queue__moves_by_a_public_number(make_job: Any) -> None:
    """Whatever size the Poisson batch has, the empty one too."""
    ends = []
    for rows in ([], [4], list(range(12))):
        job = make_job(moco()())
        clipped_sum(job, views(rows, 0), 0)
        job.method.load_shared(moco()().shared_state())
        job.method.after_step()
        ends.append(job.method.local_state())
    for end in ends[1:]:
        assert all(torch.equal(t, end[n]) for n, t in ends[0].items())
    assert int(ends[0]["public"][1]) == 6 + 4


def test_public_queue__holds_keys_of_public_views(make_job: Any) -> None:
    """From the first batch on: of the key encoder that the received weights are."""
    method: Any = moco()()
    twin = PublicTwin(method)
    assert torch.allclose(method.queue, twin.keys(6), atol=1e-6)
    job = make_job(method)
    clipped_sum(job, views([1, 2], 0), 0)
    method.after_step()
    rows = twin.keys(4)
    assert torch.allclose(method.queue, torch.cat([rows, twin.first[4:]]), atol=1e-6)


class PublicTwin:
    """Keys of nine public images in turn, each alone."""

    def __init__(self, method: Any) -> None:
        self.method, self.taken = method, 0
        self.first = method.queue.clone()

    def keys(self, count: int) -> Tensor:
        from fedmia.nets.keyed import keyed_uniforms

        augment, found = self.method.spec.augment, []
        for at in range(self.taken, self.taken + count):
            image = pictures(9, seed=5)[at % 9][None]
            seed = self.method.public.seed + self.taken
            view = augment(image, keyed_uniforms(image.float(), seed, augment.draws))
            found.append(torch.nn.functional.normalize(self.method.key_encoder(view), dim=1))
        self.taken += count
        return torch.cat(found).detach()


@pytest.mark.parametrize("make", [mae, moco(queue_source="own", symmetric=True), dino(), ibot])
def test_split_step__is_the_whole_one(make: Build, make_job: Any) -> None:
    """To rounding, and in what goes into the queue; noised once."""
    ends = []
    for most in (100, 2):
        job = make_job(make())
        with private_optimizer(job, 0.5, CLIP, 4.0, torch.Generator().manual_seed(1)) as private:
            hooked: list[int] = []
            private.attach_step_hook(hooked.append)  # type: ignore[arg-type]
            losses, norms = private_step(job, private, views([3, 0, 5, 8, 1], 0), most)
            private.zero_grad(set_to_none=True)
        job.method.after_step()
        assert len(hooked) == 1 and losses.shape == norms.shape == (5,)
        everything = job.method.shared_state() | job.method.local_state()
        ends.append(everything | {"losses": losses, "norms": norms})
    for name, tensor in ends[0].items():
        assert torch.allclose(tensor, ends[1][name], rtol=1e-4, atol=1e-6), name


def test_private_step__makes_a_null_record_of_what_is_not_finite(make_job: Any) -> None:
    job, twin = make_job(moco()()), make_job(moco()())
    whole, rest = views([0, 1, 2], 0), views([0, 2], 0)
    whole[0][1] = torch.inf
    assert not per_image_norms(copy.deepcopy(job), whole).isfinite().all()
    assert torch.allclose(clipped_sum(job, whole, 0), clipped_sum(twin, rest, 0), atol=1e-6)


def test_private_step__makes_a_null_record_of_finite_gradients_without_a_norm(
    make_job: Any,
) -> None:
    """Every entry is finite, the sum of their squares is not: no clip can be computed."""
    whole, rest = views([0, 1, 2], 0), views([0, 2], 0)
    job = make_job(moco()())
    losses, factor = job.method.losses, torch.tensor([1.0, 1e25, 1.0])
    job.method.losses = lambda *both: losses(*both) * factor[: len(both[0])]
    with private_optimizer(job, 0.0, CLIP, 4.0, torch.Generator()) as private:
        image_gradients(job, whole)
        assert all(w.grad_sample.isfinite().all() for w in job.method.trainable())  # type: ignore[attr-defined]
        private.zero_grad(set_to_none=True)
        _, norms = private_step(job, private, whole, 100)
        private.zero_grad(set_to_none=True)
    assert norms[1] == 0.0 and (norms[[0, 2]] > 0).all() and norms.isfinite().all()
    job.method.load_shared(moco()().shared_state())
    expected = clipped_sum(make_job(moco()()), rest, 0)
    assert torch.allclose(clipped_sum(job, whole, 0), expected, atol=1e-6)


@pytest.mark.parametrize("make", [moco(queue_source="own"), moco(), dino(), ibot])
def test_null_record__does_not_end_the_steps_after_it(make: Build, make_job: Any) -> None:
    """Its key or score is remembered as zeros: one that is not finite would be in every later
    loss."""
    ends = []
    for value in (None, torch.nan):
        job, whole = make_job(make()), views([0, 1, 2], 0)
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


def per_image_norms(job: Job, batch: tuple[Tensor, Tensor]) -> Tensor:
    with private_optimizer(job, 0.0, CLIP, 4.0, torch.Generator()):
        image_gradients(job, batch)
        grads = [w.grad_sample.flatten(1) for w in job.method.trainable()]  # type: ignore[attr-defined]
        return torch.cat(grads, dim=1).norm(dim=1)


@pytest.mark.slow
def test_statement__fits_the_method(make_job: Any) -> None:
    statements = {}
    makes = {"mae": mae, "public": moco(), "own": moco(queue_source="own")}
    for name, make in makes.items():
        memory: dict[str, Any] = {}
        DPSGD(noise_multiplier=2.0).train(make_job(make()), memory)
        statement = DPSGD(noise_multiplier=2.0).privacy(memory)
        assert statement is not None and "null record" in statement.assumptions
        assert "seeded generator" in epsilon_row(statement, 1)["assumptions"]
        statements[name] = (statement.standing, "queue" in statement.assumptions)
    assert statements.pop("own") == ("heuristic", True)
    assert set(statements.values()) == {("guaranteed", False)}
    loose = DPSGD(noise_multiplier=2.0, accountant="gdp").privacy({"remembers": "", "history": []})
    assert loose is not None and loose.standing == "heuristic"
    assert "No image's loss" not in loose.assumptions


def test_metrics__what_is_told_rests_on_no_image(make_job: Any) -> None:
    told, kept = [], []
    stack = DefenseStack([("dpsgd", DPSGD(noise_multiplier=2.0))])
    for brightness in (1.0, 0.2):
        job, memory = make_job(moco()()), dict[str, Any]()
        job.images = (job.images * brightness).astype(np.uint8)
        told.append(stack.leaving_metrics(stack.train(job, memory)))
        kept.append(memory["dpsgd"].pop("metrics"))
        told[-1].pop("seconds")
        told.append(memory)  # else, it holds nothing that rests on images
    assert told[:2] == told[2:] and told[0].keys() == {"noise_std", "lr"}
    assert kept[0] != kept[1]


def test_scaffold__still_gets_its_reach(make_desk: Any) -> None:
    client_round = make_desk("dpsgd", {"noise_multiplier": 1.0}, strategy=("scaffold", {}))
    client_round.broadcast = {n: torch.zeros_like(t) for n, t in client_round.received.items()}
    metrics = Honest().answer(client_round).metrics
    assert "loss" not in metrics and metrics["scaffold_reach"] > 0
