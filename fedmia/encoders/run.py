"""`RUN` or `RUN@ROUND`: the global model of a run of fedmia, read off its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmia.data.base import Dataset, Request
from fedmia.encoders.base import EncoderForm, LoadedEncoder, LoadOptions, Weights
from fedmia.encoders.hooked import refuse_large
from fedmia.encoders.weight_checks import refuse_diverged
from fedmia.nets.base import Net, check_network
from fedmia.recording.reader import RecordedRounds
from fedmia.records.note import Note
from fedmia.records.rows import Report
from fedmia.seeding import torch_rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError, opt
from fedmia.settings.options import option_fields
from fedmia.settings.values import convert, disk_path
from fedmia.settings.yamlfile import Tree
from fedmia.ssl.base import SSL, SSLMethod, State, TrainingData
from fedmia.storage.runfolder import RunFolder, damaged
from fedmia.untrusted.limits import first_line

BRANCH = "main"
BUILT = ("model", "ssl", "data")  # the sections of a run's settings that an encoder is made of


class GlobalModel(EncoderForm):
    """The global model of a run of fedmia, read off its folder."""

    written = "RUN or RUN@ROUND (a run folder of fedmia)"
    order = 1

    def takes(self, spec: str) -> bool:
        folder, at, turn = spec.rpartition("@")
        return Path(spec).is_dir() or bool(at and turn.isdigit() and Path(folder).exists())

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        folder = source.rpartition("@")[0]
        if not Path(source).is_dir() and Path(folder).is_file():
            raise InputError(
                f"encoder '{source}': '{folder}' is a file; the folder of a run has rounds"
            )
        with damaged(Path(source), "the model"):
            return load(source, load_options)


def load(spec: str, load_options: LoadOptions) -> LoadedEncoder:
    """The global model of a run, of a round or of the last one.

    The network is built for the run's own image size; `--size` only resizes the images. The control
    is the run's first model.

    Args:
        spec: `RUN` or `RUN@ROUND`, the run's folder.

    Returns:
        The encoder with its control.

    Raises:
        InputError: no finished run, a round that was not kept, or a size that cannot be known.
    """
    name, _, round_text = (spec, "", "") if Path(spec).is_dir() else spec.rpartition("@")
    folder = Path(name)
    run = RunFolder(folder, load_options.trust_plugins)
    tree, report = _config(run), run.read_report_or_none()
    store = RecordedRounds(run.recording)
    kept_rounds = store.rounds(BRANCH)
    if not kept_rounds:
        raise InputError(f"run '{folder}' holds no models in recording/models/{BRANCH}")
    turn = int(round_text) if round_text else kept_rounds[-1]
    if turn not in kept_rounds:
        near = min(kept_rounds, key=lambda r: abs(r - turn))
        listed = ", ".join(map(str, kept_rounds))
        raise InputError(f"run '{folder}' kept no round {turn}; nearest is {near} (kept: {listed})")
    state = store.models(BRANCH)[turn]
    source, notes = _source(tree), list[Note]()
    size = _size(report, tree, source) or load_options.size
    if size is None:
        raise InputError(
            f"run '{folder}' does not tell the size of its images, and its data cannot be read: "
            f"give {opt('data.size')}"
        )
    refuse_large(f"run '{folder}'", size)
    length = sum(t.nbytes for t in state.values())
    where = f"run '{folder}'"
    net: Net = build_plugin("model", tree)
    check_network(where, lambda: net.build(3, size), length)
    channels = _channels(state, folder, net, size)
    mean, std = load_options.channel_constants(channels, _own_constants(tree, source), notes)
    spec_ssl: SSL = build_plugin("ssl", tree)

    def build() -> SSLMethod:
        generator = torch_rng(load_options.seed, "released", "run")
        return spec_ssl.build(net.build(channels, size), TrainingData(mean, std), generator)

    def method(weights: State | None, turn: int = turn) -> SSLMethod:
        ssl_method = build()
        if weights is not None:
            try:
                ssl_method.load_shared(weights)
            except (ValueError, RuntimeError) as error:
                raise InputError(
                    f"run '{folder}': round {turn} does not fit its config.yaml: "
                    f"{first_line(error)}"
                ) from None
            parameters = ssl_method.shared_parameters()
            refuse_diverged(f"run '{folder}': the model of round {turn}", weights, parameters)
        return ssl_method.to(load_options.device).eval()

    check_network(where, build, length)
    fixed = not _takes_size(method(None), channels, 2 * size)
    if fixed and load_options.size not in (None, size):
        takes = f"run '{folder}' takes {size}x{size} images only"
        raise InputError(f"{opt('data.size', load_options.size)}: {takes}")
    how = "the run's own first model, before any training (round 0)"
    if 0 not in kept_rounds:
        how = "the run's architecture with fresh random weights: its round 0 was not kept"
    if load_options.size not in (None, size):
        notes.append(Note("another-size-than-run", {"trained": size, "size": load_options.size}))
    rows = report.rounds if report else []
    attacked = [row.round for row in rows if row.under_attack]
    before = max((r for r in kept_rounds if r < min(attacked, default=0)), default=turn)
    if before < turn:
        other, last = f"{folder.resolve().name}@{before}", turn == kept_rounds[-1]
        notes.append(Note("model-under-attack", {"round": turn, "last": last, "before": other}))
    return LoadedEncoder(
        name=f"{folder.resolve().name}@{turn}",
        method=method(state),
        augment=spec_ssl.augment,
        # Of a pre-trained run round 0 is no untrained model.
        untrained=lambda: method(store.untrained() if 0 in kept_rounds else None, 0),
        untrained_how=how,
        access="white_box",
        channels=channels,
        size=load_options.size or size,
        fixed_size=fixed,
        notes=notes,
        weights=Weights("run of fedmia", len(state), round=turn),
    )


def _config(run: RunFolder) -> Tree:
    """The run's settings, those that an encoder is built of complete."""
    run.check(models=True)
    tree, path = run.tree(*BUILT), run.config
    for key in BUILT:
        if not isinstance(tree.get(key), dict):
            raise InputError(f"{path} has no section '{key}'")
        if not isinstance(tree[key].get("name"), str):
            raise InputError(f"{path}: section '{key}' has no name")
    return tree


def build_plugin(kind: str, tree: Mapping[str, Any]) -> Any:
    """The plugin that a section of a run's settings names, with its options; `kind` names both."""
    options = {k: v for k, v in tree[kind].items() if k != "name"}
    return _build_complete(kind, tree[kind]["name"], options)


def _build_complete(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    complete = dict(options)
    for one, type_ in option_fields(registry.load(kind, name)):
        if one.name in complete:
            complete[one.name] = convert(f"{kind}.{one.name}", complete[one.name], type_)
    return registry.build(kind, name, complete)


def _source(tree: Mapping[str, Any]) -> tuple[Dataset, str | None] | None:
    """The run's data source and its path, None where it cannot be built here."""
    data = tree["data"]
    name, _, path = disk_path(data["name"]).partition(":")
    if name not in registry.names("dataset"):  # package.module:Class[:PATH]
        attribute, _, path = path.partition(":")
        name = f"{name}:{attribute}"
    own = ("name", "dir", "size", "mean", "std", "skip_unreadable", "pixel_range", "fit")
    try:
        built = _build_complete("dataset", name, {k: v for k, v in data.items() if k not in own})
    except InputError:
        return None
    return built, path or None


def _own_constants(
    tree: Mapping[str, Any], source: tuple[Dataset, str | None] | None
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and deviation that the run used: its flags', else its data source's."""
    mean, std = tree["data"].get("mean"), tree["data"].get("std")
    if source is None and (mean is None or std is None):
        return None
    fallback = source[0] if source else Dataset
    return tuple(mean or fallback.mean), tuple(std or fallback.std)


def _size(
    report: Report | None, tree: Mapping[str, Any], source: tuple[Dataset, str | None] | None
) -> int | None:
    """Pixels a side: as the report or the configuration tells it, else of the data, read again."""
    size = (report and report.split.get("size")) or tree["data"].get("size")
    if isinstance(size, int):
        return size
    if source is None:
        return None
    data = tree["data"]
    place = None if data.get("dir") is None else Path(disk_path(data["dir"]))
    seed, limits = int(tree.get("seed", 0)), data.get("pixel_range")
    request = Request(source[1], place, None, seed, pixel_range=limits)
    try:
        encoded = source[0].encoded(request)
        sample = source[0].load(request) if encoded is None else encoded.pick(np.array([0]))[0]
        return sample.size
    except (InputError, OSError):
        return None


def _channels(state: State, folder: Path, net: Net, size: int) -> int:
    """Of the images: what the backbone's first convolution takes; of a network without one (a ViT
    embeds its patches by a matrix) the number with which it is built in these shapes."""
    shapes = {n.removeprefix("backbone."): t.shape for n, t in state.items() if "backbone." in n}
    for shape in shapes.values():
        if len(shape) == 4 and shape[1] in (1, 3):
            return int(shape[1])
    for channels in (3, 1):
        built = net.build(channels, size).state_dict()
        if all(shapes.get(name) == tensor.shape for name, tensor in built.items()):
            return channels
    raise InputError(f"run '{folder}': its weights do not fit its network with 1 or 3 channels")


@torch.no_grad()
def _takes_size(method: SSLMethod, channels: int, size: int) -> bool:
    """Whether the encoder takes images of `size` too."""
    device = method.encoder.mean.device
    try:
        method.encoder(torch.zeros(1, channels, size, size, device=device))
    except (RuntimeError, ValueError, AssertionError):
        return False
    return True
