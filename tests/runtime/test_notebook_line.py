"""Progress in a real Jupyter kernel: one line that is replaced, and no thread that stays."""

from __future__ import annotations

from pathlib import Path

import pytest

CELL = """
import threading, time
from fedmia.runtime import progress
progress.REFRESH = 0.05
with progress.Display(4, False) as display:
    for number in range(1, 5):
        display.round("main", number, None, None, 0.1)
        time.sleep(0.3)
print([t.name for t in threading.enumerate() if t.name == "progress"])
"""


@pytest.mark.slow(seconds=15)
def test_kernel__one_line_in_place_and_no_thread_left(tmp_path: Path) -> None:
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell("print('after')")]
    shown: list[str] = []

    class Watching(client.NotebookClient):  # type: ignore[misc, name-defined]
        """Notes the updates, which a notebook file keeps the last of."""

        def process_message(self, message, cell, index):  # type: ignore[no-untyped-def]
            if message["msg_type"] == "update_display_data":
                shown.append(message["content"]["data"]["text/plain"])
            return super().process_message(message, cell, index)

    Watching(book, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, second = book.cells
    lines = [o for o in first.outputs if o.output_type == "display_data"]
    assert len(lines) == 1 and lines[0]["data"]["text/plain"].startswith("fedmia: ended after")
    assert any("main rounds 2/4" in text for text in shown), shown
    assert [o["text"] for o in first.outputs if o.output_type == "stream"] == ["[]\n"]
    assert [o["text"] for o in second.outputs] == ["after\n"]
