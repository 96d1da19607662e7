"""A second active attack and a role of its own run without a line of the product being edited."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.attacks.ascent import Ascent
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.evaluation.federated.recorder import TrajectoryRecorder
from fedmia.options.errors import InputError
from fedmia.records import RunScores
from fedmia.report import build
from fedmia.report.figures import draw
from fedmia.simulate import main
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Snapshot, SnapshotStore
from tests.equivalence.conftest import federated, prepared, same, unattacked, weights

pytestmark = pytest.mark.slow

HERE = "tests.federation.outside"
TINY = (
    "--clients 4 --rounds 4 --train.local_epochs 1 --model.width 4 "
    "--split.members 32 --split.nonmembers 60 --split.known 8 --split.test 20 --device cpu "
    "--federation.snapshots 2 --attack.similarity.views 4 "
)
ASKED = f"--attacker {HERE}:Loud --attacks similarity,{HERE}:SignFlip "

Ran = tuple[dict[str, Any], RunScores, Path, dict[tuple[str, int], State]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Report, scores and snapshots of a run with both, its control branches kept."""
    calls: list[RunScores] = []
    plain = build.build_report
    uploads: dict[tuple[str, int], State] = {}
    noted = TrajectoryRecorder.sent

    def sent(self: TrajectoryRecorder, branch: str, round: int, snapshot: Snapshot) -> None:
        uploads[branch, round] = snapshot.state
        noted(self, branch, round, snapshot)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrajectoryRecorder, "sent", sent)

        def watched(scores: RunScores) -> dict[str, Any]:
            calls.append(scores)
            return plain(scores)

        patch.setattr("fedmia.report.publish.build_report", watched)
        patch.setattr(draw, "draw_all", lambda scores, report: {})
        patch.setattr(SnapshotStore, "drop", lambda self, branch: None)
        out = tmp_path_factory.mktemp("outside") / "RUN"
        assert main(shlex.split(f"{TINY}{ASKED} --quiet --out {out}")) == 0
    return json.loads((out / "report.json").read_text()), calls[0], out / "snapshots", uploads


def test_report__has_its_row_its_controls_and_its_role(
    run: Ran,
) -> None:
    report = run[0]
    assert [a["name"] for a in report["attacks"]] == ["similarity", f"{HERE}:SignFlip"]
    assert [a["under_attack"] for a in report["attacks"]] == [False, True]
    for control in ("untrained", "placebo"):
        names = [a["name"] for a in report["controls"][control]]
        assert names == ["similarity", f"{HERE}:SignFlip"]
    assert [c["role"] for c in report["clients"]] == ["honest"] * 3 + [f"{HERE}:Loud"]
    assert [r["under_attack"] for r in report["rounds"]] == [False, False, True, True]


def test_report__pairs_it_with_its_own_control(
    run: Ran,
) -> None:
    (pair,) = run[0]["paired"]
    assert (pair["attack"], pair["control"]) == (f"{HERE}:SignFlip", "sign-kept")
    assert pair["ci"][0] <= pair["difference"] <= pair["ci"][1]
    assert "the same rounds with honest steps" in pair["statement"]


def test_curves__are_its_own(run: Ran) -> None:
    """Cosines, of the evaluated images in their order: the last row less the first is its score."""
    scores = run[1]
    curves = scores.curves
    assert curves is not None and curves.act == "sign-flip" and curves.rounds.tolist() == [3, 4]
    assert curves.members.shape == (2, 24) and curves.nonmembers.shape == (2, 52)
    mine = scores.attacks[1]
    assert curves.before_members is not None and curves.before_nonmembers is not None
    got = curves.members[-1] - curves.before_members
    np.testing.assert_allclose(got, mine.scores_members, atol=1e-12)
    got = curves.nonmembers[-1] - curves.before_nonmembers
    np.testing.assert_allclose(got, mine.scores_nonmembers, atol=1e-12)
    assert curves.control_members is not None
    assert not np.array_equal(curves.control_members, curves.members)


def test_uploads__are_its_step_turned_and_doubled(
    run: Ran,
) -> None:
    store = SnapshotStore(run[2])
    received = store.load("main", 2).state
    turned, kept = run[3]["main", 3], run[3]["zero", 3]
    for name, start in received.items():
        want = start - 2.0 * (kept[name] - start)
        torch.testing.assert_close(turned[name], want, atol=1e-6, rtol=1e-5)
        assert not torch.equal(kept[name], start)


def test_control__is_the_federation_of_honest_clients(tmp_path: Path) -> None:
    setup = prepared(ASKED + "--federation.attacked_rate schedule")
    attacked = federated(setup, tmp_path / "attacked")
    honest = federated(unattacked(setup), tmp_path / "honest", roles=("honest",) * 4)
    for round in (2, 3, 4):
        assert same(weights(attacked, "zero")[round], weights(honest)[round])
    assert not same(weights(attacked)[3], weights(honest)[3])


def test_list__says_what_it_uploads(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the built-in ones."""
    assert main(["--list", "attack"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"Uploads {Ascent.uploads}." in page


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (f"--attacker {HERE}:Idler --attacks none", "attacks nothing"),
        ("--attacker honest --attacks none", "unknown --attacker value 'honest'"),
        (f"--attacker {HERE}:SignFlip --attacks none", "is not a Role"),
        (f"--attacker {HERE}:Nobody --attacks none", "cannot load role"),
        (f"--attacker passive --attacks {HERE}:SignFlip", "needs --attacker active"),
        ("--attacker nobody --attacks none", "known: active, none, passive, server"),
    ],
)
def test_refused__in_one_line(flags: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse(SIMULATE, shlex.split(flags))
    assert "\n" not in str(caught.value)
