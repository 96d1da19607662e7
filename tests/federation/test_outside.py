"""A second active attack and a role of its own run without a line of the product being edited."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.notetaker import NoteTaker
from fedmia.recording import Recording
from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report import publish
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from tests.equivalence.conftest import federated, planned, same, unattacked, weights
from tests.small_runs import SMALL, simulate

HERE = "tests.federation.outside"
ASKED = f"--attacker {HERE}:Loud --attacks similarity,{HERE}:SignFlip "


@pytest.mark.slow
def test_run__is_reported_with_its_role_its_controls_and_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, plain = list[Evaluation](), publish.build_whole
    uploads, send = dict[tuple[str, int], State](), NoteTaker.send

    def sent(self: NoteTaker, branch: str, round: int, state: State, held: State) -> None:
        uploads[branch, round] = state
        send(self, branch, round, state, held)

    def build(scores: Evaluation) -> Report:
        calls.append(scores)
        return plain(scores)

    monkeypatch.setattr(NoteTaker, "send", sent)
    monkeypatch.setattr(publish, "build_whole", build)
    flags = SMALL.replace("snapshots 1", "snapshots 2") + "--clients 4 --rounds 4 "
    assert simulate(f"{flags}{ASKED}--attack.similarity.views 4", tmp_path / "RUN") == 0
    report = json.loads((tmp_path / "RUN" / "report.json").read_text())
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
    (scores,) = calls
    curves, mine = scores.curves, scores.attacks[1]
    assert curves is not None and curves.act == "sign-flip" and curves.rounds.tolist() == [3, 4]
    assert curves.members.shape == (2, 24) and curves.nonmembers.shape == (2, 52)
    assert curves.before_members is not None and curves.before_nonmembers is not None
    for last, first, score in (
        (curves.members, curves.before_members, mine.scores_members),
        (curves.nonmembers, curves.before_nonmembers, mine.scores_nonmembers),
    ):
        np.testing.assert_allclose(last[-1] - first, score, atol=1e-12)
    assert not np.array_equal(curves.control_members, curves.members)  # type: ignore[arg-type]

    # Its uploads are its step turned and doubled.
    received = Recording(tmp_path / "RUN" / "recording").load("main", 2)[0]
    turned, kept = uploads["main", 3], uploads["zero", 3]
    for name, start in received.items():
        want = start - 2.0 * (kept[name] - start)
        torch.testing.assert_close(turned[name], want, atol=1e-6, rtol=1e-5)
        assert not torch.equal(kept[name], start)


@pytest.mark.slow
def test_control__is_the_federation_of_honest_clients(tmp_path: Path) -> None:
    setup = planned(ASKED + "--federation.attacked_rate schedule --federation.snapshots 4")
    attacked = federated(setup, tmp_path / "attacked")
    honest = federated(unattacked(setup), tmp_path / "honest", roles=("honest",) * 4)
    for round in (2, 3, 4):
        assert same(weights(attacked, "zero")[round], weights(honest)[round])
    assert not same(weights(attacked)[3], weights(honest)[3])


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
    with pytest.raises(InputError, match=words) as caught:
        parse(SIMULATE, shlex.split(flags))
    assert "\n" not in str(caught.value)
