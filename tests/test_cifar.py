"""Real CIFAR-10, where FEDMIA_DATA names the folder that holds it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.commands import fedmia

FILE = Path(os.environ.get("FEDMIA_DATA", ""), "cifar10-test.parquet")
pytestmark = pytest.mark.skipif(
    "FEDMIA_DATA" not in os.environ, reason="FEDMIA_DATA is not set: no CIFAR here"
)
TINY = (
    f"--dataset 'parquet:{FILE}' --clients 3 --rounds 1 --device cpu "
    "--train.local_epochs 1 --model.width 4 --split.members 24 --split.nonmembers 40 "
    "--split.known 8 --split.test 20 --federation.snapshots 1 --attacks similarity "
    "--attack.similarity.views 4 --json "
)


def test_cifar__the_first_rows_of_the_file_are_attacked() -> None:
    report = json.loads(fedmia(f"simulate {TINY} --data.limit 200 --attacker passive").out)
    assert report["split"]["data"] == "cifar10-test" and report["split"]["distinct"] == 200
    assert report["split"]["classes"] == 10
    (attack,) = report["attacks"]
    assert (attack["n_members"], attack["n_nonmembers"]) == (16, 32)
    assert report["rounds"][0]["loss"] > 0


@pytest.mark.slow
def test_cifar__resnet18_gives_the_same_inline_and_on_ray(
    one_ray: None,
) -> None:
    flags = (
        f"--dataset 'parquet:{FILE}' --data.limit 100 --clients 2 --rounds 2 "
        "--model resnet18 --model.width 8 --ssl mocov2 --device cpu --train.local_epochs 1 "
        "--split.members 8 --split.nonmembers 12 --split.known 2 --split.test 8 "
        "--federation.snapshots 1 --attacks similarity --attack.similarity.views 4 --json "
        "--backend "
    )
    reports = []
    for backend in ("inline", "ray"):
        reports.append(json.loads(fedmia(f"simulate {flags}{backend}").out))
    inline, ray = ({k: r[k] for k in r if k not in ("timing", "config")} for r in reports)
    assert inline == ray
    assert len(inline["rounds"]) == 2 and inline["rounds"][1]["loss"] > 0
