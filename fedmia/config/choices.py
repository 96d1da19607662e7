"""A plugin that the settings choose, with its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmia.options import registry
from fedmia.options.option import option_fields

Values = Mapping[str, Any]


@dataclass(frozen=True)
class PluginChoice:
    """A plugin by name, with its options.

    Attributes:
        name: a built-in plugin or `package.module:Class`.
        options: option -> value.
    """

    name: str
    options: Values = field(default_factory=dict)

    def build(self, kind: str) -> Any:
        """The plugin of `kind`, built.

        Raises:
            InputError: unknown plugin or option, or a value out of range.
        """
        return registry.build(kind, self.name, self.options)

    def complete(self, kind: str) -> PluginChoice:
        """The same choice with every option of the plugin written out."""
        return dataclasses.replace(self, options=option_values(self.build(kind)))


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
