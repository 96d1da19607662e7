"""The pages of `--help`, `--schema` and `--list`, made from the options and the plugins."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator

from fedmia.cli.commands import COMMANDS
from fedmia.settings import registry
from fedmia.settings.errors import unknown_name
from fedmia.settings.flags import SWITCHES, Command
from fedmia.settings.options import describe_option, option_fields, placeholder
from fedmia.settings.presets import describe_preset, preset_names
from fedmia.settings.vantages import VANTAGES

PRESET = "preset"  # a kind that `--list` shows beside those of plugins
LIST = "show every plugin, or one kind of them with its options"
_LEFT = 28  # columns of the flags


def help_page(command: Command, columns: int | None = None) -> str:
    """The text of `--help`.

    Args:
        columns: width in characters; None: that of the terminal, at most 100.

    Returns:
        The page, lines ended by newlines.
    """
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    shape = command.shape
    flags = {path: f"{command.flag_of(path)} {hole}" for path, (hole, _) in shape.options.items()}
    grouped = {
        title: [p for p in flags if _matches(p, patterns)]
        for title, patterns in command.groups.items()
    }
    for title, paths in shape.headings.items():
        grouped[title] = [*grouped.get(title, ()), *paths]
    ungrouped = flags.keys() - {p for paths in grouped.values() for p in paths}
    lines = [*_wrap(command.usage, width), "", *_wrap(command.intro, width), "", "Run"]
    for name, (hole, text) in {**command.own, **shape.lists}.items():
        lines += row(f"--{name.replace('_', '-')} {hole}", text, width)
    for path in [path for path in flags if path in ungrouped]:
        lines += row(flags[path], shape.options[path][1], width)
    for name, text in {**SWITCHES, "list [KIND]": LIST}.items():
        lines += row(f"--{name.replace('_', '-')}", text, width) if text else ()
    for title, paths in grouped.items():
        lines += ["", title]
        for path in paths:
            lines += row(flags[path], shape.options[path][1], width)
    return "\n".join([*lines, "", *_wrap(command.outro, width)])


def schema_page(command: Command) -> str:
    """The text of `--schema`: the JSON Schema of the command's YAML file."""
    from fedmia.settings.schema import settings_schema  # it reads every plugin

    more = ["base"] if "config" in command.own else []
    title = command.usage.partition("[")[0].removeprefix("usage: ").strip()
    return json.dumps(settings_schema(command.settings, title, more), indent=1)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def list_page(kind: str = "", columns: int | None = None) -> str:
    """The text of `--list`: every plugin by kind.

    Args:
        kind: list this kind alone, with the options of its plugins; empty: all kinds.
        columns: width in characters; None: that of the terminal, at most 100.

    Returns:
        The page, lines ended by newlines.

    Raises:
        InputError: an unknown kind.
    """
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    if kind == PRESET:
        return _presets(width)
    if kind and kind not in registry.KINDS:
        raise unknown_name("kind of plugin", kind, [*registry.KINDS, PRESET])
    blocks = [_kind(one, width, bool(kind)) for one in ([kind] if kind else registry.KINDS)]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def commands_page(columns: int | None = None) -> str:
    """The text of `fedmia --help`: the commands.

    Args:
        columns: width in characters; None: that of the terminal, at most 100.

    Returns:
        The page, lines ended by newlines.
    """
    width = columns or min(100, shutil.get_terminal_size((80, 24)).columns)
    lines = ["usage: fedmia COMMAND [--FLAG VALUE ..]", ""]
    for name, command in COMMANDS.items():
        lines += row(name, command.summary, width)
    lines += row("list [KIND]", f"show every plugin, one kind of them, or each {PRESET}", width)
    outro = (
        "fedmia COMMAND --help shows the flags of a command. python -m fedmia.COMMAND is the same "
        "command. First steps: fedmia simulate --clients 10 --attacker active --out RUN, then "
        "fedmia audit --encoder RUN."
    )
    return "\n".join([*lines, "", *_wrap(outro, width)])


def _presets(width: int) -> str:
    """The presets of each command that has some; those of simulate serve the others too."""
    blocks, listed = list[str](), set[str]()
    for name, command in COMMANDS.items():
        new = [one for one in preset_names(command.presets) if one not in listed]
        lines = [f"{PRESET} (fedmia {name} --config)"] if new else []
        for one in new:
            lines += row(one, describe_preset(one), width)
        blocks += ["\n".join(lines)] if new else []
        listed.update(new)
    return "\n\n".join(blocks)


def _kind(kind: str, width: int, detail: bool) -> list[str]:
    flags = {"attack": "attacks", "role": "attacker", "observer": "observe"}
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
    for vantage in VANTAGES.values() if kind == "role" else ():
        lines += row(vantage.attacker, vantage.summary, width) if vantage.attacker else []
    return lines


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(path == w or (w.endswith(".") and path.startswith(w)) for w in patterns)


def row(term: str, text: str, width: int) -> Iterator[str]:
    """Two columns; a long term has a line of its own.

    Args:
        term: text of the left column.
        text: text of the right column, which is wrapped.
        width: of the page in characters.

    Yields:
        The lines.
    """
    wrapped = textwrap.wrap(text, max(20, width - _LEFT), break_on_hyphens=False) or [""]
    if len(term) + 4 > _LEFT:
        yield f"  {term}"
    else:
        yield f"  {term}".ljust(_LEFT) + wrapped.pop(0)
    for line in wrapped:
        yield " " * _LEFT + line
