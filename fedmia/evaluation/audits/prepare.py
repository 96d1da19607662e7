"""The models and the images of an audit, loaded and checked before its first attack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedmia.data.base import AugmentLimits
from fedmia.data.cast import SCORED, Cast
from fedmia.data.images import CHANNELS
from fedmia.encoders.base import LoadedEncoder, LoadOptions, load
from fedmia.encoders.describe import probe_encoder
from fedmia.encoders.memory import InMemory, load_module
from fedmia.encoders.vectors import load_vectors, read_vectors
from fedmia.evaluation.audits.climb import add_climb, require_targets
from fedmia.evaluation.audits.federation import (
    load_rounds,
    read_rounds,
)
from fedmia.evaluation.audits.images import deal, deal_sets
from fedmia.evaluation.audits.later import TrainingOrder, read_order
from fedmia.evaluation.audits.owners import check_owners
from fedmia.evaluation.audits.runs import run_of, split_of_run, trust_setting
from fedmia.records.note import Note
from fedmia.rounds.base import EncoderRounds
from fedmia.rounds.kept import KeptRounds
from fedmia.runtime.device import resolve_device
from fedmia.settings.commands.audit import LATER, Audit
from fedmia.settings.commands.compatibility import check_gpu
from fedmia.settings.errors import InputError, opt

NOTHING = InMemory()
LOOK = 16  # images of a side that are embedded first, to refuse an encoder early


def device_of(audit: Audit) -> torch.device:
    """The device of `--device`; an error where its GPU is not there."""
    check_gpu(audit.machine.device)
    return torch.device(resolve_device(audit.machine.device))


def prepare(
    audit: Audit, device: torch.device, objects: InMemory = NOTHING
) -> tuple[EncoderRounds, Cast]:
    """Load the models and the images, and check that they suit each other.

    Args:
        device: where tensors are computed.
        objects: what a Python session hands over; such an encoder takes the images' own size where
            none is given.

    Returns:
        The models, and the images in their roles.

    Raises:
        InputError: either is missing or broken, or they do not fit.
    """
    if audit.member_embeddings is not None:
        return prepare_vectors(audit, objects)
    order = read_order(audit, objects) if audit.nonmembers == LATER else None
    if objects.encoder is None:
        rounds = load_encoder(audit, device, objects, order)
        audit_split = images_for(audit, rounds.encoder, objects.owners, order)
    else:
        audit_split = deal(audit, audit.data.size, objects.owners, order=order)
        size = audit_split.sides[0].size
        sized = replace(audit, data=replace(audit.data, size=size))
        rounds = load_encoder(sized, device, objects, order)
    check_embeddings(rounds.encoder, audit_split, audit.encoder.allow_random)
    # A run's own need no check, and an order has checked them.
    owners = audit_split.owners if audit.federation.owners and order is None else None
    if owners is not None and isinstance(rounds, KeptRounds):
        check_owners(owners, rounds)
    if audit.federation.notes is not None and isinstance(rounds, KeptRounds):
        rounds.encoder.notes += add_climb(Path(audit.federation.notes), rounds)
    if (notes := rounds.notes) is not None and notes.about["attack"] in audit.attacks:
        require_targets(notes, audit_split.attacked())
    return rounds, audit_split


def prepare_vectors(audit: Audit, objects: InMemory = NOTHING) -> tuple[EncoderRounds, Cast]:
    """Read the vectors of `--member-embeddings` and of the other side.

    Args:
        objects: what a Python session hands over in place of files.

    Returns:
        The encoder that stands for them, and stand-ins for the images in their roles.

    Raises:
        InputError: a file without vectors, sides that do not match, or too few rows.
    """
    names = "member_embeddings", "nonmember_embeddings"
    files = {name: Path(str(getattr(audit, name))) for name in names}
    members, others = (
        objects.vectors.get(name) or read_vectors(file, opt(name, file), audit.subject_column)
        for name, file in files.items()
    )
    released = load_vectors(members, others, audit.seed, objects.name)
    cast = deal_sets(audit, members.images(), others.images(), AugmentLimits())
    return EncoderRounds(released), cast


def load_encoder(
    audit: Audit, device: torch.device, objects: InMemory = NOTHING,
    order: TrainingOrder | None = None,
) -> EncoderRounds:  # fmt: skip
    """Load the encoder under audit, or the models of its rounds.

    Args:
        device: where tensors are computed.
        objects: what a Python session hands over in its place.
        order: of training, where later images are the non-members; None: as the settings say.

    Returns:
        The models.

    Raises:
        InputError: it is missing or broken, or the folder of its shadows is missing.
        UntrustedPluginError: it is a run's, whose settings name a plugin from outside.
    """
    if audit.shadow.encoders is not None and not Path(audit.shadow.encoders).is_dir():
        raise InputError(f"{opt('shadow.encoders')} '{audit.shadow.encoders}': no such folder")
    if (run := run_of(audit)) is not None:
        run.tree()  # of its plugins any may be imported later
    if order is None and audit.nonmembers == LATER:
        order = read_order(audit, objects)
    recorded = read_rounds(audit) if order is None else order.rounds
    checkpoint = (
        Path(audit.encoder.checkpoint) if audit.encoder.checkpoint and recorded is None else None
    )
    load_options: dict[str, Any] = dict(
        checkpoint=checkpoint,
        size=audit.data.size,
        mean=audit.data.mean,
        std=audit.data.std,
        device=device,
        seed=audit.seed,
        key=audit.encoder.checkpoint_key
        if recorded is None or audit.federation.recording
        else None,
        allow_missing=audit.encoder.allow_missing,
        trust_plugins=trust_setting(audit),
        embedding=audit.encoder.embedding,
        access=audit.encoder.access,
        rate=audit.encoder.rate,
        batch=audit.encoder.batch,
    )
    if objects.encoder is None:
        released = load(audit.encoder.name, **load_options)
    elif checkpoint is not None:
        raise InputError(f"{opt('encoder.checkpoint', checkpoint)}: a module holds its own weights")
    else:
        released = load_module(
            objects.encoder, LoadOptions.from_user(**load_options), name=objects.name
        )
    if recorded is None:
        return EncoderRounds(released)
    loss = objects.loss or audit.federation.loss
    if order is None:
        return load_rounds(released, recorded, loss)
    return load_rounds(released, recorded, loss, order.cut)


def images_for(
    audit: Audit, released: LoadedEncoder, owners: object = None, order: TrainingOrder | None = None
) -> Cast:
    """Give the images their roles: those of `--members`, at the encoder's size, or the run's own.

    Args:
        audit: names the images.
        released: gets a note where its size decides.
        owners: as of `deal`.
        order: likewise.

    Returns:
        The images in their roles.

    Raises:
        InputError: they are missing, cannot be read or are too few.
    """
    run = run_of(audit)
    if audit.members is None and run is None:
        sides = [opt(side, "DATASET") for side in ("members", "nonmembers")]
        raise InputError(f"{sides[0]} and {sides[1]} are missing")
    if audit.members is None and run:
        return split_of_run(audit, run)
    size = audit.data.size or released.size
    audit_split = deal(audit, size, owners, released.channels, order)
    if audit.data.size is None and size is not None:
        released.notes.append(Note("brought-to-size", {"size": size, "encoder": released.name}))
    return audit_split


def check_embeddings(released: LoadedEncoder, audit_split: Cast, allow_random: bool) -> None:
    """Embed a few images of each side, and note on the encoder what is unusual.

    Args:
        released: the encoder under audit.
        audit_split: the images in their roles.
        allow_random: accept, with a note, an encoder that answers one image in two ways.

    Raises:
        InputError: the encoder does not take them, gives features that are not finite, or others
            when it is asked again (unless `allow_random`).
    """
    channels, needed = audit_split.sides[0].channels, released.channels
    if needed is not None and needed in CHANNELS.values() and channels != needed:
        way_out = {3: ("rgb", "repeats the gray channel"), 1: ("gray", "takes the luminance")}
        value, what = way_out[needed]
        raise InputError(
            f"the images have {channels} channels, {released.name} takes {needed}: "
            f"{opt('data.channels', value)} {what}"
        )
    for role in SCORED:
        images = audit_split.pixels(role)
        report = probe_encoder(released, images[:LOOK], allow_random=allow_random)
        released.notes += [n for n in report if n not in released.notes]
