"""One root seed, named streams: `rng(seed, "client", 3, 7)`. The global generators are never used.

A stream depends on its names alone, not on which streams were drawn before it, so the order in
which clients or attacks run cannot change a number. Where a guarantee is to hold outside a
simulation, streams have another root than the seed: see `root`.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
import torch

SEEDED, ENTROPY = "seeded", "entropy"  # where randomness comes from
TWISTER, AT = 624, 24  # words of the CPU generator's state, and the byte at which they begin


def root(source: str, seed: int) -> int:
    """The root seed of the random streams.

    Args:
        source: SEEDED or ENTROPY.
        seed: the run's seed.

    Returns:
        `seed` under SEEDED; under ENTROPY 256 new bits of the operating system at each call. The
        caller keeps these to itself.
    """
    return secrets.randbits(256) if source == ENTROPY else seed


def seed_words(seed: int, *keys: str | int) -> list[int]:
    """Derive the seed of a stream: SHA-256 of the root seed and of the stream's name.

    Args:
        seed: the root seed.
        keys: the name of the stream, in parts.

    Returns:
        Eight 32-bit words.
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(k).__name__}:{k}" for k in keys)])
    digest = hashlib.sha256(text.encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]


def draw_seed(generator: torch.Generator) -> int:
    """A seed in [0, 2^62) for another stream, also where tensors are built without memory; the
    generator, on the CPU, moves on by one draw."""
    return int(torch.randint(2**62, (), generator=generator, device="cpu"))


def rng(seed: int, *keys: str | int) -> np.random.Generator:
    """A NumPy generator for a stream of random numbers.

    Args:
        seed: the root seed.
        keys: the name of the stream, in parts. Equal names give equal numbers.

    Returns:
        The generator at its start.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_words(seed, *keys))))


def torch_rng(seed: int, *keys: str | int) -> torch.Generator:
    """A torch generator on the CPU for a stream of random numbers.

    Args:
        seed: the root seed.
        keys: the name of the stream, in parts. Equal names give equal numbers.

    Returns:
        The generator at its start.
    """
    low, high = seed_words(seed, *keys)[:2]
    return torch.Generator().manual_seed((high << 31 | low) & (2**63 - 1))


def torch_noise(
    source: str, stream: np.random.Generator, device: torch.device | str
) -> torch.Generator:
    """A torch generator for the noise of a defence.

    Of a seed the CPU's Mersenne Twister takes 32 bits, which can all be tried: under ENTROPY each
    of its words is drawn. A GPU's Philox has a key of 64 bits.

    Args:
        source: SEEDED: the seed is drawn from `stream`; ENTROPY: from the operating system.
        stream: of the run.
        device: of the generator.

    Returns:
        The generator at its start.
    """
    generator = torch.Generator(device=device)
    if source != ENTROPY:
        return generator.manual_seed(int(stream.integers(2**63 - 1)))
    generator.manual_seed(secrets.randbits(64))
    if generator.device.type == "cpu":
        words = np.frombuffer(secrets.token_bytes(4 * TWISTER), np.uint32).astype(np.uint64)
        state = generator.get_state()
        state[AT : AT + 8 * TWISTER] = torch.from_numpy(words.view(np.uint8))
        generator.set_state(state)
    return generator
