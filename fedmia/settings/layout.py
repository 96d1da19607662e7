"""Where the options of a command's settings are: the paths of all, read off its dataclass.

`FlagLayout` is the part of it that a command line and its help need, as plain data; the index that
`fedmia.cli.index` writes has it too, where importing the settings would be slow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmia.settings import registry, session
from fedmia.settings.dataset_names import split_dataset
from fedmia.settings.errors import (
    SHORT_FLAGS,
    InputError,
    opt,
    suggest_nearest,
    unknown_name,
    wrong_value,
)
from fedmia.settings.fields import Classes, ListsForm, PluginForm, SectionForm, fields_of
from fedmia.settings.options import describe_option, option, option_fields, placeholder

Leaf = tuple[dataclasses.Field[Any], Any]  # an option, and its type
Flat = dict[str, Any]  # path of each option that is given -> its value


@dataclass(frozen=True)
class FlagLayout:
    """What flags a command's settings have.

    Attributes:
        options: path of every option that depends on no plugin -> placeholder and help, in order.
        heads: beginnings of the paths of options that depend on a plugin, or are not listed.
        named_options: fields whose options follow a plugin's name: `--attack.NAME.OPTION`.
        plugins: fields of a plugin or of several -> kind.
        lists: flags given once for each of several names -> placeholder and help.
        short: short name of an option, or its beginning -> the path.
        headings: heading of help -> paths of the options that name it themselves.
    """

    options: Mapping[str, Sequence[str]]
    heads: Sequence[str]
    named_options: Sequence[str]
    plugins: Mapping[str, str]
    lists: Mapping[str, Sequence[str]]
    short: Mapping[str, str]
    headings: Mapping[str, Sequence[str]]

    def whole(self, name: str) -> str:
        """The path for a flag that begins with a short name; any other as it is, its first part as
        keys are written."""
        first, dot, rest = name.partition(".")
        beginnings = {p.partition(".")[0] for p in (*self.options, *self.heads) if "." in p}
        return expand_short(first.replace("-", "_") + dot + rest, self.short, beginnings)

    def find(self, path: str) -> str | None:
        """The path of an option as files have it; None: there is none.

        Args:
            path: as a flag writes it. Whether the plugin has the option is not checked.
        """
        plain = path.replace("-", "_")
        for head in self.named_options:
            rest = path[len(head) + 1 :]
            if plain.startswith(f"{head}.") and "." in rest:
                # The plugin's name keeps its dashes, and may hold dots: package.module:Class.
                plugin, _, last = rest.rpartition(".")
                return f"{head}.{plugin}.{last.replace('-', '_')}"
        return plain if plain in self.options or plain.rpartition(".")[0] in self.heads else None


class Layout:
    """The paths of the options of a command's settings, read off its dataclass.

    Args:
        root: the dataclass.

    Attributes:
        options: path of every option that depends on no plugin -> its field and type.
        sections: beginnings of paths.
        unlisted: paths of options that help does not list.
        plugins: beginning of the paths of a plugin's options -> kind, and path of its name.
        by_name: fields whose options follow a plugin's name -> kind.
        layers: those of them that hold several plugins in order.
        lists: fields of lists by name.
        deciding: section whose other options go with its head -> the path of the head.
        short: what stands for a path: a section for its head, `FIELD.name` for the plugin's field,
            and the short name of an option, which is also its flag.
    """

    def __init__(self, root: type) -> None:
        self.options: dict[str, Leaf] = {}
        self.sections: set[str] = set()
        self.unlisted: set[str] = set()
        self.plugins: dict[str, tuple[str, str]] = {}
        self.by_name: dict[str, str] = {}
        self.layers: list[str] = []
        self.lists: dict[str, ListsForm] = {}
        self.deciding: dict[str, str] = {}
        self.short: dict[str, str] = {}
        self.add((root,))
        short = {name: path for path, name in SHORT_FLAGS.items() if path in self.options}
        self.short |= {name: path for name, path in short.items() if name not in self.options}

    def add(self, classes: Classes, above: str = "", without: tuple[str, ...] = ()) -> None:
        """Add the paths of the fields of dataclasses.

        Args:
            classes: the dataclasses.
            above: beginning of the paths.
            without: paths below it that are left out.
        """
        for one, kind, form in fields_of(classes, without):
            path = above + one.name
            match form:
                case SectionForm():
                    begin = above if form.beside else f"{path}."
                    out = [w.removeprefix(f"{one.name}.") for w in without if f"{one.name}." in w]
                    self.sections |= set() if form.beside else {path}
                    self.short |= {path: f"{path}.{form.head}"} if form.head else {}
                    self.deciding |= {path: f"{path}.{form.head}"} if form.decides else {}
                    before = {*self.options}
                    self.add(form.classes, begin, (*form.without, *out))
                    self.unlisted |= {*self.options} - before if begin and not form.built else set()
                case PluginForm(named_by=""):
                    self._add_plugin(path, form)
                case PluginForm(several=True):
                    self.sections.add(path)
                    self.by_name[path] = form.kind
                case PluginForm():
                    of = above + form.named_by
                    head = above[:-1] if form.flat else of
                    self.sections.add(head)
                    self.plugins[head] = form.kind, of
                    self.short |= {} if head != of else {f"{of}.name": of}
                case ListsForm():
                    self.sections.add(path)
                    self.lists[path] = form
                case None:
                    self.options[path] = one, kind

    def _add_plugin(self, path: str, form: PluginForm) -> None:
        self.sections.add(path)
        self.short[f"{path}.name"] = path
        if form.several:
            self.options[path] = option(None, form.about, hole="NAMES"), tuple[str, ...] | None
            self.by_name[path] = form.kind
            self.layers.append(path)
        else:
            self.options[path] = option(form.default, form.about, hole="NAME"), str
            self.plugins[path] = form.kind, path

    def canonical(self, path: str) -> str:
        """The whole path for one that begins with what is short for another."""
        return expand_short(path, self.short, self.sections)

    def field_of(self, path: str, fields: Iterable[str]) -> str | None:
        """Which of `fields` a path is or lies below; None: none of them."""
        return next((one for one in fields if path == one or path.startswith(f"{one}.")), None)

    def flags(self) -> FlagLayout:
        """What flags there are."""
        every = {p: (placeholder(k, one.metadata), describe_option(one))
                 for p, (one, k) in self.options.items()}  # fmt: skip
        holes = {True: "OPTION=VALUES", False: "NAME=VALUES"}
        own = {path: kind for path, (kind, of) in self.plugins.items() if path == of}
        headings: dict[str, list[str]] = {}
        for path, (one, _) in self.options.items():
            if heading := one.metadata["heading"]:
                headings.setdefault(heading, []).append(path)
        unlisted = sorted({path.rpartition(".")[0] for path in self.unlisted})
        return FlagLayout(
            {p: v for p, v in every.items() if p not in self.unlisted},
            [*self.plugins, *self.layers, *unlisted],
            [*self.by_name],
            own | {path: self.by_name[path] for path in self.layers},
            {name: (holes[form.several], form.about) for name, form in self.lists.items()},
            {name: path for name, path in self.short.items() if "." not in name},
            headings,
        )

    def leaf(self, path: str, flat: Mapping[str, Any]) -> Leaf:
        """The field and type of an option.

        Args:
            path: of the option.
            flat: all settings, for the names of plugins.

        Returns:
            Both.

        Raises:
            InputError: no such option (with the nearest one), or its plugin is not named.
        """
        if path in self.options:
            return self.options[path]
        head = path.rpartition(".")[0]
        by_name = self.field_of(head, self.by_name)
        if by_name is not None:
            name = head.removeprefix(by_name).removeprefix(".")
            if by_name in self.layers:
                self._check_layer(by_name, name, path, flat)
                if path == f"{head}.clients":
                    return option(None, "clients that apply it"), tuple[int, ...] | None
            if name:
                refuse_class_alone(path, name, flat)
                return plugin_option(self.by_name[by_name], name.partition("#")[0], path)
        if head in self.plugins:
            kind, of = self.plugins[head]
            name = flat.get(of, self.options[of][0].default)
            if not isinstance(name, str):
                raise InputError(f"{path} needs {opt(of, 'DATASET')}")
            return plugin_option(kind, split_dataset(name)[0] if kind == "dataset" else name, path)
        if path in self.sections or head in self.by_name:
            raise wrong_value(path, flat[path], "a mapping of options")
        raise self._unknown(path)

    def _check_layer(self, field: str, name: str, path: str, flat: Mapping[str, Any]) -> None:
        """Refuse an option of a plugin that is not in the list."""
        names = layer_names(flat.get(field))
        if not names:
            raise InputError(f"{path} needs {opt(field, 'NAME')}")
        if name not in names:
            raise InputError(
                f"options for {field} '{name}', which is not applied (applied: {', '.join(names)})"
            )

    def _unknown(self, path: str) -> InputError:
        """The error for an option that there is not, with the nearest one."""
        head, _, last = path.rpartition(".")
        known = [*self.options, *self.lists, *(name for name in self.short if "." not in name)]
        for begin, (kind, _) in self.plugins.items():
            classes = [registry.load(kind, name) for name in registry.names(kind)]
            known += [f"{begin}.{one.name}" for cls in classes for one, _ in option_fields(cls)]
        beside = [one for one in known if head and one.startswith(f"{head}.")]
        return InputError(f"unknown option {path}{suggest_nearest(last, beside or known)}")


@functools.cache  # a class does not change while the process runs
def layout(root: type) -> Layout:
    """The layout of the settings `root`."""
    return Layout(root)


def expand_short(path: str, short: Mapping[str, str], sections: Collection[str]) -> str:
    """The whole path for one that is short, or begins with what is short, for another.

    Args:
        path: of an option.
        short: what is short -> the path that it stands for.
        sections: beginnings of whole paths.

    Returns:
        The path; any other as it is.
    """
    if path in short:
        return short[path]
    first, dot, rest = path.partition(".")
    return path if first in sections or first not in short else f"{short[first]}{dot}{rest}"


def layer_names(value: Any) -> list[str]:
    """The names in the value of a list of plugins, a text with commas or a list; of a plugin that
    is there again, NAME#2."""
    if not isinstance(value, str):
        return list(value or ())
    return [] if value in ("none", "") else [one.strip() for one in value.split(",")]


def plugin_option(kind: str, name: str, path: str) -> Leaf:
    """The field and type of a plugin's option.

    Args:
        kind: of the plugin.
        name: of the plugin.
        path: of the option.

    Returns:
        Both.

    Raises:
        InputError: an unknown plugin, or one without this option.
    """
    key, own = path.rpartition(".")[2], _options(registry.load(kind, name))
    if key in own:
        return own[key]
    others = [n for n in registry.names(kind) if key in _options(registry.load(kind, n))]
    if others:
        raise InputError(f"{path} is no option of {kind} '{name}', but of {', '.join(others)}")
    raise unknown_name(f"option {path}: {kind} '{name}' has no", key, own)


def _options(cls: type) -> dict[str, Leaf]:
    return {one.name: (one, kind) for one, kind in option_fields(cls)}


def refuse_class_alone(path: str, name: str, flat: Mapping[str, Any]) -> None:
    """Refuse an option under `Class` where `package.module:Class` runs; the message says the way.

    Args:
        path: of the option: `attack.Class.OPTION`.
        name: the plugin in it.
        flat: all settings; `attacks` of them names the plugins that run.

    Raises:
        InputError: `name` is the last part of one that runs.
    """
    field, _, key = path.partition(".")[0], "", path.rpartition(".")[2]
    for one in map(str, layer_names(flat.get(f"{field}s"))):
        short = session.short_name(one).rpartition(":")[2]
        if ":" in one and name.lower() == short.lower() and name != one:
            right = opt(f"{field}.{one}.{key}")
            if session.is_session_name(one):
                right = f"those of the object: {short}({key}={flat[path]!r})"
            raise InputError(f"{opt(path)}: options of '{session.short_name(one)}' are {right}")
