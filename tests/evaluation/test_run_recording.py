"""A run of fedmia as a recording: an audit of it gives the scores of the run itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from fedmia.audit import main as audit
from fedmia.simulate import main as simulate

ATTACKS = "similarity,internal,lpla,rmia-rounds,lira-rounds,loss-slope,all-for-one"
RUN = (
    "--dataset synthetic --data.pixels 8 --data.images 120 --data.classes 2 --clients 3 --rounds 2 "
    "--split.members 36 --split.known 8 --attacker server --train.local_epochs 1 --model.width 4 "
    "--ssl.dim 8 --federation.snapshots 3 --quiet"
)


def read(folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """Rows of scores by image, and the report."""
    with (folder / "scores.csv").open() as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    return rows, json.loads((folder / "report.json").read_text())


def test_recording_of_a_run__scores_equal_the_run(tmp_path: Path) -> None:
    run, out = tmp_path / "RUN", tmp_path / "OUT"
    assert simulate([*RUN.split(), "--attacks", ATTACKS, "--out", str(run)]) == 0
    flags = f"--federation {run / 'recording'} --attacks {ATTACKS} --threads 1 --device cpu --quiet"
    assert audit([*flags.split(), "--out", str(out)]) == 0
    (ours, report), (theirs, audited) = read(run), read(out)
    assert ours == theirs and {*ATTACKS.split(",")} < {*next(iter(ours.values()))}
    for mine, other in zip(report["rounds"], audited["rounds"], strict=True):
        assert mine["leakage"] == other["leakage"] and mine["layers"] == other["layers"]
    assert [c["auc"] for c in report["clients"]] == [c["auc"] for c in audited["clients"]]
    assert report["named_clients"][0]["correct"] == audited["named_clients"][0]["correct"]
