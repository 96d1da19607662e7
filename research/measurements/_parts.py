"""Processor seconds and arithmetic of a command by part, by hooks from outside.

A hook replaces a function by one that charges the thread's processor seconds to a part while it
runs; of hooks inside each other the innermost counts. Arithmetic is that of the encoders: images
that pass, times what torch's counter says of one.

    python _parts.py FILE.json MODULE [ARGUMENT ..]
"""

from __future__ import annotations

import atexit
import importlib
import json
import pkgutil
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

STARTED = time.process_time()
Label = Callable[..., str]
# What a part is called: `+` appends to the part around it.
PARTS: dict[str, str | Label] = {
    "fedmia.simulate:make_plan": "data",
    "clients.client_round:ClientRound.train": lambda self: f"training, {self.task.branch}",
    "clients.client_round:ClientRound.craft": (
        lambda self, method, trained, batch=None: "ascent, sets" if batch is not None else "ascent"
    ),
    "clients.client_round:ClientRound._rehearse_round": "+, rehearsal",
    "fedmia.federation.untrained:play_untrained": "ascent, untrained",
    "fedmia.federation.notetaker:NoteTaker._read": "ascent, readings",
    "fedmia.federation.replay:Replay.play": "ascent, replayed rounds",
    "strategies.base:FederatedStrategy.rounds": "server",
    "fedmia.evaluation.suite:Suite.attempt": lambda self, piece, name, call: (
        f"{name}, {piece.partition(' ')[0]}"
    ),
    "fedmia.attacks.ascent_static:AscentStatic.fit": "+, tuning",
    "fedmia.evaluation.steps.scorer:Scorer._known_scores": "+, threshold",
    "fedmia.evaluation.steps.scorer:Scorer._score_sets": "+, sets",
    "fedmia.evaluation.score:pixels": "pixels",
    "fedmia.federation.utility:Probes.features": "probes",
    "fedmia.simulate:publish": "report",
    "fedmia.audit:publish": "report",
}
# What is done in it.
WORKS = {
    "fedmia.ssl.augment:Augment.__call__": "views",
    "fedmia.threat._rows:content_uniforms": "views",
    "fedmia.attacks.ascent_static:AscentStatic._climb": "climbs",
    "fedmia.attacks.ascent:Ascent.climb": "climbs",
    "fedmia.threat._rows:Rows._embed": "embedding",
    "fedmia.threat._rows:Rows._layers": "embedding",
    "fedmia.ssl.train:Job.run": "steps",
}
HERE = threading.local()
SECONDS: dict[tuple[str, str], float] = defaultdict(float)
CALLS: dict[tuple[str, str], int] = defaultdict(int)
IMAGES: dict[tuple[str, str], dict[tuple[Any, ...], int]] = defaultdict(lambda: defaultdict(int))
ENCODERS: dict[tuple[Any, ...], Any] = {}


def charge() -> tuple[str, str]:
    """The thread's part and work, after its seconds since the last charge went there."""
    now = time.thread_time()
    key: tuple[str, str] = getattr(HERE, "key", ("rest", ""))
    SECONDS[key] += now - getattr(HERE, "mark", now)
    HERE.key, HERE.mark = key, now
    return key


def hook(path: str, label: str | Label, work: bool = False) -> None:
    """Replace the function at `module:Class.name`."""
    holder, last = re.split(r"[.:](?=\w+$)", path)
    owner: Any = pkgutil.resolve_name(holder)
    plain = getattr(owner, last)

    @wraps(plain)
    def hooked(*args: Any, **options: Any) -> Any:
        before = charge()
        said = label if isinstance(label, str) else label(*args, **options)
        part = before[0] + said[1:] if said.startswith("+") else said
        HERE.key = (before[0], said) if work else (part, "")
        CALLS[HERE.key] += 1
        try:
            return plain(*args, **options)
        finally:
            charge()
            HERE.key = before

    setattr(owner, last, hooked)


def count_images(name: str) -> None:
    """Count what passes through encoders by `Encoder.NAME`, with or without a gradient."""
    import torch

    from fedmia.ssl.base import Encoder

    plain = getattr(Encoder, name)

    @wraps(plain)
    def hooked(self: Any, pixels: Any, *more: Any) -> Any:
        weights = sum(w.numel() for w in self.parameters())
        kind = (weights, *pixels.shape[1:], torch.is_grad_enabled())
        ENCODERS.setdefault(kind, self)
        IMAGES[getattr(HERE, "key", ("rest", ""))][kind] += len(pixels)
        return plain(self, pixels, *more)

    setattr(Encoder, name, hooked)


def flops(kind: tuple[Any, ...]) -> float:
    """Of one image through an encoder, backward too where there is a gradient."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    encoder, pixels = ENCODERS[kind], torch.rand(2, *kind[1:-1])
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(kind[-1]):
        out = encoder.forward.__wrapped__(encoder, pixels)
        if kind[-1] and out.requires_grad:
            out.sum().backward()
    return counter.get_total_flops() / 2


def write(file: Path) -> None:
    """What was measured, in a file beside those of other processes."""
    charge()
    total, each = time.process_time(), {kind: flops(kind) for kind in list(ENCODERS)}
    SECONDS["rest", ""] += total - sum(SECONDS.values())
    rows = [
        {"part": part, "work": work, "cpu_s": SECONDS[part, work], "calls": CALLS[part, work],
         "images": sum(IMAGES[part, work].values()),
         "gflop": sum(n * each[kind] for kind, n in IMAGES[part, work].items()) / 1e9}
        for part, work in list(SECONDS)
    ]  # fmt: skip
    file.write_text(json.dumps({"cpu_s": total, "rows": rows}))


def install(file: Path) -> None:
    """Set the hooks, and write what they measured when the process ends."""
    for path, label in PARTS.items():
        hook(path, label)
    for path, label in WORKS.items():
        hook(path, label, work=True)
    for name in ("forward", "features"):
        count_images(name)
    SECONDS["start, imports", ""] = time.process_time()
    HERE.mark = time.thread_time()
    atexit.register(write, file)


def main() -> int:
    file, module, *arguments = sys.argv[1:]
    command = importlib.import_module(module)
    install(Path(file))
    scheduler = importlib.import_module("fedmia.study.scheduler")
    own = f"import os, pathlib; sys.path.append({str(Path(__file__).parent)!r}); import _parts\n"
    own += f"_parts.install(pathlib.Path({file!r} + str(os.getpid())))\n"
    scheduler.PROGRAM = scheduler.PROGRAM.replace("sys.exit", own + "sys.exit")
    code: int = command.main(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
