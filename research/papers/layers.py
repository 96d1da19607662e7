"""Trees of settings laid over each other, a preset of the paper below all."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmia.cli.commands import COMMANDS as OF_FEDMIA
from fedmia.settings.layout import Flat
from fedmia.settings.presets import PRESETS
from fedmia.settings.tree import flatten, from_tree, merge, to_tree
from fedmia.settings.user import read_config
from fedmia.settings.yamlfile import Tree
from research.papers.commands import HEAD as HEAD_COMMAND
from research.papers.jobs import AUDIT, ENCODER, HEAD, ROOTS

COMMANDS = {HEAD: HEAD_COMMAND, AUDIT: OF_FEDMIA[AUDIT]}  # a run's for the others
FOLDERS = {HEAD: Path(__file__).with_name("heads") / "presets"}  # those of others are fedmia's
# Of a run's preset and of an encoder.
SHARED = {"data", "model", "ssl", "train", "defense", "split.members", "split.nonmembers"}
SIDES = ("members", "nonmembers")
# What the folder of the jobs says: where a command reads, and on what it computes.
LOCAL = ("encoder", "encoder.name", "shadow.cache", "device", "threads", "machine.device",
         "machine.threads", "machine.ray_address")  # fmt: skip
Layers = Sequence[Mapping[str, Any]]  # trees that are laid over each other, the lowest first


@functools.cache  # files of the package do not change while the process runs
def read_preset(kind: str, name: str) -> Mapping[str, Any]:
    """What a preset of a paper says of a kind of job.

    Args:
        kind: `ENCODER` (its preset is of a run of one client), `AUDIT`, `HEAD` or `FEDERATION`.
        name: as `--config` of its command takes it; of heads the file's name alone.

    Returns:
        The settings, flat.
    """
    command = COMMANDS.get(kind, OF_FEDMIA["simulate"])
    flat = read_config(command, FOLDERS.get(kind, PRESETS) / f"{name}.yaml")
    if kind != ENCODER:
        return flat
    epochs = flat["federation.rounds"] * flat["train.local_epochs"]
    snapshots = range(0, epochs, epochs // flat["federation.snapshots"])
    paths = [path for path in flat if {path, path.partition(".")[0]} & SHARED]
    own = {path.removeprefix("split."): flat[path] for path in paths}
    return {**own, "epochs": epochs, "keep": [*snapshots[1:]]}


def lay(kind: str, parts: Layers) -> tuple[Tree, str]:
    """Trees of one kind of job laid over each other and over a preset, every default written out.

    Args:
        kind: of the job.
        parts: the first one lowest; `preset` of the last that has one names what lies below all.

    Returns:
        The settings without what is `LOCAL`, and the name of the preset, empty without one.

    Raises:
        InputError: settings that the job's command refuses.
    """
    preset = next((part["preset"] for part in reversed(parts) if "preset" in part), "")
    root = root_of(kind)
    merged = dict(read_preset(kind, preset)) if preset else Flat()
    for part in parts:
        own = {name: value for name, value in part.items() if name != "preset"}
        merged = merge(root, merged, flatten(root, own))
    if kind in (AUDIT, HEAD):
        name = "encoder" if kind == HEAD else "encoder.name"
        merged |= dict.fromkeys((name, *(SIDES if kind == AUDIT else ())), "e")
    without = LOCAL if kind == ENCODER else (*LOCAL, *SIDES)
    return _leave_out(to_tree(from_tree(root, merged)), without), preset


def _leave_out(tree: Tree, paths: Sequence[str], above: str = "") -> Tree:
    """The tree without the options of some paths."""
    return {
        name: _leave_out(value, paths, f"{above}{name}.") if isinstance(value, dict) else value
        for name, value in tree.items()
        if f"{above}{name}" not in paths
        or (isinstance(value, dict) and f"{above}{name}.name" in paths)
    }


def root_of(kind: str) -> Any:
    """The dataclass of a job's settings.

    Args:
        kind: of the job.

    Returns:
        The class.
    """
    return ROOTS[kind]
