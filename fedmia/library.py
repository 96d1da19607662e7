"""The attacks without the command line: on any torch module, and on images held in memory.

    attacker = view(encoder)
    attack = LpLA()
    attack.fit(attacker, Known(members, nonmembers), np.random.default_rng(0))
    scores = attack.score(attacker, images)  # higher = member

`audit` runs many attacks with their controls, and reports as `python -m fedmia.audit` does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack
from fedmia.data._pixels import resize_all
from fedmia.data._source import check_labels, renumber_labels
from fedmia.data.base import Views
from fedmia.data.images import UNLABELLED, ImageSet
from fedmia.encoders.base import LoadOptions, channel_constants
from fedmia.encoders.memory import IN_MEMORY, Encoder, Images, as_tensor, encoder_name, load_module
from fedmia.options.errors import InputError
from fedmia.options.option import option_fields
from fedmia.records.rows import Report
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox, Labels, Shadow, WhiteBox
from fedmia.threat.signals import PixelCache

__all__ = ["audit", "view"]


@torch.inference_mode(False)  # with gradients, wherever it is called
def view(
    encoder: Encoder,
    *,
    size: int | None = None,
    channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: Augment | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
    held: Images | None = None,
    shadows: Sequence[Shadow] = (),
    labels: Labels | None = None,
    budget: int | None = None,
    access: str | None = None,
    embedding: str | None = None,
    precision: str = "float32",
) -> BlackBox:
    """What an attacker can ask of an encoder: pass it to an attack's `fit` and `score`.

    Attacks that share a view share what they compute; `view.queries` counts as if they did not.

    Args:
        encoder: a module from normalised pixels (B, C, H, W) to vectors (B, D), maps (B, D, h, w)
            or tokens (B, N, D); a method of `fedmia.ssl`; or what `fedmia.encoders.base.load`
            returned. It is copied, and stays as it is.
        size: pixels a side of the images to come; None tries the usual sizes.
        channels: of the images; None: what the first convolution takes.
        mean: mean of each channel, pixels in [0, 1], or one value for all; None: ImageNet's for 3
            channels, else 0.5. A module that normalises by itself takes mean 0 and std 1.
        std: standard deviation of each channel, likewise; None: ImageNet's, else 0.25.
        augment: recipe of the attacker's views; None: the encoder's, MoCo v2's for a module.
        device: where the encoder runs.
        seed: of the views; a view depends on it and on the image's bytes alone.
        held: uint8 (H, C, H, W) images of the attacker's own, for attacks on the contrastive loss,
            which use them as negatives; the known images will do.
        shadows: encoders that the attacker trained itself, each a `Shadow(view(..), members,
            nonmembers)`, for attacks that use them.
        labels: true classes of images, for the attack that needs them (`baseline-b`).
        budget: most images that may be embedded.
        access: `black_box` or `white_box`; None: all that the encoder grants.
        embedding: which of several outputs is the embedding, by name or number.
        precision: of the forward passes, `float32` or `bfloat16`.

    Returns:
        A `WhiteBox`, or a `BlackBox` where only outputs are at hand.

    Raises:
        InputError: an encoder that takes no such images or returns something else, or access
            that it does not grant.
    """
    options: dict[str, Any] = {"mean": mean, "std": std, "device": device, "embedding": embedding}
    load_options = LoadOptions(size=size, seed=seed, access=access, **options)
    released = load_module(encoder, load_options, channels=channels)
    own = None if held is None else as_tensor(held, "held")
    if own is not None:
        released.method.fill_bank(own)
    return (WhiteBox if released.access == "white_box" else BlackBox)(
        released.method,
        released.augment if augment is None else augment,
        seed=seed,
        device=load_options.device,
        budget=budget,
        held=own,
        pixels=PixelCache(),
        shadows=shadows,
        labels=labels,
        precision=precision,
    )


@torch.inference_mode(False)
def audit(
    encoder: Encoder,
    members: Images,
    nonmembers: Images,
    *,
    attacks: str | Sequence[str | Attack] = "all",
    labels: Sequence[Any] = (None, None),
    shadow_data: Images | str | None = None,
    augment: Augment | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    name: str | None = None,
    notes: Sequence[str] = (),
    out: str | Path | None = None,
    quiet: bool = True,
    trust_plugins: bool = False,
    owners: Any = None,
    loss: Any = None,
    groups: Any = None,
    **settings: Any,
) -> Report:
    """The report of `python -m fedmia.audit` on images in memory: attacks, controls, verdict.

    Seed and content of the images decide which of them the attacker knows and which are scored.
    An attack never learns whether a scored image is a member.

    Args:
        encoder: as for `view`.
        members: uint8 (N, C, S, S) images that it was trained on.
        nonmembers: uint8 (M, C, S, S) images of the same distribution that it was not trained on.
        attacks: `all`, or names, or attacks with their options: `["lpla", Similarity(views=8)]`.
        labels: integers or text (N,) of members, of non-members and, third if given, of
            `shadow_data`, for the probes and for `baseline-b`; None: neither runs.
        shadow_data: uint8 (N, C, S, S) images that the attacker trains its shadows on, or a data
            source by name; None: half of the non-members that remain.
        augment: recipe of the attacker's views; None: as for `view`.
        options: of attacks given by name: attack -> option -> value.
        name: what the report calls the encoder; None: its class.
        notes: what the report should say of the images.
        out: folder of the results, as the command line writes them; None: nothing is written.
        quiet: print no progress.
        trust_plugins: import plugins from outside that the folders of runs name which
            `shadow_encoders` holds.
        owners: of the setting `federation`, a recording of whose network `encoder` is: (N,) client
            of each member, or a CSV file; None: not known.
        loss: with which its clients trained, of (network, pixels in [0, 1]): a loss an image (N,).
        groups: subjects that images belong to, such as patients: arrays of the members (N,) and of
            the non-members (M,), or a CSV file, as of `--groups`; None: each image is its own.
        settings: any other option of `fedmia.config.audit.Audit` by its name there, as of the
            command line's flags: `known=50`, `limit`, `mean`, `std`, `query_budget`, `sweep`,
            `shadows=4`, `shadow={"epochs": 200, "momentum": 0.9}`, `seed`, `device`, `precision`
            and so on.

    Returns:
        What report.json holds, as `fedmia.records.rows` says; `fedmia.report.terminal.render` makes
        its table.

    Raises:
        InputError: encoder or images of another kind, images on both sides, too few of them, an
            unknown attack or option, or no attack could run.
    """
    watch = Stopwatch(time.perf_counter())
    with watch.part("import"):  # what makes reports takes its time, and `view` has no use for it
        from fedmia.config.audit import Audit
        from fedmia.config.tree import from_tree
        from fedmia.evaluation.audits.images import SIDES, deal_sets
        from fedmia.evaluation.audits.owners import check_owners, read_owners
        from fedmia.evaluation.audits.subjects import read_subjects
        from fedmia.evaluation.encoder import check_embeddings, device_of, examine, folder
        from fedmia.evaluation.federation import load_rounds, read_rounds
        from fedmia.report.publish import publish, say_not_run
        from fedmia.runtime.progress import AuditDisplay
    given_images = {"members": members, "nonmembers": nonmembers}
    if shadow_data is not None and not isinstance(shadow_data, str):
        given_images["shadow_data"] = shadow_data
    if not 2 <= len(labels) <= len(given_images):
        raise InputError(f"labels must be of {' and '.join(given_images)}, got {len(labels)}")
    sides = zip_longest(given_images.items(), labels)
    size = settings.get("size")
    sets = {side: build_image_set(as_tensor(x, side), y, side, size) for (side, x), y in sides}
    names, attack_options = split_attacks(attacks)
    called = name or encoder_name(encoder)
    for constant in {"mean", "std"} & settings.keys():
        settings[constant] = channel_constants(settings[constant])
    # As a YAML file would say it, so that names, types and ranges are checked as there.
    arguments = {
        "encoder": f"in memory: {called}",
        "members": IN_MEMORY,
        "nonmembers": IN_MEMORY,
        "size": sets["members"].size,
        "shadow_data": IN_MEMORY if "shadow_data" in sets else shadow_data,
        "attacks": names,
        "device": "cpu",
        "attack": {**(options or {}), **attack_options},
        "augment": {} if augment is None else vars(augment),
    }
    if groups is not None:
        arguments["groups"] = groups if isinstance(groups, str) else IN_MEMORY
    config = from_tree(Audit, arguments | settings, trust_plugins=trust_plugins)
    place = folder(config, None if out is None else Path(out))
    device = device_of(config)
    with watch.part("data"):
        names = ("size", "mean", "std", "seed", "embedding", "access")
        load_options = LoadOptions(device=device, **{name: getattr(config, name) for name in names})
        released = load_module(encoder, load_options, name=called)
        if (history := read_rounds(config)) is not None:
            released = load_rounds(released, history, loss or config.loss)
        both = {side: sets[side] for side in SIDES}
        own, theirs = both.values()
        data_split = deal_sets(config, own, theirs, Views(), read_subjects(groups, both))
        owned = read_owners(owners, sets["members"])
        data_split = replace(data_split, owners=owned)
        if history is not None and owned is not None:
            check_owners(owned, history)
        about = (*data_split.notes, *notes)
        data_split = replace(data_split, shadow_data=sets.get("shadow_data"), notes=about)
        check_embeddings(released, data_split, config.allow_random)
    display = AuditDisplay(len(config.attacks), quiet)
    for note in (*released.notes, *data_split.notes):
        display.line(note)
    scores = examine(config, released, data_split, device, place, display, watch, lambda: False)
    if not (scores.attacks or scores.inferences):
        reasons = [f"{attack}: {reason}" for attack, reason in scores.not_run.items()]
        raise InputError(f"no attack could run; {'; '.join(reasons)}")
    report = publish(scores, place.folder, watch)
    say_not_run(report, quiet=quiet)
    return report


def split_attacks(
    attacks: str | Sequence[str | Attack],
) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Names as the command line has them, and the options of attacks given as objects.

    Raises:
        InputError: something that is neither a name nor an attack.
    """
    names, options = list[str](), dict[str, dict[str, Any]]()
    for one in attacks.split(",") if isinstance(attacks, str) else attacks:
        if isinstance(one, str):
            names.append(one)
            continue
        if not isinstance(one, Attack):
            raise InputError(f"attacks must be names or attacks, got {one!r}")
        names.append(one.name)
        options[one.name] = {f.name: getattr(one, f.name) for f, _ in option_fields(type(one))}
    return tuple(names), options


def build_image_set(images: Tensor, labels: Any, side: str, size: int | None = None) -> ImageSet:
    """Images of one side of an audit as an `ImageSet`.

    Args:
        images: uint8 (N, C, S, S).
        labels: (N,) integers or text, or None.
        side: what errors call the images.
        size: pixels a side to crop and resize to; None: they stay.

    Returns:
        The images with labels 0..classes-1, zeros where there are none.

    Raises:
        InputError: images that are not square, or labels that `check_labels` refuses.
    """
    if isinstance(size, int) and size > 0:  # else refused with the other settings
        images = torch.from_numpy(resize_all(images.numpy(), size, side))
    height, width = images.shape[2:]
    if height != width:
        raise InputError(f"{side} must be square images, got {height}x{width} pixels")
    if labels is None:
        none = np.zeros(len(images), dtype=np.int64)
        return ImageSet(images.numpy(), none, side, UNLABELLED)
    values = check_labels(labels, len(images), f"labels of {side}")
    numbers, classes = renumber_labels(values)
    return ImageSet(images.numpy(), numbers, side, classes)
