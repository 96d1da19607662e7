"""A command's settings as a tree of plain values, and back: strict, and the round trip is exact.

A section is a mapping; a plugin is its name, or a mapping with `name` and the options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedmia.config.forms import field_forms, read_options, tree_fields
from fedmia.options.yamlfile import Tree

Root = TypeVar("Root")


def to_tree(settings: Any) -> Tree:
    """The complete settings in plain mappings, lists and scalars; without empty open groups, and
    options that are `omitted` at their defaults."""
    fields = {
        name: (form, getattr(settings, name)) for name, form in field_forms(type(settings)).items()
    }
    return {n: form.plain(value) for n, (form, value) in fields.items() if not form.omits(value)}


def from_tree(root: type[Root], tree: Mapping[str, Any], **more: Any) -> Root:
    """Build settings from a tree; what the tree leaves out has its default.

    Args:
        root: the dataclass of a command's settings.
        tree: nested mappings as `to_tree` gives them; shorter forms of plugins are understood.
        more: fields of `root` that no user gives.

    Returns:
        The settings, every value checked.

    Raises:
        InputError: an unknown key (with the nearest one), a wrong type, a value out of range.
    """
    others, own = tree_fields(root), dict[str, Any]()
    fields: Tree = dict(more)
    for name, value in normalize(root, tree).items():
        branch = fields.setdefault(others[name], {}) if name in others else own
        branch[name] = value
    return root(**fields, **read_options((root,), "", own))


def normalize(root: type, tree: Mapping[str, Any]) -> Tree:
    """Write out every short form of a tree: `partition: iid` as `partition: {name: iid}`.

    Args:
        root: the dataclass of a command's settings.
        tree: nested mappings as a file holds them.

    Returns:
        The normalized tree.

    Raises:
        InputError: a section or a plugin that is neither a name nor a mapping.
    """
    known = field_forms(root)
    return {
        name: known[name].normalize(name, value) if name in known else value
        for name, value in tree.items()
    }


def merge(
    root: type, lower: Mapping[str, Any], upper: Mapping[str, Any], runs: Callable[[Tree], Any]
) -> Tree:
    """Lay one tree over another, section by section.

    Options in `lower` of a plugin that `upper` replaces by another are dropped, and so are those
    of attacks that no longer run.

    Args:
        root: the dataclass of a command's settings.
        lower: normalized tree.
        upper: normalized tree, whose values win.
        runs: names of the attacks that a tree runs.

    Returns:
        The merged tree, normalized.
    """
    known, merged = field_forms(root), {**lower, **upper}
    for name in lower.keys() & upper.keys() & known.keys():
        merged[name] = known[name].overlay(name, lower[name], upper[name])
    for name, form in known.items():
        if name in lower and form.replaces_plugin(lower, upper):
            merged[name] = upper.get(name, {})
    if "attack" in lower and ("attacks" in upper or "attacker" in upper):
        run, above = runs(merged), upper.get("attack", {})
        merged["attack"] = {k: v for k, v in merged["attack"].items() if k in run or k in above}
    return merged
