"""The forms that a field of a command's settings may have beside a plain option.

A command's settings are one frozen dataclass. Its fields are options, or one of the forms here;
`tree`, `flags` and `help` read them off it, so that a new option is one field of one dataclass.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmia.options import registry
from fedmia.options.errors import InputError, Tongue, in_python, opt, unknown
from fedmia.options.option import Options, option_fields

Values = Mapping[str, Any]
Field = dataclasses.Field[Any]


@dataclass(frozen=True)
class Settings(Options):
    """Base of a command's settings.

    Attributes:
        tongue: how its options are said to who gave them, in what is kept for the report.
        trust_plugins: whether plugins from outside may be imported that a run's folder names, and
            these settings do not. No option, so that no folder can say it of itself.
    """

    tongue: Tongue = field(default=in_python, kw_only=True, compare=False, repr=False)
    trust_plugins: bool = field(default=False, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True)
class Chosen:
    """A plugin by name, with its options."""

    name: str
    options: Values = field(default_factory=dict)

    def build(self, kind: str) -> Any:
        """The plugin of `kind`, built.

        Raises:
            InputError: unknown plugin or option, or a value out of range.
        """
        return registry.build(kind, self.name, self.options)

    def complete(self, kind: str) -> Chosen:
        """The same choice with every option of the plugin written out."""
        return Chosen(self.name, all_values(self.build(kind)))


@dataclass(frozen=True)
class Layer(Chosen):
    """One of several plugins that are applied in order, to some clients.

    Attributes:
        clients: partition ids; None: those that another option names for all layers.
    """

    clients: tuple[int, ...] | None = None

    def complete(self, kind: str) -> Layer:
        return Layer(self.name, super().complete(kind).options, self.clients)


def section(cls: type, head: str | None = None) -> Any:
    """A field that holds a section, its defaults those of `cls`; one value alone is its `head`."""
    return field(default_factory=cls, metadata={"section": cls, "head": head})


def plugin(kind: str, default: str, about: str) -> Any:
    """A field that holds a plugin of `kind`, chosen by name."""
    about_it = {"plugin": kind, "about": about, "name": default, "head": "name"}
    return field(default=Chosen(default), metadata=about_it)


def layers(kind: str, about: str) -> Any:
    """A field that holds plugins of `kind` in order, none at first: `--FIELD A,B`, their options
    `--FIELD.A.OPTION`, or `--FIELD.OPTION` of a single one."""
    about_it = {"layers": kind, "about": about, "name": None, "head": "name"}
    return field(default=(), metadata=about_it)


def each(kind: str) -> Any:
    """A field that maps names of plugins of `kind` to options of theirs: `--attack.NAME.OPTION`."""
    return field(default_factory=dict, metadata={"each": kind})


def given(*classes: type, without: tuple[str, ...] = ()) -> Any:
    """A field that holds those options of `classes` that were given, by name; `without` some."""
    return field(default_factory=dict, metadata={"given": classes, "without": without})


def source_options(of: str) -> Any:
    """A field that holds options of the data source that option `of` names: `--of.OPTION`."""
    return field(default_factory=dict, metadata={"source": of})


def rest(kind: str) -> Any:
    """A field of a section: options of the plugin of `kind` that the section's `name` names."""
    return field(default_factory=dict, metadata={"rest": kind})


def beside(cls: type) -> Any:
    """A field that holds a tree of the settings `cls`, whose options stand beside the root's."""
    return field(default_factory=dict, metadata={"beside": cls})


def grids(about: str) -> Any:
    """A field that holds grids: mappings of an option's path to its values, the cells of each
    added up. `--grid PATH=V1,V2` adds to every one of them."""
    return field(default=({},), metadata={"grids": about})


def lists(about: str) -> Any:
    """A field that maps names to lists of values: `--strengths NAME=V1,V2`, once for each name or
    with semicolons between."""
    return field(default_factory=dict, metadata={"lists": about})


def parts(root: type) -> Iterator[tuple[Field, Any]]:
    """The fields of a command's settings that a user may give, with their types; in order."""
    kinds = {f.name: kind for f, kind in option_fields(root)}
    for one in dataclasses.fields(root):
        if "beside" in one.metadata:
            yield from parts(one.metadata["beside"])
        elif one.metadata:
            yield one, kinds.get(one.name)


def in_tree_of(root: type) -> dict[str, str]:
    """Fields that stand beside a root's own -> the field that holds the tree they are put in."""
    held = [f for f in dataclasses.fields(root) if "beside" in f.metadata]
    return {one.name: f.name for f in held for one, _ in parts(f.metadata["beside"])}


def place(root: type, path: str) -> tuple[str, ...] | None:
    """Where in a tree the option of that path stands: `partition.alpha` is ("partition", "alpha").

    None: no such option. Whether a plugin has it is not asked.
    """
    for each in (one.name for one, _ in parts(root) if {"each", "layers"} & one.metadata.keys()):
        head, _, rest = path.partition(".")
        if head.replace("-", "_") == each and "." in rest:
            # The plugin's name keeps its dashes, and may hold dots: package.module:Class.
            plugin, _, last = rest.rpartition(".")
            return (each, plugin, last.replace("-", "_"))
    path = path.replace("-", "_")
    if path in {p for p, _, _ in option_paths(root)} | gone_paths(root):
        return tuple(path.split("."))
    head, _, last = path.rpartition(".")
    heads = open_heads(root)
    return (*heads[head].split("."), last) if last and head in heads else None


def option_paths(root: type) -> Iterator[tuple[str, Field, Any]]:
    """(path, field, type) of every option that does not depend on a plugin, in order."""
    for one, kind in parts(root):
        if kind is not None:
            yield one.name, one, kind
        elif {"plugin", "layers"} & one.metadata.keys():
            yield f"{one.name}.name", one, str
        elif "section" in one.metadata:
            for inner, type_ in option_fields(one.metadata["section"]):
                yield f"{one.name}.{inner.name}", inner, type_


def gone_paths(root: type) -> set[str]:
    """Paths of options that sections had once; `tree` says what one asks for instead."""
    sections = [one for one, _ in parts(root) if "section" in one.metadata]
    return {f"{one.name}.{name}" for one in sections for name in one.metadata["section"].gone}


def open_heads(root: type) -> dict[str, str]:
    """Beginnings of flags whose options depend on a plugin or a class -> path of the field."""
    found = {}
    for one, _ in parts(root):
        inner = dataclasses.fields(one.metadata["section"]) if "section" in one.metadata else ()
        if "source" in one.metadata:
            found[one.metadata["source"]] = one.name
        elif {"plugin", "layers", "given"} & one.metadata.keys() or any(
            "rest" in f.metadata for f in inner
        ):
            found[one.name] = one.name
        for inner_one in plugin_options(one):
            chosen = inner_one.metadata["options_of"]
            found[f"{one.name}.{chosen}"] = f"{one.name}.{inner_one.name}"
    return found


def plugin_options(one: Field) -> list[Field]:
    """The fields of a `given` field's classes that hold options of a plugin."""
    classes = one.metadata.get("given", ())
    return [f for cls in classes for f in dataclasses.fields(cls) if "options_of" in f.metadata]


def all_values(built: Any) -> dict[str, Any]:
    """Every option of a section or a plugin with its value."""
    return {one.name: getattr(built, one.name) for one, _ in option_fields(type(built))}


def dataset_and_path(spec: str) -> tuple[str, str | None]:
    """Plugin and path of `digits`, `parquet:PATH`, `package.module:Class` or that with `:PATH`.

    Raises:
        InputError: an unknown data source, a path missing or one that the source does not take.
    """
    known = registry.names("dataset")
    name, _, after = spec.partition(":")
    path: str | None = after
    if name not in known:
        if ":" not in spec or importlib.util.find_spec(name.partition(".")[0] or "?") is None:
            raise unknown("dataset", name, known)
        attribute, _, path = after.partition(":")
        name = f"{name}:{attribute}"
    takes = registry.load("dataset", name).takes_path
    if takes and not path:
        raise InputError(f"dataset '{spec}' needs a path: {name}:PATH")
    if path and not takes:
        raise InputError(f"dataset '{name}' takes no path, got '{spec}'")
    return name, path or None


def needs(path: str, other: str, value: Any, given: Any = ...) -> InputError:
    """The error for an option (of value `given`) that means nothing without another."""
    return InputError(f"{opt(path, given)} needs {opt(other, value)}")
