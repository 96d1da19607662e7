"""What a node knows of a run: the settings that the server sent, its images, its own disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from flwr.app import Context

from clients.site import Site
from fedmia.errors import InputError
from fedmia.federation.run import Prepared, make_site, prepare
from fedmia.flower.store import NodeStore, put
from fedmia.settings.experiment import Experiment
from fedmia.settings.tree import from_tree

FOLDER = "folder"  # of a node's files, in its `--node-config`


@dataclass(frozen=True)
class Node:
    """One client of one run, as the process that answers a message finds it on its disk."""

    client: int
    folder: Path

    @staticmethod
    def of(context: Context) -> Node:
        """The node that a message came to."""
        home = Path(os.environ.get("FLWR_HOME", "~/.flwr")) / "fedmia"
        root = Path(str(context.node_config.get(FOLDER, home))).expanduser()
        client = int(context.node_config["partition-id"])
        return Node(client, root / f"run-{context.run_id}" / f"client-{client:04d}")

    @property
    def store(self) -> NodeStore:
        return NodeStore(self.folder / "states")

    def begin(self, settings: str) -> str:
        """Keep the run's settings; the fingerprint of what they mean here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "settings.partial"
        partial.write_text(settings, encoding="utf-8")
        put(partial, self.folder / "settings.json")
        return fingerprint(rehearsed(settings)[0])

    def site(self) -> Site:
        """The site of a rehearsal: every node reads the whole data source, and deals it alike."""
        return rehearsed(self.settings())[1]

    def settings(self) -> str:
        """What the server sent, as JSON.

        Raises:
            InputError: nothing was sent, or what was is gone.
        """
        file = self.folder / "settings.json"
        if not file.is_file():
            raise InputError(f"client {self.client} knows nothing of this run: no file '{file}'")
        return file.read_text(encoding="utf-8")

    def end(self) -> None:
        """Delete all that was kept of the run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another client of the run may share the disk
            self.folder.parent.rmdir()


@functools.lru_cache(maxsize=1)  # a simulation's actors answer many messages of one run
def rehearsed(settings: str) -> tuple[Prepared, Site]:
    """The run as every node and the server prepare it: a function of the settings alone."""
    prepared = prepare(from_tree(Experiment, json.loads(settings)))
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made:
        site = make_site(prepared, Path(made), Event())
        len(site.images)  # opens the file, which stays open when its name is gone
    return prepared, site


def fingerprint(prepared: Prepared) -> str:
    """Of the images, their labels and who trains on which: nodes that differ read other data."""
    found = hashlib.sha256(prepared.data.images.tobytes())
    split = prepared.split
    for numbers in (prepared.data.labels, *split.parts, *split.placebo_parts):
        found.update(numbers.astype("<i8").tobytes() + b"|")
    return found.hexdigest()
