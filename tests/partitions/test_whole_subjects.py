"""Images of one subject play one role in a run, and belong to one client where it owns none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmia
from fedmia.data.cast import OF_MEMBERS, OF_OTHERS, Cast
from fedmia.data.images import ImageSet
from fedmia.partitions.base import Partition
from fedmia.partitions.dirichlet import Dirichlet
from fedmia.partitions.iid import IID
from fedmia.partitions.natural import Natural
from fedmia.partitions.split import SplitOptions, make_split
from fedmia.settings.errors import InputError
from fedmia.statistics.matching import null_distribution, subject_null

SIZES = SplitOptions(members=90, nonmembers=80, known=20, test=30)


def images_of(subjects: np.ndarray, owners: np.ndarray | None = None) -> ImageSet:
    pixels = np.arange(len(subjects), dtype="<u4").view(np.uint8).reshape(-1, 1, 2, 2)
    columns = {"groups": subjects} | ({} if owners is None else {"partition.column": owners})
    return ImageSet(pixels, subjects % 4, "toy", columns=columns)


def roles_of(cast: Cast) -> dict[str, set[int]]:
    assert cast.subjects is not None
    of = cast.subjects[0]
    roles = {
        r: set(of[cast.roles[r]].tolist()) for r in (*OF_MEMBERS[:2], *OF_OTHERS) if r in cast.roles
    }
    placebo = [set(of[part].tolist()) for part in cast.placebo_parts]
    attackers = [set(of[part].tolist()) for part in cast.parts[cast.honest :]]
    return {**roles, "placebo": set().union(*placebo), "attackers": set().union(*attackers)}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**16), st.sampled_from([IID(), Dirichlet(alpha=1.0)]), st.booleans(),
    st.integers(0, 1),
)  # fmt: skip
def test_split__no_subject_has_two_roles(
    seed: int, deal: Partition, placebo: bool, malicious: int
) -> None:
    subjects = np.random.default_rng(seed).integers(0, 90, 420)
    try:
        cast = make_split(images_of(subjects), SIZES, deal, 3, malicious, placebo, seed)
    except InputError:  # a client that gets fewer than two images, of an uneven law
        assert isinstance(deal, Dirichlet)
        return
    roles = roles_of(cast)
    names = [name for name in roles if roles[name]]
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert not roles[one] & roles[other], (one, other)
    parts = [set(subjects[part].tolist()) for part in cast.parts]
    assert not set.intersection(*parts) and sum(map(len, parts)) == len(set().union(*parts))
    assert all(set(subjects[part]) - roles["known_members"] for part in cast.parts[: cast.honest])
    for role, size in (("known_members", 20), ("scored_nonmembers", 60)):
        assert abs(len(cast.roles[role]) - size) <= 12  # two subjects of the largest


def test_split__one_image_a_subject_gives_every_size_as_asked() -> None:
    cast = make_split(images_of(np.arange(420)), SIZES, IID(), 3, 0, False, 0)
    sizes = {role: len(places) for role, places in cast.roles.items()}
    assert sizes["known_members"] == 20 == sizes["known_nonmembers"]
    assert (sizes["scored_members"], sizes["scored_nonmembers"]) == (70, 60)
    assert sizes["test_fit"] == sizes["test_eval"] == 15


def test_split__a_subject_of_two_clients_has_one_role_and_both_keep_its_images() -> None:
    subjects, owners = np.repeat(np.arange(100), 4), np.tile([0, 1], 200)
    cast = make_split(images_of(subjects, owners), SIZES, Natural("site"), 2, 0, False, 0)
    roles = roles_of(cast)
    assert not roles["scored_members"] & roles["scored_nonmembers"]
    assert set(owners[cast.parts[0]]) == {0} and set(owners[cast.parts[1]]) == {1}
    assert set(subjects[cast.parts[0]]) == set(subjects[cast.parts[1]])


@pytest.mark.parametrize(
    ("subjects", "why"),
    [
        (np.arange(420) // 60, "7 subjects are too few: at least"),
        (
            np.concatenate([np.arange(419), [500]]),
            "images 0 and 419 of toy are equal, and belong to 0",
        ),
    ],
)
def test_split__refuses(subjects: np.ndarray, why: str) -> None:
    data = images_of(subjects)
    if "equal" in why:
        data.images[419] = data.images[0]
    with pytest.raises(InputError, match=why):
        make_split(data, SIZES, IID(), 3, 0, False, 0)


def test_null__whole_subjects_pose_so_it_is_wider_than_that_of_images() -> None:
    rng, of = np.random.default_rng(0), np.repeat(np.arange(30), 8)
    scores, labels = rng.normal(size=30)[of] + 0.1 * rng.normal(size=240), np.zeros(240, np.int64)
    whole = subject_null(5, scores, labels, of, np.random.default_rng(1))
    images = null_distribution(np.zeros(40, np.int64), scores, labels, np.random.default_rng(1))
    assert whole is not None and images is not None and whole.posers == images.posers == 40
    assert np.ptp(whole.band) > 1.5 * np.ptp(images.band)
    assert abs(whole.mean - 0.5) < 0.05


def test_run__counts_subjects_and_so_does_an_audit_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (480, 8, 8, 1), dtype=np.uint8)
    subjects = np.array([f"patient {i // 6}" for i in range(480)])
    options: dict[str, Any] = dict(clients=2, rounds=1, attacks="similarity", quiet=True)
    run = fedmia.run_simulation(
        "smoke", dataset=(images, np.arange(480) % 2), groups=subjects, out=tmp_path / "run",
        split={"members": 120, "nonmembers": 120, "known": 30, "test": 40}, attacker="none",
        **options,
    )  # fmt: skip
    row = run.records.attacks[0]
    assert (row.n_member_subjects, row.n_nonmember_subjects) == (15, 15)
    assert {c.whose for c in run.records.clients} == {"client"}
    assert run.scores["subject"].str.startswith("patient").all()
    sides = run.scores.groupby("truth")["subject"].agg(set)
    assert not sides[False] & sides[True]
    audit = fedmia.audit_encoder(
        "", federation=tmp_path / "run" / "recording", attacks="similarity", quiet=True
    )
    other = audit.records.attacks[0]
    assert (row.auc, row.low, row.high) == (other.auc, other.low, other.high)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"groups": "ward"}, "data source 'digits' has no columns"),
        ({"groups": "wards.csv"}, "a run takes a column"),
    ],
)
def test_run__refuses_in_one_line(options: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        fedmia.run_simulation("smoke", quiet=True, **options)
