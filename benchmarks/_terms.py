"""Processor seconds of a run's functions, by term: a term has what no term inside it has."""

from __future__ import annotations

import functools
import importlib._bootstrap
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMPORTS, REST = "interpreter and imports", "the rest"


class Terms:
    """Exclusive processor seconds of the threads of this process, by term.

    Args:
        before: processor seconds of the process before this was imported.
    """

    def __init__(self, before: float) -> None:
        self._of_threads: list[Counter[str]] = []
        self._local = threading.local()
        self._lock = threading.Lock()
        self._before = before

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge the thread's seconds inside to `name`, less those of parts inside it."""
        local = self._local
        if not hasattr(local, "open"):
            local.open, local.seconds, local.mark = [REST], Counter(), time.thread_time()
            with self._lock:
                self._of_threads.append(local.seconds)
        self._claim()
        local.open.append(name)
        try:
            yield
        finally:
            self._claim()
            local.open.pop()

    def _claim(self) -> None:
        local, now = self._local, time.thread_time()
        local.seconds[local.open[-1]] += now - local.mark
        local.mark = now

    def seconds(self) -> dict[str, float]:
        """All threads' seconds by term, those before this class among the imports'."""
        total = sum(self._of_threads, Counter({IMPORTS: self._before}))
        return {**total, REST: total[REST]}

    def wrap(self, owner: Any, names: str, term: str) -> None:
        """Charge calls of an owner's functions to a term.

        Args:
            owner: a module or class.
            names: names of its functions, with spaces between.
            term: what they are charged to.
        """
        for name in names.split():
            setattr(owner, name, self.charged(getattr(owner, name), term))

    def charged(self, call: Callable[..., Any], term: str) -> Callable[..., Any]:
        """`call`, its seconds charged to a term."""

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(term):
                return call(*args, **kwargs)

        return timed

    def watch_run(self, scores: Path) -> None:
        """Time the functions of a run that is about to begin; what it publishes goes to a file.

        Args:
            scores: the file.
        """
        import torch

        import clients.app
        import strategies.base
        from clients.client_round import ClientRound
        from fedmia import simulate
        from fedmia.evaluation import run as evaluation
        from fedmia.evaluation.federated.probes import Probes
        from fedmia.federation.checkpoint import Checkpoint
        from fedmia.report import publish
        from fedmia.ssl.augment import Augment
        from fedmia.ssl.moco import MomentumContrast
        from fedmia.ssl.train import Job
        from fedmia.storage.snapshot import SnapshotStore
        from strategies.base import FederatedStrategy
        from strategies.replies import ReplyReader

        wrap = self.wrap
        wrap(importlib._bootstrap, "_find_and_load", IMPORTS)
        wrap(simulate, "prepare", "data and split")
        wrap(evaluation, "make_client_context", "data and split")
        wrap(Job, "run", "training: between the passes")
        wrap(Job, "forward", "training: forward and loss")
        wrap(torch.Tensor, "backward", "training: backward")
        wrap(torch.optim.SGD, "step zero_grad", "training: optimizer")
        wrap(MomentumContrast, "after_step", "training: momentum encoder and queue")
        wrap(Augment, "__call__", "training: augmentation")
        wrap(ClientRound, "train release finish_round", "client: state around the training")
        wrap(clients.app, "_read_tensors _write_content", "updates: pack and unpack")
        wrap(ReplyReader, "__call__", "updates: pack and unpack")
        wrap(strategies.base, "record tensors", "updates: pack and unpack")
        wrap(FederatedStrategy, "_aggregate_updates", "aggregation, and waiting for updates")
        wrap(Probes, "knn both health", "evaluation")
        wrap(SnapshotStore, "save load", "snapshots and checkpoints")
        wrap(Checkpoint, "write _write delete", "snapshots and checkpoints")
        wrap(evaluation, "score", "evaluation")
        wrap(simulate, "show", "report")
        charged = self.charged
        side_by_side, published = evaluation.run_side_by_side, simulate.publish

        def scored(work: dict[str, Callable[[], Any]], *args: Any) -> dict[str, Any]:
            return side_by_side({n: charged(c, "evaluation") for n, c in work.items()}, *args)

        def publish_scores(run: Any, *args: Any) -> Any:
            scores.write_bytes(pickle.dumps(run))
            from fedmia.report.figures import draw

            wrap(draw, "draw_all", "report: figures")
            with self.part("report"):
                return published(run, *args)

        evaluation.run_side_by_side, simulate.publish = scored, publish_scores
        assert publish.publish is published
