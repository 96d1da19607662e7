"""A plugin that the settings choose, with its options."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from fedmia.settings import registry
from fedmia.settings.options import option_fields

Values = Mapping[str, Any]


@dataclass(frozen=True)
class PluginChoice:
    """A plugin by name, with its options: built once, whoever asks for it.

    Attributes:
        name: a built-in plugin or `package.module:Class`.
        options: option -> value.
    """

    name: str
    options: Values = field(default_factory=dict)
    _built: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_built": {}}  # another process may know its class by the name alone

    def plugin(self, kind: str) -> Any:
        """The plugin of `kind`, which nobody may change.

        Raises:
            InputError: unknown plugin or option, or a value out of range.
        """
        if kind not in self._built:
            self._built[kind] = registry.build(kind, self.name, self.options)
        return self._built[kind]

    def build(self, kind: str) -> Any:
        """A copy of the plugin of `kind`, which may take on a state.

        Raises:
            InputError: unknown plugin or option, or a value out of range.
        """
        return copy.deepcopy(self.plugin(kind))

    def complete(self, kind: str, path: str = "") -> Self:
        """The same choice with every option of the plugin written out.

        Args:
            kind: of the plugin.
            path: of its options, for errors; empty: that in the settings of a run.

        Returns:
            The choice, whose plugin is built.

        Raises:
            InputError: unknown plugin or option, or a value out of range.
        """
        # A default is shared by all settings, so it keeps nothing.
        plugin = self._built.get(kind) or registry.build(kind, self.name, self.options, path)
        other = dataclasses.replace(self, options=option_values(plugin))
        other._built[kind] = plugin
        return other

    def with_options(self, kind: str, options: Values) -> Self:
        """The same choice with all its options, some of which may have other values.

        Args:
            kind: of the plugin.
            options: option -> value, every option of the plugin.

        Returns:
            The choice, whose plugin has these options.

        Raises:
            InputError: a value out of range.
        """
        other, plugin = dataclasses.replace(self, options=options), self.plugin(kind)
        changed = {k: v for k, v in options.items() if getattr(plugin, k) != v}
        other._built[kind] = dataclasses.replace(plugin, **changed) if changed else plugin
        return other


@dataclass(frozen=True)
class Layer(PluginChoice):
    """One of several plugins that are applied in order, to some clients.

    Attributes:
        clients: partition ids; None: those that another option names for all layers.
    """

    clients: tuple[int, ...] | None = None


def option_values(built: Any) -> dict[str, Any]:
    """Every option of a section or a plugin with its value."""
    return {one.name: getattr(built, one.name) for one, _ in option_fields(type(built))}


def choose_attacks(
    names: Iterable[str], options: Mapping[str, Values], complete: bool = True
) -> dict[str, PluginChoice]:
    """The attacks of some settings, each built.

    Args:
        names: of the attacks.
        options: name -> those of its options that are given.
        complete: whether every option is written out, or those alone that are given.

    Returns:
        The choices by name.

    Raises:
        InputError: unknown attack or option, or a value out of range.
    """
    choices = {name: PluginChoice(name, options.get(name, {})) for name in names}
    for name, choice in choices.items():
        choices[name] = choice.complete("attack") if complete else choice
        choices[name].plugin("attack")  # built, or refused, here
    return choices
