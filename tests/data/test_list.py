"""`list:FILE`: which column is what, which files are meant, and all that is missing at once."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedmia
from fedmia.data.base import Request
from fedmia.data.encoded import EncodedSet
from fedmia.data.list import ListFile
from fedmia.partitions.natural import Natural
from fedmia.report.words.notes import sentences
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import IncompleteError, InputError
from fedmia.settings.tree import from_tree, to_tree
from tests.commands import fedmia as command
from tests.data.hospital import SITES, Form, hospital
from tests.data.material import write_image

HEAD = "file,split,patient,site\n"
LINES = "0.png,train,a,1\n1.png,train,a,1\n2.png,test,b,2\n3.png,test,b,2\n"


def tiny() -> nn.Module:
    """Of gray images; the same network at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Six images and a list of four."""
    for at in range(6):
        write_image(tmp_path / f"{at}.png", np.full((8, 8), 9 * at, np.uint8))
    (tmp_path / "l.csv").write_text(HEAD + LINES)
    return tmp_path


def read(
    path: Path, side: str | None = "members", columns: dict[str, str] | None = None, **options: Any
) -> EncodedSet:
    request = Request(str(path), options.pop("data_dir", None), None, 0, columns or {}, side=side)
    return ListFile(**options).encoded(request)


def names(images: EncodedSet) -> list[str]:
    return [Path(name).name for name, _ in images.files]


# what is read


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_hospital__columns_sides_and_names_of_files_are_found(tmp_path: Path, form: Form) -> None:
    path = hospital(tmp_path, form=form)
    sides = {side: read(path, side, {"groups": "Patient"}) for side in ("members", "nonmembers")}
    for side, images in sides.items():
        first = 0 if side == "members" else 24
        stored = [unicodedata.normalize(form, f"Schädel {n:03d}.png") for n in range(48)]
        assert names(images) == stored[first : first + 24]
        assert images.classes == ("ja", "nein") and len(images.all()) == 24
        assert images.columns["groups"].tolist() == [
            f"P{n // 3 + first // 3:02d}" for n in range(24)
        ]
        assert {*images.columns["partition.column"]} == {*SITES}
    notes = [sentences(images.notes) for images in sides.values()]
    assert notes[0] == notes[1]
    for text in (
        "'Datei'", "members: train 24; non-members: test 24", "'Patient' (16)", "'Klinik' (2)",
        "';'",
    ):  # fmt: skip
        assert text in notes[0][0]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".parquet"])
def test_formats__tell_the_same(place: Path, suffix: str) -> None:
    whole = pd.read_csv(place / "l.csv")  # sites are integers
    path = place / f"m{suffix}"
    if suffix == ".parquet":
        whole.assign(vector=[[0.0]] * len(whole)).to_parquet(path)
    else:
        whole.to_csv(path, sep="," if suffix == ".csv" else "\t", index=False)
    images = read(path, columns={"federation.owners": "SITE"})
    assert names(images) == ["0.png", "1.png"]
    assert images.columns["federation.owners"].tolist() == ["1", "1"]


def test_cells__quotes_line_breaks_short_lines_and_a_named_separator(place: Path) -> None:
    (place / "l.csv").write_text('sep=|\n\nfile|"patient\nid"|note\n"0.png"|"a|b"\n1.png|c|x\n||\n')
    images = read(place / "l.csv", columns={"groups": "patient id"})
    assert images.columns["groups"].tolist() == ["a|b", "c"]


def test_sides__words_answers_and_values_of_the_user(place: Path) -> None:
    path = place / "l.csv"

    def split(text: str, **options: Any) -> list[list[str]]:
        path.write_text(text)
        return [names(read(path, side, **options)) for side in ("members", "nonmembers")]

    words = "file,Split\n0.png,TRAIN\n1.png,val\n2.png,Hold-out\n"
    assert split(words) == [["0.png"], ["1.png", "2.png"]]
    assert split(words, nonmember_values=("val",), member_values=("train",)) == [
        ["0.png"],
        ["1.png"],
    ]
    assert "left out: Hold-out 1" in sentences(read(
        path, nonmember_values=("val",), member_values=("train",)
    ).notes)[0]  # fmt: skip
    assert split("file,is_member\n0.png,1\n1.png,0\n") == [["0.png"], ["1.png"]]
    codes = "file,split\n0.png,0\n1.png,1\n"  # of many sets 0 is train: nobody knows
    with pytest.raises(IncompleteError, match=r"members\.member_values and members\.nonmember_va"):
        split(codes)
    assert split(codes, member_values=("0",), nonmember_values=("1",)) == [["0.png"], ["1.png"]]
    assert split("file\n0.png\n1.png\n") == [["0.png", "1.png"]] * 2  # a list of one side


def test_run__uses_all_lines_and_says_so(place: Path) -> None:
    images = read(place / "l.csv", side=None)
    assert len(images) == 4 and "whatever 'split' says" in sentences(images.notes)[0]


def test_paths__relative_absolute_home_and_of_another_machine(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place))
    deep = place / "lists"
    deep.mkdir()
    path = deep / "l.csv"
    path.write_text(f"file\n../0.png\n{place}/1.png\n~/2.png\n..\\3.png\n")
    assert names(read(path)) == [f"{n}.png" for n in range(4)]
    path.write_text("file\n0.png\nD:\\Study\\1.png\n/mnt/study/2.png\n")
    images = read(path, data_dir=place)
    assert names(images) == ["0.png", "1.png", "2.png"]
    assert "2 files were found" in sentences(images.notes)[0]
    path.write_text("file\n/mnt/a/1.png\n/mnt/b/1.png\n")  # two images, of which one is there
    with pytest.raises(IncompleteError, match="'/mnt/a/1.png' and '/mnt/b/1.png'"):
        read(path, data_dir=place)


@pytest.mark.parametrize("cell", ["deep/0.png", "deep\\0.png", "/mnt/study/deep/0.png"])
def test_paths__of_files_that_lie_deeper_name_their_folder(place: Path, cell: str) -> None:
    write_image(place / "images" / "deep" / "0.png", np.zeros((8, 8), np.uint8))
    (place / "m.csv").write_text(f"file\n{cell}\n")
    with pytest.raises(IncompleteError) as caught:
        read(place / "m.csv")
    folder = caught.value.options["data.dir"]
    assert folder == str(place / "images")
    (images,) = read(place / "m.csv", data_dir=Path(folder)).files
    assert images[1] == place / "images" / "deep" / "0.png"


def test_repeats__count_once_where_all_values_agree(place: Path) -> None:
    (place / "l.csv").write_text(HEAD + LINES + "./0.png,train,a,1\n")
    images = read(place / "l.csv")
    assert (
        names(images) == ["0.png", "1.png"] and "1 lines that repeat" in sentences(images.notes)[0]
    )


def test_labels__numbers_in_their_order_and_none_with_gaps(place: Path) -> None:
    path = place / "l.csv"
    path.write_text("file,label\n0.png,10\n1.png,9\n2.png,9\n")
    assert read(path).classes == ("9", "10")
    path.write_text("file,label\n0.png,10\n1.png,\n2.png,10\n")
    images = read(path)
    assert not images.labelled and "1 lines have no value in 'label'" in sentences(images.notes)[1]


def test_first_round__is_a_number_and_never_without_one(place: Path) -> None:
    (place / "l.csv").write_text("file,round\n0.png,3\n1.png,\n")
    assert read(place / "l.csv").columns["federation.order"].tolist() == [3, -1]


# what is missing

# The list, options of the source, columns that are asked for -> what one line names, what mends it
MISSING: list[tuple[str, dict[str, Any], dict[str, str], list[str], dict[str, Any]]] = [
    ("a,b\nx,0.png\n", {}, {}, ["image", "'a', 'b'"], {"members.image_column": "b"}),
    (
        "file,path,case,patient\n0,0.png,1,1\n", {}, {},
        ["'file' and 'path'", "'case' and 'patient'"],
        {"members.image_column": "path", "members.subject_column": "case"},
    ),
    ("a\n0.png\n9.png\n", {}, {}, ["members.image_column", "1 of 2 files are missing"], {}),
    ("file\n0.png\n", {"side_column": "splt"}, {}, ["members.side_column", "splt", "'file'"], {}),
    (
        "file,split\n0.png,train\n1.png,maybe\n2.png,\n", {}, {},
        ["'maybe' (1)", "members.side_column ''", "lines without a value: 1 (the first: line 4)"],
        {},
    ),
    (
        "file,split\n0.png,train\n1.png,maybe\n2.png,test\n", {}, {}, ["'maybe' (1)"],
        {"members.member_values": ("train",), "members.nonmember_values": ("test",)},
    ),
    (
        "file,split\n0.png,test\n", {}, {}, ["of the members", "'test' (1)"],
        {},
    ),
    (
        "file\n0.png\n1.PNG\n8.png\n9.png\n", {}, {},
        ["3 of 4 files are missing", "'1.PNG', '8.png', '9.png'", "did you mean '1.png'"], {},
    ),
    (
        "file,split,patient\n0.png,train,a\n1.png,train,\n2.png,test,a\n", {},
        {"groups": "patient"},
        ["lines without a value: 1 (the first: line 3)", "subject 'a'", "on both sides"],
        {},
    ),
    (
        "file,split\n0.png,train\n0.png,test\n", {}, {},
        ["lines 2 and 3", "'train' and 'test'", "'split'"], {},
    ),
    ("file\n0.png\n", {}, {"groups": "ward"}, ["groups", "'ward'", "'file'"], {}),
    ("file\n0.png\n", {}, {"partition.column": ""}, ["owner", "'file'", "partition.column"],
     {}),
    ("file,site,klinik\n0.png,1,1\n", {}, {"partition.column": ""}, ["'site' and 'klinik'"],
     {"members.owner_column": "site"}),
    (
        "a,split,patient,case\n9.png,what,1,1\n", {"image_column": "a"}, {},
        ["'what'", "'patient' and 'case'", "1 of 1 files"],
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "columns", "parts", "mend"), MISSING)
def test_missing__is_said_at_once_with_what_would_mend_it(
    text: str, options: dict[str, Any], columns: dict[str, str], parts: list[str],
    mend: dict[str, Any], place: Path,
) -> None:  # fmt: skip
    (place / "l.csv").write_text(text)
    with pytest.raises(IncompleteError) as caught:
        read(place / "l.csv", columns=columns, **options)
    assert str(place / "l.csv") in str(caught.value)
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.options == mend


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("l.csv", "file\nä.png\n".encode("latin-1"), r"UTF-8 \(byte 5\)"),
        ("l.csv", "file\nä.png\n".encode("utf-16"), "UTF-16"),
        ("l.csv", b'file\n"0.png\n', "end of data"),
        ("l.csv", b"file,split\n0.png,train,x\n", "line 2 has 3 cells, the header 2"),
        ("l.csv", b"file,File\n0.png,x\n", "'file' and 'File'"),
        ("l.csv", b"file,file\n0.png,x\n", "two columns are called 'file'"),
        ("l.csv", b"file\n", "1 lines"),
        ("l.csv", b"", "empty"),
        ("l.csv", b"file\n0.png\0\n", "files are missing"),
        ("l.xlsx", b"PK", "save the table as CSV"),
        ("l.parquet", b"PK", "l.parquet"),
        ("none.csv", None, "no such file"),
    ],
)
def test_files_that_are_no_list(place: Path, name: str, content: bytes | None, part: str) -> None:
    if content is not None:
        (place / name).write_bytes(content)
    with pytest.raises(InputError, match=part):
        read(place / name)


def test_parquet_of_images__names_the_other_source(place: Path) -> None:
    pd.DataFrame({"image": [b"x"], "label": [1]}).to_parquet(place / "i.parquet")
    with pytest.raises(IncompleteError, match=r"parquet:.*i\.parquet reads images"):
        read(place / "i.parquet")


# at the doors


@pytest.mark.parametrize("spec", ["csv:{}", "{}"])
def test_names__a_table_is_a_list(place: Path, spec: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"list:{place / 'l.csv'}")):
        from_tree(Audit, {"encoder": "x.pt2", "members": spec.format(place / "l.csv")})
    with pytest.raises(InputError, match="encoder 'x.pt2': no such file"):  # it is a list
        fedmia.audit_encoder("x.pt2", place / "l.csv")


def settings(place: Path, **options: Any) -> Audit:
    return from_tree(Audit, {"encoder": "x.pt2", "members": f"list:{place / 'l.csv'}", **options})


def test_audit__a_list_answers_what_is_left_open(place: Path) -> None:
    audit = settings(place)
    assert (audit.nonmembers, audit.groups) == (audit.members, "patient")
    assert "dataset-inference" in audit.attacks and audit.federation.owners is None
    alone = settings(place, groups="none")
    assert alone.groups is None and "dataset-inference" not in alone.attacks
    assert settings(place, groups="site").groups == "site"
    federated = settings(place, federation={"recording": "REC"})
    assert (federated.groups, federated.federation.owners) == (None, "site")
    for one in (audit, alone, federated):  # what was found stays, whatever becomes of the list
        (place / "l.csv").write_text("file\n0.png\n")
        assert from_tree(Audit, to_tree(one)) == one
        (place / "l.csv").write_text(HEAD + LINES)
    own = settings(place, members={"name": f"list:{place / 'l.csv'}", "subject_column": "site"})
    assert own.groups == "site" and own.nonmembers_options == {"subject_column": "site"}


def test_audit__a_list_without_sides_says_all_that_is_missing(place: Path) -> None:
    (place / "l.csv").write_text("file,patient\n0.png,a\n9.png,\n")
    with pytest.raises(IncompleteError) as caught:
        settings(place)
    for part in ("no side column", "9.png", "groups patient: lines without a value: 1"):
        assert part in str(caught.value)


def test_owners__names_of_sites_are_no_clients(place: Path) -> None:
    (place / "l.csv").write_text((HEAD + LINES).replace(",1\n", ",north\n"))
    assert settings(place, federation={"recording": "REC"}).federation.owners is None


def test_natural__clients_are_the_owners_of_a_list(tmp_path: Path) -> None:
    natural = Natural()
    natural.check(ListFile(), "list")
    images = read(hospital(tmp_path, patients=4), None, natural.wants())
    sites = images.columns["partition.column"]
    assert natural.kinds(images, 2).tolist() == [sorted(SITES).index(s) for s in sites]
    with pytest.raises(IncompleteError, match="'owner' of patienten has 2 values") as caught:
        natural.kinds(images, 10)
    assert caught.value.options == {"federation.clients": 2}


def test_subjects_of_two_owners__are_said(place: Path) -> None:
    (place / "l.csv").write_text(HEAD + LINES.replace("1.png,train,a,1", "1.png,train,a,2"))
    assert "1 subjects have images of several owners" in sentences(read(place / "l.csv").notes)[0]


@pytest.mark.slow
def test_command_and_python__give_equal_numbers(tmp_path: Path) -> None:
    path = hospital(tmp_path)
    flags = "--attacks similarity --mean .5 --std .25 --device cpu --threads 1 --quiet --json"
    encoder = "tests.data.test_list:tiny"
    ran = command(["audit", "--encoder", encoder, "--members", f"list:{path}", *flags.split()])
    assert ran.code == 0
    printed = ran.out
    run = fedmia.audit_encoder(
        tiny(), path, attacks="similarity", mean=0.5, std=0.25, threads=1, quiet=True
    )
    (auc,) = run.attacks["auc"]
    assert f'"auc": {auc}' in printed
    settings = run.settings
    assert settings.groups == "Patient" and len(run.scores["subject"].unique()) == 12
    assert len(run.images.pixels("scored_members")) == (run.scores["truth"]).sum()
