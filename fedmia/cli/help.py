"""`--help` and `--list`, written from the options and the plugins themselves."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator

from fedmia.cli.flags import SWITCHES, Command
from fedmia.options import registry
from fedmia.options.errors import unknown_name
from fedmia.options.option import describe_option, option_fields, placeholder

LIST = "show every plugin, or one kind of them with its options"
_LEFT = 28  # columns of the flags


def help_page(command: Command, columns: int | None = None) -> str:
    """The text of `--help`, at most `columns` wide (default: the terminal's, to 100)."""
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    shape = command.shape
    flags = {path: f"{command.flag_of(path)} {hole}" for path, (hole, _) in shape.options.items()}
    grouped = {
        title: [p for p in flags if _within(p, wanted)] for title, wanted in command.groups.items()
    }
    ungrouped = flags.keys() - {p for held in grouped.values() for p in held}
    lines = [*_wrapped(command.usage, width), "", *_wrapped(command.intro, width), "", "Run"]
    for name, (hole, text) in {**command.own, **shape.lists}.items():
        lines += row(f"--{name} {hole}", text, width)
    for path in [path for path in flags if path in ungrouped]:
        lines += row(flags[path], shape.options[path][1], width)
    for name, text in {**SWITCHES, "list [KIND]": LIST}.items():
        lines += row(f"--{name.replace('_', '-')}", text, width) if text else ()
    for title, held in grouped.items():
        lines += ["", title]
        for path in held:
            lines += row(flags[path], shape.options[path][1], width)
    return "\n".join([*lines, "", *_wrapped(command.outro, width)])


def schema_page(command: Command) -> str:
    """The text of `--schema`: the JSON Schema of the command's YAML file."""
    from fedmia.config.schema import settings_schema  # it reads every plugin

    more = ["base"] if command.presets else []
    title = command.usage.partition("[")[0].removeprefix("usage: ").strip()
    return json.dumps(settings_schema(command.settings, title, more), indent=1)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def list_page(kind: str = "", columns: int | None = None) -> str:
    """The text of `--list`: every plugin by kind; with `kind`, that kind's options too.

    Raises:
        InputError: an unknown kind.
    """
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    if kind and kind not in registry.KINDS:
        raise unknown_name("kind of plugin", kind, registry.KINDS)
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
        prefix = {"attack": f"attack.{name}", "dataset": "data"}.get(kind, kind)
        for one, type_ in option_fields(cls) if detail else []:
            flag = f"  --{prefix}.{one.name} {placeholder(type_, one.metadata)}"
            lines += row(flag, describe_option(one), width)
    return lines


def _within(path: str, wanted: tuple[str, ...]) -> bool:
    return any(path == w or (w.endswith(".") and path.startswith(w)) for w in wanted)


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
