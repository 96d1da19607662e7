"""What the attacker trains and what it knows of the target: its background knowledge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from fedmia.data.base import AugmentLimits
from fedmia.nets.base import Net
from fedmia.seeding import torch_rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.settings.fields import options_of
from fedmia.settings.options import Options, option, option_fields
from fedmia.ssl.augment import OPERATIONS, Augment
from fedmia.ssl.base import SSL, SSLMethod, TrainingData
from fedmia.ssl.optimizers import RATES
from fedmia.ssl.train import Job, Train

KNOWLEDGE = ("data", "architecture", "algorithm")
Choice = tuple[str, Mapping[str, Any]]  # a plugin by name, with its options


class ShadowDefense(Protocol):
    """Defences of training by name; `fedmia.defenses` has them. `memory` outlasts the epochs."""

    @property
    def layers(self) -> Sequence[tuple[str, Options]]:
        """Name and options of each, in order."""

    def sits_out(self, memory: dict[str, Any]) -> bool:
        """Whether training is over."""

    def train(self, job: Job, memory: dict[str, Any]) -> dict[str, float]:
        """One job; its metrics, with the `loss`.

        Args:
            job: the training of one epoch.
            memory: what the defence keeps from epoch to epoch; changes in place.

        Returns:
            metrics by name, `loss` among them.
        """


@dataclass(frozen=True)
class ShadowPlan(Options):
    """Shadow encoders, and which of the three dimensions of background knowledge the attacker has
    (EncoderMI, Liu et al., CCS 2021, section 3.2: eight kinds in all).

    Whoever calls chooses the shadow images: with `data` known they are of the target's
    distribution, else of another. An unknown architecture or algorithm has a stand-in.
    `size` other than the target's serves attacks that read each encoder on its own images.

    Attributes:
        model_options, ssl_options: of the stand-ins.
        train: options of `Train` that are the shadows' own; the others are the target's where its
            algorithm is known.
    """

    count: int = option(1, "shadow encoders", ge=1)
    knowledge: tuple[str, ...] = option(
        KNOWLEDGE,
        "what the attacker knows of the target's training, or none",
        choices=(*KNOWLEDGE, "none"),
    )
    epochs: int = option(200, "epochs over a shadow's members", ge=1)
    images: int | None = option(
        None, "members of each shadow; as many non-members (none: half of the images)", ge=2
    )
    size: int | None = option(
        None, "pixels a side of the shadows' images (none: the target's)", ge=2
    )
    model: str = option("vgg11-bn", "encoder of the shadows where the target's is unknown")
    ssl: str = option("simclr", "method of the shadows where the target's is unknown")
    operations: tuple[str, ...] | None = option(
        None,
        "augmentations that the attacker trains its shadows with and views images by; the paper's "
        "inferrer of Fig. 3 has gray, crop, flip, jitter (none: the method's)",
        choices=OPERATIONS,
    )
    online: bool = option(
        False, "train half of the shadows on each image under attack (online LiRA, RMIA)"
    )
    seed: int = option(0, "root seed of the shadows")
    model_options: Mapping[str, Any] = options_of("model", "model")
    ssl_options: Mapping[str, Any] = options_of("ssl", "ssl")
    train: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        with prefix_errors("", "shadow.train"):
            Train(**self.train)
        if "none" in self.knowledge and len(self.knowledge) > 1:
            raise InputError(f"{opt('shadow.knowledge')}: 'none' stands alone")
        if self.online and self.size is not None:
            raise InputError(
                f"{opt('shadow.size', self.size)}: online shadows train on the images under attack "
                "as they are; leave the size out"
            )

    def knows(self, dimension: str) -> bool:
        """Whether the attacker knows `data`, `architecture` or `algorithm`."""
        return dimension in self.knowledge


@dataclass(frozen=True)
class TargetTraining:
    """What there is to know of the target's training.

    Attributes:
        channels, size: of the images that the encoder takes.
        mean, std: normalisation of the pixels, one value a channel.
        model, ssl: name and options, or None where the target was not trained by fedmia.
        train: how it was trained (part of the algorithm), or None.
        views: the shadow images' own view options, for a stand-in that leaves them open.
        guard: defences of the target's training, which the shadows are trained under; None: none,
            or the attacker does not know them.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    model: Choice | None = None
    ssl: Choice | None = None
    train: Train | None = None
    views: AugmentLimits | None = None
    guard: ShadowDefense | None = None


@dataclass(frozen=True)
class ShadowSettings:
    """What every shadow of a plan is built from and trained by; all options written out.

    Attributes:
        model, ssl: name and every option.
        train: of one epoch, of which there are `epochs`.
        epochs: over the members.
        seed: root of all shadows' streams.
        channels, size: of the images; pixels a side.
        mean, std: normalisation of the pixels, one value a channel.
        known_algorithm: whether `ssl` is the target's, views included.
        defense: name and every option of each defence of training, in order.
    """

    model: Choice
    ssl: Choice
    train: Train
    epochs: int
    seed: int
    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    known_algorithm: bool
    defense: tuple[Choice, ...] = ()

    @property
    def under(self) -> tuple[str, ...]:
        """A text for each defence, its name first."""
        return tuple(
            f"{name} {json.dumps(dict(own), sort_keys=True)}" for name, own in self.defense
        )

    @cached_property
    def spec(self) -> SSL:
        """The method's options."""
        built: SSL = registry.build("ssl", *self.ssl, path="shadow.ssl")
        return built

    @cached_property
    def _net(self) -> Net:
        built: Net = registry.build("model", *self.model, path="shadow.model")
        return built

    def method(self, index: int, images: int) -> SSLMethod:
        """Shadow `index` before training, for `images` members, on the CPU; InputError where the
        images' size does not suit the architecture."""
        net = self._net.build(self.channels, self.size)
        training_data = TrainingData(self.mean, self.std, images)
        return self.spec.build(net, training_data, torch_rng(self.seed, "shadow", index))


def build_settings(plan: ShadowPlan, target: TargetTraining) -> ShadowSettings:
    """The target's architecture and algorithm where the plan knows them, else the stand-ins.

    Args:
        plan: what the attacker knows and chooses.
        target: what there is to know of the target's training.

    Returns:
        the settings that all shadows share.

    Raises:
        InputError: an unknown plugin, or claimed knowledge that `target` lacks.
    """
    known = plan.knows("algorithm")
    for dimension, choice, path in (
        ("architecture", target.model, "shadow.model"),
        ("algorithm", target.ssl, "shadow.ssl"),
    ):
        if plan.knows(dimension) and choice is None:
            raise InputError(
                f"shadow knowledge '{dimension}': the target's {dimension} is not recorded; "
                f"leave it out of the knowledge and give {opt(path)}"
            )
    model = target.model if plan.knows("architecture") else (plan.model, plan.model_options)
    ssl = target.ssl if known else choose_stand_in(plan, target.views)
    assert model is not None and ssl is not None
    ssl = apply_operations(ssl, plan)
    return ShadowSettings(
        model=_complete("model", model),
        ssl=_complete("ssl", ssl),
        train=_training(plan, target, ssl[0]),
        epochs=plan.epochs,
        seed=plan.seed,
        channels=target.channels,
        size=plan.size or target.size,
        mean=tuple(target.mean),
        std=tuple(target.std),
        known_algorithm=known,
        defense=tuple((n, _values(d)) for n, d in target.guard.layers) if target.guard else (),
    )


def _training(plan: ShadowPlan, target: TargetTraining, ssl: str) -> Train:
    """One epoch: the target's options where its algorithm is known, the plan's own over them.

    Raises:
        InputError: a warm-up longer than the training.
    """
    train = (target.train if plan.knows("algorithm") else None) or Train()
    own: dict[str, Any] = {"precision": "float32", **plan.train}
    if own.get("optimizer", train.optimizer) != train.optimizer:
        own = {"lr": None, **own}  # a rate belongs to its optimizer
    train = replace(train, **own)
    if train.warmup_epochs >= plan.epochs:
        raise InputError(
            f"{opt('shadow.epochs', plan.epochs)} must be > {train.warmup_epochs:g}, the epochs of "
            "warm-up"
        )
    registry.load("ssl", ssl).check_batch("shadow.batch_size", train.batch_size)
    rate = train.lr or RATES.get(train.optimizer, registry.load("ssl", ssl).lr)
    return replace(train, local_epochs=1, lr=rate, optimizer_state="keep")


def attacker_augment(
    plan: ShadowPlan, target_augment: Augment | None, views: AugmentLimits | None = None
) -> Augment:
    """The augmentation of the attacker's views of the target.

    With the algorithm known it is the target's own, but for the plan's operations. Else it is a
    random resized crop alone, as EncoderMI (section 5.1) found best, or what the plan's operations
    say; the paper does not give its area, here the stand-in's.

    Args:
        plan: what the attacker knows and chooses.
        target_augment: the target's augmentation, if there is one.
        views: view options of the shadow images' data set, for a stand-in that leaves them open.

    Returns:
        the augmentation.

    Raises:
        InputError: the algorithm is claimed to be known, but no augmentation is given.
    """
    if plan.knows("algorithm"):
        if target_augment is None:
            raise InputError("shadow knowledge 'algorithm': the target's views are not recorded")
        if plan.operations is None:
            return target_augment
        return replace(target_augment, operations=plan.operations)
    stand_in = apply_operations(choose_stand_in(plan, views), plan)
    own: Augment = registry.build("ssl", *stand_in, path="shadow.ssl").augment
    return keep_crop_only(own) if plan.operations is None else own


def keep_crop_only(augment: Augment) -> Augment:
    """The random resized crop of an augmentation, without its other stages."""
    return replace(
        augment, flip=0.0, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, jitter_p=0.0,
        gray_p=0.0, blur_p=0.0, solarize_p=0.0,
    )  # fmt: skip


def choose_stand_in(plan: ShadowPlan, views: AugmentLimits | None) -> Choice:
    """The method in place of an unknown one: where it leaves its views to the images, theirs.

    Args:
        plan: names the method and its options, which win.
        views: view options of the shadow images' data set, or None.

    Returns:
        name and options.
    """
    own = {} if views is None else asdict(views)
    open_options = {
        f.name for f, _ in option_fields(registry.load("ssl", plan.ssl)) if f.default is None
    }
    return plan.ssl, {**{k: v for k, v in own.items() if k in open_options}, **plan.ssl_options}


def apply_operations(ssl: Choice, plan: ShadowPlan) -> Choice:
    """The method with the plan's operations in place of its own.

    Args:
        ssl: name and options of a method.
        plan: whose `operations` replace the method's own; None: they stay.

    Returns:
        name and options.

    Raises:
        InputError: the method's views cannot be chosen one by one.
    """
    name, options = ssl
    if plan.operations is None:
        return ssl
    if "operations" not in {f.name for f, _ in option_fields(registry.load("ssl", name))}:
        flag = opt("shadow.operations", plan.operations)
        raise InputError(f"{flag}: the views of {name} cannot be chosen one by one")
    return name, {**options, "operations": plan.operations}


def _values(built: Options) -> dict[str, Any]:
    return {one.name: getattr(built, one.name) for one, _ in option_fields(type(built))}


def _complete(kind: str, choice: Choice) -> Choice:
    """Every option written out; policies between rounds never apply, as there is one round."""
    name, chosen = choice
    built = registry.build(kind, name, chosen, path=f"shadow.{kind}")
    options = {}
    for one, _ in option_fields(type(built)):  # `reset` would not store what a resumed epoch needs
        between = set(one.metadata["choices"] or ()) == {"keep", "reset"}
        options[one.name] = "keep" if between else getattr(built, one.name)
    return name, options
