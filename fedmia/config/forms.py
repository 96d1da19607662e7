"""The forms that a field of a command's settings may have, each read and written in one place.

A command's settings are one frozen dataclass. Its fields are options, sections, plugins or
mappings; `tree`, `flag_layout`, the command line and the JSON Schema read these four off it, so
that a new option is one field of one dataclass.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedmia.config.choices import Layer, PluginChoice, Values, option_values
from fedmia.config.dataset_names import split_dataset
from fedmia.config.plugin_lists import (
    copy_mapping,
    expand_layers,
    overlay_layers,
    plain_layers,
    refuse_class_alone,
    split_file_path,
)
from fedmia.options import registry
from fedmia.options.errors import (
    InputError,
    format_value,
    opt,
    suggest_nearest,
    unknown_name,
)
from fedmia.options.option import (
    Options,
    check_limits,
    check_type,
    describe_option,
    option_fields,
    placeholder,
)
from fedmia.options.values import convert, plain
from fedmia.options.yamlfile import Tree

Field = dataclasses.Field[Any]
# Placeholders that the type does not tell.
PLACEHOLDERS: Mapping[str, str] = {"data.name": "NAME[:PATH]", "data.dir": "FOLDER"}


@dataclass(frozen=True)
class Settings(Options):
    """Base of a command's settings. Once built, every option of a chosen plugin is written out.

    Attributes:
        trust_plugins: whether plugins from outside may be imported that a run's folder names, and
            these settings do not. It is no option, so no folder can set it for itself.
    """

    trust_plugins: bool = field(default=False, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in dataclasses.fields(self):
            if isinstance(form := one.metadata.get("form"), PluginForm):
                object.__setattr__(self, one.name, form.complete(getattr(self, one.name)))


class Form:
    """What a field may hold, and how the command line, files and `config.yaml` write it."""

    head: ClassVar[str | None] = None  # the option that one value alone stands for

    def normalize(self, path: str, value: Any) -> Any:
        """Write out every short form of a value.

        Args:
            path: of the field, for errors.
            value: as a file or a flag holds it.

        Returns:
            The value in its long form, as `overlay` and `read` take it.
        """
        alone = self.head is not None and isinstance(value, str)
        return copy_mapping(path, {self.head: value} if alone else value)

    def overlay(self, path: str, below: Any, above: Any) -> Any:
        """Combine two values of the field; the upper one wins.

        Args:
            path: of the field, for errors.
            below: a normalized value.
            above: a normalized value, which replaces `below` or parts of it.

        Returns:
            The combined value, normalized.
        """
        return above

    def read(self, path: str, value: Any, siblings: Values) -> Any:
        """Convert a normalized value to what the dataclass field holds.

        Args:
            path: of the field, for errors.
            value: normalized.
            siblings: all values of the same mapping.

        Returns:
            The field's value.
        """
        return value

    def plain(self, value: Any) -> Any:
        """The field's value as YAML holds it."""
        return plain(value)

    def omits(self, value: Any) -> bool:
        """Whether a tree of settings leaves the field out where it holds this value."""
        return False

    def options(self, path: str) -> Iterator[tuple[str, str, str]]:
        """(path, placeholder, help) of each of its options that depends on no plugin, in order."""
        yield from ()

    def replaces_plugin(self, below: Values, above: Values) -> bool:
        """Whether a tree names another plugin, for a mapping that holds a plugin's options.

        Args:
            below: tree of settings.
            above: tree that is laid over it.

        Returns:
            True where the options in `below` belong to a plugin that `above` replaces.
        """
        return False

    def heads(self, path: str) -> dict[str, str]:
        """Beginnings of flags whose options depend on a plugin or a class -> path of the field."""
        return {}


@dataclass(frozen=True)
class ScalarForm(Form):
    """An option with one value, or a list of values.

    Attributes:
        field: the dataclass field.
        kind: its type.
    """

    field: Field
    kind: Any

    def normalize(self, path: str, value: Any) -> Any:
        return value

    def read(self, path: str, value: Any, siblings: Values) -> Any:
        value, choices = convert(opt(path), value, self.kind), self.field.metadata["choices"]
        if choices and self.kind is str and not isinstance(value, str):  # YAML reads 3, null, true
            text = "null" if value is None else format_value(value)
            raise unknown_name(f"{opt(path)} value", text, choices)
        check_type(opt(path), value, self.kind)
        check_limits(opt(path), value, self.field.metadata)
        return value

    def omits(self, value: Any) -> bool:
        return bool(self.field.metadata["omitted"]) and value == self.field.default

    def options(self, path: str) -> Iterator[tuple[str, str, str]]:
        hole = PLACEHOLDERS.get(path) or placeholder(self.kind, self.field.metadata)
        yield path, hole, describe_option(self.field)


@dataclass(frozen=True)
class SectionForm(Form):
    """Options of a dataclass of their own.

    Attributes:
        cls: the dataclass.
        head: the option that one value alone stands for, or None.
        open: whether it is a tree of other settings, whose options stand beside the root's.
        without: names of options of these that do not.
    """

    cls: type
    head: str | None = None  # type: ignore[misc]
    open: bool = False
    without: tuple[str, ...] = ()

    def beside(self) -> dict[str, Form]:
        """The forms of the options that stand beside the root's."""
        return {n: f for n, f in field_forms(self.cls).items() if n not in self.without}

    def normalize(self, path: str, value: Any) -> Tree:
        value = super().normalize(path, value)
        return getattr(self.cls, "implied", dict)(value) | value

    def overlay(self, path: str, below: Any, above: Any) -> Tree:
        own = field_forms(self.cls)
        flat = find_flat_field(own)
        if flat is not None and own[flat].replaces_plugin(below, above):
            below = {name: value for name, value in below.items() if name in own}
        return {**below, **above}

    def read(self, path: str, value: Any, siblings: Values) -> Any:
        return self.cls(**read_options((self.cls,), path, value))

    def plain(self, value: Any) -> Tree:
        forms = field_forms(self.cls)
        own = {n: v for n, v in option_values(value).items() if not forms[n].omits(v)}
        options: Tree = plain(own | dict(getattr(value, "options", {})))
        return options

    def options(self, path: str) -> Iterator[tuple[str, str, str]]:
        for name, form in field_forms(self.cls).items():
            yield from form.options(f"{path}.{name}")

    def heads(self, path: str) -> dict[str, str]:
        return {path: path} if find_flat_field(field_forms(self.cls)) else {}


@dataclass(frozen=True)
class PluginForm(Form):
    """A plugin by name with its options, or a list of plugins.

    Attributes:
        kind: of the plugin, as of `fedmia.options.registry`.
        about: help text.
        default: name of the default plugin; None: none.
        several: whether it is a list of plugins in order.
    """

    kind: str
    about: str
    default: str | None
    several: bool = False
    head: ClassVar[str | None] = "name"

    def normalize(self, path: str, value: Any) -> Any:
        if self.several:
            return expand_layers(path, value)
        return split_file_path(path, self.kind, super().normalize(path, value))

    def overlay(self, path: str, below: Any, above: Any) -> Any:
        if self.several:
            return overlay_layers(path, below, above)
        return {**(below if above.get("name", ...) in (..., below.get("name")) else {}), **above}

    def read(self, path: str, value: Any, siblings: Values) -> Any:
        if not self.several:
            own = dict(value)
            name = own.pop("name", self.default)
            check_type(opt(path), name, str)
            return PluginChoice(str(name), plugin_options(self.kind, str(name), path, own))
        if isinstance(value, Mapping):  # options of none
            for key, own in value.items():
                key = f"{key}.{next(iter(own), 'OPTION')}" if isinstance(own, Mapping) else key
                raise InputError(f"{path}.{key} needs {opt(path, 'NAME')}")
            return ()
        return tuple(
            self._layer(path if len(value) == 1 else f"{path}.{one['name']}", one) for one in value
        )

    def _layer(self, path: str, layer: Tree) -> Layer:
        own = dict(layer)
        name, clients = str(own.pop("name")), own.pop("clients", None)
        if clients is not None:
            ids = convert(opt(f"{path}.clients"), clients, tuple[int, ...])
            clients = (ids,) if isinstance(ids, int) else ids
            check_type(opt(f"{path}.clients"), clients, tuple[int, ...])
        return Layer(name, plugin_options(self.kind, name, path, own), clients)

    def complete(self, chosen: Any) -> Any:
        """What the field holds with every option of each plugin written out."""
        if self.several:
            return tuple(layer.complete(self.kind) for layer in chosen)
        return chosen.complete(self.kind)

    def plain(self, value: Any) -> Any:
        if self.several:
            return plain(plain_layers(value))
        return plain({"name": value.name, **value.options})

    def options(self, path: str) -> Iterator[tuple[str, str, str]]:
        default = "" if self.several else f" (default {self.default})"
        yield path, "NAMES" if self.several else "NAME", self.about + default

    def heads(self, path: str) -> dict[str, str]:
        return {path: path}


@dataclass(frozen=True)
class MappingForm(Form):
    """A mapping whose keys the user chooses.

    Attributes:
        kind: its keys name plugins of this kind, each with options; with `of` they are options of
            the one plugin of this kind that the option `of` beside it names.
        of: that option, or empty.
        default: the value of that option where none is given.
        flat: they stand among the options beside it, not in a mapping of their own.
        classes: its keys are options of these dataclasses; it holds only those that are given.
        without: options of these classes that it does not take.
        about: its keys have lists of values; help of their flag.
        several: it is a list of such mappings.
    """

    kind: str = ""
    of: str = ""
    default: Any = None
    flat: bool = False
    classes: tuple[type, ...] = ()
    without: tuple[str, ...] = ()
    about: str = ""
    several: bool = False

    def normalize(self, path: str, value: Any) -> Any:
        if self.several:
            return value
        value = copy_mapping(path, value)
        if self.kind and not self.of:
            return {key: copy_mapping(f"{path}.{key}", own) for key, own in value.items()}
        for name, inner in dependent_fields(self.classes).items():
            if isinstance(value.get(inner.of), Mapping):  # a plugin and its options in one
                own = copy_mapping(f"{path}.{inner.of}", value.pop(inner.of))
                value |= {inner.of: own.pop("name")} if "name" in own else {}
                value[name] = {**own, **value.get(name, {})}
        return value

    def overlay(self, path: str, below: Any, above: Any) -> Any:
        if self.several:
            lower = [copy_mapping(path, one) for one in below] if isinstance(below, list) else None
            return above if lower is None else [{**one, **more} for one in lower for more in above]
        if self.kind and not self.of:
            both = {**below, **above}
            return {name: {**below.get(name, {}), **above.get(name, {})} for name in both}
        merged = {**below, **above}
        for name, inner in dependent_fields(self.classes).items():
            if inner.of not in above and name in below:
                merged[name] = {**below[name], **above.get(name, {})}
            elif above.get(inner.of) != below.get(inner.of) and name not in above:
                merged.pop(name, None)
        return merged

    def omits(self, value: Any) -> bool:
        return not value

    def replaces_plugin(self, below: Values, above: Values) -> bool:
        # Another file of one data source is the same: parquet:A, parquet:B.
        before, after = (str(tree.get(self.of)).partition(":")[0] for tree in (below, above))
        return bool(self.of) and self.of in above and before != after

    def read(self, path: str, value: Any, siblings: Values) -> Any:
        if self.about:
            return value
        if self.classes:
            return read_options(self.classes, path, value, self.without)
        if not self.of:
            for name, own in value.items():
                refuse_class_alone(path, name, own, siblings.get(f"{path}s"))
            own = value.items()
            return {n: plugin_options(self.kind, n, f"{path}.{n}", v) for n, v in own}
        path = path.removesuffix("_options")  # as the flag, which holds the plugin too
        name = siblings.get(self.of, self.default)
        if not isinstance(name, str):
            key = next(iter(value), "OPTION")
            raise InputError(f"{path}.{key} needs {opt(self.of, 'DATASET')}")
        name = split_dataset(name)[0] if self.kind == "dataset" else name
        return plugin_options(self.kind, name, path, copy_mapping(path, value))

    def heads(self, path: str) -> dict[str, str]:
        if self.of:
            return {".".join([*path.split(".")[:-1], self.of]): path}
        within = dependent_fields(self.classes).items()
        inner = {k: v for name, one in within for k, v in one.heads(f"{path}.{name}").items()}
        return {path: path, **inner} if self.classes else {}


def field_forms(cls: type) -> dict[str, Form]:
    """The form of each field that a user may give, by its name, in order."""
    return _forms(cls)


@functools.cache  # a class does not change while the process runs
def _forms(cls: Any) -> dict[str, Form]:
    fields: dict[str, Form] = {}
    kinds = {one.name: kind for one, kind in option_fields(cls)}
    # A command's own data source is named before it takes options.
    own_fields = () if issubclass(cls, Settings) else dataclasses.fields(cls)
    defaults = {one.name: one.default for one in own_fields}
    for one in dataclasses.fields(cls):
        form, about = one.metadata.get("form"), one.metadata
        if isinstance(form, SectionForm) and form.open:
            fields |= form.beside()
        elif form is not None:
            fields[one.name] = form
        elif "options_of" in about:
            of = about["options_of"]
            fields[one.name] = MappingForm(about["kind"], of, defaults.get(of), about["flat"])
        elif one.name in kinds:
            fields[one.name] = ScalarForm(one, kinds[one.name])
    return fields


def find_flat_field(fields: Mapping[str, Form]) -> str | None:
    """The field whose keys stand among those of the section, if one does."""
    return next(
        (n for n, form in fields.items() if isinstance(form, MappingForm) and form.flat), None
    )


def dependent_fields(classes: tuple[type, ...]) -> dict[str, MappingForm]:
    """The fields of `classes` that hold options of a plugin, which another field names."""
    inner = {name: form for cls in classes for name, form in field_forms(cls).items()}
    return {name: form for name, form in inner.items() if isinstance(form, MappingForm)}


def tree_fields(root: type) -> dict[str, str]:
    """Fields that stand beside a root's own -> the field that holds their tree."""
    of = {one.name: one.metadata.get("form") for one in dataclasses.fields(root)}
    trees = {name: f for name, f in of.items() if isinstance(f, SectionForm) and f.open}
    return {inner: name for name, form in trees.items() for inner in form.beside()}


def read_options(
    classes: tuple[type, ...], path: str, tree: Values, without: tuple[str, ...] = ()
) -> Tree:
    """Convert and check the values of the fields of some dataclasses.

    Args:
        classes: the dataclasses.
        path: of the mapping in the settings, for errors.
        tree: option -> value as a file or a flag holds it.
        without: names of fields that are left out.

    Returns:
        Field -> value, of the fields that `tree` gives.

    Raises:
        InputError: an unknown key (with the nearest one), a wrong type, a value out of range.
    """
    fields = [one for cls in classes for one in field_forms(cls).items()]
    known = {name: one for name, one in fields if name not in without}
    flat = find_flat_field(known)
    values: Tree = {}
    rest: Tree = {}
    for key, value in tree.items():
        where = f"{path}.{key}" if path else str(key)
        if flat is not None and (key not in known or key == flat):
            rest[key] = value
        elif key not in known:
            paths = [f"{path}.{n}" for n in known] if path else [*known, *_paths_in_sections(known)]
            name = where.rpartition(".")[2]
            raise InputError(f"unknown option {where}{suggest_nearest(name, paths)}")
        else:
            values[key] = known[key].read(where, value, tree)
    if flat is not None and rest:
        values[flat] = known[flat].read(path, rest, values)
    return values


def _paths_in_sections(fields: Mapping[str, Form]) -> list[str]:
    """Paths of the options of sections and of plugins."""
    classes = [
        (name, registry.load(form.kind, one))
        for name, form in fields.items()
        if isinstance(form, PluginForm) and not form.several
        for one in registry.names(form.kind)
    ]
    sections = [(name, one.cls) for name, one in fields.items() if isinstance(one, SectionForm)]
    return [f"{name}.{n}" for name, cls in [*sections, *classes] for n in field_forms(cls)]


def plugin_options(kind: str, name: str, path: str, tree: Tree) -> Tree:
    """Convert and check the options of a plugin.

    Args:
        kind: of the plugin.
        name: of the plugin.
        path: of the options in the settings, for errors.
        tree: option -> value as a file or a flag holds it.

    Returns:
        Option -> value.

    Raises:
        InputError: an unknown plugin or option, a wrong type, a value out of range.
    """
    cls = registry.load(kind, name)
    for key in tree:
        if key in field_forms(cls):
            continue
        others = [n for n in registry.names(kind) if key in field_forms(registry.load(kind, n))]
        if others:
            raise InputError(
                f"{path}.{key} is no option of {kind} '{name}', but of {', '.join(others)}"
            )
        raise unknown_name(f"option {path}.{key}: {kind} '{name}' has no", key, field_forms(cls))
    return read_options((cls,), path, tree)
