"""Released heads, from their settings to `report.json` and its page."""

from __future__ import annotations

import time
from functools import partial

import torch

from fedmia.cli.command import Invocation
from fedmia.runtime.cores import count_cores
from fedmia.runtime.progress import ProgressBars
from fedmia.settings.tree import to_tree
from fedmia.storage.outfolder import OutFolder
from research.papers.heads import view
from research.papers.heads.measure import measure, prepare


class HeadDisplay(ProgressBars):
    """The heads of a comparison, of which `ended()` ends one.

    Args:
        heads: number of heads to be trained and attacked.
        quiet: show nothing.
    """

    def __init__(self, heads: int, quiet: bool) -> None:
        super().__init__(quiet)
        self.ended = partial(self._bar.advance, self._bar.add_task("heads", total=heads))


def run_heads(invocation: Invocation) -> int:
    """Load, train, attack, report; the exit code.

    Raises:
        InputError: no such encoder or data, too few images, or an occupied folder.
    """
    began, config = time.perf_counter(), invocation.settings
    place = OutFolder(invocation.out, "another run")
    torch.set_num_threads(config.threads or count_cores())
    released, images = prepare(config)
    with place:
        place.begin(to_tree(config))
        with HeadDisplay(config.seeds, invocation.quiet or invocation.json) as display:
            heads = measure(config, released, images, display.ended)
        report = view.report_of(heads)
        report["timing"] = {"total_s": time.perf_counter() - began}
        page = None if place.folder is None else view.write(report, place.folder)
    view.show(report, invocation, page)
    return 0
