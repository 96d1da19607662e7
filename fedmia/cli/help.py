"""`--help` and `--list`, written from the options and the plugins themselves."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from fedmia.cli.flags import SWITCHES, Command
from fedmia.config.forms import option_paths, parts
from fedmia.options import registry
from fedmia.options.errors import shown, unknown
from fedmia.options.option import option_fields, type_name

# Placeholders that the type does not tell.
HOLES: Mapping[str, str] = {"data.name": "NAME[:PATH]", "data.dir": "FOLDER"}
_LEFT = 28  # columns of the flags


def help_page(command: Command, columns: int | None = None) -> str:
    """The text of `--help`, at most `columns` wide (default: the terminal's, to 100)."""
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    paths = {path: (one, kind) for path, one, kind in option_paths(command.root)}
    grouped = {
        title: [p for p in paths if _within(p, wanted)] for title, wanted in command.groups.items()
    }
    lines = [*_wrapped(command.usage, width), "", *_wrapped(command.intro, width), "", "Run"]
    for name, (hole, text) in command.own.items():
        lines += row(f"--{name} {hole}", text, width)
    for one, _ in parts(command.root):
        for form, hole in (("grids", "OPTION=VALUES"), ("lists", "NAME=VALUES")):
            if form in one.metadata:
                lines += row(f"--{one.name} {hole}", one.metadata[form], width)
    for path in paths.keys() - {p for held in grouped.values() for p in held}:
        lines += option_row(command, path, *paths[path], width)
    for name, text in SWITCHES.items():
        lines += row(f"--{name.replace('_', '-')}", text, width)
    lines += row("--list [KIND]", "show every plugin, or one kind of them with its options", width)
    for title, held in grouped.items():
        lines += ["", title]
        for path in held:
            lines += option_row(command, path, *paths[path], width)
    return "\n".join([*lines, "", *_wrapped(command.outro, width)])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def list_page(kind: str = "", columns: int | None = None) -> str:
    """The text of `--list`: every plugin by kind; with `kind`, that kind's options too.

    Raises:
        InputError: an unknown kind.
    """
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    if kind and kind not in registry.KINDS:
        raise unknown("kind of plugin", kind, registry.KINDS)
    blocks = [_kind(one, width, bool(kind)) for one in ([kind] if kind else registry.KINDS)]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _kind(kind: str, width: int, detail: bool) -> list[str]:
    flags = {"attack": "attacks", "role": "attacker", "observer": "observe", "view": "views"}
    flag = f"--{flags.get(kind, kind)}"
    lines = [f"{kind} ({flag})"]
    for name in registry.names(kind):
        cls = registry.load(kind, name)
        label = f"{name}:PATH" if getattr(cls, "takes_path", False) else name
        lines += row(label, registry.summary(cls), width)
        if registry.paper(cls):
            lines += row("", registry.paper(cls), width)
        if hasattr(cls, "written"):
            lines += row("", f"{flag} {cls.written}", width)
        if hasattr(cls, "uploads"):
            lines += row("", f"Uploads {cls.uploads}.", width)
        for one, type_ in option_fields(cls) if detail else []:
            lines += _plugin_row(kind, name, one, type_, width)
    return lines


def _plugin_row(
    kind: str, name: str, one: dataclasses.Field[Any], type_: Any, width: int
) -> Iterator[str]:
    prefix = {"attack": f"attack.{name}", "dataset": "data"}.get(kind, kind)
    flag = f"  --{prefix}.{one.name} {_hole(type_, one.metadata)}"
    return row(flag, _about(one, one.default), width)


def _within(path: str, wanted: tuple[str, ...]) -> bool:
    return any(path == w or (w.endswith(".") and path.startswith(w)) for w in wanted)


def option_row(
    command: Command, path: str, one: dataclasses.Field[Any], kind: Any, width: int
) -> Iterator[str]:
    """An option on a page: its flag, its values, what it is, its default and range."""
    if "layers" in one.metadata:
        return row(f"{command.flag_of(path)} NAMES", one.metadata["about"], width)
    if "plugin" in one.metadata:
        text = f"{one.metadata['about']} (default {shown(one.metadata['name'])})"
        return row(f"{command.flag_of(path)} NAME", text, width)
    hole = HOLES.get(path) or _hole(kind, one.metadata)
    return row(f"{command.flag_of(path)} {hole}", _about(one, one.default), width)


def _hole(kind: Any, metadata: Mapping[str, Any]) -> str:
    """Placeholder of a value: its choices, else its type."""
    if metadata["choices"]:
        return f"{{{','.join(metadata['choices'])}}}"
    name = type_name(kind).removesuffix(" or none")
    return (
        "LIST"
        if name.startswith("list")
        else {"str": "TEXT", "bool": "BOOL"}.get(name, name.upper().replace(" ", "_"))
    )


def _about(one: dataclasses.Field[Any], default: Any) -> str:
    """Help, default and range of an option."""
    words = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    limits = [f"{w} {one.metadata[k]}" for k, w in words.items() if one.metadata[k] is not None]
    notes = ", ".join([*([f"default {shown(default)}"] if default != "" else []), *limits])
    return f"{one.metadata['help']} ({notes})" if notes else str(one.metadata["help"])


def row(left: str, text: str, width: int) -> Iterator[str]:
    """`left` and `text` in two columns; a long `left` has its own line."""
    wrapped = textwrap.wrap(text, max(20, width - _LEFT), break_on_hyphens=False) or [""]
    if len(left) + 4 > _LEFT:
        yield f"  {left}"
        left = ""
    else:
        yield f"  {left}".ljust(_LEFT) + wrapped.pop(0)
        left = ""
    for line in wrapped:
        yield " " * _LEFT + line
