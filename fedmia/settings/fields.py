"""The settings of a command, and their fields that are no plain options: sections, plugins, lists.

`layout` says at which paths the options of such fields are, `tree` reads and writes them, `schema`
describes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedmia.settings.choices import PluginChoice
from fedmia.settings.errors import InputError
from fedmia.settings.options import Options, type_hints

Classes = tuple[type, ...]


@dataclass(frozen=True)
class Settings(Options):
    """Base of a command's settings. Once built, every option of a chosen plugin is written out.

    Attributes:
        trust_plugins: whether plugins from outside may be imported that a run's folder names, and
            these settings do not. It is no option, so no folder can set it for itself.
        needs: path, or its first part, of options that have an effect under other settings alone
            -> what they need (`fedmia.settings.commands.effects.Need`).
    """

    needs: ClassVar[Mapping[str, Any]] = {}

    trust_plugins: bool = field(default=False, kw_only=True, compare=False, repr=False)

    @classmethod
    def attack_names(cls, flat: Mapping[str, Any]) -> Sequence[str]:
        """Names of the attacks that flat settings run."""
        return ()

    @property
    def idle(self) -> Mapping[str, InputError]:
        """Path of each option that has no effect on any run of several -> the error for it."""
        return {}

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in dataclasses.fields(self):
            if isinstance(form := one.metadata.get("form"), PluginForm):
                chosen = getattr(self, one.name)
                whole = (
                    tuple(layer.complete(form.kind) for layer in chosen)
                    if form.several
                    else (chosen.complete(form.kind))
                )
                object.__setattr__(self, one.name, whole)


@dataclass(frozen=True)
class SectionForm:
    """Options of dataclasses of their own: `--SECTION.OPTION`.

    Attributes:
        classes: the dataclasses.
        head: the option that one value alone stands for, or empty.
        without: names of options that are left out.
        built: whether the field holds an instance; else a mapping of the options that are given.
    """

    classes: Classes
    head: str = ""
    without: tuple[str, ...] = ()
    built: bool = True


@dataclass(frozen=True)
class PluginForm:
    """A plugin by name with its options, `--FIELD.OPTION`, or several, `--FIELD.NAME.OPTION`.

    Attributes:
        kind: of the plugin, as of `fedmia.settings.registry`.
        about: help text.
        default: name of the default plugin; None: none.
        several: whether it is a list of plugins in order.
    """

    kind: str
    about: str
    default: str | None
    several: bool = False


@dataclass(frozen=True)
class NamedForm:
    """Options of each of some plugins, by its name: `--FIELD.NAME.OPTION`."""

    kind: str


@dataclass(frozen=True)
class ListsForm:
    """Lists of values, each under a name: `--FIELD NAME=VALUE,VALUE`.

    Attributes:
        about: help text.
        several: whether it is a list of such mappings, whose names are paths of options. A flag
            then adds to every one of them.
    """

    about: str
    several: bool = False


@dataclass(frozen=True)
class BesideForm:
    """Options of other settings, which stand beside the root's own.

    Attributes:
        classes: dataclasses of these settings.
        without: names of options that do not.
    """

    classes: Classes
    without: tuple[str, ...] = ()


def section(cls: type, head: str = "") -> Any:
    """A field that holds a section of the dataclass `cls`, whose defaults it has.

    `head` is the option that one value alone stands for.
    """
    return field(default_factory=cls, metadata={"form": SectionForm((cls,), head)})


def given_options(*classes: type, without: tuple[str, ...] = ()) -> Any:
    """A field that holds those options of `classes` but `without` that are given, by name."""
    form = SectionForm(classes, without=without, built=False)
    return field(default_factory=dict, metadata={"form": form})


def plugin(kind: str, default: str, about: str) -> Any:
    """A field that holds a plugin, chosen by name.

    Args:
        kind: of the plugin, as of `fedmia.settings.registry`.
        default: name of the default plugin.
        about: help text.
    """
    return field(default=PluginChoice(default), metadata={"form": PluginForm(kind, about, default)})


def plugins(kind: str, about: str) -> Any:
    """A field that holds a list of plugins in order, empty by default.

    Flags: `--FIELD A,B`; their options are `--FIELD.A.OPTION`, or `--FIELD.OPTION` of a single one.

    Args:
        kind: of the plugins, as of `fedmia.settings.registry`.
        about: help text.

    Returns:
        A dataclass field.
    """
    return field(default=(), metadata={"form": PluginForm(kind, about, None, several=True)})


def built_attacks() -> Any:
    """A field of the attacks that settings run, each built once; no option.

    Returns:
        The field: name -> `PluginChoice`.
    """
    return field(default_factory=dict, kw_only=True, compare=False, repr=False)


def named_options(kind: str) -> Any:
    """A field that holds options of each of several plugins of `kind`, by the plugin's name."""
    return field(default_factory=dict, metadata={"form": NamedForm(kind)})


def lists(about: str, several: bool = False) -> Any:
    """A field that holds lists of values by name, as `ListsForm` says."""
    default: Any = ({},) if several else {}
    return field(default_factory=lambda: default, metadata={"form": ListsForm(about, several)})


def options_beside(cls: type, without: tuple[str, ...] = ()) -> Any:
    """A field that holds options of the settings `cls` by their paths, not read yet; they but
    `without` stand beside the root's."""
    return field(default_factory=dict, metadata={"form": BesideForm((cls,), without)})


def fields_of(
    classes: Classes, without: tuple[str, ...] = ()
) -> Iterator[tuple[dataclasses.Field[Any], Any, Any]]:
    """The fields of some dataclasses that a user may give.

    Args:
        classes: the dataclasses.
        without: names of fields that are left out.

    Yields:
        Each field, its type, and its form; None: it is an option, or the options of a plugin which
            another option names.
    """
    for cls in classes:
        for one in dataclasses.fields(cls):
            if one.name not in without and {"form", "help", "options_of"} & one.metadata.keys():
                yield one, type_hints(cls)[one.name], one.metadata.get("form")
