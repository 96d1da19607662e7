"""Named streams: fixed by their names alone, apart from each other, never the global ones."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from fedmia.seeding import rng, root, seed_words, torch_noise, torch_rng

KEYS = st.lists(
    st.one_of(st.integers(-5, 99), st.text("abc1-", min_size=1, max_size=4)), max_size=3
)


def test_seed_words__are_the_sha256_of_seed_and_names() -> None:
    digest = hashlib.sha256(b"7\x1fstr:client\x1fint:3").digest()
    words = seed_words(7, "client", 3)
    assert b"".join(w.to_bytes(4, "little") for w in words) == digest
    assert len(words) == 8


@given(KEYS, KEYS, st.integers(0, 3), st.integers(0, 3))
def test_streams__differ_exactly_when_their_names_do(
    a: list[str | int], b: list[str | int], s: int, t: int
) -> None:
    equal = (s, a) == (t, b)
    assert (seed_words(s, *a) == seed_words(t, *b)) == equal
    assert bool((rng(s, *a).random(4) == rng(t, *b).random(4)).all()) == equal


def test_streams__do_not_depend_on_what_was_drawn_before() -> None:
    alone = rng(0, "client", 2, 5).random(3)
    for client in (0, 1):
        rng(0, "client", client, 5).random(100)
    assert np.array_equal(rng(0, "client", 2, 5).random(3), alone)


def numpy_global() -> str:
    return repr(np.random.get_state(legacy=False))


def test_streams__leave_the_global_generators_alone() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    before = random.getstate(), numpy_global(), torch.get_rng_state()
    first = rng(4, "x").random(), torch.rand(2, generator=torch_rng(4, "x"))
    assert random.getstate() == before[0]
    assert numpy_global() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    again = rng(4, "x").random(), torch.rand(2, generator=torch_rng(4, "x"))
    assert first[0] == again[0] and torch.equal(first[1], again[1])


def test_torch_rng__differs_by_name_and_seed() -> None:
    seeds = {torch_rng(s, k).initial_seed() for s in range(20) for k in ("a", "b", 1, "1")}
    assert len(seeds) == 80


def test_rng__is_uniform_across_streams() -> None:
    """First draws of neighbouring streams are as good as draws of one stream."""
    first = np.array([rng(0, "client", i).random() for i in range(2000)])
    assert abs(first.mean() - 0.5) < 4 / np.sqrt(12 * 2000)
    pairs = np.corrcoef(first[:-1], first[1:])[0, 1]
    assert abs(pairs) < 4 / np.sqrt(2000)


def test_root__is_the_seed_or_bits_of_the_system() -> None:
    assert root("seeded", 7) == 7
    drawn = {root("entropy", 7) for _ in range(4)}
    assert len(drawn) == 4 and max(drawn) > 2**240
    firsts = {float(rng(one, "release", 1, 0).random()) for one in drawn}
    assert len(firsts) == 4


def test_torch_noise__of_a_seed_repeats_and_of_the_system_does_not(monkeypatch: Any) -> None:
    """Nor does a CPU's hang on the 32 bits that its twister takes of a seed."""
    seeded = [torch_noise("seeded", rng(0, "x"), "cpu") for _ in range(2)]
    twin = torch.Generator().manual_seed(int(rng(0, "x").integers(2**63 - 1)))
    draws = [torch.rand(4, generator=g) for g in (*seeded, twin)]
    assert all(torch.equal(draws[0], d) for d in draws)
    monkeypatch.setattr("fedmia.seeding.secrets.randbits", lambda bits: 5)
    samples = [torch_noise("entropy", rng(0, "x"), "cpu") for _ in range(2)]
    samples.append(torch.Generator().manual_seed(5))
    noise = [torch.normal(0.0, 1.0, (2000,), generator=g) for g in samples]
    assert all(abs(float(torch.corrcoef(torch.stack(p))[0, 1])) < 0.1 for p in pairwise(noise))
    assert kstest(noise[0].numpy(), "norm").pvalue > 1e-4
