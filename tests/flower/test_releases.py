"""What a node with images of its own lets out: noise that nobody can draw again, counted once."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from fedmia.defenses.accounting import epsilon_at
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.stack import OPEN
from fedmia.federation.ledger import Ledger
from fedmia.federation.result import TrainedRounds
from fedmia.federation.schedule import Schedule
from fedmia.flower import gather, server
from fedmia.flower.answers import scores_from_node
from fedmia.flower.private import plan_own, plan_server
from fedmia.recording.writer import RecordingWriter
from fedmia.report.build import build_report
from fedmia.report.conditions import read_conditions
from fedmia.report.words.bounds import defended_sentence
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.seeding import rng, torch_noise
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.snapshot import Update, read_tensors
from strategies.base import FinishedRound
from strategies.cohort import Phase, draw_cohort
from strategies.dp_fedavg import DPFedAvg
from tests.flower.private_node import (
    CLIP,
    GAUSSIAN,
    SCALE,
    TINY,
    Private,
    as_bytes,
    flat,
    scored,
    sent,
)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The clipped update of each release, before its noise."""
    found, release = list[np.ndarray](), Gaussian.release

    def noted(self: Gaussian, received: State, state: State, *more: Any) -> Any:
        update = flat(state) - flat(received)
        found.append(update * min(1.0, CLIP / np.linalg.norm(update)))
        return release(self, received, state, *more)

    monkeypatch.setattr(Gaussian, "release", noted)
    return found


@pytest.mark.parametrize("source", ["seeded", "entropy"])
def test_upload__less_the_noise_that_its_settings_draw_is_as_far_as_noise_should_be(
    source: str, tmp_path: Path, trained: list[np.ndarray]
) -> None:
    """From the clipped update: nearer than floats can tell in a simulation, further than by its own
    noise on a node."""
    node = Private(tmp_path, GAUSSIAN)
    upload = flat(sent(node.train()) if source == "entropy" else node.simulated())
    start = flat(node.start)
    stream = rng(node.client_setup.experiment.seed, "release", 1, 0)
    drawn = flat(
        {n: torch.from_numpy(stream.normal(0.0, SCALE, t.numel())) for n, t in node.start.items()}
    )
    rest, own_noise = (float(np.linalg.norm(upload - start - trained[0] - d)) for d in (drawn, 0))
    assert np.linalg.norm(trained[0]) == pytest.approx(CLIP)
    assert own_noise == pytest.approx(SCALE * len(start) ** 0.5, rel=0.1)
    if source == "seeded":
        assert rest < 1e-4 * own_noise
    else:
        assert rest == pytest.approx(SCALE * (2 * len(start)) ** 0.5, rel=0.1)


@pytest.mark.slow
def test_dpsgd__two_nodes_alike_differ_and_two_simulated_clients_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Poisson batches and noise; noise 1e-6 over C leaves the batches alone to differ."""
    sources = list[str]()

    def noted(source: str, *more: Any) -> torch.Generator:
        sources.append(source)
        return torch_noise(source, *more)

    monkeypatch.setattr("fedmia.defenses.dpsgd.torch_noise", noted)
    for noise in ("1", "1e-6"):
        flags = f"--defense dpsgd --defense.noise_multiplier {noise} --defense.lr 0.1"
        pair = [Private(tmp_path / f"{noise}-{n}", flags) for n in "ab"]
        ups = [flat(sent(node.train())) for node in pair]
        simulated = [flat(node.simulated()) for node in pair]
        assert np.array_equal(*simulated)
        apart = np.linalg.norm(ups[0] - ups[1]) / np.linalg.norm(simulated[0] - ups[0])
        assert 0.3 < apart < 3
    assert sources == ["entropy", "entropy", "seeded", "seeded"] * 2


def test_killed_between_release_and_send__the_next_process_sends_what_was_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[np.ndarray]
) -> None:
    node = Private(tmp_path, GAUSSIAN)
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("fedmia.flower.node_store.MetricRecord", killed)
        with pytest.raises(KeyboardInterrupt):
            node.train()
    (file,) = tmp_path.rglob("main-*")
    released, _ = read_tensors(file)
    reply = node.train()
    assert len(trained) == 1
    for name, tensor in sent(reply).items():
        assert torch.equal(tensor, released[f"sent.{name}"])
    assert as_bytes(reply) == as_bytes(node.train())
    assert node.spent() == pytest.approx(epsilon_at(2 * CLIP / SCALE, 1e-5))


def test_order__that_comes_again_gets_the_same_bytes_and_any_other_is_a_release_more(
    tmp_path: Path,
) -> None:
    """Also one for a round that was released, or of a branch that no private run has."""
    node = Private(tmp_path, GAUSSIAN)
    first, again = node.train(), node.train()
    assert as_bytes(first) == as_bytes(again)
    assert node.spent() == pytest.approx(epsilon_at(2 * CLIP / SCALE, 1e-5))
    other = node.train(received={n: t + 0.1 for n, t in node.start.items()})
    third, elsewhere = node.train(), node.train(branch="zero")
    ups = [as_bytes(reply)[0] for reply in (first, other, third, elsewhere)]
    assert all(one != another for one, another in itertools.combinations(ups, 2))
    assert node.spent() == pytest.approx(epsilon_at(2 * CLIP / SCALE * 4**0.5, 1e-5))


def test_rest__is_no_release(tmp_path: Path) -> None:
    node = Private(tmp_path, "--defense early-stopping,gaussian --defense.early-stopping.after 1")
    node.train()
    (file,) = tmp_path.rglob("main-*")
    before = file.read_bytes()
    reply = node.train(2)
    assert reply.content.metric_records["metrics"]["num-examples"] == 0
    assert file.read_bytes() == before


def test_noise__is_in_no_file_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = list[int]()

    def noted(bits: int) -> int:
        draws.append(random.getrandbits(bits))
        return draws[-1]

    monkeypatch.setattr("fedmia.seeding.secrets.randbits", noted)
    node = Private(tmp_path, GAUSSIAN)
    shown = repr(as_bytes(node.train())).encode()
    for file in tmp_path.rglob("*"):
        shown += file.read_bytes() if file.is_file() else b""
    assert draws and min(draws) > 2**200
    for root in draws:
        words = (root.to_bytes(32, order) for order in ("big", "little"))
        assert not any(form in shown for form in (str(root).encode(), b"%x" % root, *words))


def test_scores__withdraw_the_guarantee_where_they_lie_beside_it(tmp_path: Path) -> None:
    content, info, found = scored(Private(tmp_path, GAUSSIAN, scores=True))
    assert len(content.array_records["scores"]) and len(found["attacks"]) == 1
    assert info.defence is not None
    for part in (info.defence, *info.defence.parts):
        assert part.epsilon is not None and part.epsilon.standing == "of the weights alone"
        assert "nothing is promised to whoever sees the report" in part.epsilon.assumptions
        assert part.metrics.keys() <= OPEN
    # Of an image and of the client, side by side, each.
    both = "--ssl byol --ssl.head_norm none --defense dpsgd,gaussian"
    _, info, _ = scored(Private(tmp_path / "both", both, scores=True))
    assert info.defence is not None and info.defence.epsilon is not None
    statements = (info.defence.epsilon, *info.defence.beside)
    assert {(s.unit, s.standing) for s in statements} == {
        ("image", "of the weights alone"), ("client", "of the weights alone"),
    }  # fmt: skip


@pytest.mark.parametrize("config", [{"scores": False}, {}], ids=["asked for", "by default"])
def test_scores__kept_in_leave_the_guarantee_and_a_report_without_attacks(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    node = Private(tmp_path, GAUSSIAN, **config)
    content, info, found = scored(node)
    assert {*content} == {"told"} and set(json.loads(content["told"]["json"])) == {
        "size",
        "defence",
    }
    assert info.defence is not None and info.defence.epsilon is not None
    assert info.defence.epsilon.standing == "guaranteed" and not found["attacks"]
    plan = plan_server(server.invocation(TINY + GAUSSIAN).settings, 1, 8)
    done = TrainedRounds(plan, node.client_setup, Ledger(), RecordingWriter(tmp_path), [], True)
    report = build_report(scores_from_node(0, content, done))
    assert report.not_run == {"similarity": "the node keeps the scores of its images"}
    assert report.verdict_code == "untested" and report.smallest_leak is None
    assert report.defended and "is not known" in (defended_sentence(report.defended) or "")
    conditions = read_conditions("leaks,auc>0.9,smallest>0.9,epsilon>99999999")
    assert [one.judge(report)[0] for one in conditions] == [True, True, True, False]
    (row,) = report.clients
    assert row.defence and row.defence.epsilon
    assert row.defence.epsilon.noise_source == "entropy"
    with pytest.raises(InputError, match="scores must be true or false, got 'no'"):
        Private(tmp_path, GAUSSIAN, scores="no")


def test_order_of_scores__is_another_each_time(tmp_path: Path) -> None:
    """With the seed, an order of it would tell the order of the node's files."""
    node = Private(tmp_path, GAUSSIAN)
    orders = []
    for _ in range(2):
        plan_own.cache_clear()
        split = node.node.prepared()[0].cast
        orders.append(
            (
                *split.ids("known_members"),
                *split.ids("scored_members"),
                *split.ids("scored_nonmembers"),
            )
        )
    assert sorted(orders[0]) != orders[0] != orders[1]


def test_server__of_private_images_draws_cohorts_and_noise_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And plans the noise of an epsilon with the cohorts that it will draw."""
    courses = list[Phase]()
    sent_by: State = {}

    def rounds(self: DPFedAvg, grid: Any, phase: Phase, state: State, *_: Any) -> Any:
        courses.append(phase)
        self.phase, self.nodes = phase, dict.fromkeys(range(20), 0)
        for round in range(1, phase.last + 1):
            ups = [Update(c, round, state, 4, {}) for c in draw_cohort(phase, round, 20)]
            sent_by.update(self.aggregate(state, ups))
            yield FinishedRound(round, state, {}, 0.0)

    monkeypatch.setattr(DPFedAvg, "rounds", rounds)
    flags = TINY.replace(
        "--clients 2 ", "--clients 20 --federation.participation .3 --strategy dp-fedavg "
    )
    settings = server.invocation(flags + "--strategy.epsilon 4").settings
    seeded = [
        draw_cohort(Schedule(settings).phase("main", 0, 4, craft=False), r, 20) for r in (1, 2)
    ]
    noises, nobody = [], SimpleNamespace(round=lambda *finished: None)
    for name in "ab":
        (tmp_path / name).mkdir()
        place, shape = OutFolder(tmp_path / name, "a run"), {"channels": 1, "size": 8}
        done = gather.run_rounds(settings, shape, None, place, Stopwatch(0.0), nobody)  # type: ignore[arg-type]
        assert done.aggregation is not None and (spent := done.aggregation.epsilon) is not None
        assert spent.noise_source == "entropy" and spent.value == pytest.approx(4.0)
        start = done.recording.untrained()
        noises.append(flat(sent_by) - flat(start))
        assert [draw_cohort(courses[-1], r, 20) for r in (1, 2)] != seeded
        assert str(courses[-1].seed) not in repr(courses[-1])
    lengths = [np.linalg.norm(noise) for noise in noises]  # z is planned by each one's own cohorts
    assert np.linalg.norm(noises[0] - noises[1]) == pytest.approx(np.hypot(*lengths), rel=0.15)
    with_scores, _, _ = scored(Private(tmp_path / "node", ""))
    none = RecordDict({"told": ConfigRecord({"json": '{"size": 8, "defence": null}'})})
    payload = json.loads(str(with_scores.config_records["told"]["json"])) | {"attacks": []}
    pixels = RecordDict({**with_scores, "told": ConfigRecord({"json": json.dumps(payload)})})
    beside = "of the weights alone"
    for content, standing in ((with_scores, beside), (pixels, beside), (none, "guaranteed")):
        stated = scores_from_node(0, content, done).aggregation
        assert stated is not None and stated.epsilon is not None
        assert stated.epsilon.standing == standing
