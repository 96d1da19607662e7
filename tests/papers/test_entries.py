"""What tables ask for: every entry plans at every scale, and its jobs are those of the paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.attacks.sd_mi import choose_anchors
from research.papers.entries import Entry, TableCell, jobs_of
from tests.papers.plans import ENTRIES, FILES, QUESTIONS, SCALES, of_paper, plan

OTHERS = "npz:nonmembers.npz"  # images of a head: those that its encoder never saw, beside it
WIDEST = 0.5  # least share of the image in the crops of PartCrop's own defence (Sec. 7)


def jobs(cells: Any) -> list[Any]:
    """Every job of some cells and what it needs."""
    return [*{one.key: one for job in jobs_of(cells) for one in job.chain()}.values()]


def trees(entry: Entry, scale: str, kind: str) -> list[Any]:
    """The settings of all jobs of a kind of an entry."""
    return [job.tree for job in jobs(plan(entry.name, scale)) if job.kind == kind]


@pytest.mark.parametrize(
    "scale", [SCALES[0], *(pytest.param(s, marks=pytest.mark.slow(seconds=5)) for s in SCALES[1:])]
)
def test_entries__plan_at_every_scale_jobs_whose_key_is_all_that_decides_their_numbers(
    scale: str,
) -> None:
    by_key, keys = dict[str, str](), dict[str, str]()
    for name, entry in ENTRIES.items():
        cells = plan(name, scale)
        assert all(bool(cell.jobs) != bool(cell.reason) for cell in cells), name
        runs = any(cell.jobs for cell in cells)
        if entry.paper in QUESTIONS:  # asked at small alone
            assert runs == (scale == "small"), name
        else:
            assert runs or scale == "small", name
        for job in jobs(cells):
            above = job.needs.key if job.needs else None
            own = json.dumps([job.kind, job.tree, above, job.epoch], sort_keys=True)
            assert by_key.setdefault(job.key, own) == own
            assert keys.setdefault(own, job.key) == job.key
    assert len(by_key) == len(keys) > 30


def test_files__hold_no_key_that_nothing_reads() -> None:
    """A comma in a sentence without quotes makes a key of its end."""
    laid = {"audit", "data", "encoder", "epoch", "federation", "head", "kind", "read"}
    laid |= {"seed", "targets"}
    scale = laid | {"rows", "columns", "reason", "not_run", "levels"}
    also = laid | {"open", "scales", "varies"}
    entry = also - {"epoch"} | {"place", "title", "figure", "rows", "columns"}
    for file in FILES.values():
        assert set(file) <= also | {"title", "entries", "left_out"}
        for own in file["entries"].values():
            assert set(own) <= entry | {"theirs", "theirs_sd", "claims"}
            for claim in own.get("claims", ()):
                known = {"says", "better", "over", "rows", "over_rows", "primary", "slope"}
                known |= {"levels", "each", "reference", "chance", "effect"}
                assert set(claim) <= known, claim
                columns = {column["label"] for column in own["columns"]}
                columns |= {
                    f"{name}/{column['label']}"
                    for name, other in file["entries"].items()
                    for column in other["columns"]
                }
                assert {*claim.get("reference", ())} <= columns, claim
                named = {*claim.get("rows", ()), *claim.get("over_rows", ())}
                assert named <= {row["label"] for row in own["rows"]}, claim
            for here in own.get("scales", {}).values():
                assert set(here) <= scale, here
            for one in [*own["rows"], *own["columns"]]:
                assert set(one) <= also | {"label", "attack", "at", "levels"}, one
                assert all(set(here) <= laid for here in one.get("scales", {}).values()), one


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("name", [entry.name for entry in of_paper("primaries")])
def test_primaries__as_many_targets_as_written_down_on_fresh_seeds(name: str) -> None:
    """Seeds under 3,000 were used before, or chose the targets; of LpLA 3000 to 3018 did,
    with settings of SD-MI that are not the paper's."""
    entry = ENTRIES[name]
    (planned,) = (c["primary"]["targets"] for c in entry.claims if "primary" in c)
    first = 5000 if name == "primary-lpla" else 3000
    cells = entry.plan("small")
    for of_cell in {tuple(job.key for job in cell.jobs): cell for cell in cells}.values():
        seeds = [next(job.chain()).tree["seed"] for job in of_cell.jobs]
        assert seeds == list(range(first, first + planned))


def test_heads__of_two_targets_share_no_seed() -> None:
    """They would share the noise, and their differences would not be independent."""
    for name in ("logistic-table-1", "primary-logistic"):
        cell: TableCell = ENTRIES[name].plan("small", 3)[0]
        heads = [job.tree["seed"] + i for job in cell.jobs for i in range(job.tree["seeds"])]
        assert len(set(heads)) == len(heads) > len(cell.jobs) > 1


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_partcrop__trains_its_targets_outside_of_its_defence(scale: str) -> None:
    """But for the rows of the defence; and EncoderMI reads the layer that PartCrop reads."""
    partcrop = of_paper("partcrop")
    crops = {
        tree["ssl"]["crop_min"]
        for entry in partcrop
        if entry.name != "partcrop-table-10"
        for tree in trees(entry, scale, "encoder")
    }
    assert crops and max(crops) < WIDEST
    audits = [tree for entry in partcrop for tree in trees(entry, scale, "audit")]
    rivals = [tree["attack"] for tree in audits if "encodermi-v" in tree["attacks"]]
    assert rivals and {attack["encodermi-v"]["layer"] for attack in rivals} == {"avgpool"}


def test_partcrop_table_10__has_the_defences_of_the_paper() -> None:
    """The crop range (0.5, 1), and the privacy of the tutorial that the paper follows."""
    encoders = trees(ENTRIES["partcrop-table-10"], "paper", "encoder")
    assert [tree["ssl"]["crop_min"] for tree in encoders].count(WIDEST) == 3
    private = [tree["defense"][0] for tree in encoders if tree["defense"]]
    budgets = {(one["epsilon"], one["delta"], one["max_grad_norm"]) for one in private}
    assert len(private) == 3 and budgets == {(50, 1e-5, 1.2)}
    assert {tree["epochs"] for tree in encoders if tree["ssl"]["name"] == "dino"} == {800}


def test_partcrop_table_6__has_eighteen_pairs() -> None:
    """Three methods, each attacked on each data set by an attacker of each of the others."""
    own = ENTRIES["partcrop-table-6"].layers["entry"]
    assert len({row["label"] for row in own["rows"]}) == len(own["theirs"]) == 18
    pairs = set()
    for job in jobs_of(plan("partcrop-table-6", "paper")):
        victim, *_ = [one.tree for one in job.chain()]
        assert job.tree["attack"]["encodermi-v"]["fit_on"] == "shadow"
        shadow = job.tree["shadow"]["data"]["name"]
        assert shadow != victim["data"]["name"]
        pairs.add((victim["ssl"]["name"], victim["data"]["name"], shadow))
        large = "tinyimagenet" in victim["data"]["name"]
        assert victim["members"] == (100_000 if large else 50_000)
        assert job.tree["attack"]["partcrop"]["part"] == (0.25 if large else 0.5)
    assert len(pairs) == 18


def test_logistic__heads_draw_from_the_whole_file_at_the_papers_size() -> None:
    """Four times their images are more than the encoder leaves; else from those that it leaves."""
    for entry in of_paper("logistic"):
        encoders, heads = (trees(entry, "paper", kind) for kind in ("encoder", "head"))
        assert len(encoders) == len(heads) > 0
        for encoder, head in zip(encoders, heads, strict=True):
            data = head["data"] if isinstance(head["data"], str) else head["data"]["name"]
            assert data == encoder["data"]["name"]
            assert 4 * head["images"] > encoder["nonmembers"]
            assert head["mechanisms"] == ["logistic", "laplace", "gaussian-classical"]
        encoders, heads = (trees(entry, "small", kind) for kind in ("encoder", "head"))
        for encoder, head in zip(encoders, heads, strict=True):
            assert head["data"]["name"] == OTHERS and 4 * head["images"] <= encoder["nonmembers"]


@pytest.mark.parametrize("scale", SCALES)
def test_sd_mi__has_known_images_beside_its_anchors(scale: str) -> None:
    """At every scale; in the tables at scale `paper` 2,000 anchors and the paper's 4,000."""
    seen = 0
    for job in jobs([cell for entry in of_paper("lpla") for cell in plan(entry.name, scale)]):
        own = job.tree["attack"].get("sd-mi") if job.kind == "audit" else None
        if own is None or "sd-mi" not in job.tree["attacks"]:
            continue
        seen += 1
        known = np.repeat([1, 0], job.tree["split"]["known"])
        chosen = choose_anchors(known, own["anchors"], np.random.default_rng(0))
        if scale == "paper" and job.tree["attacks"] == ["sd-mi"]:
            assert (chosen.sum(), (~chosen).sum()) == (2000, 4000)
    assert seen


def test_cells__of_two_folders_of_images_have_the_same_jobs(tmp_path: Path) -> None:
    """No path decides a key."""
    keys = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cifar10-train.parquet").touch()
        cells = ENTRIES["primary-encodermi"].cells("small", tmp_path / name, 1)
        keys.append([job.key for job in jobs(cells)])
    assert keys[0] == keys[1] == [job.key for job in jobs(plan("primary-encodermi", "small"))]
