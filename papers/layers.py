"""Trees of settings laid over each other, a paper's preset below all; what differs from it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmia.cli.command import read_config
from fedmia.cli.commands import AUDIT as AUDIT_COMMAND
from fedmia.cli.commands import SIMULATE
from fedmia.cli.presets import PRESETS
from fedmia.config.layout import Flat
from fedmia.config.tree import flatten, from_tree, merge, to_tree
from fedmia.options import registry
from fedmia.options.option import option_fields
from fedmia.options.values import plain
from fedmia.options.yamlfile import Tree
from papers.central_settings import Central
from papers.commands import HEAD as HEAD_COMMAND
from papers.jobs import AUDIT, ENCODER, FEDERATION, HEAD, TableJob

COMMANDS = {ENCODER: SIMULATE, AUDIT: AUDIT_COMMAND, HEAD: HEAD_COMMAND, FEDERATION: SIMULATE}
FOLDERS = {HEAD: Path(__file__).with_name("heads") / "presets"}  # those of others are fedmia's
SHARED = ("data", "model", "ssl", "train", "defense")  # of a run's preset and of an encoder
SIDES = ("members", "nonmembers")
# What the folder of the jobs says: where a command reads, and on what it computes.
LOCAL = ("encoder", "cache", "device", "threads", "ray_address")
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
    flat = read_config(COMMANDS[kind], FOLDERS.get(kind, PRESETS) / f"{name}.yaml")
    if kind != ENCODER:
        return flat
    epochs = flat["federation.rounds"] * flat["train.local_epochs"]
    snapshots = range(0, epochs, epochs // flat["federation.snapshots"])
    own = {path: value for path, value in flat.items() if path.partition(".")[0] in SHARED}
    sizes = {side: flat[f"split.{side}"] for side in SIDES if f"split.{side}" in flat}
    return {**own, **sizes, "epochs": epochs, "keep": [*snapshots[1:]]}


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
    root = Central if kind == ENCODER else COMMANDS[kind].settings
    merged = dict(read_preset(kind, preset)) if preset else Flat()
    for part in parts:
        own = {name: value for name, value in part.items() if name != "preset"}
        merged = merge(root, merged, flatten(root, own))
    if kind in (AUDIT, HEAD):
        merged |= dict.fromkeys(("encoder", *(SIDES if kind == AUDIT else ())), "e")
    without = LOCAL if kind == ENCODER else (*LOCAL, *SIDES)
    tree = to_tree(from_tree(root, merged))
    return {name: value for name, value in tree.items() if name not in without}, preset


def differences(job: TableJob) -> Flat:
    """The settings of a job that are not those of its preset; its seed is that of a target.

    Args:
        job: with settings of its own.

    Returns:
        Path, which begins with the kind of the job -> value; `KIND.preset` alone without a preset.
        Options of attacks that the preset does not name are compared with their defaults.
    """
    if not job.preset:
        return {f"{job.kind}.preset": None}
    attacks = job.tree.get("attacks") or ()
    theirs, _ = lay(job.kind, [{"preset": job.preset}])
    ours, theirs = (_every_value(job.kind, tree, attacks) for tree in (job.tree, theirs))
    paths = [p for p in theirs | ours if p != "seed" and ours.get(p) != theirs.get(p)]
    return {f"{job.kind}.{path}": ours.get(path) for path in paths}


def _every_value(kind: str, tree: Tree, attacks: Sequence[str]) -> Flat:
    """The tree flat, with every option of these attacks, of which it holds those given."""
    root = Central if kind == ENCODER else COMMANDS[kind].settings
    flat = flatten(root, {name: value for name, value in tree.items() if name != "attack"})
    for name in attacks:
        own = tree.get("attack", {}).get(name, {})
        for one, _ in option_fields(registry.load("attack", name)):
            flat[f"attack.{name}.{one.name}"] = own.get(one.name, plain(one.default))
    return flat
