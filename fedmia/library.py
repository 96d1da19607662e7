"""The attacks without the command line: on any torch module, and on images held in memory.

    attacker = view(encoder)
    attack = LpLA()
    attack.fit(attacker, Known(members, nonmembers), np.random.default_rng(0))
    scores = attack.score(attacker, images)  # higher = member

`audit` runs many attacks with their controls, and reports as `python -m fedmia.audit` does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedmia.attacks.base import Attack
from fedmia.errors import InputError
from fedmia.released.base import Wanted
from fedmia.released.memory import Encoder, Images, bring, constants, name_of, pixels
from fedmia.report.rows import Report
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.ssl.augment import Augment
from fedmia.threat import ACCESS, BlackBox, Labels, Shadow, WhiteBox
from fedmia.threat.signals import PixelCache

__all__ = ["audit", "view"]


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
    precision: str = "float32",
) -> BlackBox:
    """What an attacker holds of an encoder: pass it to an attack's `fit` and `score`.

    Attacks that share a view share what they compute; `view.queries` counts as if they did not.

    Args:
        encoder: a module from normalised pixels (B, C, H, W) to vectors (B, D), maps (B, D, h, w)
            or tokens (B, N, D); a method of `fedmia.ssl`; or what `fedmia.released.base.load`
            returned. It is copied, and stays as it is.
        size: pixels a side of the images to come; None tries the usual sizes.
        channels: of the images; None: what the first convolution takes.
        mean, std: normalisation of pixels in [0, 1] before they reach a module, one value or one
            a channel; None: ImageNet's for 3 channels, else 0.5 and 0.25. For a module that
            normalises by itself: mean 0, std 1.
        augment: recipe of the attacker's views; None: the encoder's, MoCo v2's for a module.
        seed: of the views; a view depends on it and on the image's bytes alone.
        held: uint8 (H, C, H, W) images of the attacker's own, for attacks on the contrastive loss,
            which use them as negatives; the known images will do.
        shadows: encoders that the attacker trained itself, each a `Shadow(view(..), members,
            nonmembers)`, for attacks that use them.
        labels: true classes of images, for the attack that needs them (`baseline-b`).
        budget: most images that may be embedded.
        access: `black_box` or `white_box`; None: all that the encoder grants.
        precision: of the forward passes, `float32` or `bfloat16`.

    Returns:
        A `WhiteBox`, or a `BlackBox` where only outputs are at hand.

    Raises:
        InputError: an encoder that takes no such images or returns something else, or access
            that it does not grant.
    """
    with _in_python():
        wanted = Wanted(None, size, constants(mean), constants(std), torch.device(device), seed)
        released = bring(encoder, wanted, channels=channels)
        granted = ACCESS[: ACCESS.index(released.access) + 1]
        if access is not None and access not in granted:
            raise InputError(
                f"access to {released.name} must be {' or '.join(granted)}, got {access!r}"
            )
        own = None if held is None else pixels(held, "held")
        if own is not None:
            released.method.fill_bank(own.to(wanted.device).float() / 255)
        return (WhiteBox if (access or granted[-1]) == "white_box" else BlackBox)(
            released.method,
            released.augment if augment is None else augment,
            seed=seed,
            device=wanted.device,
            budget=budget,
            held=own,
            pixels=PixelCache(),
            shadows=shadows,
            labels=labels,
            precision=precision,
        )


def audit(
    encoder: Encoder,
    members: Images,
    nonmembers: Images,
    *,
    attacks: str | Sequence[str | Attack] = "all",
    known: int | None = None,
    limit: int | None = None,
    labels: tuple[Any, Any] = (None, None),
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: Augment | None = None,
    query_budget: int | None = None,
    sweep: str | None = None,
    shadows: int = 0,
    shadow: Mapping[str, Any] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    name: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "float32",
    out: str | Path | None = None,
    quiet: bool = True,
) -> Report:
    """The report of `python -m fedmia.audit` on images in memory: attacks, controls, verdict.

    The images are dealt by seed and content into those that the attacker knows and those that are
    scored; an image's side is never told to an attack.

    Args:
        encoder: as for `view`.
        members, nonmembers: uint8 (N, C, S, S) images that it was trained on, and others of the
            same distribution that it was not.
        attacks: `all`, or names, or attacks with their options: `["lpla", Similarity(views=8)]`.
        known: images of each side that the attacker knows; None: a quarter, to 500.
        limit: most images scored a side.
        labels: integers (N,) of members and of non-members, for the probes and for `baseline-b`;
            None: neither runs.
        mean, std, augment: as for `view`.
        query_budget: most images that one attack may embed.
        sweep: `known=25,50` or `query_budget=1000,2000`: every attack at each value.
        shadows: encoders that the attacker trains on half of the non-members that remain.
        shadow: options of their training, by the names of `fedmia.shadows.plan.Plan`.
        options: of attacks given by name: attack -> option -> value.
        name: what the report calls the encoder; None: its class.
        device: auto, cpu, cuda or cuda:N.
        precision: of the encoder's forward passes, `float32` or `bfloat16`.
        out: folder of the results, as the command line writes them; None: nothing is written.
        quiet: print no progress.

    Returns:
        What report.json holds, as `fedmia.report.rows` says; `fedmia.report.terminal.render` makes
        its table.

    Raises:
        InputError: encoder or images of another kind, images on both sides, too few of them, an
            unknown attack or option, or no attack could run.
    """
    watch = Stopwatch(time.perf_counter())
    with watch.part("import"):  # what makes reports takes its time, and `view` has no use for it
        from fedmia.auditing import memory
        from fedmia.auditing.display import Display
        from fedmia.auditing.flags import from_tree
    with _in_python():
        sides = zip((members, nonmembers), labels, ("members", "nonmembers"), strict=True)
        sets = [memory.image_set(pixels(x, side), y, side) for x, y, side in sides]
        names, given = memory.chosen(attacks)
        called = name or name_of(encoder)
        # As a YAML file would say it, so that names, types and ranges are checked as there.
        asked = from_tree(
            {
                "encoder": f"in memory: {called}",
                "members": "in memory",
                "nonmembers": "in memory",
                "known": known,
                "limit": limit,
                "size": sets[0].size,
                "mean": constants(mean),
                "std": constants(std),
                "attacks": names,
                "query_budget": query_budget,
                "sweep": sweep,
                "shadows": shadows,
                "seed": seed,
                "device": device,
                "precision": precision,
                "attack": {**(options or {}), **given},
                "shadow": shadow or {},
                "augment": {} if augment is None else vars(augment),
            }
        )
        display = Display(len(asked.attacks), quiet)
        folder = None if out is None else Path(out)
        return memory.conduct(asked, encoder, called, sets[0], sets[1], folder, display, watch)


@contextmanager
def _in_python() -> Iterator[None]:
    """Errors of the command line name its flags; here they are arguments."""
    try:
        yield
    except InputError as error:
        said = re.sub(r"--([a-z][\w.-]*)", lambda m: m[1].replace("-", "_"), str(error))
        raise InputError(said) from None
