"""What clients of a small run share, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clients.client_context import ClientContext
from fedmia.data.images import IntArray
from fedmia.ssl.train import Train


def small_context(file: Path, parts: Sequence[IntArray], /, **more: Any) -> ClientContext:
    """Clients of these parts of the 8x8 images in `file`; `more` replaces what stands here."""
    none = np.arange(0)
    values: dict[str, Any] = {
        "seed": 0, "images_file": file, "roles": ("honest",) * len(parts),
        "parts": {"members": tuple(parts)}, "targets": none, "held": none, "known": (none, none),
        "sets": (), "turns": 1, "share": 1.0, "attacked_rate": "schedule",
        "model": ("smallnet", {"width": 2}), "ssl": ("moco", {"dim": 4, "queue": 4}),
        "strategy": ("fedavg", {}), "train": Train(local_epochs=1, batch_size=2, lr=0.05),
        "public": none, "defenses": (), "attack": None, "attacker_trains": True,
        "batch_norm": "average", "channels": 3, "size": 8, "mean": (0.5,) * 3, "std": (0.25,) * 3,
        "total_rounds": 4, "device": "cpu", "threads": 1,
    }  # fmt: skip
    return ClientContext(**{**values, **more})
