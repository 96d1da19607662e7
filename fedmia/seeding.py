"""One root seed, named streams: `rng(seed, "client", 3, 7)`. The global generators are never used.

A stream depends on its names alone, not on which streams were drawn before it, so the order in
which clients or attacks run cannot change a number.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def seed_words(seed: int, *keys: str | int) -> list[int]:
    """Eight 32-bit words, a SHA-256 of the root seed and the names of the stream."""
    text = "\x1f".join([str(int(seed)), *(f"{type(k).__name__}:{k}" for k in keys)])
    digest = hashlib.sha256(text.encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]


def rng(seed: int, *keys: str | int) -> np.random.Generator:
    """NumPy generator of the stream named by `keys` under the root `seed`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_words(seed, *keys))))


def torch_rng(seed: int, *keys: str | int) -> torch.Generator:
    """Torch generator of the stream named by `keys`, on the CPU."""
    low, high = seed_words(seed, *keys)[:2]
    return torch.Generator().manual_seed((high << 31 | low) & (2**63 - 1))
