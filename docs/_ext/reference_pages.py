"""Writes the generated pages of the reference: commands, plugins, presets, formats, codes.

Everything is read off the code that it describes. `write_pages(FOLDER)` needs no Sphinx.
"""

from __future__ import annotations

from pathlib import Path

from commands_pages import command_page, commands_index, presets_page
from formats_pages import folder_page, recording_page, report_page, table_page
from plugins_pages import plugin_page, plugins_index
from python_pages import python_pages

from fedmia.cli.commands import COMMANDS
from fedmia.settings import registry


def write_pages(folder: Path) -> list[Path]:
    """Write every generated page.

    Args:
        folder: of the reference; it is made where it is missing.

    Returns:
        The files written.
    """
    pages = {
        "commands/index.md": commands_index(),
        **{f"commands/{name}.md": command_page(name) for name in COMMANDS},
        "plugins/index.md": plugins_index(),
        **{f"plugins/{kind}.md": plugin_page(kind) for kind in registry.KINDS},
        "presets.md": presets_page(),
        "report_json.md": report_page(),
        "table.md": table_page(),
        "run_folder.md": folder_page(),
        "recording.md": recording_page(),
        **{f"python/{name}.md": text for name, text in python_pages().items()},
    }
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return [folder / name for name in pages]
