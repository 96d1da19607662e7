"""A second active attack and a role of its own run without a line of the product being edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedmia import open_run
from fedmia.recording import Recording
from tests.commands import fedmia
from tests.small_runs import SMALL, ran
from tests.watched import same, watch

HERE = "tests.federation.outside"
FOUR = SMALL.replace("snapshots 1", "snapshots 4") + "--clients 4 --rounds 4 "
LOUD = f"--attacker {HERE}:Loud --attacks similarity,{HERE}:SignFlip "
LOUD += "--attack.similarity.views 4 --strategy tests.watched:Mean "


@pytest.mark.slow
def test_run__is_reported_with_its_role_its_controls_and_its_curves(tmp_path: Path) -> None:
    seen = watch()
    report = ran(FOUR + LOUD, tmp_path / "RUN")
    names = ["similarity", f"{HERE}:SignFlip"]
    for rows in (report["attacks"], *(report["controls"][n] for n in ("untrained", "placebo"))):
        assert [row["name"] for row in rows] == names
    assert [a["under_attack"] for a in report["attacks"]] == [False, True]
    assert [c["role"] for c in report["clients"]] == ["honest"] * 3 + [f"{HERE}:Loud"]
    assert [r["under_attack"] for r in report["rounds"]] == [False, False, True, True]
    (pair,) = report["paired"]
    assert (pair["attack"], pair["control"]) == (names[1], "sign-kept")
    assert pair["ci"][0] <= pair["difference"] <= pair["ci"][1]
    assert "the same rounds with honest steps" in pair["over"]

    # Its curves are cosines of the evaluated images: the last row less the first is its score.
    run: Any = open_run(tmp_path / "RUN", trust_plugins=True)
    curves, table = run.curves, run.scores
    assert curves.act == "sign-flip" and curves.rounds.tolist() == [3, 4]
    assert curves.members.shape == (2, 24) and curves.nonmembers.shape == (2, 52)
    for last, first, truth in (
        (curves.members, curves.before_members, True),
        (curves.nonmembers, curves.before_nonmembers, False),
    ):
        score = table[table.truth == truth][names[1]]
        np.testing.assert_allclose(last[-1] - first, score, atol=1e-6)
    assert not np.array_equal(curves.control_members, curves.members)

    # Its uploads are its step turned and doubled.
    turned, kept = seen.uploads["main", 3][3], seen.uploads["zero", 3][3]
    for name, start in seen.models["main", 2].items():
        want = start - 2.0 * (kept[name] - start)
        torch.testing.assert_close(turned[name], want, atol=1e-6, rtol=1e-5)
        assert not torch.equal(kept[name], start)


@pytest.mark.slow
def test_attack_of_no_strength__is_the_federation_of_honest_clients(tmp_path: Path) -> None:
    """Its client trains as one that attacks nothing, and so does its control."""
    seen = watch()
    ran(f"{FOUR}{LOUD} --attack.{HERE}:SignFlip.boost -1", tmp_path / "attacked")
    passive = "--attacker passive --attacks similarity --attack.similarity.views 4 "
    ran(f"{FOUR}{passive}--federation.placebo true", tmp_path / "passive")
    attacked, honest = (Recording(tmp_path / n / "recording") for n in ("attacked", "passive"))
    for round in range(5):
        assert same(attacked.models()[round], honest.models()[round])
        assert round < 2 or same(seen.models["zero", round], honest.models()[round])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (f"--attacker {HERE}:Idler --attacks none", "attacks nothing"),
        (f"--attacker {HERE}:SignFlip --attacks none", "is not a Role"),
        (f"--attacker {HERE}:Nobody --attacks none", "cannot load role"),
        (f"--attacker passive --attacks {HERE}:SignFlip", "needs attacker active"),
    ],
)
def test_refused__in_one_line(flags: str, words: str) -> None:
    done = fedmia(f"simulate {flags}")
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1
