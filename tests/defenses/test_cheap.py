"""Weight decay, a narrower crop range, early stopping: what they change, on what they decide."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from clients.client_round import ClientRound
from clients.client_setup import ClientTask
from clients.honest import Honest
from fedmia.defenses import _estimate
from fedmia.defenses._estimate import LeakEstimate, similarity
from fedmia.defenses.base import Preparation, TrainingConditions
from fedmia.defenses.crop_range import CropRange, fine_shares
from fedmia.defenses.early_stopping import EarlyStopping
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State, TrainingData
from fedmia.ssl.moco import MoCo
from fedmia.ssl.train import Job, Train, make_optimizer
from tests.small_setup import settle

TRAINING_DATA = TrainingData((0.5,) * 3, (0.25,) * 3, 12)
TRAIN = Train(local_epochs=1, batch_size=5)
PUBLIC = np.arange(10, 22)


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[n]) for n, t in a.items())


def sent(client_round: ClientRound) -> State:
    return Honest().answer(client_round)[0].state


@pytest.fixture
def beside_public(make_desk: Any, tmp_path: Path, textures: Callable[..., torch.Tensor]) -> Any:
    """`beside_public(name, options, private=0, public=0, ..)`: a client of ten images of
    the seed `private`, in a run with twelve public ones of the seed `public`."""

    def make(
        name: str, options: Any, private: int = 0, public: int = 0, **more: Any
    ) -> ClientRound:
        file = tmp_path / f"{private}-{public}.npy"
        np.save(file, torch.cat([textures(10, seed=private), textures(12, seed=9 + public)]))
        return make_desk(name, options, image_array=file, public=PUBLIC, **more)

    return make


# -- what they change ------------------------------------------------------------------------------


def test_weight_decay__is_the_option_of_that_client_alone(make_desk: Any) -> None:
    """One thread, so one optimizer: the second client's is what it was."""
    layers = (("weight-decay", {"weight_decay": 0.3}, frozenset({0})),)
    twin = sent(make_desk("", {}, train=replace(TRAIN, weight_decay=0.3), defense=()))
    halves, ends = {"members": (np.arange(5), np.arange(5, 10))}, []
    for defenses in (layers, ()):
        first = make_desk("", {}, defense=defenses, parts=halves)
        second = ClientRound(
            first.client_setup, None, ClientTask(1, 1, "main", False), first.received
        )
        whole = make_desk("", {}, defense=defenses)
        ends.append([sent(whole), sent(first), sent(second)])
    assert same(ends[0][0], twin) and not same(ends[1][0], twin)
    assert not same(ends[0][1], ends[1][1]) and same(ends[0][2], ends[1][2])


def test_crop_range__trains_as_with_the_narrower_option(make_desk: Any) -> None:
    """3/8 up the range: from the paper's 0.2 to its 0.5."""
    for options, crop in (({}, 0.5), ({"lower": 0.8}, 0.8)):
        twin = make_desk("", {}, ssl=("moco", {"dim": 8, "crop_min": crop}), defense=())
        assert same(sent(make_desk("crop-range", options)), sent(twin))
    narrower = make_desk("", {}, ssl=("moco", {"dim": 8, "crop_min": 0.6}), defense=())
    usual = make_desk("crop-range", {}, ssl=("moco", {"dim": 8, "crop_min": 0.36}))
    assert same(sent(usual), sent(narrower))


def test_early_stopping__rests_after_its_own_rounds(make_desk: Any) -> None:
    store, state = Ledger(), None
    for round in (1, 3, 4):
        client_round = make_desk("early-stopping", {"after": 2}, store, round, state)
        update = settle(store, client_round, Honest().answer(client_round))
        assert update.examples == (10 if round < 4 else 0)
        assert state is None or same(update.state, state) == (round == 4)
        state = update.state


@pytest.mark.parametrize("options", [{"leak": 1.0}, {"patience": 99}])
def test_early_stopping__out_of_reach_changes_nothing(beside_public: Any, options: Any) -> None:
    """The rehearsal leaves no trace in what the client trains."""
    client_round = beside_public("early-stopping", options)
    assert same(sent(client_round), sent(beside_public("", {}, defense=())))
    assert client_round.memory["defense"]["early-stopping"]["stop"] is None


def test_early_stopping__costs_no_privacy_beside_dpsgd(beside_public: Any) -> None:
    """Steps of the rehearsal are none of the client's."""
    noised = ("dpsgd", {"noise_multiplier": 0.5}, frozenset({0}))
    kept = []
    for layers in ((noised,), (noised, ("early-stopping", {"leak": 1.0}, frozenset({0})))):
        client_round = beside_public("", {}, defense=layers)
        kept.append((sent(client_round), client_round.memory["defense"]["dpsgd"]))
    assert same(kept[0][0], kept[1][0]) and kept[0][1] == kept[1][1]


# -- on what they decide ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("early-stopping", {"leak": 0.1}),
        pytest.param("crop-range", {"choose": True}, marks=pytest.mark.slow(seconds=8)),
    ],
)
def test_choice__rests_on_public_images_alone(beside_public: Any, name: str, options: Any) -> None:
    told = []
    for private, public in ((0, 0), (1, 0), (0, 1)):
        client_round = beside_public(name, options, private, public, rounds=2)
        client_round.defense.prepare(client_round.preparation(), memory := {})
        told.append(memory[name])
    assert told[0] == told[1] != told[2]


def test_rehearsal__is_a_federation_of_one(beside_public: Any) -> None:
    """A plain loop over the rounds, on half of the public images, from the run's first weights."""
    client_round = beside_public("crop-range", {"lower": 0.7})
    client_setup, positions = client_round.client_setup, np.array([0, 3, 4, 7, 8, 11])
    views = client_round.rehearse_alone(positions, lambda job: None)
    method = client_setup.method(0, 6)
    method.load_shared(client_setup.method(-1, None).shared_state())
    method.begin_first_round()
    train, images = client_setup.experiment.train, client_setup.images[PUBLIC[positions]]
    optimizer = make_optimizer(method, train)
    for round, view in enumerate(views, start=1):
        if round > 1:
            method.begin_round()
        Job(
            method=method, optimizer=optimizer, images=images, augment=MoCo(crop_min=0.7).augment,
            train=train, rng=rng(0, "rehearse", round, 0), step=2 * (round - 1), total_steps=8,
            device=torch.device("cpu"),
        ).run()  # fmt: skip
        assert same(view.state(), method.shared_state())
        assert view.augment == MoCo().augment  # an attacker's, which knows no defence
    assert round == client_setup.experiment.federation.rounds
    assert client_round.memory["defense"] == {}


def test_rehearsal__knows_nothing_of_the_model_that_was_received(beside_public: Any) -> None:
    """That rests on all clients' images where training on them came first, or where a client is
    drawn for a later round only."""
    ends = []
    for shift in (0.0, 0.3):
        client_round = beside_public("early-stopping", {}, rounds=2)
        client_round.received = {n: t + shift for n, t in client_round.received.items()}
        (*_, view) = client_round.rehearse_alone(np.arange(6), lambda job: None)
        ends.append(view.state())
    assert same(*ends) and not same(ends[0], client_round.received)


def test_similarity__is_the_mean_cosine_of_all_pairs() -> None:
    rows = torch.from_numpy(rng(0).normal(size=(3, 4, 5)))
    pairs = [
        [float(torch.cosine_similarity(a, b, dim=0)) for a, b in itertools.combinations(one, 2)]
        for one in rows
    ]
    assert similarity(rows) == pytest.approx(np.mean(pairs, axis=1))


@pytest.mark.parametrize("count", [8, 9])
def test_estimate__asks_images_trained_on_against_those_held_out(count: int) -> None:
    """Of a view under which the images trained on look alike in all views and others do not: AUC 1
    and its interval's lower limit, and the mean loss of those held out."""
    calls, trained = list[Any](), list[Any]()
    alike, apart = torch.ones(count // 2, 2, 2), torch.eye(2).expand(-(-count // 2), 2, 2)

    def views_and_losses(images: torch.Tensor, views: int, name: str) -> Any:
        calls.append((images[:, 0, 0, 0].tolist(), views))
        return apart, torch.arange(float(len(images)))

    def embed_views(images: torch.Tensor, views: int) -> torch.Tensor:
        calls.append((images[:, 0, 0, 0].tolist(), views))
        return alike

    def alone(positions: Any, change: Any) -> Any:
        trained.append((positions.tolist(), change))
        view = SimpleNamespace(views_and_losses=views_and_losses, embed_views=embed_views)
        return iter([view, view])

    public = np.arange(100, 100 + count, dtype=np.uint8).reshape(-1, 1, 1, 1)
    preparation = Preparation(2, 5, lambda _: {}, rng(0), public, None, alone)
    inside, outside = parts = _estimate.split_public(preparation)
    assert (len(inside), len(outside)) == (count // 2, -(-count // 2))
    assert sorted([*inside, *outside]) == list(range(count))
    assert inside.tolist() == sorted(inside) and outside.tolist() == sorted(outside)
    estimates = list(_estimate.estimates(preparation, parts, repr))
    assert len(estimates) == 2 and trained == [(inside.tolist(), repr)]
    assert calls[0] == ((100 + outside).tolist(), 8) and calls[1] == ((100 + inside).tolist(), 8)
    assert estimates[0].leak == 1.0 and 0.2 < estimates[0].low < 0.99
    assert estimates[0].loss == (len(outside) - 1) / 2


def course(lows: list[float], losses: list[float]) -> list[LeakEstimate]:
    return [LeakEstimate(low + 0.1, low, loss) for low, loss in zip(lows, losses, strict=True)]


def rehearsing(course: Callable[[float], Iterable[tuple[float, float]]]) -> Preparation:
    """Of a federation of one whose leak, in hundredths, and loss after each round are those of
    `course`, which is given the least crop."""

    def pairs_of_views(cosines: torch.Tensor) -> torch.Tensor:
        views = torch.stack([cosines, (1 - cosines**2).sqrt()], dim=1)
        return torch.stack([torch.tensor([1.0, 0.0]).expand_as(views), views], dim=1)

    def alone(positions: Any, change: Any) -> Any:
        change(job := SimpleNamespace(augment=Augment()))
        for leak, loss in course(job.augment.crop_min):
            held_out = pairs_of_views(torch.arange(0.005, 1, 0.01)), torch.full((100,), loss)
            trained = pairs_of_views(torch.full((100,), leak))
            yield SimpleNamespace(
                views_and_losses=lambda *_, outputs=held_out: outputs,
                embed_views=lambda *_, outputs=trained: outputs,
            )

    public = np.zeros((200, 1, 1, 1), np.uint8)
    return Preparation(7, 5, lambda _: {}, rng(0), public, None, alone)


@pytest.mark.parametrize(
    ("options", "leaks", "losses", "last_rounds", "stop"),
    [
        ({"leak": 0.6, "patience": 2}, [0.5, 0.6, 0.6, 0.6, 1.0], [3.0, 2.0, 2.5, 2.5, 1.0],
         [4, 2], 2),
        ({"leak": 0.6, "patience": 2}, [0.5, 1.0], [3.0, 1.0], [1, None], 1),
        ({}, [0.5, 0.6], [3.0, 2.0], [None, None], None),
    ],
)  # fmt: skip
def test_early_stopping__of_leak_and_patience_the_earlier_one(
    options: Any, leaks: list[float], losses: list[float], last_rounds: Any, stop: int | None
) -> None:
    """Where patience is not reached, the leak decides; where neither is, it never stops. Its course
    is told."""
    preparation = rehearsing(lambda crop: zip(leaks, losses, strict=True))
    defense, memory = EarlyStopping(**options), dict[str, Any]()
    defense.prepare(preparation, memory)
    parts = _estimate.split_public(preparation)
    estimates = list(_estimate.estimates(preparation, parts, lambda job: None))
    assert [estimate.leak for estimate in estimates] == pytest.approx(leaks)
    assert [defense.by_leak(estimates), defense.by_loss(estimates)] == last_rounds
    assert memory["stop"] == stop
    told = {
        f"{name}_round_{n}": value
        for n, (estimate, loss) in enumerate(zip(estimates, losses, strict=True), start=1)
        for name, value in (("leak", estimate.leak), ("low", estimate.low), ("loss", loss))
    }
    assert memory["metrics"] == pytest.approx({"stops_after": stop or 7, **told})
    rests = [defense.sits_out({**memory, "rounds": n}) for n in ((stop or 99) - 1, stop or 99)]
    assert rests == [False, stop is not None]


@pytest.mark.parametrize(
    ("best", "tried", "share"),
    [(0.44, [0.3, 0.4, 0.5, 0.42, 0.44, 0.46, 0.48], 0.3),
     (None, [0.3, 0.4, 0.5, 0.32, 0.34, 0.36, 0.38], 3 / 8)],
)  # fmt: skip
def test_crop_range__is_chosen_in_two_stages(
    best: float | None, tried: list[float], share: float
) -> None:
    """The paper's figures on its range: 0.3, 0.4, 0.5, then steps of 0.02 between the best two. Of
    equal leaks the narrower range."""
    crops, memory = list[float](), dict[str, Any]()

    def course(crop: float) -> list[tuple[float, float]]:
        crops.append(round(crop, 9))
        return [(0.9, 1.0), (0.0 if best is None else abs(crop - best), 1.0)]

    CropRange(choose=True).prepare(rehearsing(course), memory)
    assert crops == tried and memory["share"] == pytest.approx(share)
    leak = memory["metrics"][f"leak_at_share_{share:.3f}"]
    assert leak == pytest.approx(0.0, abs=1e-9)
    assert fine_shares(1 / 8, 1 / 4) == pytest.approx([0.15, 0.175, 0.2, 0.225])


def test_early_stopping__before_the_first_leak_or_at_the_least_loss() -> None:
    losses_course = course([0.4, 0.5, 0.56, 0.5, 0.7], [3.0, 2.0, 2.5, 2.0, 1.0])
    assert EarlyStopping(leak=0.5).by_leak(losses_course) == 2
    assert EarlyStopping().by_leak(losses_course) == 2  # 0.55
    assert EarlyStopping(leak=0.56).by_leak(losses_course) == 4
    assert EarlyStopping(leak=0.3).by_leak(losses_course) == 1
    assert EarlyStopping(leak=0.7).by_leak(losses_course) is None
    assert EarlyStopping(patience=2).by_leak(losses_course) is None
    assert EarlyStopping(patience=2).by_loss(losses_course) == 2  # an equal loss is no fall
    assert EarlyStopping(patience=3).by_loss(losses_course) is None
    assert EarlyStopping().by_loss(losses_course) is None


@pytest.mark.parametrize(
    ("defense", "conditions", "said"),
    [
        (EarlyStopping(), ("group", MoCo(), 7), "7, must be >= 8; or give its after"),
        (CropRange(choose=True), ("group", MoCo(), 0), "0, must be >= 8; or give its lower"),
        (CropRange(lower=0.1), ("group", MoCo(), 0), r"range \(0.2, 1\) .* in it, got 0.1"),
        (CropRange(), ("group", MoCo(operations=("flip", "jitter")), 0), "ssl.operations"),
        (EarlyStopping(), ("group", MoCo(), 80, True), "pretrain.mode.* before; give its"),
        (CropRange(choose=True), ("group", MoCo(), 80, True), "pretrain.mode.* before; give its"),
    ],
)
def test_check__one_clear_line(defense: Any, conditions: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        defense.check(TrainingConditions(*conditions))
    EarlyStopping(after=3).check(TrainingConditions("batch", MoCo(), 0, pretrained=True))
    with pytest.raises(InputError, match="EarlyStopping: option after: 2 leaves nothing to choose"):
        EarlyStopping(after=2, leak=0.6)
    with pytest.raises(InputError, match="CropRange: option lower: 0.5 .* choose too"):
        CropRange(lower=0.5, choose=True)
