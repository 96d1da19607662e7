"""What a node knows of a run: the settings that the server sent, its images, its own disk."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import Any

from flwr.app import Context

from clients.client_setup import ClientSetup
from fedmia.federation.plan import Plan, fingerprint, foresee, make_plan, try_method
from fedmia.flower.node_store import NodeStore
from fedmia.flower.private import SIDES, SOURCES, plan_own, read_experiment, remote_context
from fedmia.settings.errors import InputError
from fedmia.settings.values import disk_path
from fedmia.storage.durable import make_folder, write

FOLDER = "folder"  # of a node's files, in its `--node-config`
SCORES = "scores"  # there: whether scores of its own images leave it


class Node:
    """One client of one run, as its process finds it on its disk for each message.

    Args:
        context: of the node that a message came to.

    Raises:
        InputError: members without non-members, or the other way round; or `scores` is neither true
            nor false.

    Attributes:
        client: partition id of the client.
        folder: what it keeps of the run.
        sources: data sources of its own members and non-members, and of public images if it has
            any; empty in a rehearsal.
        scores: whether scores of its own images leave it; None: unless they would void a guarantee.
    """

    def __init__(self, context: Context) -> None:
        config = context.node_config
        home = Path(os.environ.get("FLWR_HOME", "~/.flwr")) / "fedmia"
        root = Path(disk_path(str(config.get(FOLDER, home))))
        client, sources = int(config["partition-id"]), [s for s in SOURCES if s in config]
        if sources and not {*SIDES} <= {*sources}:
            raise InputError(
                f"client {client} is given {' and '.join(sources)} alone, not {' and '.join(SIDES)}"
            )
        scores = config.get(SCORES)
        if scores is not None and not isinstance(scores, bool):
            raise InputError(f"client {client}: {SCORES} must be true or false, got '{scores}'")
        self.client, self.scores = client, scores
        self.sources = tuple(str(config[s]) for s in sources)
        self.folder = root / f"run-{context.run_id}" / f"client-{client:04d}"

    @property
    def store(self) -> NodeStore:
        """Local states of the run."""
        return NodeStore(self.folder / "states")

    def begin(self, settings: str, private: bool) -> dict[str, Any]:
        """Keep the run's settings, and say what they mean here; all nodes must agree.

        Args:
            settings: the settings as JSON.
            private: whether nodes hold their own images.

        Returns:
            What the settings mean here, to be compared with the server's.

        Raises:
            InputError: a run of the other kind, or images that do not suit.
        """
        if private and not self.sources:
            raise InputError(f"client {self.client} is given no {' and '.join(SIDES)} of its own")
        if self.sources and not private:
            raise InputError(f"client {self.client} has images of its own: for private runs alone")
        make_folder(self.folder)
        write({self.folder / "settings.json": settings})
        try:
            plan, _ = self.prepared()
            channels, size = plan.cast.data.channels, plan.cast.data.size
            if private:
                try_method(plan.experiment, channels, size)
                foresee(plan.experiment, plan.cast)
        except InputError as error:
            raise InputError(f"client {self.client}: {error}") from None
        if private:
            return {"channels": channels, "size": size}
        return {"fingerprint": fingerprint(plan)}

    def prepared(self) -> tuple[Plan, ClientSetup]:
        """The run as this node sees it: with its own images, or with the one data source."""
        if self.sources:
            return plan_own(self.settings(), self.client, self.sources)
        return plan_rehearsal(self.settings())

    def open(self) -> NodeStore:
        """The local states, where anybody may read them.

        Raises:
            InputError: its images are its own.
        """
        if self.sources:
            raise InputError(f"client {self.client} has images of its own: what it keeps stays")
        return self.store

    def settings(self) -> str:
        """The settings that the server sent, as JSON.

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
def plan_rehearsal(settings: str) -> tuple[Plan, ClientSetup]:
    """Prepare the run as every node and the server do: a function of the settings alone."""
    plan = make_plan(read_experiment(settings))
    return plan, remote_context(plan)
