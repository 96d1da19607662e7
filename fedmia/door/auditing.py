"""`fedmia.audit_encoder`: every attack on an encoder, with its controls."""

from __future__ import annotations

import time
from glob import has_magic
from pathlib import Path
from typing import Any

import torch

from fedmia.cli.command import Invocation
from fedmia.cli.commands import AUDIT
from fedmia.config.dataset_names import split_dataset
from fedmia.data._arrays import Range
from fedmia.data.base import Request
from fedmia.door.arguments import build_settings, image_range, listed
from fedmia.door.images import LabelledArrays, name_images, read_images
from fedmia.door.simulation import interrupts, own_threads, results_folder
from fedmia.encoders.memory import Encoder
from fedmia.library import audit as audit_in_memory
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.report.publish import say_not_run
from fedmia.runs import Run
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.runfolder import RunFolder


@torch.inference_mode(False)  # with gradients, wherever it is called
def audit_encoder(
    encoder: Encoder | str | Path | Run,
    members: Any = None,
    others: Any = None,
    *,
    attacks: Any = "all",
    out: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Attack an encoder with membership inference, and report what leaks.

        audit = fedmia.audit_encoder(encoder, members, others)
        audit.verdict

    Args:
        encoder: a torch module from normalised pixels (B, C, H, W) to vectors (B, D), maps or
            tokens; a method of `fedmia.ssl`; a `Run`; or what `--encoder` takes (`hf:FOLDER`,
            `FILE.pth`, the folder of a run).
        members: images that it was trained on: uint8 or float [0, 1] array or tensor, (N, C, H,
            W), (N, H, W, C) or (N, H, W); a pair of it and labels; a torch Dataset or DataLoader;
            a folder as a path; a data source by name. None: those of the run that `encoder` names.
        others: images of the same distribution that it was not trained on, likewise.
        attacks: `all`, names, classes, or instances with their options.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        quiet: show no progress.
        options: every flag of `fedmia audit` with `_` for `-` (`known=50`, `mean`, `std`,
            `shadows=4`, `seed`, `shadow={"epochs": 200}`); of a module also those of
            `fedmia.library.audit`.

    Returns:
        The audit as a `Run`: `attacks`, `scores`, `table`, `figure`.

    Raises:
        InputError: bad input, in one line, or no attack could run.
    """
    with results_folder(out) as folder, own_threads():
        if isinstance(encoder, str | Path | Run):
            source = str(encoder.folder if isinstance(encoder, Run) else encoder)
            images = {"members": members, "nonmembers": others}
            options |= {name: value for name, value in images.items() if value is not None}
            _audit_by_name(source, attacks, folder.path, quiet, options)
        else:
            audit_object(encoder, members, others, attacks, folder.path, quiet, options)
        return folder.open(trust_plugins=True)


@torch.inference_mode(False)
def audit_federation(
    recording: str | Path,
    net: Any,
    members: Any = None,
    others: Any = None,
    *,
    owners: Any = None,
    loss: Any = None,
    attacks: Any = "all",
    out: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Attack the models of a federation's rounds, and report what leaks by round and client.

        audit = fedmia.audit_federation("REC", Net, members, others, owners=clients)
        audit.verdict

    Args:
        recording: folder that `fedmia.flower.record` wrote, or a pattern of files of models, one a
            round (`rounds/*.npz`).
        net: a function that returns the network that was trained, or a module of it, or what
            `--encoder` takes by name.
        members: images that any client trained on, as of `audit_encoder`.
        others: images of the same distribution that none trained on, likewise.
        owners: the client of each member: integers (N,), or a CSV file under `image,client`; None:
            not known.
        loss: with which clients trained, of (network, float pixels (N, C, H, W) in [0, 1]): a
            loss of each image (N,); or `package.module:NAME` of it; None: not known.
        attacks: as of `audit_encoder`, and those of a client and of the server.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        quiet: show no progress.
        options: as of `audit_encoder`.

    Returns:
        The audit as a `Run`; `rounds` has leakage by round.

    Raises:
        InputError: bad input, in one line, or no attack could run.
    """
    key = (
        "federation" if Path(recording).is_dir() or not has_magic(str(recording)) else "checkpoint"
    )
    of_rounds = {key: str(recording), "owners": owners, "loss": loss}
    options |= {name: value for name, value in of_rounds.items() if value is not None}
    if callable(net) and not isinstance(net, torch.nn.Module):
        options.setdefault("name", getattr(net, "__name__", "network"))
        net = net()
    return audit_encoder(net, members, others, attacks=attacks, out=out, quiet=quiet, **options)


def _audit_by_name(
    encoder: str, attacks: Any, out: Path, quiet: bool, options: dict[str, Any]
) -> None:
    """Audit an encoder that the command line can name, under options of the command."""
    from fedmia.audit import run_audit

    watch = Stopwatch(time.perf_counter())
    trust = bool(options.pop("trust_plugins", False))
    settings = build_settings(
        AUDIT, None, {"encoder": encoder, "attacks": attacks, **options}, trust
    )
    with interrupts("attacks") as stop:
        code = run_audit(Invocation(settings, out, quiet), watch, stop, say_not_run)
        if code and RunFolder(out).read_report_or_none() is None:
            raise KeyboardInterrupt if stop.is_set() else InputError("every attack failed")


def audit_object(
    encoder: Encoder,
    members: Any,
    others: Any,
    attacks: Any,
    out: Path,
    quiet: bool,
    options: dict[str, Any],
) -> None:
    """Audit a module in memory.

    Args:
        encoder: as of `audit_encoder`, as are `members`, `others` and `attacks`.
        members: images that it was trained on.
        others: images that it was not trained on.
        attacks: which to run.
        out: folder of the results.
        quiet: show no progress.
        options: of `fedmia.library.audit`.

    Raises:
        InputError: bad input, or no attack could run.
    """
    labels = list(options.pop("labels", (None, None)))
    size, limits = options.get("size"), image_range(options)
    sets = [
        _images_in_memory(images, name, size, limits)
        for images, name in ((members, "members"), (others, "others"))
    ]
    labels[:2] = [own.labels if y is None else y for y, own in zip(labels, sets, strict=False)]
    if any(y is None for y in labels[:2]):  # probes need the labels of both
        labels[:2] = [None, None]
    if not isinstance(attacks, str) and not listed(attacks):
        attacks = [attacks]
    objects = attacks if isinstance(attacks, str) else [_instance(one) for one in attacks]
    inside, outside = sets
    audit_in_memory(
        encoder,
        inside.images,
        outside.images,
        attacks=objects,
        labels=labels,
        notes=(*inside.notes, *outside.notes),
        out=out,
        quiet=quiet,
        **options,
    )


def _instance(attack: Any) -> Any:
    """An attack as a name or an instance; a class stands for its default options."""
    if not isinstance(attack, str):
        from fedmia.door.plugins import name_plugin

        name_plugin("attack", attack)  # refuses other objects, and names a class of a notebook
    return attack() if isinstance(attack, type) else attack


def _images_in_memory(
    images: Any, name: str, size: int | None, limits: Range = None
) -> LabelledArrays:
    """Images of one side of an audit and their labels, from memory or from a data source."""
    if images is None:
        raise InputError(f"{name} is missing: images that a module was (not) trained on")
    if not isinstance(images, str | Path):
        return read_images(images, name, limits)
    plugin, path = split_dataset(name_images(images, name))
    request = Request(path, None, size, 0, pixel_range=limits)
    loaded = registry.build("dataset", plugin, {}).load(request)
    return LabelledArrays(loaded.images, loaded.labels if loaded.labelled else None, loaded.notes)
