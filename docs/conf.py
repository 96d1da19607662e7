"""How Sphinx builds the site; `python docs/build.py` is the command that calls it.

The source is a folder that has the clone's layout: docs/, notebooks/ and CHANGELOG.md are pages,
and everything else that they link to is a file to download. So a link between two pages is the
same for the site and for a reader of the repository.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("FEDMIA_ROOT", Path(__file__).resolve().parents[1]))
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

import fedmia  # noqa: E402

project = "fedmia"
author = "The fedmia authors"
copyright = "the fedmia authors, Apache-2.0"  # noqa: A001
release = version = fedmia.__version__
language = "en"

root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb", "CHANGELOG.md"]
exclude_patterns = ["docs/README.md", "docs/_*", "docs/**/_*", "docs/howto/*/**"]
exclude_patterns += ["**/.ipynb_checkpoints"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "plain_docstrings",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

# A link to a page or an anchor that is not there is a warning, and warnings end the build. Names
# of Python that other libraries define have no pages here.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]

myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebooks hold their outputs
nb_ipywidgets_js: dict[str, Any] = {}  # they would come from another server
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "code"
smartquotes = False  # they make a dash of the two hyphens of a flag
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "fedmia"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}


def link_files(app: Any, docname: str, source: list[str]) -> None:
    """Write a link to a folder of the clone as its path, and one to a text that is no page as a
    file to download."""
    here = Path(app.env.doc2path(docname)).parent

    def replace(match: re.Match[str]) -> str:
        text, place = match[1], match[2]
        if (here / place).is_dir():
            return f"{text} (`{place.lstrip('./')}`)"
        if re.match(r"(?:\.\./)+research/.*\.md$", place):
            return f"{{download}}`{text.replace('`', '')} <{place}>`"
        return match[0]

    source[0] = re.sub(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)\)", replace, source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", link_files)
