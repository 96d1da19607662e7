"""The commands and the blocks of Python that the pages show."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "docs/**/*.md", "notebooks/*.ipynb")
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^ *```([^\s`]*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SHELL, PROGRAM = ("bash", "console", "sh"), r"(?:fedmia|python|bash|pip) "
SPAN = re.compile(rf"(?<!`)`({PROGRAM}[^`]+)`(?!`)")
SCRIPTS = {f"tools/{name}.sh": name for name in ("audit", "study")}
SCRIPTS["tools/run.sh"] = "simulate"


def text_of(page: str) -> str:
    """A page as Markdown; of a notebook its cells of text.

    Args:
        page: its path in the repository.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    if not page.endswith(".ipynb"):
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def blocks(text: str, *languages: str) -> list[str]:
    """The blocks of code in some languages.

    Args:
        text: of a page.
        *languages: as they stand behind the backticks.
    """
    return [code for language, code in BLOCK.findall(text) if language in languages]


def block(page: str, containing: str) -> str:
    """The one block of Python of a page that holds a text."""
    (code,) = [one for one in blocks(text_of(page), "python") if containing in one]
    return code


def script(name: str, folder: str = "tools") -> Any:
    """A module of a folder that is no package."""
    sys.path.insert(0, str(ROOT / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / folder))


def commands(text: str) -> list[str]:
    """The commands of a page: each line of its blocks for a shell, each step of its workflows, and
    each that a sentence holds whole. A command of one or two words is a name, and dots leave
    something out.

    Args:
        text: of the page.
    """
    lines = "".join(blocks(text, *SHELL)).replace("\\\n", " ").splitlines()
    steps = [step for code in blocks(text, "yaml") for step in _steps(yaml.safe_load(code))]
    whole = [re.sub(r"\s#\s.*", "", line).removeprefix("$ ") for line in lines if line.strip()]
    spans = [" ".join(span.split()) for span in SPAN.findall(BLOCK.sub("", text))]
    named = [span for span in spans if len(span.split()) > 2 and ".." not in span]
    return list(dict.fromkeys(" ".join(line.split()) for line in (*whole, *steps, *named)))


def _steps(tree: Any) -> list[str]:
    """What a workflow runs."""
    if not isinstance(tree, dict):
        return []
    jobs = tree.get("jobs", {}).values()
    return [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]


def words_of(command: str) -> list[str]:
    """The words of a command, a script of the clone as the command that it runs.

    Args:
        command: one line.
    """
    words = shlex.split(command, comments=True)
    if words[:1] == ["bash"] and words[1] in SCRIPTS:
        return ["fedmia", SCRIPTS[words[1]], *words[2:]]
    return words
