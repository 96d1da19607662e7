"""The settings of a command, and the four kinds of field that they have.

An option is one value (`fedmia.settings.option`). A section holds options of dataclasses of their
own. A plugin is chosen by name, with its options. Lists are values that vary, each under a name.
`layout` says at which paths the options of such fields are, `tree` reads and writes them, `schema`
describes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fedmia.settings.choices import PluginChoice
from fedmia.settings.errors import InputError
from fedmia.settings.options import Options, type_hints
from fedmia.settings.session import short_name

Classes = tuple[type, ...]


@dataclass(frozen=True)
class Settings(Options):
    """Base of a command's settings, as they run: `complete` makes them of what a user gave.

    Attributes:
        trust_plugins: whether plugins from outside may be imported that a run's folder names, and
            these settings do not. It is no option, so no folder can set it for itself.
        needs: path, or its beginning, of options that have an effect under other settings alone
            -> what they need (`fedmia.settings.effects.Need`).
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

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build the settings with every option of a chosen plugin written out."""
        return super().complete(**complete_plugins(cls, values))


@dataclass(frozen=True)
class SectionForm:
    """Options of dataclasses of their own: `--SECTION.OPTION`.

    Attributes:
        classes: the dataclasses.
        head: the option that one value alone stands for, or empty.
        decides: whether another value of the head drops the options of the section that a file
            below gives.
        without: names of options that are left out.
        built: whether the field holds an instance; else a mapping of the options that are given.
        beside: whether the options stand beside the field, and not below its name; such a field
            holds them by their paths.
    """

    classes: tuple[Any, ...]
    head: str = ""
    decides: bool = False
    without: tuple[str, ...] = ()
    built: bool = True
    beside: bool = False


@dataclass(frozen=True)
class PluginForm:
    """Plugins by name with their options: one, `--FIELD.OPTION`, or several,
    `--FIELD.NAME.OPTION`.

    Attributes:
        kind: of the plugin, as of `fedmia.settings.registry`.
        about: help text.
        default: name of the default plugin; None: none.
        several: whether there are several plugins.
        named_by: the option beside the field that names the plugin or plugins, of which the field
            then holds the options alone; empty: the field itself names them.
        flat: whether these options stand beside that option, and not below it.
    """

    kind: str
    about: str = ""
    default: str | None = None
    several: bool = False
    named_by: str = ""
    flat: bool = False


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


def complete_plugins(cls: type, values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values of a dataclass with every option of its plugins written out.

    Args:
        cls: the dataclass.
        values: of its fields that are given.
        above: beginning of their paths, for errors.

    Returns:
        The values, those of plugins that are not given among them.

    Raises:
        InputError: unknown plugin or option, or a value out of range.
    """
    whole = dict(values)
    for one in dataclasses.fields(cls):
        form, path = one.metadata.get("form"), above + one.name
        if isinstance(form, PluginForm) and not form.named_by:
            chosen = values.get(one.name, one.default)
            whole[one.name] = (
                tuple(n.complete(form.kind, f"{path}.{short_name(n.name)}") for n in chosen)
                if form.several
                else chosen.complete(form.kind, path)
            )
    return whole


def section(cls: type[Options], head: str = "", decides: bool = False) -> Any:
    """A field that holds a section of the dataclass `cls`, whose defaults it has.

    Args:
        cls: of the section.
        head: the option that one value alone stands for, or empty.
        decides: whether another value of the head drops what a file below says of the section.

    Returns:
        A dataclass field.
    """
    form = SectionForm((cls,), head, decides)
    return field(default_factory=cls.complete, metadata={"form": form})


def given_options(*classes: type, without: tuple[str, ...] = (), beside: bool = False) -> Any:
    """A field that holds those options of `classes` but `without` that are given.

    Args:
        classes: dataclasses of options.
        without: names of options that are left out.
        beside: whether the options stand beside the field, which then holds them by path.

    Returns:
        A dataclass field.
    """
    form = SectionForm(classes, without=without, built=False, beside=beside)
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
    return field(default=(), metadata={"form": PluginForm(kind, about, several=True)})


def options_of(name: str, kind: str, flat: bool = False, several: bool = False) -> Any:
    """A field that holds the options of a plugin, or of several, which another option names.

    Args:
        name: of the option beside it that names the plugin or plugins.
        kind: of the plugin.
        flat: `--SECTION.OPTION` gives them; else `--SECTION.NAME.OPTION`.
        several: whether the option names several; `--FIELD.NAME.OPTION` gives their options.

    Returns:
        The dataclass field.
    """
    form = PluginForm(kind, several=several, named_by=name, flat=flat)
    return field(default_factory=dict, metadata={"form": form})


def lists(about: str, several: bool = False) -> Any:
    """A field that holds lists of values by name, as `ListsForm` says."""
    default: Any = ({},) if several else {}
    return field(default_factory=lambda: default, metadata={"form": ListsForm(about, several)})


def fields_of(
    classes: Classes, without: tuple[str, ...] = ()
) -> Iterator[tuple[dataclasses.Field[Any], Any, Any]]:
    """The fields of some dataclasses that a user may give.

    Args:
        classes: the dataclasses.
        without: names of fields that are left out.

    Yields:
        Each field, its type, and its form; None: it is an option.
    """
    for cls in classes:
        for one in dataclasses.fields(cls):
            if one.name not in without and {"form", "help"} & one.metadata.keys():
                yield one, type_hints(cls)[one.name], one.metadata.get("form")
