"""Runs notebooks and stores their outputs.

python tools/notebooks.py [NAME..]

Without names: all of notebooks/. A notebook that fails keeps the outputs that it had.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]


def store(path: Path) -> None:
    """Run one notebook in an empty folder, on this clone, and write it back."""
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    with tempfile.TemporaryDirectory() as folder:
        # No path of this machine in a stored output: tqdm would warn of a widget that is missing.
        quiet = "ignore:IProgress not found"
        os.environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": folder, "PYTHONWARNINGS": quiet}
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=3600, resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ from run to run
    nbformat.write(notebook, path)
    print(path.name, flush=True)


def main(names: list[str]) -> int:
    """Run the notebooks whose names begin so; returns the exit code."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        if not names or any(path.name.startswith(name) for name in names):
            store(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
