"""The client that attacks is ranked first, by weights and public images alone."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedmia
from fedmia.evaluation.audits import suspects
from fedmia.evaluation.audits.suspects import measure_round, rank_suspects
from fedmia.recording import RecordingWriter
from fedmia.recording.format import Header, RecordedRound
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.statistics.suspicion import THRESHOLDS, alarm_threshold
from tests.auditing.conftest import Audit, textures

WIDTH, CLIENTS, ROUNDS = 5, 10, 8
RESULTS = Path(__file__).parents[2] / "research" / "results"
HERE = "tests.evaluation.test_suspects"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 3, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().mean(dim=(2, 3))


def loss(network: nn.Module, pixels: Tensor) -> Tensor:
    """Distance to the weights 1, which honest clients walk towards."""
    far = ((network.conv.weight - 1) ** 2).mean()
    return far + 0 * pixels.flatten(1).sum(dim=1)


def states(
    attackers: tuple[int, ...], seed: int = 0, act: float = -4.0, clients: int = CLIENTS,
    rounds: int = ROUNDS,
) -> Any:  # fmt: skip
    """Models and updates: honest clients go one way, each with noise; attackers, from the middle of
    the rounds on, the other."""
    draw = torch.Generator().manual_seed(seed)
    model = {n: t.clone() for n, t in Net().state_dict().items()}
    model["conv.weight"] = torch.zeros_like(model["conv.weight"])
    models, updates = [model], []
    for round in range(1, rounds + 1):
        sent = []
        for client in range(clients):
            noise = 0.05 * torch.randn(model["conv.weight"].shape, generator=draw)
            way = act if client in attackers and round > rounds // 2 else 1.0
            moved = {"conv.weight": model["conv.weight"] + 0.05 * way + noise}
            sent.append(model | moved | {"norm.num_batches_tracked": torch.tensor(round)})
        mean = torch.stack([s["conv.weight"] for s in sent]).mean(dim=0)
        model = model | {"conv.weight": mean}
        models.append(model)
        updates.append(sent)
    return models, updates


def far(state: State) -> float:
    """The loss, of weights."""
    return float(((state["conv.weight"] - 1) ** 2).mean())


def rank(
    attackers: tuple[int, ...] = (), seed: int = 0, rounds: int = ROUNDS, absent: int = -1,
    clients: int = CLIENTS, until: int = ROUNDS,
) -> Any:  # fmt: skip
    """The suspects of the first rounds, of those until one; a client is absent from the first."""
    models, updates = states(attackers, seed, clients=clients, rounds=until)
    sent = {r: dict(enumerate(states)) for r, states in enumerate(updates[:rounds], start=1)}
    sent[1].pop(absent, None)
    return rank_suspects(dict(enumerate(models, start=1)), sent, far)


def record(
    folder: Path, attackers: tuple[int, ...] = (), kept: str = "all", clients: int = CLIENTS,
    about: float = 1.0, seed: int = 0,
) -> Path:  # fmt: skip
    """`about`: what a client says of itself, which is nobody's business here."""
    models, updates = states(attackers, seed)
    writer = RecordingWriter(folder, Header({"flwr": "1"}, updates=kept))
    writer.save("main", 0, models[0])
    for round, sent in enumerate(updates, start=1):
        digests = {
            client: writer.save_update("main", round, client, state)
            for client, state in enumerate(sent[:clients] if kept != "none" else [])
        }
        who = [*range(clients)]
        examples = {c: about * (c + 1) for c in who}
        metrics = {c: {"loss": about * c} for c in who}
        writer.add(RecordedRound("main", round, "", digests, who, examples, metrics))
        writer.save("main", round, models[round])
    writer.flush()
    return folder


def test_measure_round__is_that_of_whole_vectors() -> None:
    models, updates = states((7,))
    before, sent = models[3], dict(enumerate(updates[3]))
    sent[5] = before  # sent nothing new
    sent[6] = before | {"conv.weight": torch.full_like(before["conv.weight"], torch.nan)}
    measured = measure_round(before, sent, far)
    vectors = {
        c: (s["conv.weight"] - before["conv.weight"]).double().flatten().numpy()
        for c, s in sent.items() if c not in (5, 6)
    }  # fmt: skip
    for client, vector in vectors.items():
        others = sum(v / np.linalg.norm(v) for c, v in vectors.items() if c != client)
        norm = np.linalg.norm(vector)
        cosine = vector @ others / norm / np.linalg.norm(others)
        expected = norm, cosine, far(sent[client]) - far(before)
        np.testing.assert_allclose(measured[:, client], expected, rtol=1e-6)
    assert measured[0, 5] == 0 and np.isinf(measured[0, 6]) and np.isnan(measured[1:, 5:7]).all()
    assert np.isfinite(measured[:, :5]).all()
    assert np.isnan(measure_round(before, sent)[2]).all()
    wild = measure_round(before, sent, lambda state: float("nan") if state is sent[0] else 1.0)
    assert wild[2, 0] > 1e6  # a model that diverges on public images is no way out


@pytest.mark.parametrize("with_loss", [True, False])
@pytest.mark.parametrize("attackers", [(3,), (1, 6)])
def test_attackers__are_ranked_first_and_named(
    tmp_path: Path, attackers: tuple[int, ...], with_loss: bool
) -> None:
    more: dict[str, Any] = {}
    if with_loss:
        more = {"net": Net, "public": textures(20).images, "loss": loss}
    ranked = fedmia.rank_suspects(record(tmp_path / "REC", attackers), **more)
    first = ranked.iloc[: len(attackers)]
    assert sorted(first.index) == list(attackers)
    assert (first["round"] > ROUNDS // 2).all() and (first["cosine"] < 0).all()
    assert ranked["suspicion"].is_monotonic_decreasing
    if with_loss:
        assert ranked.index[ranked["alarm"]].tolist() == first.index.tolist()
        assert (first["loss_change"] > 0).all()
        assert (ranked["loss_change"].iloc[len(attackers) :] < 0).all()
    else:
        assert ranked["loss_change"].isna().all() and ranked["alarm"].isna().all()


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("attackers", [(), (3,)])
def test_updates__that_are_zero_or_not_finite_stand_out_and_hide_nobody(
    value: float, attackers: tuple[int, ...]
) -> None:
    """One such update, by which client 6 would have silenced every alarm."""
    models, updates = states(attackers)
    before, name = models[1], "conv.weight"
    update = torch.full_like(before[name], value)
    updates[1][6] = before | {name: before[name] + update}
    sent = {r: dict(enumerate(states)) for r, states in enumerate(updates, start=1)}
    rows = rank_suspects(dict(enumerate(models, start=1)), sent, far)
    by_client = {row.client: row for row in rows}
    assert {rows[at].client for at in range(1 + len(attackers))} == {6, *attackers}
    assert all(row.suspicion is not None for row in rows)
    assert [c for c, row in by_client.items() if row.alarm] == [
        row.client for row in rows[: 1 + len(attackers)]
    ]
    one = by_client[6]
    assert (one.round, one.cosine, one.loss_change) == (2, None, None)
    assert one.norm == (0 if value == 0 else None)


def test_honest_clients__are_named_no_more_often_than_stated() -> None:
    most = [rank(seed=seed)[0] for seed in range(20)]
    assert sum(bool(row.alarm) for row in most) <= 1
    assert all(row.alarm is not None for row in most)
    assert np.median([row.suspicion or 0 for row in most]) > 1


@pytest.mark.parametrize("clients", range(3, 13))
def test_alarm__is_that_of_the_size(clients: int) -> None:
    """By the threshold of as many clients and rounds, or none: the table is not symmetrical."""
    for rounds in range(3, 10):
        rows = rank((1,), clients=clients, rounds=rounds, until=rounds)
        threshold = alarm_threshold(clients, rounds)
        assert len(rows) == clients and threshold == THRESHOLDS.get(clients, {}).get(rounds)
        over = [None if threshold is None else (r.suspicion or 0) > threshold for r in rows]
        assert [row.alarm for row in rows] == over


def test_alarm__needs_every_client_in_every_round_and_the_loss() -> None:
    assert [row.alarm for row in rank((3,))] == [True] + [False] * (CLIENTS - 1)
    absent = rank((3,), absent=5)
    assert absent[0].client == 3 and (absent[0].suspicion or 0) > THRESHOLDS[CLIENTS][ROUNDS]
    assert {row.alarm for row in absent} == {None}
    models, updates = states((3,))
    sent = {r: dict(enumerate(one)) for r, one in enumerate(updates, start=1)}
    assert {r.alarm for r in rank_suspects(dict(enumerate(models, start=1)), sent)} == {None}


def test_suspicion__of_a_recording_is_the_same_at_each_call() -> None:
    """To the bit, where the draws of honest clients count, too: one was absent."""
    for absent in (-1, 2):
        one, other = (rank((3,), absent=absent, clients=4, rounds=6) for _ in range(2))
        assert one == other


def test_suspicion__knows_weights_alone(tmp_path: Path) -> None:
    """What clients say of themselves changes nothing, their numbers only names, and no argument
    could say who attacks."""
    one, other = (
        fedmia.rank_suspects(record(tmp_path / str(about), (3,), about=about))
        for about in (1.0, 9.0)
    )
    assert one.equals(other)
    models, updates = states((3,))
    before, last = {r + 1: model for r, model in enumerate(models[:-1])}, CLIENTS - 1
    turned = {r: {last - c: s for c, s in enumerate(sent)} for r, sent in enumerate(updates, 1)}
    rows = rank_suspects(before, turned)
    assert [last - row.client for row in rows] == one.index.tolist()
    assert rows[0].suspicion == pytest.approx(one["suspicion"].iloc[0])
    taken = {
        *inspect.signature(rank_suspects).parameters,
        *inspect.signature(measure_round).parameters,
    }
    assert taken == {"before", "updates", "loss", "sent", "clients"}
    assert not {"role", "malicious", "attacker"} & {*vars(suspects)}


def test_recordings__that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    without = record(tmp_path / "NONE", kept="none")
    with pytest.raises(InputError, match='no updates of clients.*updates="all"'):
        fedmia.rank_suspects(without)
    with pytest.raises(InputError, match="no round with the updates of 3 clients"):
        fedmia.rank_suspects(record(tmp_path / "TWO", clients=2))
    whole, public = record(tmp_path / "ALL"), textures(8).images
    for more in ({"net": Net}, {"public": public}, {"loss": loss}):
        with pytest.raises(InputError, match="both net and public"):
            fedmia.rank_suspects(whole, **more)
    with pytest.raises(InputError, match="loss is missing"):
        fedmia.rank_suspects(whole, Net, public)
    with pytest.raises(InputError, match="tensor"):
        fedmia.rank_suspects(whole, lambda: nn.Conv2d(3, 4, 3), public, loss=loss)


def test_audit__has_the_suspects_of_a_recording_with_updates(audit: Audit, tmp_path: Path) -> None:
    flags = (
        f"--encoder {HERE}:Net --mean 0 --std 1 --size 8 --attacks similarity, --loss {HERE}:loss"
    )
    flags = f"{flags.replace('similarity,', 'similarity')} --federation "
    audited = audit(f"{flags}{record(tmp_path / 'REC', (3,))}", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    rows = audited.report["suspects"]
    assert rows[0]["client"] == 3 and [row["alarm"] for row in rows[:2]] == [True, False]
    assert " ".join(audited.out.split()).count("Standing out further than honest clients do:") == 1
    assert len(rows) == CLIENTS and rows[0]["loss_change"] > 0 > rows[1]["loss_change"]
    assert "further than honest clients do: client 3 (suspicion" in audited.out.replace("\n", " ")
    page = (tmp_path / "OUT" / "report.html").read_text()
    assert "Who attacks?" in page and "cosine with others" in page
    run = fedmia.open_run(tmp_path / "OUT")
    table = run.table[run.table["subject"] == "suspect"]
    assert len(table) == 4 * CLIENTS
    nobody = audit(f"{flags}{record(tmp_path / 'HONEST')}", text=True)
    said = " ".join(nobody.out.split())
    assert "No client stands out further than honest ones do; most does client" in said
    bare = flags.replace(f"--loss {HERE}:loss", "")
    said = " ".join(audit(f"{bare}{tmp_path / 'REC'}", text=True).out.split())
    assert "The client that stands out most is client 3 (suspicion" in said
    assert "It is a rank alone, and no alarm" in said and "by chance one time in 10." in said
    plain = audit(f"{flags}{record(tmp_path / 'PLAIN', kept='none')}")
    assert plain.report["suspects"] == [] and "Standing out" not in plain.out


def test_clients__whose_updates_cannot_be_compared_are_rows_without_suspicion() -> None:
    models, updates = states(())
    sent = {r: dict(enumerate(s[:-1])) for r, s in enumerate(updates, start=1)}
    rows = rank_suspects(dict(enumerate(models, start=1)), sent, far, range(CLIENTS))
    assert len(rows) == CLIENTS and rows[-1].client == CLIENTS - 1
    assert [row.suspicion is None for row in rows] == [False] * (CLIENTS - 1) + [True]


def test_alarms__are_those_that_were_measured() -> None:
    """Each size that the results give one, none besides; ten clients are accused of nothing."""
    alarm = json.loads((RESULTS / "suspects.json").read_text())["alarm"]
    assert alarm["steps"][-1]["check"][-1]["with_alarm"] == 0
    few = json.loads((RESULTS / "suspects_few.json").read_text())
    given = {
        (row["clients"], row["rounds"]): row["threshold"] for row in few["cells"] if row["given"]
    }
    given[alarm["clients"], alarm["rounds"]] = alarm["threshold"]
    assert given == {(c, r): t for c, own in THRESHOLDS.items() for r, t in own.items()}
    assert all(alarm_threshold(*size) == threshold for size, threshold in given.items())
