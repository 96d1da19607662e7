"""Reference pages of the plugins: one a kind, with docstring, source and options of each plugin."""

from __future__ import annotations

import inspect
from typing import Any

from mdtext import entries, escape, prose, sections, table

from fedmia.settings import registry
from fedmia.settings.errors import format_value
from fedmia.settings.options import LIMITS, option_fields, placeholder

# kind -> title, flag that names one, beginning of the flags of its options, and what it is.
KINDS: dict[str, tuple[str, str, str, str]] = {
    "dataset": ("Data sources", "--dataset", "data", "Where the images come from."),
    "partition": ("Partitions", "--partition", "partition", "Which client has which image."),
    "model": ("Networks", "--model", "model", "The encoder that is trained."),
    "ssl": ("Self-supervised methods", "--ssl", "ssl", "What a client's training minimises."),
    "strategy": (
        "Strategies", "--strategy", "strategy",
        "How the server makes one model of the updates, and what clients do for it.",
    ),
    "role": ("Roles of clients", "--attacker", "role", "What the attacking client does."),
    "attack": ("Attacks", "--attacks", "attack.NAME", "How membership is inferred."),
    "defense": ("Defences", "--defense", "defense", "What a client does against leakage."),
    "observer": ("Observers", "--observe", "observer", "What watches a run as it goes."),
    "view": ("Views of a study", "--view", "view", "How the runs of a study are compared."),
    "encoder": ("Forms of encoder", "--encoder", "encoder", "What an audit can open."),
}  # fmt: skip
HEAD = ("Option", "Meaning", "Value", "Default", "Range")
BASES = {"attack": "attacks", "ssl": "ssl"}  # page of Python that describes the base class
LINKS = {
    "attack": "[All attacks in one table](../../attacks.md) with access, vantage and queries.",
}


def option_rows(cls: type, prefix: str) -> list[tuple[str, ...]]:
    """A row for each option of a plugin."""
    rows = []
    for field, type_ in option_fields(cls):
        about = field.metadata
        limits = ", ".join(f"{w} {about[k]}" for k, w, _ in LIMITS if about[k] is not None)
        values = ", ".join(about["choices"]) if about["choices"] else placeholder(type_, about)
        default = "" if field.default == "" else f"`{format_value(field.default)}`"
        range_ = f"`{limits}`" if limits else ""
        flag = f"`--{prefix}.{field.name}`"
        rows.append((flag, escape(about["help"]), f"`{values}`", default, range_))
    return rows


def facts(kind: str, cls: Any) -> list[str]:
    """What the class declares of itself, as points of a list."""
    lines = [f"- Class: `{cls.__module__}.{cls.__qualname__}`"]
    if paper := registry.paper(cls):
        lines.append(f"- Published: {escape(paper)}")
    needs = getattr(cls, "needs", None)
    if kind == "attack" and needs is not None:
        lines.append(f"- Needs: `{needs.access}` access, from the vantage of `{needs.vantage}`")
        if cls.uses_shadows:
            lines.append("- Trains shadow encoders on images whose membership it knows.")
    if written := getattr(cls, "written", ""):
        lines.append(f"- Written: `{written}`")
    if uploads := getattr(cls, "uploads", ""):
        lines.append(f"- Uploads {escape(str(uploads))}.")
    return lines


def plugin_page(kind: str) -> str:
    """The page of one kind of plugin."""
    title, flag, prefix, about = KINDS[kind]
    package, module, base = registry.KINDS[kind]
    page = BASES.get(kind, "plugins")
    lines = [
        f"# {title}",
        "",
        f"{about} `{flag} NAME` chooses one; `fedmia list {kind}` prints this list. A plugin of "
        f"your own is a class derived from [`{module}.{base}`](../python/{page}.md); "
        f"`package.module:Class` names it in "
        f"place of a built-in one. The built-in ones are files of `{package.replace('.', '/')}/`.",
        "",
        LINKS.get(kind, ""),
    ]
    for name in registry.names(kind):
        cls = registry.load(kind, name)
        label = f"{name}:PATH" if getattr(cls, "takes_path", False) else name
        lines += ["", f"## {label}", "", prose(cls), "", *facts(kind, cls), ""]
        options = {f.name for f, _ in option_fields(cls)}
        text_by_option = entries(sections(inspect.getdoc(cls) or "").get("Attributes", ""))
        extra = [f"- `{n}`: {escape(t)}" for n, t in text_by_option.items() if n not in options]
        if extra:
            lines += ["Attributes:", "", *extra, ""]
        if rows := option_rows(cls, prefix.replace("NAME", name)):
            lines += [table(HEAD, rows)]
    return "\n".join(lines)


def plugins_index() -> str:
    """The page that lists the kinds."""
    rows = [
        (f"[{KINDS[kind][0]}]({kind}.md)", KINDS[kind][3], ", ".join(f"`{n}`" for n in names))
        for kind in registry.KINDS
        if (names := registry.names(kind))
    ]
    toctree = "\n".join(registry.KINDS)
    return (
        "# Plugins and their options\n\nA plugin is one class. Its name is the same in a YAML file "
        "and in a flag.\n\n"
        f"{table(('Kind', 'What it is', 'Plugins'), rows)}\n"
        f"```{{toctree}}\n:hidden:\n\n{toctree}\n```"
    )
