"""Training: as a client trains, the same bits with any number of workers or interruptions."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.nets.smallnet import SmallNet
from fedmia.report.words.notes import sentences
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.shadows.draw import ImagePool
from fedmia.shadows.train import TrainedShadow, TrainingStopped, shadow_notes
from fedmia.ssl.base import TrainingData
from fedmia.ssl.moco import MoCo
from fedmia.ssl.train import Job, Train, make_optimizer

from .conftest import MODEL, make_plan, make_target, same, train, weights

PATCHES = ("cae", "dinov2", "ibot", "mae", "saim")  # need a vision transformer


def after(calls: int) -> Any:
    """A `stop` that says so at the given call and at none after it, from whatever thread."""
    lock, answers = threading.Lock(), iter(range(10**9))

    def stop() -> bool:
        with lock:
            return next(answers) == calls

    return stop


def test_train_shadows__equals_the_plain_calls(plain: list[TrainedShadow], pool: Tensor) -> None:
    inside, outside = ImagePool(pool, None).draw(make_plan())[1]
    spec, options = MoCo(dim=8, queue=8, temperature=0.2), Train(local_epochs=1, batch_size=4,
                                                               lr=0.05, momentum=0.8)  # fmt: skip
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, 12)
    method = spec.build(SmallNet(width=4).build(3, 8), training_data, torch_rng(0, "shadow", 1))
    method.begin_first_round()
    optimizer = make_optimizer(method, options)
    for epoch in range(2):
        Job(
            method=method, optimizer=optimizer, images=pool[inside].numpy(),
            augment=spec.augment, train=options, rng=rng(0, "shadow", 1, epoch), step=3 * epoch,
            total_steps=6, device=torch.device("cpu"),
        ).run()  # fmt: skip
    state = weights(plain[1])
    expected = method.shared_state() | method.local_state()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[n], t) for n, t in expected.items())
    assert [t.name for t in plain] == ["shadow-0", "shadow-1"] and not plain[1].method.training
    assert torch.equal(plain[1].members, pool[inside])
    assert torch.equal(plain[1].nonmembers, pool[outside])


@pytest.mark.parametrize("workers", [1, 3])
def test_train_shadows__workers_and_global_generators_play_no_part(
    plain: list[TrainedShadow], pool: Tensor, workers: int
) -> None:
    torch.manual_seed(workers)
    assert same(train(make_plan(), pool, workers=workers), plain)
    assert torch.is_grad_enabled()


def test_train_shadows__more_shadows_leave_the_first_alone(
    plain: list[TrainedShadow], pool: Tensor
) -> None:
    assert same(train(make_plan(count=3), pool)[:2], plain)
    assert not same(train(make_plan(seed=1), pool), plain)


def test_train_shadows__online_trains_on_candidates(pool: Tensor, candidates: Tensor) -> None:
    held = {bytes(x.numpy()) for x in candidates}
    a, b = train(make_plan(online=True, epochs=1), pool, candidates)
    inside = [{bytes(x.numpy()) for x in t.members} & held for t in (a, b)]
    assert inside[0] | inside[1] == held and not inside[0] & inside[1]
    off = train(make_plan(epochs=1), torch.cat([pool, candidates]), candidates)
    seen = {bytes(x.numpy()) for t in off for x in (*t.members, *t.nonmembers)}
    assert not seen & held


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [1, 11, 19])
def test_train_shadows__resumes_bit_by_bit(pool: Tensor, tmp_path: Path, stop_at: int) -> None:
    plan = make_plan(epochs=4, images=6)
    with pytest.raises(TrainingStopped):
        train(plan, pool, cache=tmp_path, stop=after(stop_at), workers=1)
    saved = stop_at // 3  # an epoch asks before each of its two steps, and at its end
    assert len(list(tmp_path.rglob("progress.safetensors"))) == (saved > 0)
    calls: list[int] = []
    counted: list[tuple[int, int]] = []
    resumed = train(
        plan, pool, cache=tmp_path, workers=1, stop=lambda: bool(calls.append(0)),
        progress=lambda *at: counted.append(at),
    )  # fmt: skip
    assert same(resumed, train(plan, pool))
    assert len(calls) == 3 * (8 - saved)
    assert counted[-1] == (8, 8) and counted == sorted(counted)
    assert not list(tmp_path.rglob("*progress*")) and not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("ssl", registry.names("ssl"))
def test_train_shadows__every_method_resumes(pool: Tensor, tmp_path: Path, ssl: str) -> None:
    model = ("vit-tiny", {"depth": 4, "width": 24}) if ssl in PATCHES else MODEL
    target, plan = make_target(model=model, ssl=(ssl, {})), make_plan(count=1)
    with pytest.raises(TrainingStopped):
        train(plan, pool, target=target, cache=tmp_path, stop=after(6))
    assert list(tmp_path.rglob("progress.safetensors"))
    resumed = train(plan, pool, target=target, cache=tmp_path)
    assert same(resumed, train(plan, pool, target=target))


def test_train_shadows__an_error_of_one_ends_the_others(pool: Tensor) -> None:
    plan = make_plan(train={"lr": 1e30}, epochs=100_000)
    with pytest.raises(InputError, match=r"shadow-\d diverged in epoch \d+ .* lower learning rate"):
        train(plan, pool)


def test_train_shadows__says_what_it_left_out(pool: Tensor, candidates: Tensor) -> None:
    messages: list[str] = []
    crowded = torch.cat([pool, pool[:2], candidates[:3]])
    plan = make_plan(count=1, epochs=1)
    train(plan, crowded, candidates, say=messages.append)
    assert any(line.startswith("shadow images: 3 left out") for line in messages)
    assert any(line.startswith("shadow images: 2 left out") for line in messages)
    (note,) = sentences(shadow_notes(plan, make_target(), crowded, candidates))
    assert note.startswith("Shadow encoders: queue cut from 8 to 6")


@pytest.mark.parametrize(
    ("plan", "target", "said"),
    [
        ({"images": 13}, {}, "need 26 distinct images"),
        ({"knowledge": (), "model": "resnet19"}, {}, "unknown model 'resnet19'"),
        ({}, {"size": 16}, r"\(3, 8, 8\), the target takes \(3, 16, 16\)"),
        ({}, {"model": None}, "shadow.model"),
    ],
)
def test_train_shadows__refuses(
    pool: Tensor, plan: dict[str, Any], target: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        train(make_plan(**plan), pool, target=make_target(**target))


ADAMW = {"optimizer": "adamw", "warmup_epochs": 1.5}


@pytest.mark.parametrize(
    ("ssl", "options"),
    [
        ("byol", ADAMW),
        pytest.param("byol", {**ADAMW, "optimizer": "lars"}, marks=pytest.mark.slow),
        ("moco", {"precision": "bfloat16"}),
    ],
)
def test_train_shadows__by_the_targets_options_resume_bit_by_bit(
    pool: Tensor, tmp_path: Path, ssl: str, options: dict[str, Any]
) -> None:
    """Its optimizer, its warm-up and the momentum that is raised over the run."""
    more = {"momentum_schedule": "cosine"} if ssl == "byol" else {}
    plain = {"batch_size": 4, "lr": 0.01, "warmup_epochs": options.get("warmup_epochs", 0.0)}
    target = make_target(ssl=(ssl, {"dim": 8, **more}), train=Train(**plain | options))
    own = {"precision": options["precision"]} if "precision" in options else {}
    plan = make_plan(epochs=4, images=6, count=1, train=own)
    whole = train(plan, pool, target=target)
    with pytest.raises(TrainingStopped):
        train(plan, pool, target=target, cache=tmp_path, stop=after(8), workers=1)
    assert len(list(tmp_path.rglob("progress.safetensors"))) == 1
    assert same(train(plan, pool, target=target, cache=tmp_path, workers=1), whole)
    other = make_target(ssl=target.ssl, train=Train(**plain))
    assert not same(train(replace(plan, train={}), pool, target=other), whole)
