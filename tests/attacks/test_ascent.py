"""Ascent in the federation: what is uploaded, which targets in which round, and the readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.ascent import Ascent
from fedmia.attacks.ascent_static import attack_losses
from fedmia.attacks.base import Known, Turn
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.ssl.train import two_views
from fedmia.threat import ClientView

AUGMENT = Augment(hue=0.1)


def state(value: float) -> State:
    return {"w": torch.tensor([value])}


@dataclass
class FakeView:
    """A client's view whose losses are looked up: `table[w]` is the (N,) losses under weight w."""

    received: dict[int, State]
    sent: dict[int, State]
    table: dict[float, list[float]]
    targets: Tensor | None = None

    def losses_under(
        self, states: Sequence[State], images: Tensor, pairs: int, negatives: str, name: str,
        loss: Any,
    ) -> Tensor:  # fmt: skip
        assert (pairs, negatives, name) == (4, "held", "training")
        rows = [self.table[round(float(s["w"]), 3)] for s in states]
        return torch.tensor(rows).view(len(states), len(images))


def score(view: FakeView, images: Tensor, **options: Any) -> list[float]:
    attack = Ascent(**options)
    attack.fit(view, Known(images[:0], images[:0]), rng(0))  # type: ignore[arg-type]
    got = attack.score(view, images)  # type: ignore[arg-type]
    assert got.shape == (len(images),) and got.dtype == np.float64
    return [float(v) for v in got]


@pytest.fixture
def hand(images: Tensor) -> FakeView:
    """Two attack rounds after round 4: loss 1.0 before, uploads at 3 and 5, aggregates at 2 and 1
    for image 0; another image that moves the other way."""
    return FakeView(
        received={4: state(0.0), 5: state(0.1), 6: state(0.2)},
        sent={5: state(0.5), 6: state(0.6)},
        table={0.0: [1.0, 2.0], 0.5: [3.0, 1.0], 0.1: [2.0, 1.5],
               0.6: [5.0, 0.5], 0.2: [1.0, 4.5]},
        targets=images[:2],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reading", "want"),
    [
        ("level", [-1.5, -3.0]),  # minus the mean of (2, 1) and of (1.5, 4.5)
        ("rise", [-0.5, -1.0]),  # 1 - 1.5 and 2 - 3
        ("recovery", [2.5, -2.25]),  # mean of (3-2, 5-1) and of (1-1.5, 0.5-4.5)
        ("line23", [-2.5, -2.25]),  # the same differences without their sign, negated
    ],
)
def test_readings__hand_numbers(
    hand: FakeView, images: Tensor, reading: str, want: list[float]
) -> None:
    assert score(hand, images[:2], reading=reading) == pytest.approx(want)


def test_readings__are_ordered_member_high() -> None:
    """An image whose aggregated loss stays low scores higher under `level` and `rise`; one that
    the aggregation hardly changes scores higher under `line23`."""
    view = FakeView(
        {0: state(0.0), 1: state(0.1)}, {1: state(0.5)},
        {0.0: [1.0, 1.0], 0.5: [3.0, 9.0], 0.1: [2.0, 4.0]},
    )  # fmt: skip
    two = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    for reading in ("level", "rise", "line23"):
        low, high = score(view, two, reading=reading)
        assert low > high
    low, high = score(view, two, reading="recovery")
    assert low < high


def test_trajectory__rounds_and_shapes(hand: FakeView, images: Tensor) -> None:
    """The uploads' losses cost queries, so only the readings that use them ask for them."""
    for reading in ("level", "rise", "recovery", "line23"):
        seen = Ascent(reading=reading).trajectory(hand, images[:2])  # type: ignore[arg-type]
        assert seen.rounds == [5, 6]
        assert seen.before.tolist() == [[1.0, 2.0]]
        assert seen.after.tolist() == [[2.0, 1.5], [1.0, 4.5]]
        uses = reading in ("recovery", "line23")
        assert seen.sent.tolist() == ([[3.0, 1.0], [5.0, 0.5]] if uses else [])
        assert seen.sent.shape == (2 * uses, 2)


@pytest.mark.parametrize(("targets", "batch"), [(7, 3), (6, 3), (1, 32), (5, 1)])
def test_rotate__takes_every_target_once_in_a_turn(textures: Any, targets: int, batch: int) -> None:
    attack = Ascent(schedule="rotate", batch=batch)
    pool = textures(targets)
    turns = -(-targets // batch)
    picked = np.stack([attack.chosen(pool, r) for r in range(2 * turns)])
    assert picked.shape == (2 * turns, targets) and picked.dtype == bool
    assert (picked[:turns].sum(axis=0) == 1).all()
    assert (picked[:turns].sum(axis=1) <= batch).all()
    np.testing.assert_array_equal(picked[turns:], picked[:turns])
    assert Ascent(batch=batch).chosen(pool, 3).all()


def test_rotate__reads_an_image_in_the_rounds_that_attacked_it(
    hand: FakeView, images: Tensor
) -> None:
    got = score(hand, images[:2], schedule="rotate", batch=1)
    assert got == pytest.approx([-2.0, -4.5])  # image 0 in the first round, image 1 in the second
    hand.targets = images[:2].flip(0)
    got = score(hand, images[:2], schedule="rotate", batch=1)
    assert got == pytest.approx([-1.0, -1.5])
    hand.targets = images[5:7]
    assert score(hand, images[:2], schedule="rotate", batch=1) == [0.0, 0.0]  # never attacked


def test_rotate__counts_rounds_that_the_attacker_missed(images: Tensor) -> None:
    """With a participation below 1 the attacker is left out of rounds; the turns go on."""
    view = FakeView(
        received={r: state(r / 10) for r in (4, 5, 6, 7)},
        sent={5: state(5.5), 7: state(7.5)},
        table={0.4: [1.0, 1.0], 0.5: [2.0, 3.0], 0.7: [5.0, 7.0], 5.5: [0.0, 0.0],
               7.5: [0.0, 0.0]},
        targets=images[:2],
    )  # fmt: skip
    got = score(view, images[:2], schedule="rotate", batch=1)
    assert got == pytest.approx([-3.5, 0.0])  # turns 0 and 2 are both image 0's


def shifted(received: State, by: float) -> State:
    return {n: t + by for n, t in received.items()}


def craft(make_moco: Any, images: Tensor, seed: int = 0, **options: Any) -> tuple[State, State]:
    method = make_moco()
    received = method.shared_state()
    trained = shifted(received, 0.01)
    return received, Ascent(**options).craft(turn(method, received, trained, images, seed))


def turn(
    method: Any, received: State, trained: State, images: Tensor, seed: int = 0,
    held: Tensor | None = None,
) -> Turn:  # fmt: skip
    return Turn(method, received, trained, images, held, 0, AUGMENT, rng(seed, "craft"))


@pytest.mark.parametrize("schedule", ["all", "rotate"])
def test_disarmed__chooses_the_same_targets(images: Tensor, schedule: str) -> None:
    attack = Ascent(schedule=schedule, batch=8)
    control = attack.disarmed()
    picked = attack.chosen(images, 1)
    np.testing.assert_array_equal(control.chosen(images, 1), picked)
    assert picked.all() == (schedule == "all") and picked.any()


@pytest.mark.parametrize("base", ["aggregated", "trained"])
def test_craft__of_zero_steps_is_its_base(make_moco: Any, images: Tensor, base: str) -> None:
    """From `trained` that is the honest update, bit for bit: the paired control."""
    for boost in (1.0, 5.0):
        attack = Ascent(base=base, steps=3, boost=boost).disarmed()
        assert attack == Ascent(base=base, steps=0, boost=boost)
        received, sent = craft(make_moco, images, base=base, steps=0, boost=boost)
        want = received if base == "aggregated" else shifted(received, 0.01)
        assert all(torch.equal(sent[n], t) for n, t in want.items()) and sent.keys() == want.keys()


def test_craft__of_no_targets_is_its_base(make_moco: Any, images: Tensor) -> None:
    received, sent = craft(make_moco, images[:0])
    assert all(torch.equal(sent[n], t) for n, t in received.items())


@pytest.mark.parametrize("base", ["aggregated", "trained"])
@pytest.mark.parametrize("loss", ["training", "algorithm1"])
def test_craft__equals_a_loop(make_moco: Any, images: Tensor, base: str, loss: str) -> None:
    received, sent = craft(make_moco, images, base=base, loss=loss, steps=2, batch=8, lr=0.05)
    plain = make_moco()
    plain.load_shared(received if base == "aggregated" else shifted(received, 0.01))
    stream = rng(0, "craft")
    for _ in range(2):
        order = torch.from_numpy(stream.permutation(20))
        for start in (0, 8, 16):
            view1, view2 = two_views(images[order[start : start + 8]], AUGMENT, stream)
            plain.zero_grad()
            attack_losses(plain, view1, view2, loss).mean().backward()
            for weight in plain.encoder.parameters():
                weight.data += 0.05 * weight.grad
    for name, tensor in plain.shared_state().items():
        torch.testing.assert_close(sent[name], tensor, atol=1e-5, rtol=1e-4)
        assert not torch.equal(sent[name], received[name])


def test_craft__climbs(make_moco: Any, images: Tensor) -> None:
    received, sent = craft(make_moco, images, steps=3)
    view = ClientView(make_moco(), AUGMENT, seed=5, device=torch.device("cpu"))
    before, after = Ascent(negatives="queue").under(view, images, [received, sent]).mean(axis=1)
    assert after > before + 0.1


def test_craft__climbs_against_the_images_held(
    make_moco: Any, images: Tensor, held: Tensor
) -> None:
    """Read against the keys that it climbed against, those of the weights received. Small steps:
    an untrained encoder gives all images nearly one key, where the loss bends sharply."""
    method = make_moco()
    received = method.shared_state()
    attack = Ascent(steps=3, lr=0.01)
    sent = attack.craft(turn(method, received, received, images, held=held))
    view = ClientView(make_moco(), AUGMENT, seed=5, device=torch.device("cpu"), held=held)
    observer, pixels, read = view.holder("held"), view.view_pixels(images, 2), []
    for weights in (received, sent):
        observer.load_shared(weights)
        read.append(float(observer.probe_losses(pixels[0], pixels[1]).mean().detach()))
    assert read[1] > read[0] + 0.002


@pytest.mark.parametrize("base", ["aggregated", "trained"])
def test_craft__sends_the_tensors_of_its_base(make_moco: Any, images: Tensor, base: str) -> None:
    """Local batch norm leaves running statistics out of the update; the crafted one too."""
    method = make_moco()
    received = method.shared_state()
    trained = shifted(received, 0.01)
    method.encoder.register_buffer("running_mean", torch.ones(2))
    received["running_mean"] = torch.ones(2)
    sent = Ascent(base=base).craft(turn(method, received, trained, images))
    assert sent.keys() == (received if base == "aggregated" else trained).keys()


def test_chosen__of_no_targets(textures: Any) -> None:
    assert Ascent(schedule="rotate").chosen(textures(3)[:0], 2).shape == (0,)


@pytest.mark.parametrize("base", ["aggregated", "trained"])
def test_craft__boost_scales_the_way_from_the_base(
    make_moco: Any, images: Tensor, base: str
) -> None:
    received, once = craft(make_moco, images, base=base)
    _, boosted = craft(make_moco, images, base=base, boost=4.0)
    start = received if base == "aggregated" else shifted(received, 0.01)
    for name in start:
        torch.testing.assert_close(
            boosted[name] - start[name], 4 * (once[name] - start[name]), atol=1e-5, rtol=1e-4
        )


def test_craft__is_a_function_of_its_stream(make_moco: Any, images: Tensor) -> None:
    torch.manual_seed(1)
    _, one = craft(make_moco, images)
    torch.manual_seed(2)
    _, same = craft(make_moco, images)
    _, other = craft(make_moco, images, seed=1)
    assert all(torch.equal(one[n], same[n]) for n in one)
    assert any(not torch.equal(one[n], other[n]) for n in one)


def test_craft__leaves_what_it_was_given(make_moco: Any, images: Tensor) -> None:
    method = make_moco()
    received = method.shared_state()
    kept, local = {n: t.clone() for n, t in received.items()}, method.local_state()
    pool = images.clone()
    for boost in (1.0, 2.0):
        Ascent(boost=boost).craft(turn(method, received, shifted(received, 0.1), pool))
    assert all(torch.equal(received[n], t) for n, t in kept.items())
    assert torch.equal(pool, images)
    assert all(torch.equal(method.local_state()[n], t) for n, t in local.items())
