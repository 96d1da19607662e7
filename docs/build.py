"""Build the documentation site: `python docs/build.py [OUT]`, by default into site/.

It lays out the pages in a temporary folder, writes the generated reference beside them, calls
Sphinx with warnings as errors, and checks that no page loads anything from another server.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs", "notebooks")  # copied; the generated pages are written into the copy
LINKED = (
    "clients", "configs", "examples", "fedmia", "research", "strategies", "tests", "tools",
)  # fmt: skip
FILES = ("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml")
HOME = "docs/index.html"
# What a browser fetches without a click: no `<a href>`, and no link that only names a page.
LOADED = re.compile(
    r"<(?!a\b)(?P<tag>\w+)\b(?P<rest>[^>]*?)\b(?:src|href|srcset|data|poster)\s*=\s*"
    r"[\"']\s*(?P<url>(?:https?:)?//[^\"']+)[\"'][^>]*>",
    re.IGNORECASE,
)
STYLED = re.compile(r"(?:@import\s+|url\()\s*[\"']?\s*(?P<url>(?:https?:)?//[^\"')\s]+)", re.I)


def stage(folder: Path) -> None:
    """Lay out the source of the site.

    Args:
        folder: an existing, empty one.
    """
    from reference_pages import write_pages

    for name in PAGES:
        ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "_ext")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    for name in FILES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, folder / name)
    write_pages(folder / "docs" / "reference")


def find_remote(site: Path) -> Iterator[str]:
    """`PAGE: URL` of everything that a page or a style sheet loads from another server.

    Args:
        site: folder of built pages.

    Yields:
        A line for each.
    """
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        pattern = LOADED if path.suffix == ".html" else STYLED
        for match in pattern.finditer(text):
            if not re.search(r"rel=[\"'](?:canonical|license|me)", match[0]):
                yield f"{path.relative_to(site)}: {match['url']}"


def find_unreachable(site: Path) -> list[str]:
    """Pages to which no chain of links leads from the home page.

    Args:
        site: folder of built pages.

    Returns:
        Their paths within the folder, in order.
    """
    visited, todo = set[Path](), [(site / HOME).resolve()]
    while todo:
        page = todo.pop()
        if page in visited or not page.is_file():
            continue
        visited.add(page)
        text = page.read_text(encoding="utf-8", errors="replace")
        for link in re.findall(r"<a\b[^>]*\bhref=\"([^\"#?]+\.html)", text):
            if "://" not in link:
                todo.append((page.parent / link).resolve())
    pages = (p for part in PAGES for p in (site / part).rglob("*.html"))
    return [str(p.relative_to(site)) for p in sorted(pages) if p.resolve() not in visited]


def find_nameless(site: Path) -> list[str]:
    """Attacks and public names of `fedmia` without a place in the reference that a link can name.

    Args:
        site: folder of built pages.

    Returns:
        The names.
    """
    import fedmia
    from fedmia.settings import registry

    pages = (site / "docs" / "reference").rglob("*.html")
    ids = {i for page in pages for i in re.findall(r'\bid="([^"]+)"', page.read_text("utf-8"))}
    ids |= {name.rpartition(".")[2] for name in ids if name.startswith("fedmia.")}
    return [name for name in (*registry.names("attack"), *fedmia.__all__) if name not in ids]


def build(out: Path, jobs: int) -> int:
    """Build and check the site.

    Args:
        out: folder of the pages; what an earlier build left there is removed.
        jobs: processes.

    Returns:
        The exit code: 0 without warnings.
    """
    if out.exists() and any(out.iterdir()) and not (out / ".buildinfo").is_file():
        print(f"{out} is not empty and holds no site", file=sys.stderr)
        return 2
    from sphinx.cmd.build import main as sphinx  # of the extra `docs`

    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fedmia-site-") as name:
        source = Path(name) / "source"
        source.mkdir()
        stage(source)
        flags = ["-W", "--keep-going", "-q", "-j", str(jobs), "-c", str(source / "docs")]
        code = sphinx([*flags, "-d", str(Path(name) / "trees"), str(source), str(out)])
    if code:
        return code
    move = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={HOME}">'
    link = f'<title>fedmia</title><a href="{HOME}">fedmia</a>'
    (out / "index.html").write_text(f"<!doctype html>{move}{link}\n", encoding="utf-8")
    wrong = [f"loads from another server: {line}" for line in find_remote(out)]
    wrong += [f"no link leads to {page}" for page in find_unreachable(out)]
    wrong += [f"the reference has no place for {name}" for name in find_nameless(out)]
    print("\n".join(wrong), end="\n" * bool(wrong), file=sys.stderr)
    return int(bool(wrong))


def main(arguments: list[str]) -> int:
    """Build the site that the arguments ask for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "site")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    options = parser.parse_args(arguments)
    os.environ["FEDMIA_ROOT"] = str(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
    start = time.monotonic()
    code = build(options.out.resolve(), options.jobs)
    if code == 0:
        print(f"{options.out.resolve() / HOME} ({time.monotonic() - start:.0f} s)")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
