"""What an attacker of a run has: a budget of queries, fewer known images."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.attacks.lpla import LpLA
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.evaluation.budgets import first_known
from fedmia.evaluation.run import score_run
from fedmia.flower.private import check
from fedmia.records import Evaluation
from fedmia.report.build import build_report
from fedmia.report.words.notes import sentences
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree, to_tree
from tests.equivalence.conftest import Run, evaluation, federated, planned

FLAGS = (
    "--attacker passive --attacks similarity,lpla,dataset-inference --rounds 2 "
    "--attack.similarity.views 3 --attack.dataset-inference.views 3 --split.known 12 "
    "--split.members 40 --federation.snapshots 2"
)
KNOWN = 12  # images a side


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A passive client's federation, of which only the scoring differs from test to test."""
    return federated(planned(FLAGS), tmp_path_factory.mktemp("means") / "run")


def asking(run: Run, **options: Any) -> Run:
    """The same federation with other options of the experiment."""
    experiment = replace(run.plan.experiment, **options)
    return replace(run, plan=replace(run.plan, experiment=experiment))


def scored(run: Run) -> Evaluation:
    return score_run(
        run.with_notes() if run.client_setup.attack else run, Stopwatch(time.perf_counter())
    )


@pytest.mark.slow
def test_query_budget__attacks_keep_to_it_or_do_not_run(run: Run) -> None:
    free = {a.name: a.queries for a in scored(run).attacks}
    budget = free["lpla"] - 4
    results = scored(asking(run, query_budget=budget))
    (attack,), (control,) = results.attacks, results.controls["untrained"]
    assert attack.name == "lpla" and control.queries == attack.queries == budget
    note = f"lpla: the query budget of {budget} leaves {KNOWN - 2} known images a side."
    assert note in sentences(results.notes)
    assert {name: why.partition(":")[2][:16] for name, why in results.not_run.items()} == {
        "similarity": " needs at least ", "dataset-inference": "",
    }  # fmt: skip
    assert "not on data sets" in results.not_run["dataset-inference"]
    assert not results.failed and not results.inferences
    assert set(results.leakage[max(results.leakage)]) == {"lpla"}


@pytest.mark.slow
def test_query_budget__an_active_attack_over_it_does_not_run(tmp_path: Path) -> None:
    flags = (
        "--attacker active --attacks lpla,ascent --attack.ascent.lr 5 --query-budget 100 "
        "--rounds 2 --attack_rounds 1 --federation.placebo false"
    )
    results = scored(federated(planned(flags), tmp_path / "run"))
    assert [a.name for a in results.attacks] == ["lpla"] and results.attacks[0].queries <= 100
    assert results.not_run["ascent"].endswith("100 of 100 left") and not results.failed


def test_fewer_known_images__are_fewer_that_the_attacker_holds(run: Run) -> None:
    suite = evaluation(run)
    known = suite.scorer.known
    every, few = (
        suite.view(suite.main, "lpla", some).held for some in (known, first_known(known, 3))
    )
    assert every is not None and few is not None
    own = len(run.client_setup.parts["members"][-1])  # its own images stay
    assert (len(every), len(few)) == (own + 2 * KNOWN, own + 6)


@pytest.mark.slow
def test_sweep__of_budgets(run: Run) -> None:
    rows = build_report(scored(asking(run, sweep="query_budget=10,1000"))).sweep
    assert all("needs at least" in (row.not_run or "") for row in rows[:2])
    assert all(row.scored is not None and row.scored.queries <= 1000 for row in rows[2:])


def test_options__are_off_and_unsaid_unless_asked_for() -> None:
    tree = to_tree(Experiment.complete())
    assert not {"query_budget", "sweep"} & tree.keys()
    options = {"query_budget": 500, "sweep": "known=2,4"}
    again = to_tree(from_tree(Experiment, {**tree, **options}))
    assert again == {**tree, **options}
    for flags, said in (("--query-budget 0", "0, must be >= 1"), ("--sweep known", "known=N,N,..")):
        with pytest.raises(InputError, match=said):
            parse(SIMULATE, flags.split())


@pytest.mark.parametrize("option", [{"query_budget": 100}, {"sweep": "known=2,4"}])
def test_private_nodes__count_no_queries(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a node scores without counting queries"):
        check(Experiment.complete(**option))


def test_scores__that_are_not_finite_cost_their_attack_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LpLA, "score", lambda self, view, images: np.full(len(images), np.nan))
    results = scored(run)
    assert [a.name for a in results.attacks] == ["similarity"] and results.failed == ("lpla",)
    assert results.not_run["lpla"].endswith("scores_members are not finite")
