"""Weight decay, a narrower crop range, early stopping: what they change, on what they decide."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from clients.client_context import RoundTask
from clients.client_round import ClientRound
from clients.honest import Honest
from fedmia.defenses import _estimate, crop_range, early_stopping
from fedmia.defenses._estimate import LeakEstimate, similarity
from fedmia.defenses.base import PreparationContext, RunConditions
from fedmia.defenses.crop_range import CropRange, fine_shares
from fedmia.defenses.early_stopping import EarlyStopping
from fedmia.nets.smallnet import SmallNet
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe, State
from fedmia.ssl.moco import MoCo
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.storage.snapshot import MemoryStore

RECIPE = Recipe((0.5,) * 3, (0.25,) * 3, 12)
TRAIN = Train(local_epochs=1, batch_size=5)
PUBLIC = np.arange(10, 22)


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[n]) for n, t in a.items())


def sent(client_round: ClientRound) -> State:
    return Honest().answer(client_round).state


@pytest.fixture
def beside_public(make_desk: Any, tmp_path: Path, textures: Callable[..., torch.Tensor]) -> Any:
    """`beside_public(name, options, private=0, public=0, ..)`: a client of ten images of
    the seed `private`, in a run with twelve public ones of the seed `public`."""

    def make(
        name: str, options: Any, private: int = 0, public: int = 0, **more: Any
    ) -> ClientRound:
        file = tmp_path / f"{private}-{public}.npy"
        np.save(file, torch.cat([textures(10, seed=private), textures(12, seed=9 + public)]))
        return make_desk(name, options, images_file=file, public=PUBLIC, **more)

    return make


# -- what they change ------------------------------------------------------------------------------


def test_weight_decay__is_the_option_of_that_client_alone(make_desk: Any) -> None:
    options = {"weight_decay": 0.3}
    twin = sent(make_desk("", {}, train=replace(TRAIN, weight_decay=0.3), defenses=()))
    store, halves = MemoryStore(), (np.arange(5), np.arange(5, 10))
    first = make_desk("weight-decay", options)
    assert same(sent(first), twin) and not same(sent(make_desk("", {}, defenses=())), twin)
    found = []
    for defenses in ((("weight-decay", options, frozenset({0})),), ()):
        client_round = make_desk("", {}, store, defenses=defenses, parts={"members": halves})
        for round, client in itertools.product((1, 2), (0, 1)):  # one thread, so one optimizer
            at = ClientRound(
                client_round.client_context,
                store,
                RoundTask(client, round, "main", False),
                client_round.received,
            )
            found.append(sent(at))
        store = MemoryStore()
    assert not same(found[2], found[6]) and same(found[3], found[7])


def test_crop_range__trains_as_with_the_narrower_option(make_desk: Any) -> None:
    """3/8 up the range: from the paper's 0.2 to its 0.5."""
    for options, crop in (({}, 0.5), ({"lower": 0.8}, 0.8)):
        twin = make_desk("", {}, ssl=("moco", {"dim": 8, "crop_min": crop}), defenses=())
        assert same(sent(make_desk("crop-range", options)), sent(twin))
    narrower = make_desk("", {}, ssl=("moco", {"dim": 8, "crop_min": 0.6}), defenses=())
    usual = make_desk("crop-range", {}, ssl=("moco", {"dim": 8, "crop_min": 0.36}))
    assert same(sent(usual), sent(narrower))


def test_early_stopping__rests_after_its_own_rounds(make_desk: Any) -> None:
    store, state = MemoryStore(), None
    for round in (1, 3, 4):
        client_round = make_desk("early-stopping", {"after": 2}, store, round, state)
        update = Honest().answer(client_round)
        assert update.examples == (10 if round < 4 else 0)
        assert state is None or same(update.state, state) == (round == 4)
        state = update.state


@pytest.mark.parametrize("options", [{"leak": 1.0}, {"patience": 99}])
def test_early_stopping__out_of_reach_changes_nothing(beside_public: Any, options: Any) -> None:
    """The rehearsal leaves no trace in what the client trains."""
    client_round = beside_public("early-stopping", options)
    assert same(sent(client_round), sent(beside_public("", {}, defenses=())))
    assert client_round.memory["defense"]["early-stopping"]["stop"] is None


def test_early_stopping__costs_no_privacy_beside_dpsgd(beside_public: Any) -> None:
    """Steps of the rehearsal are none of the client's."""
    noised = ("dpsgd", {"noise_multiplier": 0.5}, frozenset({0}))
    kept = []
    for layers in ((noised,), (noised, ("early-stopping", {"leak": 1.0}, frozenset({0})))):
        client_round = beside_public("", {}, defenses=layers)
        kept.append((sent(client_round), client_round.memory["defense"]["dpsgd"]))
    assert same(kept[0][0], kept[1][0]) and kept[0][1] == kept[1][1]


# -- on what they decide ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"), [("early-stopping", {"leak": 0.1}), ("crop-range", {"choose": True})]
)
def test_choice__rests_on_public_images_alone(
    beside_public: Any, name: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crop_range, "COARSE", (1 / 8, 1 / 4))
    monkeypatch.setattr(crop_range, "fine_shares", lambda low, high: [])
    told = []
    for private, public in ((0, 0), (1, 0), (0, 1)):
        client_round = beside_public(name, options, private, public, total_rounds=2)
        client_round.defense.prepare(client_round._preparation(), client_round._defense_memory)
        told.append(client_round._defense_memory[name])
    assert told[0] == told[1] != told[2]


def test_rehearsal__is_a_federation_of_one(beside_public: Any) -> None:
    """A plain loop over the rounds, on half of the public images, from the run's first weights."""
    client_round = beside_public("crop-range", {"lower": 0.7})
    client_context, positions = client_round.client_context, np.array([0, 3, 4, 7, 8, 11])
    views = client_round.rehearse_alone(positions, lambda job: None)
    method = client_context.method(0, 6)
    method.load_shared(client_context.method(-1, None).shared_state())
    method.begin_first_round()
    optimizer, images = make_optimizer(method, TRAIN), client_context.images[PUBLIC[positions]]
    for round, view in enumerate(views, start=1):
        if round > 1:
            method.begin_round()
        Job(
            method=method, optimizer=optimizer, images=images, augment=MoCo(crop_min=0.7).augment,
            train=TRAIN, rng=rng(0, "rehearse", round, 0), step=2 * (round - 1), total_steps=8,
            device=torch.device("cpu"),
        ).run()  # fmt: skip
        assert same(view.state(), method.shared_state())
        assert view.augment == MoCo().augment  # an attacker's, which knows no defence
    assert round == client_context.total_rounds
    assert client_round.memory["defense"] == {}


def test_rehearsal__knows_nothing_of_the_model_that_was_received(beside_public: Any) -> None:
    """That rests on all clients' images where training on them came first, or where a client is
    drawn for a later round only."""
    ends = []
    for shift in (0.0, 0.3):
        client_round = beside_public("early-stopping", {}, total_rounds=2)
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
    preparation = PreparationContext(2, 5, lambda _: {}, rng(0), public, None, alone)
    inside, outside = parts = _estimate.split_public(preparation)
    assert (len(inside), len(outside)) == (count // 2, -(-count // 2))
    assert sorted([*inside, *outside]) == list(range(count))
    assert inside.tolist() == sorted(inside) and outside.tolist() == sorted(outside)
    estimates = list(_estimate.estimates(preparation, parts, repr))
    assert len(estimates) == 2 and trained == [(inside.tolist(), repr)]
    assert calls[0] == ((100 + outside).tolist(), 8) and calls[1] == ((100 + inside).tolist(), 8)
    assert estimates[0].leak == 1.0 and 0.2 < estimates[0].low < 0.99
    assert estimates[0].loss == (len(outside) - 1) / 2


def test_crop_range__of_equal_leaks_the_narrower_range(
    monkeypatch: pytest.MonkeyPatch, beside_public: Any
) -> None:
    preparation = beside_public("crop-range", {})._preparation()
    monkeypatch.setattr(crop_range, "estimates", lambda *_: [LeakEstimate(0.6, 0.5, 1.0)])
    memory: dict[str, Any] = {}
    CropRange(choose=True).prepare(preparation, memory)
    assert memory["share"] == 3 / 8
    assert fine_shares(1 / 8, 1 / 4) == pytest.approx([0.15, 0.175, 0.2, 0.225])


def test_early_stopping__tells_its_course_and_the_whole_run_where_it_does_not_stop(
    monkeypatch: pytest.MonkeyPatch, beside_public: Any
) -> None:
    preparation = beside_public("early-stopping", {}, total_rounds=7)._preparation()
    monkeypatch.setattr(early_stopping, "estimates", lambda *_: course([0.4, 0.5], [3.0, 2.0]))
    memory: dict[str, Any] = {}
    EarlyStopping().prepare(preparation, memory)
    assert memory["stop"] is None and not EarlyStopping().sits_out({**memory, "rounds": 99})
    assert memory["metrics"] == pytest.approx({
        "stops_after": 7.0, "leak_round_1": 0.5, "low_round_1": 0.4, "loss_round_1": 3.0,
        "leak_round_2": 0.6, "low_round_2": 0.5, "loss_round_2": 2.0,
    })  # fmt: skip


def course(lows: list[float], losses: list[float]) -> list[LeakEstimate]:
    return [LeakEstimate(low + 0.1, low, loss) for low, loss in zip(lows, losses, strict=True)]


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


@pytest.mark.parametrize(("losses", "stop"), [([3.0, 2.0, 2.5, 2.5, 1.0], 2), ([3.0, 1.0], 1)])
def test_early_stopping__of_leak_and_patience_the_earlier_one(
    losses: list[float], stop: int, monkeypatch: pytest.MonkeyPatch, beside_public: Any
) -> None:
    """Each may be the one that is reached first; where patience is not, the leak decides."""
    lows = [0.4, 0.5, 0.5, 0.5, 0.9] if stop == 2 else [0.4, 0.9]
    preparation = beside_public("early-stopping", {})._preparation()
    monkeypatch.setattr(early_stopping, "estimates", lambda *_: course(lows, losses))
    memory: dict[str, Any] = {}
    defense = EarlyStopping(leak=0.6, patience=2)
    defense.prepare(preparation, memory)
    last_rounds = [defense.by_leak(course(lows, losses)), defense.by_loss(course(lows, losses))]
    assert last_rounds == ([4, 2] if stop == 2 else [1, None])
    assert memory["stop"] == stop and memory["metrics"]["stops_after"] == stop
    assert [defense.sits_out({**memory, "rounds": n}) for n in (stop - 1, stop)] == [False, True]


def test_crop_range__is_chosen_in_two_stages(
    monkeypatch: pytest.MonkeyPatch, make_job: Any, beside_public: Any
) -> None:
    """The paper's figures on its range: 0.3, 0.4, 0.5, then steps of 0.02 between the best two."""
    tried, preparation = list[float](), beside_public("crop-range", {})._preparation()
    job = make_job(MoCo(dim=8).build(SmallNet(width=4).build(3, 8), RECIPE, torch_rng(0)))

    def leaks(preparation: Any, parts: Any, change: Any) -> list[LeakEstimate]:
        job.augment = Augment()
        change(job)
        tried.append(round(job.augment.crop_min, 9))
        return [LeakEstimate(0.9, 0.8, 1.0), LeakEstimate(abs(tried[-1] - 0.44), 0.0, 1.0)]

    monkeypatch.setattr(crop_range, "estimates", leaks)
    memory: dict[str, Any] = {}
    CropRange(choose=True).prepare(preparation, memory)
    assert tried == [0.3, 0.4, 0.5, 0.42, 0.44, 0.46, 0.48]
    assert memory["share"] == pytest.approx(0.3)
    assert memory["metrics"]["leak_at_share_0.300"] == pytest.approx(0.0, abs=1e-9)
    assert len(fine_shares(1 / 8, 3 / 8)) == 9


@pytest.mark.parametrize(
    ("defense", "public", "said"),
    [
        (EarlyStopping(), 7, "--split.public must be >= 8, got 7; or give its after"),
        (CropRange(choose=True), 0, "--split.public must be >= 8, got 0; or give its lower"),
        (CropRange(lower=0.1), 0, r"shrinks the range \(0.2, 1\) .* lies in it, got 0.1"),
    ],
)
def test_check__one_clear_line(defense: Any, public: int, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("--split", ".*split")):
        defense.check(RunConditions("group", MoCo(), public))
    whole = RunConditions("group", MoCo(operations=("flip", "jitter")), 0)
    with pytest.raises(InputError, match="the method's views are not cropped: ssl.operations"):
        CropRange().check(whole)
    EarlyStopping(after=3).check(RunConditions("batch", MoCo(), 0, pretrained=True))
    for chosen in (EarlyStopping(), CropRange(choose=True)):
        with pytest.raises(InputError, match="trains on all of them before; give its"):
            chosen.check(RunConditions("group", MoCo(), 80, pretrained=True))
    for options in ({"after": 0}, {"after": 2, "leak": 0.6}, {"leak": 1.2}):
        with pytest.raises(InputError, match="EarlyStopping"):
            EarlyStopping(**options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="choose too"):
        CropRange(lower=0.5, choose=True)
