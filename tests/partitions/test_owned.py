"""Images that belong to clients: by a column, by a file; every role stays with its owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmia.data.cast import Cast
from fedmia.data.digits import Digits
from fedmia.data.images import ImageSet
from fedmia.data.npz import Npz
from fedmia.federation.plan import make_plan
from fedmia.partitions.base import OwnerPartition
from fedmia.partitions.file import File
from fedmia.partitions.natural import Natural
from fedmia.partitions.split import SplitOptions, make_split
from fedmia.report.words.notes import sentences
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree, to_tree

SMALL = SplitOptions(members=60, known=12, test=40)


def images_of(column: np.ndarray[Any, Any] | None, count: int = 900) -> ImageSet:
    """`count` different 2x2 images whose pixels spell their index."""
    columns = {} if column is None else {"partition.column": column}
    pixels = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 1, 2, 2)
    return ImageSet(pixels, np.arange(count) % 5, "toy", columns=columns)


def split_of(
    data: ImageSet, law: OwnerPartition, clients: int, malicious: int, placebo: bool
) -> Cast:
    return make_split(data, SMALL, law, clients, malicious, placebo, 0)


def write(path: Path, parts: list[list[int]], whole: bool = False) -> File:
    path.write_text(json.dumps(parts))
    return File(str(path), whole)


# kinds


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.sampled_from("abcdefg"), min_size=8, max_size=60), clients=st.integers(1, 7)
)
def test_natural__numbers_the_values_with_the_most_images(values, clients):
    data = images_of(np.array(values), len(values))
    law = Natural("writer")
    if len(set(values)) < clients:
        with pytest.raises(InputError, match=f"'writer' of toy has {len(set(values))} values"):
            law.kinds(data, clients)
        return
    most = sorted(set(values), key=lambda v: (-values.count(v), v))[:clients]
    expected = [sorted(most).index(v) if v in most else -1 for v in values]
    assert law.kinds(data, clients).tolist() == expected


def test_natural__integers_keep_their_order_and_notes_name_the_clients():
    data = images_of(np.array([10, 9, 9, 10, 2, 7, 7]), 7)
    law = Natural("site")
    assert law.kinds(data, 3).tolist() == [2, 1, 1, 2, -1, 0, 0]
    assert sentences(law.notes(data, 3)) == ["Clients by site: 0 is 7, 1 is 9, 2 is 10."]
    many = images_of(np.arange(30), 30)
    assert sentences(law.notes(many, 25))[0].endswith("19 is 19 and 5 more.")


def test_natural__needs_a_column_that_the_source_has():
    for law, source in ((Natural(), Npz()), (Natural("site"), Digits())):
        with pytest.raises(InputError, match="natural needs"):
            law.check(source, "source")
    Natural("site").check(Npz(), "npz")
    with pytest.raises(InputError, match="toy hands over no 'site'"):
        Natural("site").kinds(images_of(None, 4), 2)


# files


PARTS = [[4, 0], [1, 5, 2], [7]]
OWNERS = [0, 1, 1, -1, 0, 1, -1, 2, -1]
CSV = "image,client\n4,0\n0,0\n1,1\n5,1\n\n2,1\n7,2\n3,-1\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps(PARTS)),
        ("a.json", json.dumps({"2": PARTS[2], "0": PARTS[0], "1": PARTS[1]})),
        ("a.json", json.dumps({"ward": PARTS[0], "clinic": PARTS[1], "lab": PARTS[2]})),
        ("a.csv", CSV),
        ("a.csv", f"\ufeff{CSV}"),
        ("a.json", f"\ufeff{json.dumps(PARTS)}"),
        ("a.csv", CSV.replace(",", " , ").replace("\n", "\r\n")),
    ],
)
def test_file__every_form_says_the_same(tmp_path, name, text):
    (tmp_path / name).write_text(text, newline="", encoding="utf-8")
    law = File(str(tmp_path / name))
    assert law.kinds(images_of(None, 9), 3).tolist() == OWNERS
    assert law.kinds(images_of(None, 9), 2).tolist() == [
        min(o, 1) * (o != 2) - (o == 2) for o in OWNERS
    ]


def test_file__clients_of_json_are_in_the_order_of_their_numbers(tmp_path):
    """More than ten of them: as text, 10 would come before 2."""
    clients = [10, 3, 11, 0, 7, 1, 9, 2, 8, 6, 5, 4]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({str(client): [client, 20 + client] for client in clients}))
    owners = File(str(path)).kinds(images_of(None, 32), 12).tolist()
    assert owners[:12] == owners[20:] == [*range(12)]


@pytest.mark.parametrize(("dtype", "clients"), [(np.int8, 3), (np.int64, 300)])
def test_file__npy_is_one_client_an_image(tmp_path, dtype, clients):
    owners = np.random.default_rng(0).integers(-1, clients, 5000)
    owners[:clients] = np.arange(clients)
    np.save(tmp_path / "a.npy", owners.astype(dtype))
    law = File(str(tmp_path / "a.npy"))
    assert np.array_equal(law.kinds(images_of(None, 5000), clients), owners)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "[[0, 1], [9]]", "gives client 1 image 9; those of toy are 0-8"),
        ("a.json", "[[0, -1], [3]]", "gives client 0 image -1; those of toy are 0-8"),
        ("a.json", "[[0, 1], [3, 1]]", "gives image 1 to clients 0 and 1"),
        ("a.json", "[[0], [3, 1, 3]]", "gives client 1 image 3 twice"),
        ("a.json", "[[0, 1]]", "has 1 clients, federation.clients (--clients) 2 asks for more"),
        ("a.json", "[[0], [1.0]]", "must hold image numbers; client 1 has 1.0"),
        ("a.json", "[[0], [true]]", "must hold image numbers; client 1 has True"),
        ("a.json", f"[[0], [{10**30}]]", "cannot be read"),
        ("a.json", "{", "is no JSON"),
        ("a.json", '{"0": 3}', "must hold a list of image numbers for each client"),
        ("a.csv", "", "must begin with the line image,client, got ''"),
        ("a.csv", "client,image\n0,1\n", "must begin with the line image,client"),
        ("a.csv", "image,client\n0,0\n1,a\n", "line 3 is '1,a'"),
        ("a.csv", "image,client\n0,0\n1,9\n", "names client 9, and has 2 images only"),
        ("a.csv", "image;client\n0;0\n", "separates its columns by ';', and must by a comma"),
        ("a.csv", "\ufeffimage\tclient\n0\t0\n", "separates its columns by '\\t', and must"),
        ("a.csv", "image,client\n0,0\n".encode("utf-16"), "is in UTF-16"),
        ("a.csv", b"image,client\n0,\xe9\n", "is not in UTF-8 (byte 15)"),
        ("a.npy", "no array", "is no .npy file of integers"),
    ],
)  # fmt: skip
def test_file__says_what_is_wrong_in_one_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InputError) as caught:
        File(str(path)).kinds(images_of(None, 9), 2)
    assert str(caught.value).startswith(f"partition file: {path} ")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_file__other_arrays_and_other_files_are_refused(tmp_path):
    data = images_of(None, 9)
    np.save(tmp_path / "a.npy", np.zeros((2, 3), int))
    with pytest.raises(InputError, match=r"one integer an image, \(N,\)"):
        File(str(tmp_path / "a.npy")).kinds(data, 1)
    np.save(tmp_path / "b.npy", np.array({0: [1]}, object), allow_pickle=True)
    with pytest.raises(InputError, match="is no .npy file of integers"):
        File(str(tmp_path / "b.npy")).kinds(data, 1)
    with pytest.raises(InputError, match="a pickle is never loaded"):
        File("net_dataidx_map.pkl")


# the promises of every partition, for those that are given


@pytest.mark.parametrize("clients", [1, 3])
def test_owned__deals_every_image_once_and_draws_nothing(clients):
    law, draw = Natural("writer"), np.random.default_rng(0)
    kinds = np.array([0, 1, 2] * 4)[:: 1 if clients == 3 else 3]
    parts = law(kinds, clients, draw)
    assert [p.tolist() for p in parts] == [
        np.flatnonzero(kinds == k).tolist() for k in range(clients)
    ]
    assert draw.random() == np.random.default_rng(0).random()
    with pytest.raises(InputError, match="are of 3 of them only"):
        law(np.array([0, 1, 2]), 4, draw)


# roles


WRITERS = np.repeat(["a", "b", "c", "d", "e"], [500, 100, 150, 90, 60])


@pytest.mark.parametrize("placebo", [False, True])
@pytest.mark.parametrize("malicious", [0, 2])
def test_split__every_role_of_a_client_is_of_its_own_images(placebo, malicious):
    owner = np.random.default_rng(0).permutation(np.repeat(np.arange(-1, 5), 150))
    data = images_of(owner)
    data = ImageSet(
        data.images,
        data.labels,
        "toy",
        columns={"partition.column": np.where(owner < 0, 99, owner)},
    )
    owner = Natural("site").kinds(data, 5)  # six values of 150 images: 99 is left out
    split = split_of(data, Natural("site"), 5, malicious, placebo)
    assert [set(owner[p]) for p in split.parts] == [{k} for k in range(5)]
    assert [set(owner[p]) for p in split.placebo_parts] == [
        {k} for k in range(5 - malicious) if placebo
    ]
    outside = [
        *map(split.ids, ("scored_nonmembers", "known_nonmembers", "test_fit", "test_eval")),
    ]
    assert set(owner[np.concatenate(outside)]) == set(range(5 - malicious))  # no attacker's, no -1
    assert len(split.members) == 60 and split.whose is not None
    assert sum(map(len, split.placebo_parts)) == 60 * placebo
    # An attacker holds the share of its images that honest clients train on: 60 of 150 each.
    share = 60 / (150 * (5 - malicious))
    assert sum(map(len, split.parts[5 - malicious :])) == round(150 * malicious * share)


def test_split__members_and_nonmembers_are_of_one_mixture_of_clients():
    data = images_of(WRITERS)
    split = split_of(data, Natural("writer"), 5, 0, False)
    kinds = Natural("writer").kinds(data, 5)
    mixes = [
        np.bincount(kinds[i], minlength=5) / len(i)
        for i in (split.members, split.ids("scored_nonmembers"))
    ]
    ours = [split_of(data, Natural("writer"), 5, 1, placebo).members for placebo in (False, True)]
    assert np.array_equal(*ours)
    expected = np.array([500, 100, 150, 90, 60]) / 900
    assert np.abs(mixes[0] - expected).max() < 0.15 and np.abs(mixes[1] - expected).max() < 0.05


@pytest.mark.parametrize("whole", [False, True])
def test_split__of_equal_images_the_first_that_is_owned_counts(tmp_path, whole):
    data = images_of(None, 600)
    pixels = np.concatenate([data.images, data.images[:100]])  # 600-699 are copies of 0-99
    doubled = ImageSet(pixels, np.arange(700) % 5, "toy")
    law = write(tmp_path / "a.json", [[*range(600, 650)], [*range(40, 60)]], whole)
    options = SplitOptions(members=60 if whole else 30, known=4, test=8)
    split = make_split(doubled, options, law, 2, 0, False, 0)
    owned = {*range(600, 640)}, {*range(40, 60)}  # 640-649 are those of client 1 again
    outside = {
        *split.ids("known_nonmembers"),
        *split.ids("scored_nonmembers"),
        *split.ids("test_eval"),
    }
    assert split.duplicates_removed == 100
    if whole:
        assert tuple(map(set, split.parts)) == owned
        assert outside <= {*range(60, 600)}
    else:
        assert all(set(part) <= own for part, own in zip(split.parts, owned, strict=True))
        assert outside <= owned[0] | owned[1]


def test_split__clients_train_on_all_where_asked(tmp_path):
    parts = [[*range(0, 60, 2)], [*range(1, 60, 2)], [*range(100, 190)]]
    law, data = write(tmp_path / "a.json", parts, True), images_of(None)
    split = split_of(data, law, 3, 1, True)
    assert [p.tolist() for p in split.parts] == parts  # those of the attacker, too
    assert [len(p) for p in split.placebo_parts] == [30, 30]
    rest = [
        *map(split.ids, ("known_nonmembers", "scored_nonmembers", "test_fit", "test_eval")),
    ]
    rest += split.placebo_parts
    assert not set(np.concatenate(rest)) & {i for part in parts for i in part}
    assert split.whose is None  # so clients are compared by class
    with pytest.raises(InputError, match="own 60 .*: split.members must be 60, got 50"):
        make_split(data, SplitOptions(members=50, known=12), law, 3, 1, True, 0)
    with pytest.raises(InputError, match="has 3 clients, .* 2 asks for fewer, whose images would"):
        law.kinds(data, 2)


def test_split__too_few_images_of_the_clients_show_the_sum(tmp_path):
    law = write(tmp_path / "a.json", [[*range(30)], [*range(30, 60)]])
    sum_ = (
        r"60 .* 0 .* 14 .* 40 .* 0 public = 114 images needed, what is left of toy .* 60 distinct"
    )
    with pytest.raises(InputError, match=sum_):
        split_of(images_of(None), law, 2, 0, False)


# settings


def test_settings__a_path_after_the_name_is_the_files(tmp_path):
    short = from_tree(Experiment, {"partition": "file:some/where:a.json", "attacks": "none"})
    assert short.partition.options == {"path": "some/where:a.json", "whole": False}
    assert to_tree(short)["partition"] == {"name": "file", **short.partition.options}
    assert from_tree(Experiment, to_tree(short)) == short


def test_prepare__reads_the_column_and_says_who_is_who(tmp_path):
    draw = np.random.default_rng(0)
    sites = draw.permutation(np.repeat(["north", "south", "east"], [200, 150, 40]))
    images = draw.integers(0, 256, (390, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(390) % 3, site=sites)
    tree = {
        "data": f"npz:{tmp_path / 'a.npz'}",
        "partition": {"name": "natural", "column": "site"},
        "federation": {"clients": 2},
        "split": {"members": 60, "known": 8},
        "attacks": "none",
    }
    plan = make_plan(from_tree(Experiment, tree))
    assert [set(sites[p]) for p in plan.cast.parts] == [{"north"}, {"south"}]
    assert "Clients by site: 0 is north, 1 is south." in sentences(plan.notes)
    assert "40 images of a belong to no client and play no role." in sentences(plan.notes)
