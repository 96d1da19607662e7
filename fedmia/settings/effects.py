"""Options without effect under the other settings: the user who gives one means something else.

Of options of one plugin or section the field itself says what it needs (`needs` of
`fedmia.settings.options.option`); what options need of other settings, the class of the settings
declares. A value equal to the default asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from fedmia.settings.errors import InputError, format_value, opt
from fedmia.settings.layout import Flat, Layout, layout
from fedmia.settings.tree import flatten, from_tree, read_values, to_tree
from fedmia.settings.values import plain

Root = TypeVar("Root")


class Need(NamedTuple):
    """What options need to have an effect.

    Attributes:
        met: whether the settings have it.
        words: why they have no effect without it, as the end of a sentence.
    """

    met: Callable[[Any], Any]
    words: str


def find_idle(settings: Any, flat: Mapping[str, Any]) -> dict[str, InputError]:
    """Options that have no effect.

    Args:
        settings: of a command, built.
        flat: what they were built of.

    Returns:
        The path of each such option of `flat` -> the error that refuses it.
    """
    root = type(settings)
    values = read_values(root, flat)
    complete = flatten(root, to_tree(settings))
    reasons = dict(_reasons(settings, values, complete))
    idle = {
        path: InputError(f"{opt(path, values[path])} has no effect {words}")
        for path, words in reasons.items()
    }
    return {**idle, **settings.idle}


def _reasons(settings: Any, values: Flat, complete: Flat) -> Iterator[tuple[str, str]]:
    """Path of each option that has no effect, and why."""
    root: Any = type(settings)
    shape, needs = layout(root), settings.needs
    for path, value in values.items():
        if shape.field_of(path, shape.lists) is not None:
            continue
        field = shape.leaf(path, values)[0]
        if value == field.default:
            continue
        need = needs.get(shape.field_of(path, needs) or "")
        if need is not None and not need.met(settings):
            yield path, need.words
        elif words := _lacking(shape, field.metadata.get("needs"), path, complete):
            yield path, words


def _lacking(shape: Layout, needs: Any, path: str, complete: Flat) -> str:
    """What an option lacks of the one beside it; empty: nothing, or that one is not known."""
    if not needs:
        return ""
    name, *allowed = needs
    head, dot, _ = path.rpartition(".")
    beside = f"{head}{dot}{name}"
    if beside not in complete and beside not in shape.options:
        return ""
    value = complete[beside] if beside in complete else plain(shape.options[beside][0].default)
    if value in allowed if allowed else value not in (None, False, 0):
        return ""
    return f"without {opt(beside, ' or '.join(map(format_value, allowed)) if allowed else ...)}"


def build_effective(
    root: type[Root], flat: Mapping[str, Any], trust_plugins: bool = False
) -> tuple[Root, dict[str, InputError]]:
    """Build settings without the options that have no effect.

    Args:
        root: the dataclass of a command's settings.
        flat: values by path.
        trust_plugins: as of `fedmia.settings.fields.Settings`.

    Returns:
        The settings, and the path of each option that is left out -> the error for a user who gave
        it.

    Raises:
        InputError: as of `fedmia.settings.tree.from_tree`.
    """
    built: Any = from_tree(root, flat, trust_plugins=trust_plugins)
    if idle := find_idle(built, flat):
        effective = {path: value for path, value in flat.items() if path not in idle}
        built = from_tree(root, effective, trust_plugins=trust_plugins)
    return built, idle
