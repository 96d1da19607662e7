"""What flags a command has, as plain data: enough to read a command line and to write its help.

It is read off the settings' dataclass (`flag_layout`), or off the index that `fedmia.cli.index`
writes, where importing the settings would be slow.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmia.config.forms import MappingForm, PluginForm, field_forms


@dataclass(frozen=True)
class FlagLayout:
    """What flags a command's settings have.

    Attributes:
        options: path of every option that depends on no plugin -> placeholder and help, in order.
        heads: beginnings of flags whose options depend on a plugin or a class -> path of the field.
        named_options: fields whose options follow a plugin's name: `--attack.NAME.OPTION`.
        plugins: fields of a plugin or of several -> kind.
        lists: flags given once for each of several names -> placeholder and help.
    """

    options: Mapping[str, Sequence[str]]
    heads: Mapping[str, str]
    named_options: Sequence[str]
    plugins: Mapping[str, str]
    lists: Mapping[str, Sequence[str]]

    def place(self, path: str) -> tuple[str, ...] | None:
        """The keys under which a tree holds the option of a path.

        `partition.alpha` is ("partition", "alpha"). Whether the plugin has the option is not
        checked.

        Args:
            path: of an option, as a flag writes it.

        Returns:
            The keys from the root on; None: there is no such option.
        """
        head, _, rest = path.partition(".")
        if head.replace("-", "_") in self.named_options and "." in rest:
            # The plugin's name keeps its dashes, and may hold dots: package.module:Class.
            plugin, _, last = rest.rpartition(".")
            return (head.replace("-", "_"), plugin, last.replace("-", "_"))
        path = path.replace("-", "_")
        if path in self.options:
            return (path, "name") if self.heads.get(path) == path else tuple(path.split("."))
        head, _, last = path.rpartition(".")
        return (*self.heads[head].split("."), last) if last and head in self.heads else None


@functools.cache  # a class does not change while the process runs
def flag_layout(root: type) -> FlagLayout:
    """The layout of the flags of the settings `root`."""
    fields = field_forms(root)
    opens = {name: form for name, form in fields.items() if isinstance(form, MappingForm)}
    each = [name for name, form in opens.items() if form.kind and not form.of]
    plugins = {name: form for name, form in fields.items() if isinstance(form, PluginForm)}
    several = [name for name, form in plugins.items() if form.several]
    return FlagLayout(
        options={
            path: (hole, about)
            for name, form in fields.items()
            for path, hole, about in form.options(name)
        },
        heads={k: v for name, form in fields.items() for k, v in form.heads(name).items()},
        named_options=[*each, *several],
        plugins={name: form.kind for name, form in plugins.items()},
        lists={
            name: ("OPTION=VALUES" if form.several else "NAME=VALUES", form.about)
            for name, form in opens.items()
            if form.about
        },
    )
