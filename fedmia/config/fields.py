"""Fields of settings that are no plain options: sections, trees, plugins and mappings."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from fedmia.config.choices import PluginChoice
from fedmia.config.forms import MappingForm, PluginForm, SectionForm


def section(cls: type, head: str | None = None) -> Any:
    """A field that holds a section of the dataclass `cls`, whose defaults it has.

    `head` is the option that one value alone stands for.
    """
    return field(default_factory=cls, metadata={"form": SectionForm(cls, head)})


def settings_tree(cls: type, without: tuple[str, ...] = ()) -> Any:
    """A field that holds a tree of the settings `cls`; their options but `without` stand beside the
    root's."""
    form = SectionForm(cls, open=True, without=without)
    return field(default_factory=dict, metadata={"form": form})


def plugin(kind: str, default: str, about: str) -> Any:
    """A field that holds a plugin, chosen by name.

    Args:
        kind: of the plugin, as of `fedmia.options.registry`.
        default: name of the default plugin.
        about: help text.
    """
    return field(default=PluginChoice(default), metadata={"form": PluginForm(kind, about, default)})


def plugins(kind: str, about: str) -> Any:
    """A field that holds a list of plugins in order, empty by default.

    Flags: `--FIELD A,B`; their options are `--FIELD.A.OPTION`, or `--FIELD.OPTION` of a single one.

    Args:
        kind: of the plugins, as of `fedmia.options.registry`.
        about: help text.

    Returns:
        A dataclass field.
    """
    return field(default=(), metadata={"form": PluginForm(kind, about, None, several=True)})


def mapping(
    kind: str = "",
    *,
    classes: tuple[type, ...] = (),
    without: tuple[str, ...] = (),
    about: str = "",
    several: bool = False,
) -> Any:
    """A field that holds a mapping whose keys the user chooses; `MappingForm` says which.

    Flags: `--attack.NAME.OPTION`, `--shadow.OPTION`, `--strengths NAME=V1,V2`, `--over PATH=V1,V2`.

    Args:
        kind: the keys are names of plugins of this kind; empty: they are not.
        classes: the keys are options of these dataclasses.
        without: options of these classes that are left out.
        about: help text.
        several: whether it is a list of such mappings. A flag then adds to every one of them.

    Returns:
        A dataclass field.
    """
    form = MappingForm(kind, classes=classes, without=without, about=about, several=several)
    return field(default_factory=lambda: ({},) if several else {}, metadata={"form": form})
