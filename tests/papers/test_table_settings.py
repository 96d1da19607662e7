"""What the tables of the papers ask for: victims, attackers, defences, and what they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from papers.cells import read_path
from papers.claims.of_ascent import RULES
from papers.entries import Entry, jobs_of, read_entries
from papers.jobs import AUDIT, ENCODER, HEAD, OTHERS, PAPER
from papers.listing import read_files
from tests.made_up_runs import write_run

WIDEST = 0.5  # least share of the image in the crops of PartCrop's own defence (Sec. 7)


def of_paper(name: str) -> list[Entry]:
    return [entry for entry in read_entries().values() if entry.paper == name]


def trees(entry: Entry, scale: str, kind: str) -> list[Any]:
    """The settings of all jobs of a kind of an entry."""
    every = {one.key: one for job in jobs_of(entry.plan(scale, 1)) for one in job.chain()}
    return [job.tree for job in every.values() if job.kind == kind]


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_partcrop__trains_its_targets_outside_of_its_defence(scale: str) -> None:
    """But for the rows of the defence; and EncoderMI reads the layer that PartCrop reads."""
    crops = {
        tree["ssl"]["crop_min"]
        for entry in of_paper("partcrop")
        if entry.name != "partcrop-table-10"
        for tree in trees(entry, scale, ENCODER)
    }
    assert crops and max(crops) < WIDEST
    audits = [tree for entry in of_paper("partcrop") for tree in trees(entry, scale, AUDIT)]
    rivals = [tree["attack"] for tree in audits if "encodermi-v" in tree["attacks"]]
    assert rivals and {attack["encodermi-v"]["layer"] for attack in rivals} == {"avgpool"}


def test_partcrop_table_10__has_the_defences_of_the_paper() -> None:
    """The crop range (0.5, 1), and the privacy of the tutorial that the paper follows."""
    encoder_settings = trees(read_entries()["partcrop-table-10"], "paper", ENCODER)
    assert [tree["ssl"]["crop_min"] for tree in encoder_settings].count(WIDEST) == 3
    private = [tree["defense"][0] for tree in encoder_settings if tree["defense"]]
    budgets = {(one["epsilon"], one["delta"], one["max_grad_norm"]) for one in private}
    assert len(private) == 3 and budgets == {(50, 1e-5, 1.2)}
    assert {tree["epochs"] for tree in encoder_settings if tree["ssl"]["name"] == "dino"} == {800}


def test_partcrop_table_6__has_eighteen_pairs() -> None:
    """Three methods, each attacked on each data set by an attacker of each of the others."""
    entry = read_entries()["partcrop-table-6"]
    own = read_files()["partcrop"]["entries"][entry.name]
    assert len({row["label"] for row in own["rows"]}) == len(own["theirs"]) == 18
    pairs = set()
    for job in jobs_of(entry.plan("paper", 1)):
        victim, *_ = [one.tree for one in job.chain()]
        assert job.tree["attack"]["encodermi-v"]["fit_on"] == "shadow"
        shadow = job.tree["shadow"]["data"]["name"]
        assert shadow != victim["data"]["name"]
        pairs.add((victim["ssl"]["name"], victim["data"]["name"], shadow))
        large = "tinyimagenet" in victim["data"]["name"]
        assert victim["members"] == (100_000 if large else 50_000)
        assert job.tree["attack"]["partcrop"]["part"] == (0.25 if large else 0.5)
    assert len(pairs) == 18


@pytest.mark.parametrize(
    ("precision", "recall", "f1"),
    [(0.8293, 0.6784, 0.7463), (0.5, 1.0, 2 / 3), (0.0, 0.0, 0.0), (None, None, None)],
)
def test_f1__of_precision_and_recall(
    precision: float | None, recall: float | None, f1: float | None, tmp_path: Path
) -> None:
    row = {"name": "partcrop", "precision": precision, "recall": recall, "n_members": 5}
    write_run(tmp_path, {"attacks": [row]})
    value = read_path(AUDIT, tmp_path, "partcrop/f1").value
    assert value == (None if f1 is None else pytest.approx(f1, abs=1e-4))


def test_federated__cells_read_what_their_labels_say(tmp_path: Path) -> None:
    """Whatever the order of layers and claims; passive attacks and the static ascent read the last
    round that no client has attacked before."""
    layers = [
        {"layer": layer, "members": [i], "nonmembers": [-i]}
        for i, layer in enumerate(("avgpool", "encoder", "layer4"), 1)
    ]
    rounds = [
        {
            "under_attack": round > 5,
            "methods": {"similarity": {"accuracy": round}},
            "layers": {name: {"accuracy": round} for name in ("layer4", "encoder")},
            "ascent_static": {
                "accuracy": round,
                "by_threshold": {
                    str(s): {"accuracy": round + s} for s in (0.1, 0.25, 0.5, 0.75, 0.9)
                },
            },
        }
        for round in (2, 5, 6, 8)
    ]
    places = [
        {"place": place, "numbers": [{"auc": i, "difference": i}, {"auc": -i}]}
        for i, place in enumerate(reversed(RULES), 1)
    ]
    content = {"table_3": layers, "rounds": rounds, "claims": places}
    (tmp_path / "tables.json").write_text(json.dumps(content))
    entries = {entry.name: entry for entry in of_paper("federated")}

    def numbers(name: str) -> dict[tuple[str, str], float | None]:
        cells = entries[f"federated-{name}"].plan("small")
        assert {job.kind for cell in cells for job in cell.jobs} <= {PAPER}
        return {(c.row, c.column): read_path(PAPER, tmp_path, c.read).value for c in cells}

    sides = {"members": 1, "nonmembers": -1}
    order = {"avgpool": 1, "encoder": 2, "layer4": 3}
    want = {(row, side): i * sign for row, i in order.items() for side, sign in sides.items()}
    assert numbers("table-3") == want
    for name in ("fig-5", "fig-12"):
        for (row, column), value in numbers(name).items():
            share = float(row) if row.startswith("0.") else 0
            assert value == {"f": 2, "l": 5}[column[0]] + share, (name, row)
    assert numbers("iid")["static ascent", "IID"] == 5
    place = dict(zip(reversed(RULES), range(1, 6), strict=True))
    assert [*numbers("fig-10").values()] == [5, place["Fig. 10"]]
    upload, before = place["Fig. 13, from the upload"], place["Fig. 13, from before"]
    last = place["Alg. 1, line 25"]
    assert [*numbers("fig-13").values()] == [upload, -upload, before, -before, last]


def test_logistic__heads_draw_from_the_whole_file_at_the_papers_size() -> None:
    """Four times their images are more than the encoder leaves; else from those that it leaves."""
    for entry in of_paper("logistic"):
        encoders, heads = (trees(entry, "paper", kind) for kind in (ENCODER, HEAD))
        assert len(encoders) == len(heads) > 0
        for encoder, head in zip(encoders, heads, strict=True):
            data = head["data"] if isinstance(head["data"], str) else head["data"]["name"]
            assert data == encoder["data"]["name"]
            assert 4 * head["images"] > encoder["nonmembers"]
            assert head["mechanisms"] == ["logistic", "laplace", "gaussian-classical"]
        encoders, heads = (trees(entry, "small", kind) for kind in (ENCODER, HEAD))
        for encoder, head in zip(encoders, heads, strict=True):
            assert head["data"]["name"] == OTHERS and 4 * head["images"] <= encoder["nonmembers"]
