"""Background knowledge: which parts are the target's, and which are assumed."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import pytest

from fedmia.data.base import AugmentLimits
from fedmia.settings.errors import InputError
from fedmia.shadows.plan import KNOWLEDGE, ShadowPlan, attacker_augment, build_settings
from fedmia.ssl.augment import Augment
from fedmia.ssl.moco import MoCo
from fedmia.ssl.optimizers import RATES
from fedmia.ssl.train import Train

from .conftest import MOCO, make_plan, make_target

KINDS = list(chain.from_iterable(combinations(KNOWLEDGE, n) for n in range(4)))


@pytest.mark.parametrize("knowledge", KINDS)
def test_settings__known_parts_are_the_targets(knowledge: tuple[str, ...]) -> None:
    plan = make_plan(knowledge=knowledge, epochs=7, seed=3)
    settings = build_settings(plan, make_target())
    assert len(KINDS) == 8
    assert settings.model[1]["width"] == (4 if "architecture" in knowledge else 16)
    assert settings.ssl[0] == ("moco" if "algorithm" in knowledge else "mocov2")
    assert settings.known_algorithm == ("algorithm" in knowledge)
    train = make_target().train if "algorithm" in knowledge else Train()
    assert train is not None
    assert settings.train.momentum == train.momentum
    assert settings.train.batch_size == train.batch_size
    assert (settings.epochs, settings.seed, settings.train.local_epochs) == (7, 3, 1)


def test_settings__the_plans_own_training_options_win() -> None:
    own = {"batch_size": 5, "lr": 0.2, "precision": "bfloat16", "weight_decay": 0.01}
    for knowledge, momentum in ((KNOWLEDGE, 0.8), (("none",), Train().momentum)):
        train = build_settings(make_plan(knowledge=knowledge, train=own), make_target()).train
        assert train == Train(**own, local_epochs=1, optimizer_state="keep", momentum=momentum)
    assert build_settings(make_plan(), make_target()).train.precision == "float32"


def test_settings__a_rate_belongs_to_its_optimizer() -> None:
    adamw = {"optimizer": "adamw"}
    assert build_settings(make_plan(train=adamw), make_target()).train.lr == RATES["adamw"]
    assert build_settings(make_plan(train={**adamw, "lr": 0.3}), make_target()).train.lr == 0.3
    assert build_settings(make_plan(train={"momentum": 0.5}), make_target()).train.lr == 0.05
    with pytest.raises(InputError, match=r"shadow.epochs 2 must be > 3, the epochs of warm-up"):
        build_settings(make_plan(train={"warmup_epochs": 3.0}), make_target())


def test_settings__the_stand_ins_have_options_of_their_own() -> None:
    own = {"model_options": {"width": 6}, "ssl_options": {"dim": 12, "crop_min": 0.7}}
    views = AugmentLimits(crop_min=0.9, flip=0.0, jitter=0.25)
    settings = build_settings(make_plan(knowledge=(), **own), make_target(views=views))
    assert (settings.model[0], settings.model[1]["width"]) == ("smallnet", 6)
    assert [settings.ssl[1][n] for n in ("dim", "crop_min", "flip")] == [12, 0.7, 0.0]
    assert attacker_augment(make_plan(knowledge=(), **own), None, views).crop_min == 0.7


def test_settings__policies_between_rounds_do_not_apply() -> None:
    reset = {**MOCO[1], "key": "reset", "queue_policy": "reset"}
    settings = build_settings(make_plan(), make_target(ssl=("moco", reset)))
    assert settings == build_settings(make_plan(), make_target())


def test_settings__stand_in_takes_the_images_views() -> None:
    plan = make_plan(knowledge=("none",))
    views = AugmentLimits(crop_min=0.9, flip=0.0, jitter=0.25)
    settings = build_settings(plan, make_target(views=views))
    assert {k: settings.ssl[1][k] for k in vars(views)} == vars(views)
    assert build_settings(plan, make_target()).ssl[1]["crop_min"] is None


def test_plan__none_is_no_knowledge() -> None:
    none, target = ShadowPlan(knowledge=("none",)), make_target()
    assert build_settings(none, target) == build_settings(ShadowPlan(knowledge=()), target)
    assert not any(none.knows(k) for k in KNOWLEDGE)
    assert ShadowPlan().knowledge == KNOWLEDGE
    assert not any(ShadowPlan(knowledge=()).knows(k) for k in KNOWLEDGE)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"knowledge": ("none", "data")}, "'none' stands alone"),
        ({"knowledge": ("algoritm",)}, "did you mean 'algorithm'"),
        ({"count": 0}, "Plan: option count: 0, must be >= 1"),
        ({"images": 1}, "Plan: option images: 1, must be >= 2"),
        ({"train": {"lr": 0.0}}, "shadow.train.lr: 0.0, must be > 0"),
    ],
)
def test_plan__refuses(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ShadowPlan(**wrong)


@pytest.mark.parametrize(
    ("dimension", "part", "flag"),
    [("architecture", "model", "shadow.model"), ("algorithm", "ssl", "shadow.ssl")],
)
def test_settings__refuses_knowledge_of_what_is_not_recorded(
    dimension: str, part: str, flag: str
) -> None:
    target = make_target(**{part: None})
    with pytest.raises(InputError, match=f"'{dimension}'.*{flag}"):
        build_settings(make_plan(), target)
    rest = tuple(k for k in KNOWLEDGE if k != dimension)
    assert build_settings(make_plan(knowledge=rest), target)


@pytest.mark.parametrize(
    ("wrong", "said"), [({"model": "smalnet"}, "unknown model 'smalnet'; did you mean 'smallnet'"),
                        ({"ssl": "moko"}, "unknown ssl 'moko'; did you mean 'moco'")],
)  # fmt: skip
def test_settings__refuses_an_unknown_stand_in(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build_settings(make_plan(knowledge=(), **wrong), make_target())
    # Where all is known it is not asked for.
    assert build_settings(make_plan(**wrong), make_target())


def test_attacker_augment__the_targets_where_the_algorithm_is_known() -> None:
    own = Augment(crop_min=0.6, hue=0.05, blur_p=0.5)
    assert attacker_augment(make_plan(knowledge=("algorithm",)), own) == own
    with pytest.raises(InputError, match="views are not recorded"):
        attacker_augment(make_plan(), None)


def test_attacker_augment__else_random_resized_crop_alone() -> None:
    plan = make_plan(knowledge=("data", "architecture"))
    for given in (None, Augment(crop_min=0.6, blur_p=0.5, solarize_p=0.2)):
        augment = attacker_augment(plan, given)
        # The stand-in's, not the target's.
        assert (augment.crop_min, augment.crop_max) == (0.2, 1.0)
        off = ("flip", "brightness", "contrast", "saturation", "hue", "jitter_p", "gray_p",
               "blur_p", "solarize_p")  # fmt: skip
        assert not any(getattr(augment, name) for name in off)
    assert attacker_augment(plan, None, AugmentLimits(crop_min=0.9)).crop_min == 0.9


OWN = ("gray", "crop", "flip", "jitter")  # EncoderMI's inferrer, Fig. 3


def test_settings__the_attackers_own_operations() -> None:
    target = make_target(ssl=("moco", {**MOCO[1], "operations": ("blur",)}))
    views = MoCo(operations=("blur",)).augment
    for knowledge, method in ((KNOWLEDGE, "moco"), (("data",), "mocov2")):
        plan = make_plan(knowledge=knowledge, operations=OWN)
        spec = build_settings(plan, target).spec
        assert spec.augment.operations == OWN and build_settings(plan, target).ssl[0] == method
        # Shadows train with what the attacker views images by.
        assert attacker_augment(plan, views).done() == spec.augment.done()
    assert build_settings(make_plan(), target).spec.augment.operations == ("blur",)
    with pytest.raises(InputError, match="operations gray,crop,flip,jitter: the views of"):
        build_settings(make_plan(operations=OWN), make_target(ssl=("dino", {})))


def test_plan__stand_ins_exist() -> None:
    settings = build_settings(ShadowPlan(knowledge=()), make_target(size=32))
    assert (settings.model[0], settings.ssl[0]) == ("vgg11-bn", "simclr")
