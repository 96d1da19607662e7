"""The commands that a file such as `commands.yaml` declares."""

from __future__ import annotations

from pathlib import Path

from fedmia.settings.flags import Command
from fedmia.settings.yamlfile import Tree, load


def read_commands(file: Path) -> dict[str, Command]:
    """Every command by its name. A command that runs experiments also has their
    headings after its own."""
    trees = load(file)
    shared = trees.pop("experiment", {})
    return {name: _command(tree, shared) for name, tree in trees.items()}


def _command(tree: Tree, shared: Tree) -> Command:
    if tree.pop("experiment", False):
        tree = {**tree, **shared, "groups": {**tree.get("groups", {}), **shared["groups"]}}
    return Command(**tree)


COMMANDS = read_commands(Path(__file__).with_name("commands.yaml"))
SIMULATE, AUDIT, STUDY = COMMANDS["simulate"], COMMANDS["audit"], COMMANDS["study"]
