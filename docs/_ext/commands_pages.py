"""Reference pages of the commands: every flag with its values, default, range and help."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mdtext import escape, table

from fedmia.cli.commands import COMMANDS
from fedmia.cli.help import LIST
from fedmia.settings.flags import SWITCHES, Command
from fedmia.settings.presets import PRESETS

HEAD = ("Flag, and path in YAML", "Meaning", "Value", "Default", "Range")
SCHEMA = "print the JSON Schema of the YAML file"
RANGE = re.compile(r"(?:>=|<=|>|<) [-+.\de]+")


def split_help(text: str) -> tuple[str, str, str]:
    """(meaning, default, range) of a help text: `clients (default 10, >= 1)`."""
    match = re.search(r" \(((?:default |[<>]=? )[^()]*(?:\([^()]*\)[^()]*)*)\)$", text)
    if match is None:
        return text, "", ""
    notes = match[1].split(", ")
    limits: list[str] = []
    while notes and RANGE.fullmatch(notes[-1]):
        limits.insert(0, notes.pop())
    default = ", ".join(notes).removeprefix("default ")
    return text[: match.start()], default, ", ".join(limits)


def option_row(flag: str, path: str, hole: str, text: str) -> tuple[str, ...]:
    """A row of a table of options."""
    meaning, default, limits = split_help(text)
    values = hole.strip("{}").replace(",", ", ") if hole.startswith("{") else hole
    name = f"`{flag}`"
    if path and flag != f"--{path}":
        name += f" `{path}`"
    return (
        name,
        escape(meaning),
        f"`{values}`" if values else "",
        f"`{default}`" if default else "",
        f"`{limits}`" if limits else "",
    )


def groups(command: Command) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """(title, rows) of the options of a command, by the headings of its help page."""
    options, done = command.shape.options, set[str]()
    parts: list[tuple[str, list[tuple[str, ...]]]] = []
    for title, patterns in command.groups.items():
        paths = [
            p
            for p in options
            if any(p == w or (w.endswith(".") and p.startswith(w)) for w in patterns)
        ]
        done |= set(paths)
        parts.append((title, [option_row(command.flag_of(p), p, *options[p]) for p in paths]))
    first = [
        option_row(f"--{name.replace('_', '-')}", "", hole, text)
        for name, (hole, text) in {**command.own, **command.shape.lists}.items()
    ]
    first += [option_row(command.flag_of(p), p, *options[p]) for p in options if p not in done]
    first += [
        option_row(f"--{name.replace('_', '-')}", "", "", text or SCHEMA)
        for name, text in SWITCHES.items()
    ]
    first.append(option_row("--list", "", "KIND", LIST))
    yield "Run", first
    yield from parts


def command_page(name: str) -> str:
    """The page of one command."""
    command = COMMANDS[name]
    usage = " ".join(command.usage.split()).removeprefix("usage: ")
    lines = [
        f"# fedmia {name}",
        "",
        escape(" ".join(command.intro.split())),
        "",
        f"```text\n{usage}\n```",
        "",
        escape(" ".join(command.outro.split())),
        "",
        "Where a flag is short, the path of the option in a YAML file stands beside it; the path "
        "with `--` before it is a flag too. [Plugins](../plugins/index.md) have their own. "
        "[Exit codes](../run_folder.md#exit-codes).",
    ]
    for title, rows in groups(command):
        lines += ["", f"## {title}", "", table(HEAD, rows)]
    return "\n".join(lines)


def commands_index() -> str:
    """The page that lists the commands."""
    rows = [
        (f"[`{name}`]({name}.md)", escape(" ".join(command.intro.split())))
        for name, command in COMMANDS.items()
    ]
    toctree = "\n".join(COMMANDS)
    return (
        "# Commands and their options\n\nEach page lists every option of a command: its flag, its "
        "path in a YAML file, its values, default and range. `fedmia COMMAND --help` prints the "
        f"same.\n\n{table(('Command', 'What it does'), rows)}\n"
        f"```{{toctree}}\n:hidden:\n\n{toctree}\n```"
    )


def presets_page() -> str:
    """The presets that `--config` takes, by the commands that take them."""
    lines = [
        "# Presets",
        "",
        "`--config NAME` starts from one of these files. Flags change single options.",
    ]
    files = [p for p in sorted(PRESETS.rglob("*.yaml"))]
    for path in files:
        name = path.relative_to(PRESETS).with_suffix("").as_posix()
        taking = [
            f"`{command}`"
            for command, one in COMMANDS.items()
            if any(path in PRESETS.glob(pattern) for pattern in one.presets)
        ]
        text = path.read_text(encoding="utf-8")
        remark = " ".join(line.removeprefix("#").strip() for line in _leading_comment(text))
        lines += ["", f"## {name}", "", escape(remark), "", f"Of {', '.join(taking)}.", ""]
        body = "\n".join(line for line in text.splitlines()[len(_leading_comment(text)) :])
        lines += [f"```yaml\n{body.strip()}\n```"]
    return "\n".join(lines)


def _leading_comment(text: str) -> list[str]:
    lines = text.splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:count]
