"""No attack is told who is a member by an order, a seed, a name, memory or a clock."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.attacks.base import Known
from fedmia.bench.board import TargetRow
from fedmia.bench.scoring import Entrant, TargetScores, score_target
from fedmia.bench.targets import bench_folder, find_images, read_targets
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.data.images import digests
from fedmia.evaluation.steps.datasets import CandidateSets, inference
from fedmia.federation.plan import make_client_setup, make_plan
from fedmia.partitions.iid import IID
from tests.auditing.attacks import GIVEN
from tests.auditing.attacks import named as attacks
from tests.auditing.conftest import MEMBERS, Audit, archives, audit, textures, write
from tests.commands import fedmia
from tests.scoring.oracles import FirstPlaces
from tests.small_runs import SMALL, ran

ORACLES = "SeedOfView", "Gated", "GuessedSeed", "SeedOfFit", "Place", "Memory", "Remembered"
BENCH = bench_folder("encoders-v1")
TARGETS = {target.name: target for target in read_targets(BENCH)}
TRAP = "trap-untrained"


__all__ = ["archives", "audit"]  # fixtures


def named(*oracles: str) -> str:
    return ",".join(f"tests.scoring.oracles:{name}" for name in oracles)


def telling(report: dict[str, Any]) -> dict[str, float]:
    """The attacks that find more than chance, with their AUCs."""
    return {
        one["name"].partition(":")[2]: one["auc"]
        for one in report["attacks"]
        if one["auc_ci"][0] > 0.5
    }


def test_simulate__an_attack_finds_no_role_in_what_it_is_given(tmp_path: Path) -> None:
    flags = f"--clients 2 --rounds 1 --attacker passive --attacks {named(*ORACLES)}"
    report = ran(f"{SMALL} {flags}", tmp_path / "run")
    assert len(report["attacks"]) == len(ORACLES) and not telling(report)


def test_audit__an_attack_finds_no_role_in_what_it_is_given(audit: Audit, tmp_path: Path) -> None:
    done = audit(f"--attacks {named(*ORACLES)} ", tmp_path / "audit")
    assert len(done.names()) == len(ORACLES) and not telling(done.report)


@pytest.mark.parametrize("oracle", ORACLES)
def test_bench__an_attack_finds_no_role_in_what_it_is_given(oracle: str) -> None:
    target = TARGETS[TRAP]
    scores = score_target(Entrant.of(named(oracle)), target, find_images([target], ()))
    assert isinstance(scores, TargetScores) and not TargetRow(scores, 50).auc.excludes(0.5)


@pytest.mark.parametrize(("oracle", "names"), [("Labelled", 1), ("ClassOfSide", 3)])
def test_audit__classes_that_tell_the_side_are_given_to_nobody(
    audit: Audit, tmp_path: Path, oracle: str, names: int
) -> None:
    """Non-members without classes, or with others than members have."""
    images, flags = textures(66), ""
    labels = {"members": images.labels[:MEMBERS], "nonmembers": images.labels[MEMBERS:] % names + 3}
    for side, part in (("members", slice(MEMBERS)), ("nonmembers", slice(MEMBERS, None))):
        file = write(tmp_path / f"{side}.npz", images.images[part], labels[side])
        flags += f"--{side} npz:{file} "
    done = audit(f"{flags} --attacks {named(oracle)},similarity ", tmp_path / "audit")
    assert not telling(done.report)
    assert ("classes" in "".join(done.not_run.values())) == (oracle == "ClassOfSide")


def test_audit__no_row_of_one_side_alone_is_remembered(audit: Audit) -> None:
    """Probes embed the scored non-members alone."""
    GIVEN.clear()
    assert audit(f"--attacks {attacks('Embeds')} ").code == 0
    view, known, control = (one.view for one in GIVEN)
    assert view is known and view._signals is not control._signals
    (rows,) = view._signals.rows.values()
    assert len(rows) == len(GIVEN[0].images) + len(GIVEN[1].images)


def test_trajectory__sets_of_members_are_not_judged_first(tmp_path: Path) -> None:
    flags = f"{SMALL} --clients 2 --rounds 2 --attack-rounds 1 --attacker active "
    attack = named("FirstJudged")
    flags += f"--attacks {attack} --attack.{attack}.pairs 1 --attack.{attack}.steps 1 "
    report = ran(f"{flags} --attack.{attack}.lr 0.01 ", tmp_path / "run")
    aucs = [one["auc"] for one in report["sets"] if one["judged"] == "alone"]
    assert aucs and max(aucs) < 0.9


def test_targets__their_order_is_that_of_content_whatever_the_role(tmp_path: Path) -> None:
    options = f"{SMALL} --clients 2 --rounds 2 --attack-rounds 1 --attacker active"
    plan = make_plan(parse(SIMULATE, options.split()).settings)
    setup = make_client_setup(plan, tmp_path, Event())
    names = digests(setup.images[setup.targets])
    assert names == sorted(names)
    firsts = [int(one[0]) for one in setup.sets]
    assert firsts == sorted(firsts) and all((np.diff(one) > 0).all() for one in setup.sets)


@pytest.mark.parametrize("subjects", [False, True])
def test_infer__neither_places_nor_subjects_tell_the_sides(subjects: bool) -> None:
    images = torch.from_numpy(textures(84).images)
    classes, owner = (np.zeros(24, int), np.zeros(60, int)), np.repeat([0, 1, 2], 8)
    own = (np.arange(24), np.arange(24, 84)) if subjects else None
    of = CandidateSets(images[:24], images[24:], classes, owner, IID(), 2, own)
    view: Any = SimpleNamespace(threat=FirstPlaces.needs)
    said = inference(FirstPlaces(), Known(images[:0], images[:0]), of, 0, view)
    assert [*(one.p_value for one in said.clients), *said.posers].count(1.0) == 3 + len(of.posing)


@pytest.mark.parametrize(("oracle", "way"), [
    ("Callers", "sys._getframe"), ("Objects", "gc.get_objects"),
])  # fmt: skip
def test_check__an_attack_that_looks_past_its_view_is_refused(
    oracle: str, way: str, tmp_path: Path
) -> None:
    """Python lets it: a simulation or an audit cannot stop it."""
    out = tmp_path / "results"
    ran = fedmia(f"bench {named(oracle)} --targets moco-digits-weak --submit {out}")
    assert ran.code == 0, ran.err
    (entry,) = out.glob("*/*/entry.json")
    checked = fedmia(f"bench --check {entry.parent}")
    assert checked.code == 2 and way in checked.err
