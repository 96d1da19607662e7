"""What an audit is asked: its options, checked together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmia import registry
from fedmia.attacks.base import ActiveAttack
from fedmia.errors import InputError
from fedmia.settings.option import Options, option, option_fields
from fedmia.settings.values import from_text, plain
from fedmia.shadows.plan import Plan
from fedmia.ssl.augment import Augment
from fedmia.threat import PRECISIONS

SWEEPS = ("known", "query_budget")  # what --sweep varies


@dataclass(frozen=True)
class Audit(Options):
    """One audit. `options` holds the open-ended groups, by their key in the
    tree (`fedmia.auditing.flags.GROUPS`): name -> value (for `attack`: attack -> name -> value).

    Raises:
        InputError: on construction, for an unknown attack or option or a value out of range.
    """

    encoder: str = option(
        "", "RUN[@round], FILE.pt2, FILE.onnx, timm:NAME, torchvision:NAME or pkg.mod:factory"
    )
    checkpoint: str | None = option(None, "weights for timm:, torchvision: or a factory")
    members: str | None = option(
        None, "dataset of images that the encoder was trained on (none: a fedmia run's own)"
    )
    nonmembers: str | None = option(
        None, "dataset of images that it was not trained on (none: a fedmia run's own)"
    )
    data_dir: str | None = option(None, "folder of the data sources' files")
    known: int | None = option(
        None, "members, and as many non-members, that the attacker knows (none: a quarter, to 500)",
        ge=2,
    )  # fmt: skip
    limit: int | None = option(None, "most images scored a side (none: all that remain)", ge=2)
    size: int | None = option(None, "pixels a side to resize to (none: the encoder's)", ge=2)
    mean: tuple[float, ...] | None = option(
        None, "mean of each channel, in [0, 1] (none: the encoder's)", ge=0, le=1
    )
    std: tuple[float, ...] | None = option(
        None, "standard deviation of each channel (none: the encoder's)", gt=0
    )
    attacks: tuple[str, ...] = option(("all",), "attacks to run, or all")
    query_budget: int | None = option(
        None, "most images that one attack may embed; it knows fewer images to keep it", ge=1
    )
    sweep: str | None = option(
        None, "known=25,50,.. or query_budget=1000,2000,..: every attack at each value"
    )
    shadows: int = option(0, "shadow encoders that the attacker trains", ge=0)
    shadow_data: str | None = option(
        None, "dataset of the shadows' images (none: half of the non-members that remain)"
    )
    shadow_encoders: str | None = option(None, "folder of shadow encoders trained before")
    cache: str | None = option(None, "folder that keeps trained shadows (none: OUT/shadows)")
    seed: int = option(0, "root of all randomness", ge=0)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    threads: int = option(0, "CPU threads (0: all cores); sums depend on it", ge=0)
    precision: str = option(
        "float32",
        "of the encoder's forward passes; bfloat16 is about twice as fast on a large network",
        choices=PRECISIONS,
    )
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device):
            raise InputError(f"--device must be auto, cpu, cuda or cuda:N, got '{self.device}'")
        if not self.encoder:
            raise InputError("--encoder is missing: " + self._help("encoder"))
        if self.precision != "float32" and self.encoder.endswith(".onnx"):
            raise InputError(
                f"--precision {self.precision}: an ONNX program computes in the precision that it "
                "was exported in"
            )
        if (self.members is None) != (self.nonmembers is None):
            given, other = ("members", "nonmembers")[:: 1 if self.members else -1]
            raise InputError(f"--{given} is given without --{other}; an audit needs both")
        self._check_shadows()
        names = expand(self.attacks)
        for name in self.options.get("attack", {}):
            if name not in names:
                raise InputError(f"options for attack '{name}', which is not run")
        object.__setattr__(self, "attacks", names)
        for name in names:
            registry.build("attack", name, self.options.get("attack", {}).get(name, {}))
        self.plan()
        Augment(**self.group("augment"))
        if self.sweep is not None:
            points(self.sweep)

    def _check_shadows(self) -> None:
        """Refuse what says how shadows are trained where none are, or says it twice."""
        if self.shadows and self.shadow_encoders is not None:
            raise InputError("--shadows trains encoders, --shadow-encoders reads them: give one")
        own = [f"--shadow.{name}" for name in self.group("shadow")]
        if self.shadow_data is not None:
            own.insert(0, "--shadow-data")
        if own and not self.shadows:
            raise InputError(f"{own[0]} is given without --shadows N: no shadow is trained")
        if "--shadow.count" in own:
            raise InputError("--shadow.count: --shadows N says how many")

    def _help(self, name: str) -> str:
        return next(f.metadata["help"] for f, _ in option_fields(type(self)) if f.name == name)

    def plan(self) -> Plan:
        """How the shadows are trained."""
        given = dict(self.options.get("shadow", {}))
        return Plan(**{"count": max(self.shadows, 1), "seed": self.seed, **given})

    def group(self, name: str) -> dict[str, Any]:
        """Options of one open-ended group."""
        return dict(self.options.get(name, {}))

    def tree(self) -> dict[str, Any]:
        """All of it as plain YAML; without `out`, which is where and not what."""
        own = {f.name: plain(getattr(self, f.name)) for f, _ in option_fields(type(self))}
        return own | {k: plain(dict(v)) for k, v in self.options.items() if v}


def expand(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of attacks: `("all",)` is every one of the registry, those that cannot run included,
    so that the report says why they did not.

    Raises:
        InputError: an unknown attack, or one named twice.
    """
    if names == ("all",):
        return tuple(registry.names("attack"))
    if not names:
        raise InputError("--attacks names no attack")
    for name in names:
        registry.load("attack", name)
        if names.count(name) > 1:
            raise InputError(f"attack '{name}' is named twice")
    return names


def outside_reason(name: str) -> str | None:
    """Why an attack has no place in an audit of a released encoder, or None if it has one."""
    cls = registry.load("attack", name)
    if issubclass(cls, ActiveAttack):
        return "takes part in the training: python -m fedmia.simulate --attacker active runs it"
    if cls.needs.vantage != "outsider":
        return f"needs the vantage of a {cls.needs.vantage}: python -m fedmia.simulate runs it"
    return None


def points(text: str) -> tuple[str, tuple[int, ...]]:
    """`known=25,50` -> ("known", (25, 50)).

    Raises:
        InputError: another kind, or values that are no positive integers.
    """
    kind, equals, rest = text.partition("=")
    kind = kind.strip().replace("-", "_")
    if kind not in SWEEPS or not equals:
        raise InputError(f"--sweep must be known=N,N,.. or query_budget=N,N,.., got '{text}'")
    values: tuple[int, ...] = from_text(f"--sweep {kind}", rest, tuple[int, ...])
    if not values or min(values) < (2 if kind == "known" else 1):
        raise InputError(f"--sweep {kind} needs positive values (known: 2 or more), got '{rest}'")
    if len(set(values)) < len(values):
        raise InputError(f"--sweep {kind}: a value is given twice in '{rest}'")
    return kind, values
