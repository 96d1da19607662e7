"""Which rounds and models an attack reads where few clients take part, or training comes before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.evaluation.active import ActiveScorer
from fedmia.federation.attacker import load_weights
from fedmia.rounds.base import TargetModel
from fedmia.ssl.base import State
from strategies.cohort import Phase, draw_cohort

from .conftest import ACTIVE, Finished, evaluation, same, weights
from .test_wiring import CLEAN, scores_of

PARTIAL = (
    "--attacker active --attacks ascent --attack.ascent.pairs 1 "
    "--attack.ascent.lr 0.05 --federation.participation 0.5 --rounds 8 --attack-rounds 4 --seed 4 "
    "--strategy fedavgm --strategy.server_lr 0.5 --strategy.weighting examples "
    "--partition dirichlet --partition.alpha 1 --federation.snapshots 1"
)


@pytest.mark.slow
def test_partial_participation__without_a_finished_round_the_attack_is_not_run(
    finished: Finished,
) -> None:
    """Half of four rounds are the client's, of this seed; it reads every image in both."""
    run = finished(PARTIAL)
    assert list(run.sent("main")) == [6, 8] and run.client_setup.turns == 2
    suite, notes = evaluation(run), run.note_taker()
    active = ActiveScorer(suite, notes)
    assert active.unscored() is None
    trajectory = active.view("main").trajectory(suite.scorer.candidates)
    assert trajectory.rounds == [6, 8] and np.isfinite(trajectory.after).all()
    missed = run.note_taker()
    for table in missed.tables["main"].values():
        table.pop("sent", None)
    result = scores_of(replace(run, notes=missed))
    assert "its client finished no attacked round" in result["not_run"]["ascent"]
    assert result["attacks"] == [] and result["pairs"] == []


@pytest.mark.slow
def test_untrained_control__goes_through_the_strategys_own_aggregate(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights by images, cohorts, server learning rate and momentum; honest clients send back what
    they received."""
    run = finished(PARTIAL)
    models: dict[int, State] = {}
    uploads: dict[int, State] = {}
    notes = run.note_taker()
    for name, kept, later in (("receive", models, 0), ("end", models, 1), ("send", uploads, 0)):
        monkeypatch.setattr(notes, name, noting(notes, name, kept, later))
    run.with_notes(notes)
    state = run.recording.untrained()
    sizes = [len(p) for p in run.client_setup.parts["members"]]
    assert list(uploads) == [6, 8] and list(models) == [6, 8, 9] and len({*sizes}) > 1
    velocity = {n: torch.zeros_like(t, dtype=torch.float64) for n, t in state.items()}
    start = state
    for round in range(5, 9):
        cohort = draw_cohort(Phase("", 0, 8, False, 0.5, 4), round, 4)
        sent = uploads.get(round, state)
        assert (3 in cohort) is (round in uploads) is (round in models)
        share, after = sizes[3] / sum(sizes[c] for c in cohort) if 3 in cohort else 0.0, {}
        for name, old in state.items():
            velocity[name] = 0.9 * velocity[name] + share * (old.double() - sent[name].double())
            after[name] = (old.double() - 0.5 * velocity[name]).to(old.dtype)
        state = after
        for name in state:
            want = models.get(round + 1, state)[name]
            torch.testing.assert_close(want, state[name], atol=1e-6, rtol=1e-5)
    assert not same(state, start)


def noting(notes: Any, name: str, kept: dict[int, State], later: int) -> Any:
    """A method of notes that keeps the states, by the round or so many later."""
    plain = getattr(notes, name)

    def noted(branch: str, round: int, state: State, held: State) -> None:
        kept[round + later] = state
        plain(branch, round, state, held)

    return noted


@pytest.mark.slow
def test_pooled_training__comes_before_honest_rounds_and_passive_attacks_read_an_aggregate(
    finished: Finished,
) -> None:
    run = finished(f"{ACTIVE} --pretrain pooled --pretrain-epochs 2 --federation.keep_updates 4")
    first, states = run.recording.untrained(), weights(run)
    assert not same(first, states[0])
    assert [(r.round, r.under_attack) for r in run.rounds] == [
        (1, False), (2, False), (3, True), (4, True),
    ]  # fmt: skip
    run.check_mean(CLEAN, 4)
    results = scores_of(run.with_notes())
    for scored, state in (
        (results["attacks"], states[CLEAN]),
        (results["controls"]["untrained"], first),
    ):
        similarity = next(a for a in scored if a.name == "similarity")
        target = TargetModel("main", 9, method=load_weights(run.client_setup, state))
        (want,) = evaluation(run).score_attacks(target, ["similarity"])
        np.testing.assert_allclose(similarity.scores_members, want.scores_members, atol=1e-5)
    assert run.recording.rounds("untrained") == [0]
