"""How many threads of torch share an operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """What this Python thread computes inside is shared among `count` threads of torch, >= 1."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
