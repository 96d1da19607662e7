"""Runs notebooks and stores their outputs; prints wall and processor seconds of each.

python scripts/notebooks.py [NAME..]

Without names: all of notebooks/. A notebook that fails keeps the outputs that it had.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]


def processor_seconds() -> float:
    """Of the processes that ended, kernels among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def store(path: Path) -> None:
    """Run one notebook in an empty folder, on this clone, and write it back."""
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    began, before = time.monotonic(), processor_seconds()
    with tempfile.TemporaryDirectory() as folder:
        # No path of this machine in a stored output: tqdm would warn of a widget that is missing.
        quiet = "ignore:IProgress not found"
        os.environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": folder, "PYTHONWARNINGS": quiet}
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=3600, resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ from run to run
    nbformat.write(notebook, path)
    seconds = time.monotonic() - began, processor_seconds() - before
    print(f"{path.name}: {seconds[0]:.0f} s, {seconds[1]:.0f} s of processor", flush=True)


def main(names: list[str]) -> int:
    """Run the notebooks whose names begin so; returns the exit code."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        if not names or any(path.name.startswith(name) for name in names):
            store(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
