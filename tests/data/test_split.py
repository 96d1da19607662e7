"""Roles of images: disjoint, complete, seeded, even; refusals carry their arithmetic."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmia.data.cast import Cast
from fedmia.data.images import ImageSet
from fedmia.partitions.dirichlet import Dirichlet
from fedmia.partitions.iid import IID
from fedmia.partitions.quantity import Quantity
from fedmia.partitions.shards import Shards
from fedmia.partitions.split import SplitOptions, make_split
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc_estimate, auc_interval


def distinct_images(count: int, classes: int = 5) -> ImageSet:
    """`count` different 2x2 images whose pixels spell their index."""
    pixels = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 1, 2, 2)
    labels = np.random.default_rng(0).integers(0, classes, count)
    return ImageSet(pixels, labels, "toy")


DATA = distinct_images(900)
SMALL = SplitOptions(members=60, known=12)


def split_of(data=DATA, options=SMALL, law=None, clients=6, malicious=1, placebo=True, seed=0):
    return make_split(data, options, law or IID(), clients, malicious, placebo, seed)


def arrays(split: Cast) -> dict[str, list[int] | list[list[int]]]:
    """Every part and role as plain lists, for comparison."""
    several = {"parts": split.parts, "placebo_parts": split.placebo_parts}
    lists = {name: [one.tolist() for one in value] for name, value in several.items()}
    return lists | {role: ids.tolist() for role, ids in split.roles.items()}


@settings(max_examples=80, deadline=None)
@given(
    clients=st.integers(1, 9),
    malicious=st.integers(0, 4),
    members=st.integers(20, 90),
    known=st.integers(2, 11),
    placebo=st.booleans(),
    public=st.integers(0, 50),
    test=st.none() | st.integers(2, 80),
    nonmembers=st.none() | st.integers(13, 90),
    seed=st.integers(0, 3),
    law=st.sampled_from([IID(), Quantity(), Shards()]),
)
def test_split__roles_are_disjoint_and_of_the_sizes_asked(
    clients, malicious, members, known, placebo, public, test, nonmembers, seed, law
):
    malicious = min(malicious, clients - 1)
    honest = clients - malicious
    options = SplitOptions(members, nonmembers, known, test, public)
    try:
        split = make_split(DATA, options, law, clients, malicious, placebo, seed)
    except InputError as error:
        # 900 images suffice unless the reserve of many attackers is large; shards may be small.
        reserve = round(members * clients / honest)
        too_few = members + reserve + public + (test or 2) + (nonmembers or known + 2) > 900
        assert too_few or isinstance(law, Shards) and "at least 2 needed" in str(error)
        return
    members_found = np.concatenate(split.parts[:honest])
    names = ("known_nonmembers", "scored_nonmembers", "test_fit", "test_eval", "public")
    roles = [*split.parts, *split.placebo_parts, *map(split.ids, names)]
    everything = np.concatenate(roles)
    assert len(set(everything.tolist())) == len(everything)
    assert len(split.parts) == clients and len(split.placebo_parts) == (honest if placebo else 0)
    assert len(members_found) == len(split.members) == members
    assert set(split.ids("known_members")) | set(split.ids("scored_members")) == set(members_found)
    assert len(split.ids("known_members")) == len(split.ids("known_nonmembers")) == known
    assert len(split.ids("scored_members")) == members - known
    assert len(split.ids("public")) == public
    for client in range(honest):
        owned = np.isin(split.members, split.parts[client])
        assert np.all(split.owners[split.members[owned]] == client)
    if test is not None:
        assert len(split.ids("test_fit")) + len(split.ids("test_eval")) == test
    if nonmembers is not None:
        assert len(split.ids("scored_nonmembers")) == nonmembers - known
    for part in split.parts[:honest]:
        assert np.isin(part, split.ids("scored_members")).any()


def test_split__reserve_is_drawn_in_proportion():
    split = split_of(placebo=True)
    assert [len(p) for p in split.parts] == [12] * 6
    assert [len(p) for p in split.placebo_parts] == [12] * 5
    bare = split_of(placebo=False)
    assert [len(p) for p in bare.parts] == [12] * 6 and bare.placebo_parts == ()
    assert bare.counts()["scored_nonmembers"] > split.counts()["scored_nonmembers"]


def test_split__each_member_is_as_likely_known_as_any_other():
    # Of the largest client, of its commonest class, and of clients of 2 or 3: as many known members
    # as a draw without replacement gives, within 4 deviations. An even draw over clients gave the
    # first two too few, and the last too many.
    share, excess, spread = 12 / 60, np.zeros(3), np.zeros(3)
    for seed in range(120):
        split = split_of(law=Dirichlet(alpha=0.2), placebo=False, seed=seed)
        sizes, classes = np.array([len(p) for p in split.parts[:5]]), DATA.labels[split.members]
        owner = split.owners[split.members]
        largest = owner == sizes.argmax()
        common = np.bincount(classes[largest]).argmax()
        groups = np.array([largest, classes == common, sizes[owner] <= 3])
        known, held = np.isin(split.members, split.ids("known_members")), groups.sum(axis=1)
        excess += (groups & known).sum(axis=1) - held * share
        spread += held * share * (1 - share) * (60 - held) / 59
    assert np.all(spread > 10)
    assert np.all(np.abs(excess) < 4 * np.sqrt(spread)), excess / np.sqrt(spread)


@pytest.mark.slow
def test_split__scored_members_are_drawn_evenly_over_images_and_move_nothing_else():
    counts, draws, whole = np.zeros(900), 120, split_of(placebo=False)
    for seed in range(draws):
        split = split_of(options=dataclasses.replace(SMALL, scored=20), placebo=False, seed=seed)
        assert len(split.ids("scored_members")) == 20 and split.counts()["scored_members"] == 20
        before = split_of(placebo=False, seed=seed)
        assert set(split.ids("scored_members")) < set(before.ids("scored_members"))
        place = {image: at for at, image in enumerate(before.members)}
        counts[[place[image] for image in split.ids("scored_members")]] += 1
        for name in ("parts", "known_members", "known_nonmembers", "test_fit"):
            assert arrays(split)[name] == arrays(before)[name]
    # Each of the 60 members is scored in a third of the draws, within 4 deviations.
    spread = np.sqrt(draws * (1 / 3) * (2 / 3))
    assert np.all(np.abs(counts[:60] - draws / 3) < 4 * spread) and not counts[60:].any()
    largest = split_of(options=dataclasses.replace(SMALL, scored=48), placebo=False)
    np.testing.assert_array_equal(largest.ids("scored_members"), whole.ids("scored_members"))
    with pytest.raises(InputError, match="at most 48 can be scored"):
        split_of(options=dataclasses.replace(SMALL, scored=49))


@pytest.mark.slow
def test_split__a_score_of_the_class_alone_gives_no_more_false_alarms():
    # Known members drawn evenly over clients: .080 of these draws.
    labels, draws = np.repeat(np.arange(10), 180), 800
    data = ImageSet(distinct_images(1800).images, labels, "toy")
    missed = 0
    for seed in range(draws):
        split = make_split(data, SplitOptions(), Dirichlet(alpha=0.1), 10, 1, True, seed)
        scores = np.random.default_rng([seed, 1]).normal(size=10)[labels]
        sides = scores[split.ids("scored_members")], scores[split.ids("scored_nonmembers")]
        low, high = auc_interval(auc_estimate(*sides))
        missed += not low <= 0.5 <= high
    assert abs(missed / draws - 0.05) < 3 * math.sqrt(0.05 * 0.95 / draws), missed / draws


def test_split__reserve_is_dealt_by_its_own_stream():
    def sizes(seed):
        split = split_of(law=Quantity(), seed=seed)
        return [len(p) for p in split.placebo_parts], [len(p) for p in split.parts[:5]]

    assert sizes(7)[0] != sizes(8)[0]
    assert all(placebo != honest for placebo, honest in map(sizes, range(4)))


def test_split__as_many_known_as_can_be():
    split = split_of(options=SplitOptions(members=60, known=55))
    assert [int(np.isin(p, split.ids("scored_members")).sum()) for p in split.parts[:5]] == [1] * 5


@pytest.mark.parametrize("law", [IID(), Dirichlet(), Shards(), Quantity()])
def test_split__same_seed_same_split(law):
    first, again, other = (arrays(split_of(law=law, seed=s)) for s in (7, 7, 8))
    assert first == again
    for name in ("parts", "placebo_parts", "known_members", "known_nonmembers", "test_fit"):
        assert first[name] != other[name]


def test_split__labels_matter_through_the_partition_only():
    relabelled = ImageSet(DATA.images, (DATA.labels + 1) ** 2 % 5, "toy")
    assert arrays(split_of()) == arrays(split_of(data=relabelled))
    shards = split_of(law=Shards()), split_of(data=relabelled, law=Shards())
    assert set(shards[0].members) == set(shards[1].members)
    first, other = (one.ids("scored_nonmembers").tolist() for one in shards)
    assert first == other
    assert arrays(shards[0])["parts"] != arrays(shards[1])["parts"]


def test_split__members_do_not_change_with_the_attackers():
    sets = [
        set(split_of(clients=c, malicious=m, placebo=p).members)
        for c, m, p in ((6, 1, True), (6, 0, False), (10, 3, True), (1, 0, False))
    ]
    assert all(s == sets[0] for s in sets)


def test_split__one_client_holds_all_members():
    split = split_of(clients=1, malicious=0, placebo=False)
    assert len(split.parts) == 1 and np.array_equal(split.parts[0], split.members)
    assert set(split.owners[split.members]) == {0} and np.all(np.diff(split.members) > 0)


def test_split__duplicates_are_removed_and_counted():
    doubled = np.concatenate([DATA.images, DATA.images[:100], DATA.images[:50]])
    labels = np.zeros(len(doubled), np.int64)
    split = split_of(data=ImageSet(doubled, labels, "toy"))
    assert split.duplicates_removed == 150 and split.distinct == 900
    used = np.concatenate([*split.parts, *split.placebo_parts, split.ids("scored_nonmembers")])
    assert used.max() < 900
    assert arrays(split)["parts"] == arrays(split_of())["parts"]


def test_split__test_halves_and_automatic_sizes():
    split = split_of(data=distinct_images(9000))
    counts = split.counts()
    assert (counts["test_fit"], counts["test_eval"]) == (500, 500)
    assert counts["known_nonmembers"] + counts["scored_nonmembers"] == 2000
    small = split_of(placebo=False).counts()  # 900 - 60 - 12 = 828 left, a quarter is 207
    assert small["test_fit"] + small["test_eval"] == 207
    assert small["known_nonmembers"] + small["scored_nonmembers"] == 621


DEFAULT = SplitOptions(known=12)


@pytest.mark.parametrize(
    ("images", "placebo", "roles"),  # members, placebo, non-members, test; 6 clients, 1 malicious
    [
        (900, False, (469, 0, 225, 112)),  # and as much for the malicious client as others have
        (900, True, (255, 255, 227, 112)),
        (24000, False, (5000, 0, 2000, 1000)),
        (90, False, (47, 0, 23, 11)),
    ],
)
def test_split__without_a_number_of_members_all_images_have_a_role(images, placebo, roles):
    counts = split_of(distinct_images(images), DEFAULT, placebo=placebo).counts()
    outside = counts["known_nonmembers"] + counts["scored_nonmembers"]
    test = counts["test_fit"] + counts["test_eval"]
    assert (counts["members"], counts["placebo"], outside, test) == roles
    used = sum(roles) + counts["attackers"]
    assert used == images if images < 9000 else used == 9000
    assert counts["scored_members"] == min(2000, counts["members"] - 12)


def test_split__without_a_number_too_few_images_are_refused_with_the_sum():
    needed = r"17 members \+ 3 reserve \+ 14 non-members \+ 2 test \+ 0 public = 36 images needed"
    with pytest.raises(InputError, match=f"{needed}, toy has 35 distinct"):
        split_of(distinct_images(35), DEFAULT, placebo=False)
    assert split_of(distinct_images(36), DEFAULT, placebo=False).counts()["members"] == 17


def test_split__a_number_of_members_scores_all_of_them():
    split = split_of(distinct_images(9000), SplitOptions(members=3000), placebo=False)
    assert len(split.ids("scored_members")) == 2960


def test_split__too_few_images_shows_the_sum():
    options = SplitOptions(members=300, nonmembers=400, known=48, test=50, public=7)
    with pytest.raises(InputError, match="300 .* 360 .* 400 .* 50 .* 7 public = 1117 .* has 900 "):
        split_of(options=options)


def test_split__exactly_enough_images():
    options = SplitOptions(members=60, nonmembers=768, known=10, test=None)
    split = split_of(options=options, clients=1, malicious=0, placebo=False)
    assert len(split.ids("scored_nonmembers")) == 758 and len(split.ids("test_eval")) == 36
    data = distinct_images(60 + 14 + 2)
    tight = split_of(data, clients=1, malicious=0, placebo=False).counts()
    assert (tight["scored_nonmembers"], tight["test_fit"], tight["test_eval"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("options", "clients", "malicious", "message"),
    [
        (SMALL, 32, 1, "31 honest clients fewer than 2 images"),
        (SplitOptions(60, known=60), 1, 0, r"split.known \(--known\) 60 of 60 members"),
        (SplitOptions(60, known=56), 6, 1, "at most 55"),
        (SplitOptions(60, nonmembers=13, known=12), 6, 1, "split.nonmembers 13"),
    ],
)
def test_split__refuses(options, clients, malicious, message):
    with pytest.raises(InputError, match=message) as caught:
        split_of(options=options, clients=clients, malicious=malicious)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"gives client \d of 5 1 images, at least 2 needed"):
        split_of(law=Quantity(alpha=0.01, min_size=1))


@pytest.mark.parametrize("name", ["public", "test_fit", "scored_nonmembers", "known_nonmembers"])
def test_split__an_image_with_two_roles_is_caught(name):
    split = split_of(options=SplitOptions(60, known=12, public=4))
    for taken in (split.members[:1], split.parts[-1][:1], split.placebo_parts[0][:1]):
        with pytest.raises(ValueError, match="two roles"):
            dataclasses.replace(split, roles={**split.roles, name: taken})


def test_split__known_and_scored_members_must_be_apart():
    split = split_of()
    with pytest.raises(ValueError, match="distinct members"):
        known = split.ids("scored_members")[:12]
        dataclasses.replace(split, roles={**split.roles, "known_members": known})


def test_without__takes_the_images_of_those_clients_and_no_others():
    split = split_of()
    assert split.without_clients([]) is split
    remaining = split.without_clients({1, 4})
    assert [len(p) > 0 for p in remaining.parts] == [True, False, True, True, False, True]
    gone = np.concatenate([split.parts[1], split.parts[4]])
    pairs = [(split.members, remaining.members)]
    for role in ("known_members", "scored_members"):
        pairs.append((split.ids(role), remaining.ids(role)))
    for before, after in pairs:
        np.testing.assert_array_equal(after, before[~np.isin(before, gone)])
        assert len(after) < len(before)
    owners = remaining.owners[remaining.members]
    assert sorted(set(owners.tolist())) == [0, 2, 3] and {*remaining.owners[gone]} == {-1}
    for image, owner in zip(remaining.members, owners, strict=True):
        assert image in split.parts[owner]
    for name in ("known_nonmembers", "scored_nonmembers", "test_fit", "test_eval", "public"):
        np.testing.assert_array_equal(remaining.ids(name), split.ids(name))
