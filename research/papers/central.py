"""One encoder trained on one machine: `python -m research.papers.central CONFIG FOLDER`.

The folder is that of a run (settings, models by epoch), so that an audit opens it by its path. The
images lie beside the models. Neither flwr nor ray is imported.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch.optim import Optimizer

from fedmia import __version__
from fedmia.cli.command import DISK_FAILED, print_bad_input
from fedmia.data.images import ImageSet
from fedmia.defenses.base import TrainingConditions
from fedmia.defenses.stack import DefenseStack, central_stack
from fedmia.recording.format import Header
from fedmia.recording.writer import RecordingWriter
from fedmia.runtime.device import resolve_device
from fedmia.seeding import rng, torch_rng
from fedmia.settings.commands.norms import norm_kind
from fedmia.settings.errors import InputError, opt
from fedmia.settings.tree import from_tree, to_tree
from fedmia.settings.yamlfile import load
from fedmia.ssl.base import Encoder, SSLMethod, TrainingData, iterate_parts
from fedmia.ssl.progress import load_training, training_state
from fedmia.ssl.train import Job, make_optimizer
from fedmia.storage import durable
from fedmia.storage.outfolder import write_settings
from fedmia.storage.runfolder import RunFolder
from fedmia.storage.snapshot import read_tensors, write_tensors
from research.papers.central_settings import Central

BRANCH = "main"  # where an audit looks for the models of a run
PROGRESS = "progress.safetensors"
LOSSES = "losses.json"  # mean loss by epoch, mean norms by kept epoch, seconds; written last
SIDES = ("members", "nonmembers")
# Losses by epoch, the defences' memory, seconds.
Progress = tuple[list[float], dict[str, Any], float]
PAUSE = 20.0  # seconds between two writings of the progress


def draw_images(config: Central) -> tuple[ImageSet, ImageSet]:
    """The members and the non-members: a random part of the source each, none in both.

    Args:
        config: names the source, the sizes of both sides and the seed.

    Returns:
        Members and non-members. The non-members do not depend on the number of members, so that
        encoders of several sizes are attacked on the same ones.

    Raises:
        InputError: the source cannot be read or has too few images.
    """
    source, request = config.data.source(), config.data.request(config.seed)
    encoded = source.encoded(request)  # decodes the images that are used, and no others
    pool = source.load(request) if encoded is None else encoded
    if config.members + config.nonmembers > len(pool):
        raise InputError(
            f"{opt('members', config.members)}: {config.data.name} has {len(pool)} images, and "
            f"{config.nonmembers} of them are non-members"
        )
    order = rng(config.seed, "central", "images").permutation(len(pool))
    parts = np.sort(order[-config.members :]), np.sort(order[: config.nonmembers])
    members, nonmembers = (
        pool.take(part) if isinstance(pool, ImageSet) else pool.pick(part)[0] for part in parts
    )
    return members, nonmembers


def build_method(config: Central, members: ImageSet) -> SSLMethod:
    """The method before its first step.

    Args:
        config: names network and method.
        members: the images to be trained on.

    Returns:
        The method on the CPU.

    Raises:
        InputError: the size of the images does not suit the network.
    """
    source = config.data.source()
    mean, std = config.data.mean or source.mean, config.data.std or source.std
    net = config.model.build("model").build(members.channels, members.size)
    training_data = TrainingData(tuple(mean), tuple(std), len(members))
    method: SSLMethod = config.ssl.build("ssl").build(
        net, training_data, torch_rng(config.seed, "central", "method")
    )
    method.begin_first_round()
    return method


def train_encoder(
    config: Central, folder: Path, stop: Callable[[], bool] = lambda: False
) -> list[float]:
    """Train an encoder, or go on with its training, and keep its models.

    Args:
        config: the complete settings.
        folder: of the encoder; what an interrupted training left there is gone on with.
        stop: asked before each step; True ends the training, which can be gone on with.

    Returns:
        The mean loss of each epoch that is done.

    Raises:
        InputError: the images cannot be had, or the training diverged.
    """
    torch.set_num_threads(config.threads)
    members, nonmembers = draw_images(config)
    device = torch.device(resolve_device(config.device))
    run = RunFolder(folder)
    method = build_method(config, members)
    if not run.has_settings():
        _begin(config, folder, (members, nonmembers), method)
    store = RecordingWriter(run.recording)
    method.to(device)
    optimizer = make_optimizer(method, config.train)
    losses, memory, seconds = _resume(folder, method, optimizer)
    store.rewind(1 + len({e for e in config.keep if 0 < e <= len(losses)}))  # the others come again
    guard = _guard(config)
    steps = -(-len(members) // config.train.batch_size)
    began = written = time.perf_counter()
    for epoch in range(len(losses), config.epochs):
        job = Job(
            method=method,
            optimizer=optimizer,
            images=members.images,
            augment=config.ssl.build("ssl").augment,
            train=config.train,
            rng=rng(config.seed, "train", epoch + 1, 0),
            step=epoch * steps,
            total_steps=config.epochs * steps,
            device=device,
            stop=stop,
        )
        loss = (job.run() if guard is None else guard.train(job, memory))["loss"]
        if stop():
            return losses
        if not math.isfinite(loss):
            raise InputError(
                f"the encoder diverged in epoch {epoch + 1} (its loss is {loss}); give a lower "
                f"{opt('train.lr', config.train.lr)}"
            )
        losses.append(loss)
        if epoch + 1 in config.keep:
            store.save(BRANCH, epoch + 1, method.shared_state())
        if time.perf_counter() - written > PAUSE and epoch + 1 < config.epochs:
            spent = seconds + time.perf_counter() - began
            store.flush()
            about = {"losses": losses, "memory": memory, "seconds": spent}
            write_tensors(training_state(method, optimizer), folder / PROGRESS, about)
            written = time.perf_counter()
    store.save(BRANCH, config.epochs, method.shared_state())
    seconds += time.perf_counter() - began
    store.flush()
    norms = dict[int, list[float]]()
    method.eval()
    for epoch in (*config.keep, config.epochs):
        method.load_shared(store.models(BRANCH)[epoch])
        norms[epoch] = [mean_norm(method.encoder, i, device) for i in (members, nonmembers)]
    about = {"losses": losses, "norms": norms, "seconds": round(seconds, 3)}
    durable.write({folder / LOSSES: json.dumps(about)})
    (folder / PROGRESS).unlink(missing_ok=True)
    return losses


@torch.no_grad()
def mean_norm(encoder: Encoder, images: ImageSet, device: torch.device) -> float:
    """How long the encoder's pooled features are, in L2 norm, on average (LpLA, Fig. 4).

    Args:
        encoder: in eval mode, on `device`.
        images: whose features are taken.
        device: to compute on.

    Returns:
        The mean, >= 0.
    """
    parts = iterate_parts(torch.from_numpy(images.images), device)
    features = torch.cat([encoder.features(part, ["avgpool"])["avgpool"] for part in parts])
    return float(features.norm(dim=1).mean())


def _begin(config: Central, folder: Path, sides: Sequence[ImageSet], method: SSLMethod) -> None:
    """Write images and the untrained model, then the settings, which say that both are there."""
    durable.make_folder(folder)
    for name, images in zip(SIDES, sides, strict=True):
        pixels = np.ascontiguousarray(images.images.transpose(0, 2, 3, 1))
        with durable.replacing(folder / f"{name}.npz") as (partial,), partial.open("wb") as file:
            np.savez(file, x=pixels, y=images.labels)
    header = Header({"fedmia": __version__}, every=0)
    store = RecordingWriter(RunFolder(folder).recording, header)
    store.rewind(0)  # a kill may have left it before the settings
    store.save(BRANCH, 0, method.shared_state())
    store.flush()
    source = config.data.source()
    tree = to_tree(config)
    # An audit normalises as the training did, also where the source cannot be read again.
    tree["data"] |= {
        "mean": list(config.data.mean or source.mean),
        "std": list(config.data.std or source.std),
        "size": sides[0].size,
    }
    write_settings(folder, tree)


def _guard(config: Central) -> DefenseStack | None:
    """The defences of the training, None without any."""
    layers = [(one.name, one.build("defense")) for one in config.defense]
    norm = norm_kind(config.model.options, config.ssl.options)
    setting = TrainingConditions(norm, config.ssl.build("ssl"))
    return central_stack(layers, setting, "defense")


def _resume(folder: Path, method: SSLMethod, optimizer: Optimizer) -> Progress:
    path = folder / PROGRESS
    if not path.is_file():
        return [], {}, 0.0
    tensors, about = read_tensors(path)
    load_training(method, tensors, optimizer)
    return list(about["losses"]), dict(about["memory"]), float(about["seconds"])


def main(argv: Sequence[str] | None = None) -> int:
    """Train the encoder that a settings file describes.

    Args:
        argv: the settings' file and the folder; flags are ignored.

    Returns:
        0, 2 for bad input, or 74 for a disk that failed.
    """
    config, folder = [a for a in (sys.argv[1:] if argv is None else argv) if a[:2] != "--"]
    try:
        train_encoder(from_tree(Central, load(Path(config))), Path(folder))
    except InputError as error:
        return print_bad_input(error)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):  # a log on that very disk
            print(f"fedmia: the run failed: {error}", file=sys.stderr)
        return DISK_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
