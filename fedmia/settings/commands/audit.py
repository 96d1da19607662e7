"""The options of an audit, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from fedmia.data.images import CHANNELS
from fedmia.runtime.device import DEVICES, check_device
from fedmia.settings import registry
from fedmia.settings.choices import Layer, PluginChoice, Values, choose_attacks
from fedmia.settings.commands.audit_attacks import AUTO, expand_names, has_rounds
from fedmia.settings.commands.data import (
    channel_mean,
    channel_std,
    data_folder,
    image_size,
    pixel_range,
)
from fedmia.settings.commands.effects import OF_AUDITS
from fedmia.settings.commands.points import parse_points
from fedmia.settings.commands.roles import check_attack_options
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.settings.fields import Settings, built_attacks, given_options, named_options, plugins
from fedmia.settings.options import option, option_fields, options_of
from fedmia.settings.values import convert
from fedmia.shadows.plan import ShadowPlan
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Train
from fedmia.storage.runfolder import RunFolder
from fedmia.threat import ACCESS, PRECISIONS

# What needs the encoder or its images.
WITHOUT_VECTORS = (
    "encoder", "checkpoint", "federation", "members", "nonmembers", "size", "mean", "std",
    "channels", "pixel_range", "rate", "shadows", "shadow_encoders", "shadow_data", "embedding",
)  # fmt: skip


@dataclass(frozen=True)
class Audit(Settings):
    """One audit. The fields after `precision` hold only the options that were given.

    Attributes:
        data_dir: folder of the data sources' files.
        size: pixels a side; None: the encoder's.
        mean: mean of each channel, pixels in [0, 1]; None: the encoder's.
        std: standard deviation of each channel; None: the encoder's.
        pixel_range: the pixel values that become 0 and 255.
        shadow_defense: defences under which the attacker trains its shadows, in order.
        shadow: options of the shadows' training, by name.
        augment: options of the attacker's views, by name.
        members_options: options of the data source of the members.
        nonmembers_options: options of the data source of the non-members.
        shadow_data_options: options of the data source of the shadows.
        attack: options of each attack, by its name.
        attack_choices: the attacks that are asked for, built once.

    Raises:
        InputError: on construction, for an unknown attack or option or a value out of range.
    """

    needs: ClassVar[Mapping[str, Any]] = OF_AUDITS

    encoder: str = option(
        "",
        "RUN[@round], FILE.pt2, FILE.onnx, FILE.pth, timm:NAME, torchvision:NAME, hf:FOLDER, "
        "open_clip:NAME, http:URL or pkg.mod:factory",
    )
    checkpoint: str | None = option(
        None,
        "weights for timm:, torchvision:, open_clip: or a factory; a pattern ('rounds/*.npz'): "
        "the models of a federation's rounds",
    )
    federation: str | None = option(
        None, "recording of a federation (fedmia.flower.record), of whose network encoder is"
    )
    owners: str | None = option(
        None,
        "of a federation: CSV file, under image,client, of the client that holds each member, by "
        "its file's name, or its number (of all-number names the name, otherwise the place from 0)",
    )
    loss: str | None = option(
        None,
        "of a federation: pkg.mod:function of (network, pixels in [0, 1]) that gives each image's "
        "loss, as clients trained with it",
    )
    notes: str | None = option(
        None,
        "of a federation: folder of what an attacker in it read (fedmia.flower.ascend), which the "
        "attack ascent scores",
    )
    checkpoint_key: str | None = option(
        None, "which of the checkpoint's networks, e.g. student (none: its authors' choice)"
    )
    allow_missing: bool = option(False, "audit an encoder whose file lacks weights or has others")
    allow_random: bool = option(
        False, "audit an encoder whose output for one image changes from call to call"
    )
    embedding: str | None = option(
        None, "name or number of the output to audit (none: known by name)", omitted=True
    )
    access: str | None = option(
        None, "to the encoder (none: all that it grants)", choices=ACCESS, omitted=True
    )
    members: str | None = option(
        None, "dataset of images that the encoder was trained on (none: a fedmia run's own)"
    )
    nonmembers: str | None = option(
        None, "dataset of images that it was not trained on (none: a fedmia run's own)"
    )
    member_embeddings: str | None = option(
        None, "in place of an encoder and of images: file of the encoder's vectors of members, a "
        "row an image, several views as a third axis (.npy, .npz, .parquet, .safetensors)",
        omitted=True,
    )  # fmt: skip
    nonmember_embeddings: str | None = option(
        None, "likewise of images that it was not trained on", omitted=True
    )
    groups: str | None = option(
        None, "subjects that images belong to, such as patients: a column of both data sources (of "
        "folders a depth), or a CSV file under side,image,subject (members or nonmembers; an image "
        "by its file's name or its number, as of owners); whole subjects are drawn",
        omitted=True,
    )  # fmt: skip
    data_dir: str | None = data_folder("sources'")
    known: int | None = option(
        None,
        "members, and as many non-members, that the attacker knows (none: a quarter, to 500)",
        ge=2,
    )
    knows: str = option(
        "both",
        "sides of which the attacker knows images: both, or nonmembers alone. Attacks that learn "
        "from members then do not run, and no threshold is chosen on known images",
        choices=("both", "nonmembers"), omitted=True,
    )  # fmt: skip
    limit: int | None = option(None, "most images scored a side (none: all that remain)", ge=2)
    size: int | None = image_size("the encoder's", 2)
    mean: tuple[float, ...] | None = channel_mean("the encoder's")
    std: tuple[float, ...] | None = channel_std("the encoder's")
    channels: str | None = option(
        None,
        "rgb: repeat the channel of gray images, for an encoder of colour images; gray: luminance "
        "of colour images (none: as they are)",
        choices=tuple(CHANNELS),
        omitted=True,
    )
    skip_unreadable: bool = option(
        False, "leave out images that cannot be decoded; the report counts them", omitted=True
    )
    pixel_range: tuple[float, ...] | None = pixel_range()
    rate: float | None = option(
        None, "most images a second that an API or a function is asked about (none: no limit)",
        gt=0, omitted=True,
    )  # fmt: skip
    batch: int = option(64, "images of a request to it", ge=1, omitted=True)
    attacks: tuple[str, ...] = option(
        (AUTO,),
        "attacks to run, all, quick (those without a long computation) or auto: quick, and those "
        "that shadows, groups, a federation or options of their own are given for",
    )
    query_budget: int | None = option(
        None,
        "most images that one attack may embed; it uses fewer known images to stay within this",
        ge=1,
    )
    sweep: str | None = option(
        None, "known=25,50,.. or query_budget=1000,2000,..: every attack at each value"
    )
    shadows: int = option(0, "shadow encoders that the attacker trains", ge=0)
    shadow_data: str | None = option(
        None,
        "dataset of the shadows' images (none: half of the non-members that remain, where "
        "shadow.knowledge has data)",
    )
    shadow_encoders: str | None = option(
        None,
        "folder of shadow encoders trained before, or of runs on the attacker's own images; where "
        "some have the target's defence, those without it serve an attacker who ignores it",
    )
    shadow_defense: tuple[Layer, ...] = plugins(
        "defense",
        "defences of the target's training that the attacker knows, in order: it trains shadows "
        "with them, and others without",
    )
    cache: str | None = option(None, "folder that keeps trained shadows (none: OUT/shadows)")
    seed: int = option(0, "root of all randomness", ge=0)
    device: str = option("auto", DEVICES)
    threads: int = option(0, "CPU threads (0: all cores); sums depend on it", ge=0)
    precision: str = option(
        "float32",
        "of the encoder's forward passes; bfloat16 is about twice as fast on a large network",
        choices=PRECISIONS,
    )
    # An epoch is a shadow's only round.
    shadow: Values = given_options(ShadowPlan, Train, without=("local_epochs", "optimizer_state"))
    augment: Values = given_options(Augment)
    members_options: Values = options_of("members", "dataset")
    nonmembers_options: Values = options_of("nonmembers", "dataset")
    shadow_data_options: Values = options_of("shadow_data", "dataset")
    attack: Mapping[str, Values] = named_options("attack")
    attack_choices: Mapping[str, PluginChoice] = built_attacks()

    @classmethod
    def attack_names(cls, flat: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the attacks that flat settings run."""
        names = convert(opt("attacks"), flat.get("attacks", cls.attacks), tuple[str, ...])
        own = {path.split(".")[1] for path in flat if path.startswith("attack.")}
        return expand_names(names, {**flat, "attack": own})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)
        self._check_rounds()
        self._check_embeddings()
        if not self.encoder and self.member_embeddings is None:
            raise InputError(f"{opt('encoder')} is missing: {self._help('encoder')}")
        if self.precision != "float32" and self.encoder.endswith(".onnx"):
            raise InputError(
                f"{opt('precision', self.precision)}: an ONNX program computes in the precision "
                "that it was exported in"
            )
        if (self.members is None) != (self.nonmembers is None):
            source, other = map(opt, ("members", "nonmembers")[:: 1 if self.members else -1])
            raise InputError(f"{source} is given without {other}; an audit needs both")
        if self.groups is not None and (
            self.of_rounds or not (self.members or self.member_embeddings)
        ):
            where = f"{opt('groups', self.groups)} needs {opt('members')} and an encoder alone"
            raise InputError(f"{where}: a federation's images belong to its clients")
        if self.pixel_range is not None and self.members is None:
            raise InputError(
                f"{opt('pixel_range')} without {opt('members')}: a run's images have its own"
            )
        self._check_shadows()
        names = expand_names(self.attacks, vars(self))
        check_attack_options(self.attack, names)
        object.__setattr__(self, "attacks", names)
        choices = choose_attacks(names, self.attack, self.attack_choices, complete=False)
        object.__setattr__(self, "attack_choices", choices)
        self._check_knowledge()
        with prefix_errors("", "augment"):
            Augment(**self.augment)
        if self.sweep is not None:
            parse_points(self.sweep)

    @property
    def subject_column(self) -> str | None:
        """The column of `groups`, None where it is a CSV file or nothing."""
        return None if (self.groups or "").endswith(".csv") else self.groups

    @property
    def of_rounds(self) -> bool:
        """Whether the models of a federation's rounds are audited."""
        return has_rounds(vars(self))

    def _check_rounds(self) -> None:
        """Refuse what only a federation has of an encoder alone; a run's recording names it."""
        if self.federation is not None and self.checkpoint is not None:
            weights = opt("checkpoint", self.checkpoint)
            raise InputError(f"{weights}: {opt('federation')} holds the weights of its rounds")
        for name in ("owners", "loss", "notes"):
            if getattr(self, name) is not None and not self.of_rounds:
                raise InputError(f"{opt(name)} is given without {opt('federation', 'RECORDING')}")
        run = RunFolder(Path(self.federation or "").absolute().parent)
        if not self.encoder and self.federation and run.has_settings():
            object.__setattr__(self, "encoder", str(run.path))

    def _check_embeddings(self) -> None:
        """Refuse vectors of one side, and what needs an encoder or images beside them."""
        sides = "member_embeddings", "nonmember_embeddings"
        paths = [getattr(self, side) for side in sides]
        if None in paths:
            for side, other in (sides, sides[::-1]):
                if getattr(self, side) is not None:
                    raise InputError(f"{opt(side)} is given without {opt(other)}")
            return
        for name in WITHOUT_VECTORS:
            if (value := getattr(self, name)) not in (None, "", 0, ()):
                raise InputError(
                    f"{opt(name, value)} beside {opt(sides[0])}: only vectors are read"
                )

    def _check_shadows(self) -> None:
        """Refuse options of the shadows' training without shadows, and options that contradict."""
        if self.shadows and self.shadow_encoders is not None:
            trains, reads = opt("shadows"), opt("shadow_encoders")
            raise InputError(f"{trains} trains encoders, {reads} reads them: give one")
        own = [f"shadow.{name.removesuffix('_options')}" for name in self.shadow]
        if self.shadow_data is not None:
            own.insert(0, "shadow_data")
        if self.shadow_defense:
            own.append("shadow_defense")
        if own and not self.shadows:
            without = opt("shadows", "N")
            raise InputError(f"{opt(own[0])} is given without {without}: no shadow is trained")
        for layer in self.shadow_defense:
            self._check_defense(layer)
        if "shadow.count" in own:
            raise InputError(f"{opt('shadow.count')}: {opt('shadows', 'N')} says how many")

    def _check_defense(self, layer: Layer) -> None:
        """Refuse what a shadow cannot be trained under."""
        where = opt("shadow_defense", layer.name)
        if [one.name for one in self.shadow_defense].count(layer.name) > 1:
            raise InputError(f"{where} is given twice")
        if layer.clients is not None:
            raise InputError(f"{where}, clients: a shadow is no federation")
        if registry.load("defense", layer.name).releases:
            runs = opt("shadow_encoders", "RUN")
            raise InputError(
                f"{where} noises what a client sends, and a shadow sends nothing: {runs} takes a "
                "federation under it"
            )

    def _check_knowledge(self) -> None:
        """Refuse shadows on the target's distribution for an attacker that does not know it, and
        stand-ins of what it knows."""
        for part, known in (("model", "architecture"), ("ssl", "algorithm")):
            if self.plan().knows(known) and {part, f"{part}_options"} & self.shadow.keys():
                raise InputError(
                    f"{opt(f'shadow.{part}')} stands in for an unknown {known}: take {known} out "
                    f"of {opt('shadow.knowledge')}"
                )
        if self.shadows and not self.plan().knows("data") and self.shadow_data is None:
            raise InputError(
                f"{opt('shadow.knowledge')} without 'data' needs images of another distribution: "
                f"give {opt('shadow_data', 'DATASET')}, or add data"
            )

    def _help(self, name: str) -> str:
        return next(f.metadata["help"] for f, _ in option_fields(type(self)) if f.name == name)

    def plan(self) -> ShadowPlan:
        """How the shadows are trained."""
        own = {one.name for one in fields(ShadowPlan)}
        train = {name: value for name, value in self.shadow.items() if name not in own}
        rest = {name: value for name, value in self.shadow.items() if name in own}
        return ShadowPlan(
            **{"count": max(self.shadows, 1), "seed": self.seed, **rest, "train": train}
        )
