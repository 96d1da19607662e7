"""Ascent in the federation: what is uploaded, which targets in which round, and the readings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.ascent import Ascent, AscentAlgorithm1
from fedmia.attacks.ascent_static import attack_losses
from fedmia.attacks.base import AttackTurn, Known
from fedmia.data.images import digests
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.ssl.moco import MomentumContrast
from fedmia.ssl.train import draw_two_views
from fedmia.threat import ClientView, Trajectory
from fedmia.threat.whitebox import split_in_halves
from tests.attacks.planted import CPU, PLAIN

AUGMENT = Augment(hue=0.1)


@pytest.mark.parametrize(
    ("reading", "want"),
    [
        ("level", [-1.5, -3.0]),  # minus the mean of (2, 1) and of (1.5, 4.5)
        ("rise", [-0.5, -1.0]),  # 1 - 1.5 and 2 - 3, both rounds since before the first
        ("line23", [-2.5, -2.25]),  # minus the mean of |3-2|, |5-1| and of |1-1.5|, |0.5-4.5|
    ],
)
def test_judge__hand_numbers(reading: str, want: list[float]) -> None:
    """Two attack rounds after round 4: loss 1.0 before, uploads at 3 and 5, aggregates at 2 and 1.5
    for image 0; another image that moves the other way. Uploads cost queries: one reading asks."""
    before, sent = np.array([[1.0, 2.0], [2.0, 1.5]]), np.array([[3.0, 1.0], [5.0, 0.5]])
    hand = Trajectory([5, 6], before, sent, after=np.array([[2.0, 1.5], [1.0, 4.5]]))
    attack = Ascent(reading=reading)
    assert attack.judge(hand) == pytest.approx(np.array(want))
    assert attack.reads_uploads() == (reading == "line23")


@pytest.mark.parametrize("count", [1, 5, 6, 7, 12])
def test_chosen__each_batch_in_its_turn_and_all_where_rounds_are_shared(count: int) -> None:
    attack = AscentAlgorithm1(batch=3)
    batches = -(-count // 3)
    picked = np.stack([attack.chosen(count, number) for number in range(2 * batches)])
    assert picked.shape == (2 * batches, count) and picked.dtype == bool
    assert (picked[:batches].sum(axis=0) == 1).all() and picked.sum(axis=1).max() <= 3
    np.testing.assert_array_equal(picked[batches:], picked[:batches])
    np.testing.assert_array_equal(attack.disarmed().chosen(count, 1), attack.chosen(count, 1))
    assert Ascent(batch=3).chosen(count, 1).all() and attack.chosen(0, 1).shape == (0,)
    assert (attack.round_size, Ascent(batch=3).round_size) == (3, None)


def turn(
    method: Any, received: State, targets: Tensor, held: Tensor | None = None, number: int = 0,
    augment: Augment = AUGMENT, **more: Any,
) -> AttackTurn:  # fmt: skip
    trained = {n: t + 0.01 for n, t in received.items()}
    known, stream = Known(targets[:0], targets[:0]), rng(0, "craft")
    of = number, 1, 0.5, {}, augment, stream
    return AttackTurn(method, received, trained, targets, held, known, *of, **more)


def craft(make_moco: Any, images: Tensor, **options: Any) -> tuple[State, State]:
    """The weights received and those sent."""
    method = make_moco()
    received, attack = method.shared_state(), Ascent(**{"steps": 1, "lr": 0.01} | options)
    return received, attack.craft(turn(method, received, images))


@pytest.mark.parametrize(("count", "steps"), [(20, 0), (0, 1)])
def test_craft__of_zero_steps_or_targets_is_the_model_received(
    make_moco: Any, images: Tensor, count: int, steps: int
) -> None:
    """Bit for bit, whatever its own training made: the paired control."""
    assert Ascent(steps=3).disarmed() == Ascent(steps=0)
    received, sent = craft(make_moco, images[:count], steps=steps)
    assert sent.keys() == received.keys()
    assert all(torch.equal(sent[n], t) for n, t in received.items())


@pytest.mark.parametrize("loss", ["training", "algorithm1"])
def test_craft__equals_a_loop(make_moco: Any, images: Tensor, loss: str) -> None:
    """The last batch, of four, is filled up with the first ones of the pass. What the attack was
    given stays; running statistics that the message left out stay out."""
    method, pool = make_moco(), images.clone()
    received, local = method.shared_state(), method.local_state()
    snapshot = {n: t.clone() for n, t in received.items()}
    method.encoder.register_buffer("running_mean", torch.ones(2))
    attack = Ascent(loss=loss, steps=2, batch=8, lr=0.05)
    sent = attack.craft(turn(method, received, pool))
    plain = make_moco()
    stream = rng(0, "craft")
    for _ in range(2):
        order = stream.permutation(20).tolist()
        for rows in (order[:8], order[8:16], order[16:] + order[:4]):
            view1, view2 = draw_two_views(images[rows], AUGMENT, stream)
            plain.zero_grad()
            attack_losses(plain, view1, view2, loss).mean().backward()
            for weight in plain.encoder.parameters():
                weight.data += 0.05 * weight.grad
    assert sent.keys() == received.keys()
    for name, tensor in plain.shared_state().items():
        torch.testing.assert_close(sent[name], tensor, atol=1e-5, rtol=1e-4)
        assert not torch.equal(sent[name], received[name])
        assert torch.equal(received[name], snapshot[name])
    assert torch.equal(pool, images)
    assert all(torch.equal(method.local_state()[n], t) for n, t in local.items())


def climbed_by(method: MomentumContrast) -> list[tuple[list[bytes], Tensor]]:
    """It grows by each step of a climb under PLAIN: names of its images, negatives they meet."""
    met: list[tuple[list[bytes], Tensor]] = []

    def note(_: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
        if out.requires_grad:
            views = (255 * given[0]).round().to(torch.uint8)
            first, second = (digests(view.numpy()) for view in views.chunk(2))
            assert first == second
            met.append((first, method.queue.clone()))

    method.encoder.register_forward_hook(note)
    return met


@pytest.mark.parametrize(("count", "batch"), [(20, 8), (20, 32), (5, 4), (1, 8)])
def test_craft__climbs_every_target_in_batches_of_one_size(
    method: MomentumContrast, images: Tensor, count: int, batch: int
) -> None:
    climbed, received = climbed_by(method), method.shared_state()
    attack = Ascent(steps=2, lr=0.01, batch=batch)
    attack.craft(turn(method, received, images[:count], augment=PLAIN))
    assert {len(names) for names, _ in climbed} == {min(batch, count)}
    assert len(climbed) == 2 * -(-count // batch)
    met = Counter(name for names, _ in climbed for name in names)
    assert len(met) == count and min(met.values()) >= 2 and max(met.values()) <= 4


def test_craft__no_target_is_its_own_negative(make_moco: Any, images: Tensor, held: Tensor) -> None:
    """Six of the targets are among the images held: known ones, and keys under the weights
    received, through all steps of a climb."""
    method = make_moco()
    climbed = climbed_by(method)
    received, targets = method.shared_state(), torch.cat([images[:7], held[:6]])
    Ascent(steps=2, batch=4, lr=1.0).craft(turn(method, received, targets, held, augment=PLAIN))
    plain = make_moco()
    own = {}
    for image in targets:
        plain.fill_bank(image[None].float() / 255)
        own[digests(image[None].numpy())[0]] = plain.queue[0].clone()
    assert {name for names, _ in climbed for name in names} == set(own)
    halves, inside = split_in_halves(held)
    for names, bank in climbed:
        for name in names:
            assert not torch.isclose(bank, own[name], atol=1e-5).all(dim=1).any()
        plain.fill_bank(halves[names[0] not in inside].float() / 255)
        torch.testing.assert_close(bank, plain.queue)


def test_craft__climbs_one_batch_a_round_or_the_whole_that_is_alone(
    method: MomentumContrast, images: Tensor
) -> None:
    """Algorithm 1's seven of its turn; of a batch alone all in one step, in their order."""
    climbed, names = climbed_by(method), digests(images.numpy())
    received, met = method.shared_state(), []
    attack = AscentAlgorithm1(batch=7, steps=1, lr=0.01)
    for number in range(3):
        climbed.clear()
        attack.craft(turn(method, received, images, number=number, augment=PLAIN))
        met.append([set(step) for step, _ in climbed])
    assert met == [[set(names[:7])], [set(names[7:14])], [set(names[14:])]]
    for one in (attack, Ascent(batch=4, steps=1, lr=0.01)):
        climbed.clear()
        one.craft(turn(method, received, images[:9], number=1, alone=True, augment=PLAIN))
        assert [step for step, _ in climbed] == [names[:9]]


def naive_read(method: Any, bank: Tensor | None, pixels: Tensor, loss: str) -> Tensor:
    """Mean over pairs of views (2 pairs, N, C, H, W), two forwards a pair."""
    if bank is not None:
        method.fill_bank(bank.float() / 255)
    pairs = len(pixels) // 2
    each = [attack_losses(method, pixels[p], pixels[pairs + p], loss) for p in range(pairs)]
    return torch.stack(each).mean(dim=0).detach().double()


@pytest.mark.parametrize("loss", ["training", "algorithm1"])
@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_read__is_the_mean_loss_over_fixed_pairs(
    make_moco: Any, images: Tensor, held: Tensor, serving: Tensor, negatives: str, loss: str
) -> None:
    """And costs what passes through: two views a pair, and the keys of the images held."""
    view = ClientView(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    got = Ascent(negatives=negatives, loss=loss, pairs=3).read(view, images)
    assert got.shape == (20,) and got.dtype == np.float64
    assert view.queries == 20 * 6 + 14 * (negatives == "held")
    bank = serving if negatives == "held" else None
    want = naive_read(make_moco(), bank, view.view_pixels(images, 6), loss)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-5, rtol=1e-5)


def test_algorithm1__is_ascent_with_the_papers_settings() -> None:
    mine = AscentAlgorithm1()
    assert (mine.name, mine.control) == ("ascent-algorithm1", "ascent-algorithm1-zero")
    assert (mine.loss, mine.reading, mine.negatives) == ("algorithm1", "line23", "held")
    assert (mine.steps, mine.lr) == ("matched", "matched") and mine.round_size == 32
    assert type(mine.disarmed()) is AscentAlgorithm1 and mine.disarmed().steps == 0


# -- the rule of the server


def test_craft__who_knows_the_server_climbs_inside_what_it_lets_through(
    make_moco: Any, images: Tensor
) -> None:
    """Each pass begins where the one before was put back to, and the upload lies inside; who does
    not know it never asks."""
    method = make_moco()
    received = method.shared_state()
    calls = list[float]()

    def passing(crafted: State) -> State:
        gap = torch.stack([(crafted[n] - received[n]).norm() for n in received]).norm()
        calls.append(float(gap))
        return {n: t + 0.01 / gap * (crafted[n] - t) for n, t in received.items()}

    sent = Ascent(steps=3, lr=0.1, server="known").craft(
        turn(method, received, images, passing=passing)
    )
    length = float(torch.stack([(sent[n] - received[n]).norm() for n in received]).norm())
    assert len(calls) == 3 and min(calls) > 0.01 and length == pytest.approx(0.01, rel=1e-3)
    calls.clear()
    method.load_shared(received)
    free = Ascent(steps=3, lr=0.1).craft(turn(method, received, images, passing=passing))
    assert not calls and not all(torch.equal(free[n], sent[n]) for n in sent)
    assert Ascent(server="known").together and not Ascent().together
    assert Ascent(server="known").disarmed().together
