"""The options of an audit, checked together."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from fedmia.data.base import Request
from fedmia.data.images import CHANNELS
from fedmia.settings import Options, option, registry
from fedmia.settings.choices import Layer, Values, choose_attacks
from fedmia.settings.commands.attacks import ATTACKS, AttackSettings
from fedmia.settings.commands.audit_attacks import ASKS, AUTO, expand_names, has_rounds
from fedmia.settings.commands.data import Pixels
from fedmia.settings.commands.effects import LATER as LATER
from fedmia.settings.commands.effects import OF_AUDITS
from fedmia.settings.commands.machine import AuditMachine
from fedmia.settings.commands.roles import check_attack_options
from fedmia.settings.dataset_names import split_dataset
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.settings.fields import complete_plugins, given_options, options_of, plugins, section
from fedmia.settings.layout import Flat
from fedmia.settings.options import option_fields
from fedmia.settings.tree import build_fields
from fedmia.settings.values import convert
from fedmia.shadows.plan import ShadowPlan
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Train
from fedmia.storage.runfolder import RunFolder
from fedmia.threat import ACCESS, PRECISIONS

# What needs the encoder or its images.
WITHOUT_VECTORS = (
    "encoder.name", "encoder.checkpoint", "federation.recording", "members", "nonmembers",
    "data.size", "data.mean", "data.std", "data.channels", "data.pixel_range", "encoder.rate",
    "shadow.count", "shadow.encoders", "shadow.data", "encoder.embedding",
)  # fmt: skip


@dataclass(frozen=True)
class AuditedEncoder(Options):
    """The encoder under audit, and how it is read.

    Attributes:
        name: empty: of vectors, or the network of a recorded run.
    """

    name: str = option(
        "",
        "RUN[@round], FILE.pt2, FILE.onnx, FILE.pth, timm:NAME, torchvision:NAME, hf:FOLDER, "
        "open_clip:NAME, http:URL or pkg.mod:factory",
    )
    checkpoint: str | None = option(
        None,
        "weights for timm:, torchvision:, open_clip: or a factory; a pattern ('rounds/*.npz'): "
        "the models of a federation's rounds",
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
    rate: float | None = option(
        None, "most images a second that an API or a function is asked about (none: no limit)",
        gt=0, omitted=True,
    )  # fmt: skip
    batch: int = option(64, "images of a request to it", ge=1, omitted=True)
    precision: str = option(
        "float32",
        "of the encoder's forward passes; bfloat16 is about twice as fast on a large network",
        choices=PRECISIONS,
    )


@dataclass(frozen=True)
class RecordedFederation(Options):
    """What a federation left behind, whose models are audited."""

    recording: str | None = option(
        None, "recording of a federation (fedmia.flower.record), of whose network encoder is"
    )
    owners: str | None = option(
        None,
        "of a federation: CSV file, under image,client, of the client that holds each member, by "
        "its file's name, or its number (of all-number names the name, otherwise the place from "
        "0); or a column of the members' data source (none: a list's own, where it has numbers)",
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
    order: str | None = option(
        None,
        "with nonmembers later: CSV file, under image,round, of the round in which each image of "
        "members was first trained on (an image as of owners)",
        omitted=True,
    )
    round: int | None = option(
        None,
        "with nonmembers later: whose model is audited (none: the latest of those that leave the "
        "most balanced sides)",
        ge=1, omitted=True,
    )  # fmt: skip


@dataclass(frozen=True)
class AuditPixels(Pixels):
    """The pixels of the images of both sides."""

    channels: str | None = option(
        None,
        "rgb: repeat the channel of gray images, for an encoder of colour images; gray: luminance "
        "of colour images (none: as they are)",
        choices=tuple(CHANNELS),
        omitted=True,
    )


@dataclass(frozen=True)
class AuditSplit(Options):
    """Which images the attacker knows, and how many are scored."""

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


@dataclass(frozen=True)
class ShadowOptions(Options):
    """The attacker's own encoders.

    Attributes:
        data_options: options of the data source of the shadows.
        defense: defences under which the attacker trains its shadows, in order.
        training: options of the shadows' training that are given, by path.
    """

    count: int = option(0, "shadow encoders that the attacker trains", ge=0)
    data: str | None = option(
        None,
        "dataset of the shadows' images (none: half of the non-members that remain, where "
        "shadow.knowledge has data)",
    )
    encoders: str | None = option(
        None,
        "folder of shadow encoders trained before, or of runs on the attacker's own images; where "
        "some have the target's defence, those without it serve an attacker who ignores it",
    )
    defense: tuple[Layer, ...] = plugins(
        "defense",
        "defences of the target's training that the attacker knows, in order: it trains shadows "
        "with them, and others without",
    )
    cache: str | None = option(None, "folder that keeps trained shadows (none: OUT/shadows)")
    data_options: Values = options_of("data", "dataset")
    # An epoch is a shadow's only round.
    training: Values = given_options(
        ShadowPlan, Train, without=("count", "local_epochs", "optimizer_state"), beside=True
    )

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build of the values that are given; every option of a defence is written out."""
        return cls(**complete_plugins(cls, values, "shadow."))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count and self.encoders is not None:
            trains, reads = opt("shadow.count"), opt("shadow.encoders")
            raise InputError(f"{trains} trains encoders, {reads} reads them: give one")
        own = [*(["data"] if self.data is not None else []), *(self.defense and ["defense"])]
        own += self.training
        if own and not self.count:
            without = opt("shadow.count", "N")
            path = opt(f"shadow.{own[0]}")
            raise InputError(f"{path} is given without {without}: no shadow is trained")
        for layer in self.defense:
            self._check_defense(layer)
        self._check_knowledge()

    def _check_defense(self, layer: Layer) -> None:
        """Refuse what a shadow cannot be trained under."""
        where = opt("shadow.defense", layer.name)
        if [one.name for one in self.defense].count(layer.name) > 1:
            raise InputError(f"{where} is given twice")
        if layer.clients is not None:
            raise InputError(f"{where}, clients: a shadow is no federation")
        if registry.load("defense", layer.name).releases:
            runs = opt("shadow.encoders", "RUN")
            raise InputError(
                f"{where} noises what a client sends, and a shadow sends nothing: {runs} takes a "
                "federation under it"
            )

    def _check_knowledge(self) -> None:
        """Refuse shadows on the target's distribution for an attacker that does not know it, and
        stand-ins of what it knows."""
        plan = self.plan(seed=0)
        for part, known in (("model", "architecture"), ("ssl", "algorithm")):
            names = {path.partition(".")[0] for path in self.training}
            if plan.knows(known) and part in names:
                raise InputError(
                    f"{opt(f'shadow.{part}')} stands in for an unknown {known}: take {known} out "
                    f"of {opt('shadow.knowledge')}"
                )
        if self.count and not plan.knows("data") and self.data is None:
            raise InputError(
                f"{opt('shadow.knowledge')} without 'data' needs images of another distribution: "
                f"give {opt('shadow.data', 'DATASET')}, or add data"
            )

    def plan(self, seed: int) -> ShadowPlan:
        """How the shadows are trained.

        Args:
            seed: root of their randomness, where none of their own is given.
        """
        own = build_fields((ShadowPlan,), dict(self.training))
        train = build_fields((Train,), dict(self.training))
        values = {"count": max(self.count, 1), "seed": seed, **own, "train": train}
        return ShadowPlan.complete(**values)


@dataclass(frozen=True)
class Audit(AttackSettings):
    """One audit, as it runs: `complete` makes it of what a user gave.

    Attributes:
        augment: options of the attacker's views that are given, by name.
        members_options: options of the data source of the members.
        nonmembers_options: options of the data source of the non-members.
        attack: those options of each attack that are given, by its name.

    Raises:
        InputError: for an unknown attack or option or a value out of range.
    """

    needs: ClassVar[Mapping[str, Any]] = OF_AUDITS

    attacks: tuple[str, ...] = option(
        (AUTO,),
        "attacks to run, all, quick (those without a long computation) or auto: quick, and those "
        "that shadows, groups, a federation or options of their own are given for",
        heading=ATTACKS,
    )
    encoder: AuditedEncoder = section(AuditedEncoder, head="name")
    federation: RecordedFederation = section(RecordedFederation, head="recording")
    members: str | None = option(
        None, "dataset of images that the encoder was trained on (none: a fedmia run's own)"
    )
    nonmembers: str | None = option(
        None,
        "dataset of images that it was not trained on (none: those of the members' list; a fedmia "
        "run's own); later: those of members that a federation trained on only after the audited "
        "round",
    )
    member_embeddings: str | None = option(
        None, "in place of an encoder and of images: file of the encoder's vectors of members, a "
        "row an image, several views as a third axis (.npy, .npz, .parquet, .safetensors)",
        omitted=True,
    )  # fmt: skip
    nonmember_embeddings: str | None = option(
        None, "likewise of images that it was not trained on", omitted=True
    )
    data: AuditPixels = section(AuditPixels)
    split: AuditSplit = section(AuditSplit)
    shadow: ShadowOptions = section(ShadowOptions)
    machine: AuditMachine = section(AuditMachine)
    augment: Values = given_options(Augment)
    members_options: Values = options_of("members", "dataset")
    nonmembers_options: Values = options_of("nonmembers", "dataset")

    @classmethod
    def attack_names(cls, flat: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the attacks that flat settings run."""
        names = convert(opt("attacks"), flat.get("attacks", cls.attacks), tuple[str, ...])
        own = {path.removeprefix("attack.").rpartition(".")[0] for path in flat
               if path.startswith("attack.")}  # fmt: skip
        return expand_names(names, flat, own)

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build the audit that given values ask for; a list answers what they leave open."""
        incomplete = super().complete(**{**values, **_answers_of_members(values)})
        names = expand_names(incomplete.attacks, incomplete.asks, incomplete.attack)
        check_attack_options(incomplete.attack, names)
        choices = choose_attacks(names, incomplete.attack, complete=False)
        encoder = replace(
            incomplete.encoder, name=incomplete.encoder.name or incomplete.recorded_run
        )
        if not encoder.name and incomplete.member_embeddings is None:
            about = next(
                f.metadata["help"] for f, _ in option_fields(AuditedEncoder) if f.name == "name"
            )
            raise InputError(f"{opt('encoder.name')} is missing: {about}")
        return replace(incomplete, encoder=encoder, attacks=names, attack_choices=choices)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_rounds()
        self._check_embeddings()
        if self.encoder.precision != "float32" and self.encoder.name.endswith(".onnx"):
            raise InputError(
                f"{opt('encoder.precision', self.encoder.precision)}: an ONNX program computes in "
                "the precision that it was exported in"
            )
        if (self.members is None) != (self.nonmembers is None):
            if (side := self.members or self.nonmembers) != LATER:
                split_dataset(str(side))  # no source at all is said first
            source, other = map(opt, ("members", "nonmembers")[:: 1 if self.members else -1])
            raise InputError(f"{source} is given without {other}; an audit needs both")
        if self.groups is not None and (
            self.of_rounds or not (self.members or self.member_embeddings)
        ):
            where = f"{opt('groups', self.groups)} needs {opt('members')} and an encoder alone"
            one = opt("encoder.checkpoint", "RECORDING/models/main/ROUND.safetensors")
            raise InputError(
                f"{where}: a federation's images belong to its clients. {one} audits one of its "
                "models by subject, a subject of two clients counts once"
            )
        if self.data.pixel_range is not None and self.members is None:
            raise InputError(
                f"{opt('data.pixel_range')} without {opt('members')}: a run's images have its own"
            )
        with prefix_errors("", "augment"):
            Augment(**self.augment)

    @property
    def subject_column(self) -> str | None:
        """The column of `groups`, None where it is a file or nothing."""
        return None if (self.groups or "").endswith((".csv", ".npy")) else self.groups

    @property
    def owner_column(self) -> str | None:
        """The column of `federation.owners`, None where it is a file, an array or nothing."""
        owners = self.federation.owners or ""
        is_file = Path(owners).suffix or Path(owners).exists()
        return None if is_file or owners.startswith("in memory: ") else owners or None

    @property
    def of_rounds(self) -> bool:
        """Whether the models of a federation's rounds are audited."""
        return has_rounds(self.asks)

    @property
    def asks(self) -> Flat:
        """Path of each option that asks for an attack -> its value."""
        return {path: self._value(path) for path in ASKS}

    @property
    def recorded_run(self) -> str:
        """The folder of the run whose recording is audited; empty: of none."""
        run = RunFolder(Path(self.federation.recording or "").absolute().parent)
        return str(run.path) if self.federation.recording and run.has_settings() else ""

    def plan(self) -> ShadowPlan:
        """How the shadows are trained."""
        return self.shadow.plan(self.seed)

    def _value(self, path: str) -> Any:
        return operator.attrgetter(path)(self)

    def _check_rounds(self) -> None:
        """Refuse what only a federation has of an encoder alone; a run's recording names it."""
        if self.federation.recording is not None and self.encoder.checkpoint is not None:
            weights = opt("encoder.checkpoint", self.encoder.checkpoint)
            whole = opt("federation.recording")
            raise InputError(f"{weights}: {whole} holds the weights of its rounds")
        for path in ("federation.owners", "federation.loss", "federation.notes"):
            if self._value(path) is not None and not self.of_rounds:
                without = opt("federation.recording", "RECORDING")
                raise InputError(f"{opt(path)} is given without {without}")
        if self.nonmembers == LATER and not self.of_rounds:
            whole = opt("federation.recording", "RECORDING")
            files = opt("encoder.checkpoint", "'rounds/*.npz'")
            raise InputError(f"{opt('nonmembers', LATER)} is given without {whole} or {files}")

    def _check_embeddings(self) -> None:
        """Refuse vectors of one side, and what needs an encoder or images beside them."""
        sides = "member_embeddings", "nonmember_embeddings"
        files = [getattr(self, side) for side in sides]
        if None in files:
            for side, other in (sides, sides[::-1]):
                if getattr(self, side) is not None:
                    raise InputError(f"{opt(side)} is given without {opt(other)}")
            return
        for path in WITHOUT_VECTORS:
            if (value := self._value(path)) not in (None, "", 0, ()):
                raise InputError(
                    f"{opt(path, value)} beside {opt(sides[0])}: only vectors are read"
                )


def _answers_of_members(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the members' data source answers, where the user leaves them open."""
    members, others = values.get("members"), values.get("nonmembers")
    name, _, path = str(members).partition(":")
    if not path or name not in registry.names("dataset"):
        return {}
    if not registry.load("dataset", name).finds_columns:
        return {}
    answers, own = dict[str, Any](), values.get("members_options", {})
    if "groups" in values and values["groups"] is None:  # kept with the settings of the audit
        own = answers["members_options"] = {**own, "subject_column": ""}
    if others in (None, members):
        answers["nonmembers_options"] = values.get("nonmembers_options", own)
    encoder = values.get("encoder", AuditedEncoder())
    federation = values.get("federation", RecordedFederation())
    of_rounds = has_rounds({
        "encoder.checkpoint": encoder.checkpoint, "federation.recording": federation.recording,
    })  # fmt: skip
    absent = {
        "nonmembers": others is None,
        "groups": values.get("groups") is None and not of_rounds,
        "federation.owners": of_rounds and federation.owners is None,
    }
    absent_options = {option for option, is_absent in absent.items() if is_absent}
    data = values.get("data", AuditPixels())
    place = None if data.dir is None else Path(data.dir)
    request = Request(path, place, data.size, 0, side="members")
    with prefix_errors("members"):
        source = registry.build("dataset", name, own, path="members")
        implied = source.implies(request, absent_options) if absent_options else {}
    if "federation.owners" in implied:
        owners = implied.pop("federation.owners")
        answers["federation"] = replace(federation, owners=owners)
    return answers | implied
