"""A run of fedmia is a recording: an audit of it gives the scores of the run itself, to the bit."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import fedmia
from fedmia.audit import main as audit
from fedmia.simulate import main as simulate

RUN = (
    "--dataset synthetic --data.pixels 8 --data.images 120 --data.classes 2 --clients 3 --rounds 4 "
    "--split.members 36 --split.known 8 --train.local_epochs 1 --model.width 4 --ssl.dim 8 "
    "--federation.snapshots 2 --quiet"
)
PASSIVE = "similarity,internal,lpla,grad-norm"
OF_ROUNDS = f"{PASSIVE},rmia-rounds,lira-rounds,loss-slope"
QUEUE = "--attack.loss-slope.negatives queue --attack.grad-norm.negatives queue"


def read(folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """Rows of scores by image, and the report."""
    with (folder / "scores.csv").open() as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    return rows, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(
    ("attacker", "attacks", "of_run", "options"),
    [
        ("server", f"{OF_ROUNDS},all-for-one", "", ""),
        ("passive", OF_ROUNDS, "--federation.participation 0.7", QUEUE),
        ("active", f"{OF_ROUNDS},ascent", "--federation.attack_rounds 1", QUEUE),
        ("none", PASSIVE, "", ""),
    ],
)
def test_recording_of_a_run__scores_equal_the_run(
    tmp_path: Path, attacker: str, attacks: str, of_run: str, options: str
) -> None:
    """Attacked rounds are no part of a passive attack's model: `RUN@ROUND` is the one before them.
    The rounds in which an active attack acts are no part of that audit, so it is left out."""
    run, out, names = tmp_path / "RUN", tmp_path / "OUT", attacks.removesuffix(",ascent").split(",")
    flags = f"{RUN} {options} {of_run} --attacker {attacker} --attacks {attacks} --out {run}"
    assert simulate(flags.split()) == 0
    made_by = json.loads((run / "recording/recording.json").read_text())["made_by"]
    assert made_by == {"fedmia": fedmia.__version__, "strategy": "fedavg"}
    encoder = f"--encoder {run}@3" if attacker == "active" else ""
    flags = f"--federation {run / 'recording'} --attacks {','.join(names)} {options} {encoder} "
    assert audit(f"{flags}--threads 1 --device cpu --quiet --out {out}".split()) == 0
    (ours, report), (theirs, audited) = read(run), read(out)
    assert [*ours] == [*theirs] and len(ours) > 40
    for name in names:
        column = [row[name] for row in theirs.values()]
        assert column == [row[name] for row in ours.values()] and len({*column}) > 9, name
    rows, scored = {row["round"]: row for row in audited["rounds"]}, 0
    for mine in report["rounds"]:
        other = rows.get(mine["round"])
        if mine["leakage"] and other:
            assert mine["leakage"] == other["leakage"] and mine["layers"] == other["layers"]
            scored += 1
    assert scored == 2
    if attacker == "server":
        assert [c["auc"] for c in report["clients"]] == [c["auc"] for c in audited["clients"]]
        assert report["named_clients"][0]["correct"] == audited["named_clients"][0]["correct"]
