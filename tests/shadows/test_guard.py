"""Shadows trained under the target's defence of training, as clients are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.defenses.crop_range import CropRange
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.early_stopping import EarlyStopping
from fedmia.defenses.stack import DefenseStack
from fedmia.defenses.weight_decay import WeightDecay
from fedmia.shadows.provided import load_shadows
from fedmia.shadows.train import TrainedShadow, TrainingStopped
from fedmia.ssl.train import Train

from .conftest import MOCO, make_plan, make_target, same, train, weights
from .test_train import after

PLAN = make_plan(count=1)


def under(*layers: Any, plan: Any = PLAN, pool: Tensor, **more: Any) -> list[TrainedShadow]:
    return train(plan, pool, target=make_target(guard=DefenseStack(layers)), **more)


@pytest.mark.parametrize(
    ("layer", "twin"),
    [
        (
            ("weight-decay", WeightDecay(0.3)),
            {"train": Train(batch_size=4, lr=0.05, momentum=0.8, weight_decay=0.3)},
        ),
        (("crop-range", CropRange(0.7)), {"ssl": ("moco", {**MOCO[1], "crop_min": 0.7})}),
    ],
)
def test_guard__is_the_options_that_it_changes(pool: Tensor, layer: Any, twin: Any) -> None:
    """Both at once is neither alone."""
    found = under(layer, pool=pool)
    assert same(found, train(PLAN, pool, target=make_target(**twin)))
    both = under(("weight-decay", WeightDecay(0.1)), ("crop-range", CropRange(0.5)), pool=pool)
    assert not same(both, found)


def test_guard__a_stopped_shadow_is_one_of_fewer_epochs(
    plain: list[TrainedShadow], pool: Tensor
) -> None:
    """At a rate that does not depend on how many there are."""
    calls = list[tuple[int, int]]()
    options = {"train": Train(batch_size=4, lr=0.05, schedule="constant")}
    stack = DefenseStack([("early-stopping", EarlyStopping(after=1))])
    target = make_target(guard=stack, **options)
    shadows = train(PLAN, pool, target=target, progress=lambda *at: calls.append(at))
    once = make_plan(count=1, epochs=1)
    assert same(shadows, train(once, pool, target=make_target(**options)))
    assert calls[-1] == (2, 2)
    never = under(("early-stopping", EarlyStopping(after=9)), pool=pool)
    assert same(never, plain[:1])


def test_guard__of_nothing_leaves_no_trace(
    plain: list[TrainedShadow], pool: Tensor, tmp_path: Path
) -> None:
    """Nor a word in the cache, so that older shadows are found; a defence is another key."""
    assert same(under(pool=pool, cache=tmp_path), plain[:1])
    (file,) = tmp_path.glob("*/about.json")
    assert "defense" not in json.loads(file.read_text())
    train(PLAN, pool, cache=tmp_path, stop=lambda: pytest.fail("it is in the cache"))
    under(("weight-decay", WeightDecay(5e-4)), pool=pool, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "first",
    [
        ("weight-decay", WeightDecay(0.3)),
        pytest.param(("dpsgd", DPSGD(epsilon=8.0)), marks=pytest.mark.slow),
    ],
)
def test_guard__goes_on_where_it_was_cut_and_is_read_again(
    pool: Tensor, tmp_path: Path, first: Any
) -> None:
    """What its defences remember is kept with the progress: two epochs in all, not two more."""
    layers = first, ("early-stopping", EarlyStopping(after=2))
    plan = make_plan(count=1, epochs=4)
    whole = under(*layers, plan=plan, pool=pool)
    with pytest.raises(TrainingStopped):
        under(*layers, plan=plan, pool=pool, cache=tmp_path, stop=after(4))
    assert list(tmp_path.glob("*/progress.safetensors"))
    assert same(under(*layers, plan=plan, pool=pool, cache=tmp_path), whole)
    (shadows,) = load_shadows(tmp_path)
    assert all(torch.equal(t, weights(shadows)[n]) for n, t in weights(whole[0]).items())
    assert not same(whole, under(layers[0], plan=plan, pool=pool))
