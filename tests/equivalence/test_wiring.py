"""What a run hands to whom. Each test fails for one wire that leads to the wrong place: which
model an attack reads, whose rounds a control sees, which stream a noise is drawn from."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from clients.client_setup import ClientSetup
from fedmia.attacks.ascent import Ascent
from fedmia.attacks.base import ActiveAttack
from fedmia.attacks.lira import LiRARounds
from fedmia.attacks.rmia import RMIARounds
from fedmia.data.cast import ATTACKED, KNOWN, SCORED
from fedmia.data.images import digests
from fedmia.evaluation import run as scoring
from fedmia.evaluation.active import ActiveScorer
from fedmia.evaluation.score import score
from fedmia.federation.plan import make_client_setup
from fedmia.federation.utility import Probes
from fedmia.nets.smallnet import SmallNet
from fedmia.records import Probe, ScoredAttack
from fedmia.records.rows import HealthRow
from fedmia.rounds.base import TargetModel
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.settings.choices import PluginChoice
from fedmia.ssl.base import State, TrainingData
from fedmia.ssl.moco import MoCo
from fedmia.threat import ClientView, ServerView, WhiteBox
from strategies.cohort import Phase, draw_cohort

from .conftest import ACTIVE, Finished, Run, evaluation, federated, planned, same, weights

CLEAN, LAST = 2, 4  # rounds of the tiny experiment: the last before an attack, the last of all
PASSIVE = "--attacker passive --attacks similarity --attack.similarity.views 4"
SERVER = "--attacker server --attacks all-for-one --federation.keep_updates 4 "


def scores_of(run: Run) -> dict[str, Any]:
    """All that is scored of a run."""
    suite = evaluation(run)
    names = [n for n in suite.attacks if n not in suite.of_kind(ActiveAttack) or suite.act]
    return score(suite, suite.able(names), run.rounds, by_sets=True)


@pytest.mark.slow
def test_passive_attack__reads_the_last_model_before_the_first_crafted_update(
    finished: Finished,
) -> None:
    run = finished(ACTIVE)
    results = {a.name: a for a in scores_of(run.with_notes())["attacks"]}
    assert [results[n].under_attack for n in ("similarity", "ascent")] == [False, True]
    clean, last = (
        evaluation(run).score_attacks(TargetModel("main", r), ["similarity"])[0]
        for r in (CLEAN, LAST)
    )
    np.testing.assert_array_equal(results["similarity"].scores_members, clean.scores_members)
    np.testing.assert_array_equal(results["similarity"].scores_nonmembers, clean.scores_nonmembers)
    assert not np.allclose(clean.scores_members, last.scores_members)  # it would have shown


@pytest.mark.slow
def test_probes__are_of_the_model_that_passive_attacks_are_scored_on(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number a probe gives is the sum of the weights it was shown."""

    def healthy(state: State, loss: float | None) -> HealthRow:
        return HealthRow(cosine=total(state), loss=loss, chance=None, collapsed=False)

    run = finished(ACTIVE)
    sums = {r: total(state) for r, state in weights(run).items()}
    losses = {info.round: info.loss for info in run.rounds}
    monkeypatch.setattr(Probes, "both", lambda self, state: {"knn": Probe(total(state), 1)})
    monkeypatch.setattr(Probes, "health", lambda self, state, loss: healthy(state, loss))
    monkeypatch.setattr(scoring, "score", lambda *_, **more: {})
    scores = scoring.score_run(run, Stopwatch(time.perf_counter()))
    assert len(set(sums.values())) == len(sums) and losses[CLEAN] != losses[LAST]
    assert (scores.round, scores.utility["knn"].value) == (CLEAN, sums[CLEAN])
    assert scores.health is not None
    assert (scores.health.cosine, scores.health.loss) == (sums[CLEAN], losses[CLEAN])
    assert scores.after_attack == ({"knn": Probe(sums[LAST], 1)}, LAST)
    assert scores.utility_untrained["knn"].value == sums[0]
    plain = scoring.score_run(finished(PASSIVE), Stopwatch(time.perf_counter()))
    assert (plain.round, plain.after_attack) == (LAST, None)


def total(state: State) -> float:
    return sum(float(tensor.double().sum()) for tensor in state.values())


def test_with_sets__reads_the_rounds_in_which_sets_are_climbed_alone() -> None:
    """In each reading, beside the same round in which nothing acts: two sets of a kind, of images 0
    to 7. Nothing of the rounds that all images share."""
    formed = np.array([[0, 1], [2, 3]]), np.array([[0, 3], [1, 2]])
    rows = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
    none = np.zeros(0)
    scorer = SimpleNamespace(members=rows, nonmembers=rows + 4, sets=formed)

    def alone(branch: str, kind: str, view: Any, images: torch.Tensor, *, idle: bool) -> Any:
        assert (branch, kind, view) == ("main", "sets", "main")
        return images.flatten().double().numpy() + (0.0 if idle else 10.0)

    attack, level = Mock(spec=Ascent), Mock(spec=Ascent)
    attack.judge, level.judge = lambda seen: seen, lambda seen: 2 * seen
    attack.other_readings = lambda: {"level": level}
    active: Any = ActiveScorer.__new__(ActiveScorer)
    active.attack, active._by_sets = attack, True
    active.notes = SimpleNamespace(of_alone=alone, rounds_alone=lambda branch, kind: [3])
    active.view, active.suite = lambda branch: branch, SimpleNamespace(scorer=scorer)
    other = ScoredAttack("a-level", "", "white_box", "client", none, none, reading="level")
    told = active._with_sets(ScoredAttack("a", "", "white_box", "client", none, none, also=[other]))
    np.testing.assert_array_equal(told.sets_members, [[10.5, 0.5], [12.5, 2.5]])
    np.testing.assert_array_equal(told.sets_nonmembers, [[15.5, 5.5], [15.5, 5.5]])
    np.testing.assert_array_equal(told.also[0].sets_members, [[21.0, 1.0], [25.0, 5.0]])
    np.testing.assert_array_equal(told.also[0].sets_nonmembers, [[31.0, 11.0], [31.0, 11.0]])
    active._by_sets = False
    assert active._with_sets(other) is other
    active._by_sets, active.notes.rounds_alone = True, lambda branch, kind: []
    assert active._with_sets(other) is other


def test_passive_attack__without_an_active_one_reads_the_last_model(
    finished: Finished,
) -> None:
    run = finished(PASSIVE)
    (results,) = scores_of(run)["attacks"]
    (last,) = evaluation(run).score_attacks(TargetModel("main", LAST), ["similarity"])
    np.testing.assert_array_equal(results.scores_members, last.scores_members)


@pytest.mark.slow
def test_dataset_inference__asks_of_each_clients_own_members_on_the_scored_model(
    finished: Finished,
) -> None:
    """Its statistic is `similarity`'s score, so its differences can be told from those."""
    run = finished(
        "--attacker passive --attacks similarity,dataset-inference --attack.similarity.views 4 "
        "--attack.dataset-inference.views 4"
    )
    results, split = scores_of(run), run.plan.cast
    (scored,), (inferences,) = results["attacks"], results["inferences"]
    assert scored.name == "similarity"
    owner = {image: client for client, part in enumerate(split.parts) for image in part.tolist()}
    owners = np.array([owner[i] for i in split.ids("scored_members").tolist()])
    mine, rest = (split.data.labels[split.ids(role)] for role in SCORED)
    again = evaluation(run).infer("dataset-inference")
    for client, row in zip(np.unique(owners), inferences.clients, strict=True):
        here = (owners == client) & np.isin(mine, rest)
        gaps = [
            score - scored.scores_nonmembers[rest == kind].mean()
            for score, kind in zip(scored.scores_members[here], mine[here], strict=True)
        ]
        assert (row.client, row.n) == (client, here.sum())
        assert row.difference == pytest.approx(np.mean(gaps))
    assert [c.difference for c in inferences.clients] == [c.difference for c in again.clients]
    assert any(c.p_value_untrained != c.p_value for c in inferences.clients)
    assert len(inferences.posers) >= 99


@pytest.mark.parametrize(
    "branch",
    ["main", *(pytest.param(b, marks=pytest.mark.slow) for b in ("zero", "placebo"))],
)
def test_active_attack__sees_the_rounds_of_the_branch_it_is_scored_on(
    branch: str, finished: Finished
) -> None:
    """What it noted is its loss under the models of its branch and under its own uploads."""
    run = finished(ACTIVE)
    models, state = run.recorder.models[branch], weights(run, branch)
    assert sorted(models) == [3, 4, 5] and sorted(run.sent(branch)) == [3, 4]
    assert all(same(models[r][0], state[r - 1]) for r in models)
    assert branch == "main" or not same(models[LAST + 1][0], weights(run)[LAST])
    notes, suite = run.note_taker(), evaluation(run)
    images = suite.scorer.candidates.flip(0)[:30]
    trajectory = ActiveScorer(suite, notes).view(branch).trajectory(images)

    def read(model: tuple[State, State]) -> Any:
        return notes.attack.read(notes.view(*model), images)

    assert trajectory.rounds == [3, 4]
    assert trajectory.before.shape == trajectory.after.shape == (2, 30)
    for i, round in enumerate((3, 4)):
        np.testing.assert_allclose(trajectory.before[i], read(models[round]), atol=1e-5)
        np.testing.assert_allclose(trajectory.after[i], read(models[round + 1]), atol=1e-5)
    # Of the uploads the first is read: `level` needs none.
    np.testing.assert_allclose(trajectory.sent, [read(run.recorder.sent[branch][3])], atol=1e-5)


@pytest.mark.parametrize("branch", ["main", "placebo"])
def test_clients_view__holds_its_own_branch_up_to_its_round(
    branch: str, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(ACTIVE)
    states = weights(run, branch)
    for round in (r for r in states if r):
        view = evaluation(run).view(TargetModel(branch, round), "loss-slope")
        assert isinstance(view, ClientView)
        assert max(view.received) == round and set(view.received) <= set(states)
        assert all(same(view.received[r], states[r]) for r in view.received)


def test_clients_model__has_the_queue_that_the_client_kept_in_that_round(
    finished: Finished,
) -> None:
    """Before the first round it keeps none: keys of its own images stand in."""
    run, queues = finished(PASSIVE), list[torch.Tensor]()
    recorded = run.recording.held("main")
    assert 0 not in recorded and LAST in recorded
    for round, state in recorded.items():
        own = evaluation(run).method(TargetModel("main", round)).local_state()
        assert state and all(torch.equal(own[name], state[name]) for name in state)
        queues.append(next(t for t in state.values() if t.ndim == 2))
    assert len(queues) < 2 or not torch.equal(queues[0], queues[-1])


def test_clients_view__holds_only_models_of_rounds_in_which_it_took_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Received for its rounds, and the one that is attacked."""
    flags = "--attacker passive --attacks similarity --federation.participation 0.5 --rounds 6 "
    flags += "--federation.snapshots 6"
    run = federated(planned(flags), tmp_path / "run")
    mine = [r for r in range(1, 7) if 3 in draw_cohort(Phase("", 0, 6, False, 0.5, 0), r, 4)]
    assert 0 < len(mine) < 6
    for last in range(7):
        view = evaluation(run).view(TargetModel("main", last), "loss-slope")
        assert set(view.received) == {*(r - 1 for r in mine if r <= last), last}
        assert all(same(view.received[r], weights(run)[r]) for r in view.received)


def test_placebo__keeps_as_many_earlier_models_as_the_run(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, images: torch.Tensor
) -> None:
    """Else the control of an attack on earlier rounds would be another test than the attack."""
    run, counts = finished(ACTIVE), []
    for branch in ("main", "placebo"):
        view = evaluation(run).view(TargetModel(branch, LAST), "loss-slope")
        assert sorted(view.received) == [0, 1, 2, 3, 4]
        counts += [len(kind().models(view, images[:0])) for kind in (LiRARounds, RMIARounds)]
    assert counts[:2] == counts[2:] and min(counts) > 1


@pytest.mark.parametrize("branch", ["main", "placebo"])
def test_servers_view__holds_no_update_of_a_later_round_or_another_branch(
    branch: str, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(SERVER)
    for round in (CLEAN, LAST):
        view = evaluation(run).view(TargetModel(branch, round), "all-for-one")
        assert isinstance(view, ServerView) and sorted(view.updates) == list(range(1, round + 1))
        for r, sent in view.updates.items():
            kept = run.recording.updates(branch)[r]
            assert list(sent) == list(kept) == [0, 1, 2, 3]
            assert all(same(sent[c], kept[c]) for c in kept)


@pytest.mark.slow
def test_defence__draws_its_noise_from_a_stream_of_its_own(finished: Finished) -> None:
    """What leaves client 0 is what it would have sent undefended, plus the noise of the stream
    `release`: training draws the same numbers with and without the defence."""
    scale = 0.01
    plain = finished(SERVER).recording.updates("main")[1]
    noised = finished(
        f"{SERVER} --defense logistic --defended-clients 0 --defense.scale {scale} "
        "--defense.clip 1e9"
    ).recording.updates("main")[1]
    assert all(same(plain[c], noised[c]) for c in (1, 2, 3))
    draw = rng(0, "release", 1, 0)
    for name, tensor in order(plain[0]):
        noise = torch.from_numpy(draw.logistic(0.0, scale, tensor.numel())).view(tensor.shape)
        want = (tensor.double() + noise).float()
        torch.testing.assert_close(noised[0][name], want, rtol=0, atol=0)


def order(state: State) -> list[tuple[str, torch.Tensor]]:
    """The tensors in the order in which the model names them; a file sorts its names."""
    method = MoCo().build(SmallNet(width=4).build(1, 8), TrainingData((0.5,), (0.5,)), torch_rng(0))
    return [(name, state[name]) for name in method.shared_state()]


@pytest.mark.parametrize("seed", range(4))
def test_targets__come_in_an_order_without_truth(seed: int, tmp_path: Path) -> None:
    setup = planned(f"--attacker active --seed {seed}")
    client_setup, split = make_client_setup(setup, tmp_path, Event()), setup.cast
    truth = np.isin(client_setup.targets, split.members)
    assert 0 < truth.sum() < len(truth)
    n, m = int(truth.sum()), int((~truth).sum())
    ranks = rankdata(np.arange(len(truth)))[truth].sum()
    auc = (ranks - n * (n + 1) / 2) / (n * m)
    # The deviation of an AUC of exchangeable ranks; 4 of them: 1 seed in 16,000 fails by luck.
    assert abs(auc - 0.5) < 4 * np.sqrt((n + m + 1) / (12 * n * m))
    every = [*map(split.ids, ATTACKED)]
    assert sorted(client_setup.targets) == sorted(np.concatenate(every))


def test_held_images__are_the_attackers_own_and_the_known(tmp_path: Path) -> None:
    setup = planned("--attacker active")
    client_setup, split = make_client_setup(setup, tmp_path, Event()), setup.cast
    known = {*split.ids("known_members"), *split.ids("known_nonmembers")}
    assert set(client_setup.held) == known | set(split.parts[3])
    assert not set(client_setup.held) & {
        *split.ids("scored_members"),
        *split.ids("scored_nonmembers"),
    }
    outsider = planned("--attacker none")
    images = make_client_setup(outsider, tmp_path, Event()).held
    known = map(outsider.cast.ids, KNOWN)
    assert sorted(images) == sorted(np.concatenate([*known]))


def test_scored_images__are_none_that_the_attacker_knows(finished: Finished) -> None:
    scorer = evaluation(finished(ACTIVE)).scorer
    known = set(digests(scorer.known.both()[0].numpy()))
    scored = digests(scorer.candidates.numpy())
    assert not known & set(scored) and len(set(scored)) == len(scored)


@pytest.mark.parametrize("mode", ["pooled", "public"])
def test_server_training__sees_the_pool_or_the_public_images_and_no_others(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, epochs = list[Any](), list[int]()
    plain = ClientSetup.job

    def noted(self: ClientSetup, method: Any, images: Any, *more: Any) -> Any:
        calls.append(sorted(digests(images)))
        epochs.append(self.experiment.train.local_epochs)
        job = plain(self, method, images, *more)
        if len(calls) == 1:  # the server's schedule is its own, from its first step to its last
            assert job.step == 0 and job.total_steps == 3 * -(-len(images) // job.train.batch_size)
        return job

    monkeypatch.setattr(ClientSetup, "job", noted)
    setup = planned(
        f"--attacker none --attacks none --pretrain {mode} --pretrain-epochs 3 --split.public 12 "
        "--rounds 2"
    )
    federated(setup, tmp_path / "run")
    assert epochs == [3] + [1] * 8
    split, images = setup.cast, setup.cast.data.images
    want = np.concatenate(split.parts) if mode == "pooled" else split.ids("public")
    parts = [sorted(digests(images[part])) for part in split.parts]
    # The server trains once, then each client on its own images in each of the two rounds.
    assert calls[0] == sorted(digests(images[want]))
    assert len(calls) == 1 + 2 * 4 and all(calls.count(part) == 2 for part in parts)


@pytest.mark.slow
def test_strategy__each_moves_the_model_in_its_own_way(finished: Finished) -> None:
    """Four rounds from one seed: all start alike, none ends where another does."""
    plainly = "--attacker none --attacks none --clients 5 --strategy"
    strong = {"fedprox": "--strategy.mu 5", "norm-clip": "--strategy.clip 0.01"}
    runs = {
        name: weights(finished(f"{plainly} {name} {strong.get(name, '')}"))
        for name in registry.names("strategy")
    }
    assert {"fedavg", "fedprox", "fedavgm", "fedema", "scaffold"} <= set(runs)
    assert all(sorted(r) == sorted(runs["fedavg"]) and same(r[0], runs["fedavg"][0])
               for r in runs.values())  # fmt: skip
    for one, other in itertools.combinations(runs, 2):
        assert not same(runs[one][LAST], runs[other][LAST]), (one, other)


def test_by_layer__is_internal_on_each_layer_alone_from_one_pass(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, passed = finished("--attacks internal"), list[int]()
    scoring_run = evaluation(run)
    forward = WhiteBox.forward

    def counted(self: WhiteBox, part: Any, layers: Any) -> Any:
        passed.append(len(part))
        return forward(self, part, layers)

    monkeypatch.setattr(WhiteBox, "forward", counted)
    layers = scoring_run.leakage_of_round(TargetModel("main", LAST), [], layers=True)["layers"]
    scorer = scoring_run.scorer
    assert sum(passed) == len(scorer.candidates) + len(scorer.known.both()[0])
    assert list(layers) == ["layer1", "layer2", "layer3", "layer4", "avgpool", "encoder"]
    for name in ("layer1", "encoder"):
        alone = evaluation(run, {"internal": PluginChoice("internal", {"layers": (name,)})})
        (want,) = alone.score_attacks(TargetModel("main", LAST), ["internal"])
        np.testing.assert_array_equal(layers[name].scores_members, want.scores_members)
        np.testing.assert_array_equal(layers[name].scores_nonmembers, want.scores_nonmembers)
