"""Splits the command line into options and their text; values are converted later."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from fedmia.settings.errors import (
    SHORT_FLAGS,
    InputError,
    prefix_errors,
    suggest_nearest,
    wrong_value,
)
from fedmia.settings.layout import FlagLayout, layout
from fedmia.settings.presets import preset_names
from fedmia.settings.values import Text, disk_path

# Options that may stand without a value: whether the next argument is one.
OPTIONAL: Mapping[str, Callable[[str], bool]] = {
    "list": lambda text: not text.startswith("-"),
    "plan": lambda text: text[:1].isdigit() or text[:1] == ".",
}
# Switches of every command. `list` may be followed by a kind of plugin.
SWITCHES: Mapping[str, str] = {
    "quiet": "print no progress",
    "json": "print the results as JSON, and nothing else, in place of the table",
    "trust_plugins": "import plugins from outside (package.module:Class) that the folder of a run "
    "names, though these settings do not",
    "help": "show this page",
    "version": "show the version",
    "schema": "",  # for editors and scripts: the JSON Schema of the YAML file
}


INDEX = Path(__file__).with_name("index.json")  # `python -m fedmia.cli.index` writes it


@dataclass(frozen=True)
class Command:
    """A command as its front ends read it; its options are the fields of `root`.

    Attributes:
        root: dataclass of the settings, or `module:Class` of it.
        usage: of the help page.
        intro: what the help page says first.
        outro: what it says last.
        own: options of the command, no part of the settings: name -> placeholder and help.
        check: `module:function` that refuses built settings whose parts do not suit one another.
        groups: headings of the help page -> paths, or prefixes of paths; the rest stands first.
        listed: kind of plugin that `--list` alone shows, or "" for all.
        presets: names of the presets that `--config` takes, as patterns of files.
        bare: options that arguments without a flag stand for, in turn.
        summary: what it does, in a line of the page of `fedmia`.
    """

    root: type | str
    usage: str
    intro: str
    outro: str
    own: Mapping[str, Sequence[str]]
    check: str = ""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    listed: str = ""
    presets: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    summary: str = ""

    @cached_property
    def settings(self) -> Any:
        """The dataclass of its settings."""
        return resolve_name(self.root) if isinstance(self.root, str) else self.root

    @cached_property
    def shape(self) -> FlagLayout:
        """The flags of the command: from the index where it has the settings, which imports none
        of them; else from the dataclass."""
        known = index().get("shapes", {}).get(str(self.root))
        return FlagLayout(**known) if known else layout(self.settings).flags()

    def refuse(self, settings: Any) -> None:
        """Refuse settings whose parts do not suit one another.

        Raises:
            InputError: one line that names the value and the reason.
        """
        if self.check:
            resolve_name(self.check)(settings)

    def flag_of(self, path: str) -> str:
        """The shortest flag of an option: `--clients` of `federation.clients`."""
        flag = SHORT_FLAGS.get(path, path)
        return "--" + (flag if "." in flag else flag.replace("_", "-"))

    def flags(self) -> list[str]:
        """Every flag, those of plugins' options, and plugins' names after their flag."""
        options, heads = self.shape.options, self.shape.plugins.items()
        of_plugins = {head: index().get("plugins", {}).get(kind, {}) for head, kind in heads}
        flags = [*map(self.flag_of, [*options, *sorted(self.commands())])]
        flags += [f"--{path}" for path in options]
        for head, plugins in of_plugins.items():
            flags += [f"--{head}.{option}" for own in plugins.values() for option in own]
        return flags + [f"--{head} {name}" for head in of_plugins for name in of_plugins[head]]

    def commands(self) -> set[str]:
        """Flags that are no options of the settings."""
        return {*self.own, *SWITCHES, "list"}


@functools.cache  # a file of the package, which does not change while the process runs
def index() -> dict[str, Any]:
    """The index that `fedmia.cli.index` writes: layouts of settings and options of plugins."""
    return json.loads(INDEX.read_text(encoding="utf-8")) if INDEX.is_file() else {}


@dataclass
class ParsedFlags:
    """A command line that is split, but not converted.

    Attributes:
        options: path of each option of the settings -> its value, a `Text` or a list of these.
        typed: path of each of them -> the flag as it was typed.
        command: values of the command's own options and switches (the latter empty).
        arguments: all of it, as it was typed, without the program's name.
    """

    options: dict[str, Any] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    command: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


def read(command: Command, arguments: Sequence[str]) -> ParsedFlags:
    """Split the command line into options of the settings and of the command.

    Args:
        arguments: without the program's name.

    Returns:
        The settings' options, what the user typed, and the command's own options.

    Raises:
        InputError: an unknown option (with the nearest one), a flag given twice, a value missing or
            one too many.
    """
    parsed = ParsedFlags(arguments=tuple(arguments))
    waiting, bare = list(arguments), list(command.bare)
    while waiting:
        token = waiting.pop(0)
        if token == "-h":
            token = "--help"
        if bare and not token.startswith("-"):
            token = f"--{bare.pop(0)}={token}"
        if not token.startswith("--") or token == "--":
            way = "options begin with --; see --help"
            if token in preset_names(command.presets):
                way = f"the preset is --config {token}"
            raise InputError(f"unexpected argument '{token}' ({way})")
        name, equals, text = token[2:].partition("=")
        key = name.replace("-", "_")
        many = key in command.shape.lists
        # An unknown option is named before the value that it may lack.
        path = key if many else _path(command, name)
        if key in OPTIONAL and key in command.commands():
            has_value = not equals and waiting and OPTIONAL[key](waiting[0])
            text = waiting.pop(0) if has_value else text
        elif key in SWITCHES:
            if equals:
                raise InputError(f"--{name} takes no value, got '{text}'")
        elif not equals:
            alone = not waiting or waiting[0].startswith("--")
            # An option that is true or false is true where its flag stands alone.
            if alone and command.shape.options.get(path, ("",))[0] != "BOOL":
                raise InputError(f"--{name} needs a value")
            text = "true" if alone else waiting.pop(0)
        if many:
            _add_lists(command, parsed, key, text)
        else:
            _store_option(command, parsed, name, path, text)
    return parsed


def _add_lists(command: Command, parsed: ParsedFlags, key: str, text: str) -> None:
    """`--over OPTION=VALUES`, once for each option; `--strengths NAME=VALUES;NAME=VALUES`. Of an
    option semicolons separate values that are lists themselves."""
    hole = command.shape.lists[key][0].partition("=")[0]
    of_options = hole == "OPTION"
    for one in [text] if of_options else text.split(";"):
        name, equals, values = (part.strip() for part in one.partition("="))
        if not equals or not name:
            raise wrong_value(f"--{key}", one, f"{hole}=VALUE,VALUE,..")
        with prefix_errors(f"--{key} {one}"):
            path = f"{key}.{_path(command, name) if of_options else name}"
        if path in parsed.options:
            raise InputError(f"--{key} {name} is given twice")
        parted = values.split(";" if ";" in values else ",")
        parsed.options[path] = [Text(value.strip()) for value in parted if value.strip()]


def _store_option(command: Command, parsed: ParsedFlags, name: str, path: str, text: str) -> None:
    own = path in command.commands()
    before = f"--{path}" if own and path in parsed.command else parsed.typed.get(path)
    if before is not None:
        twice = own or before == f"--{name}"
        what = f"--{name} is given twice" if twice else f"{before} and --{name} are the same option"
        raise InputError(what)
    if own:
        parsed.command[path] = disk_path(text)
        return
    parsed.typed[path] = f"--{name}"
    parsed.options[path] = Text(text)


def _path(command: Command, name: str) -> str:
    """The path that a flag gives: `federation.clients` for `clients`."""
    key = name.replace("-", "_")
    if key in command.commands():
        return key
    if path := command.shape.find(command.shape.whole(name)):
        return path
    hint = suggest_nearest(name, command.flags())
    raise InputError(f"unknown option --{name}{hint} (--help shows them all)")
