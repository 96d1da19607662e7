"""What every partition keeps: disjoint, complete, none empty, one client holds all, seeded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmia.partitions.base import Partition
from fedmia.partitions.dirichlet import Dirichlet
from fedmia.partitions.iid import IID
from fedmia.partitions.quantity import Quantity
from fedmia.partitions.shards import Shards, assign, shard_counts
from fedmia.settings.errors import InputError

LAWS: list[Partition] = [IID(), Dirichlet(alpha=5.0), Shards(), Shards(classes=3), Quantity()]
ids = [f"{type(p).__name__}{i}" for i, p in enumerate(LAWS)]
labels_of = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(np.array)


def drawn(law: Partition, labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    return law(labels, clients, np.random.default_rng(seed))


@pytest.mark.parametrize("law", LAWS, ids=ids)
@settings(max_examples=40, deadline=None)
@given(labels=labels_of, clients=st.integers(1, 12), seed=st.integers(0, 9))
def test_partition__deals_every_image_once(law, labels, clients, seed):
    try:
        parts = drawn(law, labels, clients, seed)
    except InputError as error:
        # Only few images excuse a refusal: 5 a client are plenty but for Dirichlet's luck.
        assert len(labels) < (2 if not isinstance(law, Dirichlet) else 12) * clients
        assert str(len(labels)) in str(error) and str(clients) in str(error)
        return
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    for part in parts:
        assert np.all(np.diff(part) > 0) and part.dtype == np.int64


@pytest.mark.parametrize("law", [*LAWS, Dirichlet(alpha=1e-9)], ids=[*ids, "tiny"])
@pytest.mark.parametrize("images", [1, 2, 50])
def test_partition__one_client_holds_all(law, images):
    (part,) = drawn(law, np.arange(images) % 7, 1, 3)
    assert part.tolist() == list(range(images))


@pytest.mark.parametrize("law", LAWS, ids=ids)
def test_partition__same_rng_same_parts(law):
    labels = np.random.default_rng(0).integers(0, 10, 300)
    first, again, other = (drawn(law, labels, 8, s) for s in (1, 1, 2))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


@pytest.mark.parametrize("law", LAWS, ids=ids)
def test_partition__too_few_images_are_refused(law):
    with pytest.raises(InputError, match=r"3 images are too few for 4 clients"):
        drawn(law, np.zeros(3, np.int64), 4, 0)


def test_iid__sizes_are_even_whatever_the_labels():
    sizes = [len(p) for p in drawn(IID(), np.zeros(103, np.int64), 10, 0)]
    assert sorted(sizes) == [10] * 7 + [11] * 3
    labels = np.arange(60) % 4
    ours, theirs = drawn(IID(), labels, 5, 1), drawn(IID(), labels[::-1].copy(), 5, 1)
    assert all(map(np.array_equal, ours, theirs))


@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_dirichlet__shares_follow_the_law(alpha):
    # Share of a class at one client ~ Beta(alpha, (K-1) alpha): mean 1/K, variance
    # (1/K)(1 - 1/K) / (K alpha + 1). Many classes of many images, so that no draw is refused.
    clients, classes, each = 4, 400, 500
    labels = np.repeat(np.arange(classes), each)
    parts = drawn(Dirichlet(alpha=alpha), labels, clients, 0)
    shares = np.stack([np.bincount(labels[p], minlength=classes) for p in parts]) / each
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert np.allclose(shares.mean(axis=1), 1 / clients, atol=4 * (variance / classes) ** 0.5)
    assert shares.var() == pytest.approx(variance, rel=0.15)


def test_dirichlet__images_of_a_class_are_dealt_by_chance():
    # The first images of a class must not all go to the first client.
    labels = np.zeros(1000, np.int64)
    parts = drawn(Dirichlet(alpha=100.0), labels, 2, 0)
    assert 450 < np.mean(parts[0]) < 550


@pytest.mark.parametrize("min_size", [2, 7])
def test_dirichlet__every_client_gets_the_least(min_size):
    labels = np.arange(144) % 10
    for seed in range(20):
        law = Dirichlet(alpha=0.5, min_size=min_size)
        assert min(map(len, drawn(law, labels, 9, seed))) >= min_size


@pytest.mark.parametrize("alpha", [0.01, 1e-12, 1e-320])
def test_dirichlet__hopeless_alpha_names_alpha_clients_images(alpha):
    with pytest.raises(InputError) as caught:
        drawn(Dirichlet(alpha=alpha), np.arange(60) % 3, 9, 0)
    for part in (f"alpha {alpha}", "9 clients", "60 images"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("clients", "classes"), [(5, 2), (9, 2), (7, 3), (10, 1), (30, 4)])
def test_shards__each_client_holds_that_many_classes(clients, classes):
    labels = np.arange(600) % 10
    parts = drawn(Shards(classes=classes), labels, clients, 0)
    assert {len(np.unique(labels[p])) for p in parts} == {classes}


def test_shards__sizes_and_classes_where_numbers_divide_or_are_too_few():
    labels = np.arange(600) % 10
    assert {len(p) for p in drawn(Shards(), labels, 10, 0)} == {60}
    parts = drawn(Shards(classes=1), labels, 4, 0)  # more classes than slots: all are dealt
    assert sorted(len(np.unique(labels[p])) for p in parts) == [2, 2, 3, 3]
    parts = drawn(Shards(classes=8), np.arange(60) % 3, 5, 0)  # more than there are
    assert {len(np.unique(p % 3)) for p in parts} == {3}


@settings(max_examples=100, deadline=None)
@given(
    totals=st.lists(st.integers(1, 30), min_size=1, max_size=12).map(np.array),
    clients=st.integers(1, 20),
    classes=st.integers(1, 5),
    seed=st.integers(0, 5),
)
def test_shards__hands_are_equal_and_never_repeat_a_class(totals, clients, classes, seed):
    shards = shard_counts(totals, clients, classes)
    assert np.all((shards >= 1) & (shards <= np.minimum(totals, clients)))
    held = assign(shards, clients, np.random.default_rng(seed))
    assert [len(h) for h in held] == shards.tolist()
    assert all(len(set(h)) == len(h) for h in held)
    hands = np.bincount([c for h in held for c in h], minlength=clients)
    assert hands.max() - hands.min() <= 1


def test_quantity__sizes_follow_the_law():
    # Size share of one client ~ Beta(1, K-1) once the guaranteed images are left out.
    clients, images = 5, 10_000
    labels = np.zeros(images, np.int64)
    draws = [drawn(Quantity(), labels, clients, seed) for seed in range(300)]
    sizes = np.array([[len(part) for part in parts] for parts in draws])
    shares = (sizes - 2) / (images - 2 * clients)
    variance = (1 / clients) * (1 - 1 / clients) / (clients + 1)
    assert np.allclose(shares.mean(axis=0), 1 / clients, atol=4 * (variance / 300) ** 0.5)
    assert shares.var() == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize("alpha", [1e-3, 1e-320, 1.0, 1e6])
def test_quantity__every_client_gets_the_least(alpha):
    parts = drawn(Quantity(alpha=alpha, min_size=3), np.zeros(40, np.int64), 12, 0)
    assert min(map(len, parts)) >= 3 and sum(map(len, parts)) == 40


def test_quantity__class_mix_is_even():
    labels = np.arange(4000) % 2
    largest = max(drawn(Quantity(), labels, 4, 0), key=len)
    assert 0.45 < labels[largest].mean() < 0.55
