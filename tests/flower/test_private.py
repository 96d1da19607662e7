"""A run on images that stay on their nodes: what the server does, reports, and makes of faults."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

import fedmia
from fedmia import __version__
from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from tests import commands
from tests.bank import Bank
from tests.flower.nodes import (
    ROUNDS,
    TINY,
    Nodes,
    SuperLink,
    broken,
    drawn,
    echo,
    held,
    replied,
    report_of,
)
from tests.observers.test_observing import HEARD, RECORDER

pytestmark = pytest.mark.usefixtures("clock")


@pytest.mark.slow
def test_run__trains_as_inline_and_scores_alone_leave(
    home: Path, tmp_path: Path, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As inline, that is, once the system's entropy is put to the seed."""
    flags = TINY + "--partition iid "
    inline = bank.run(flags)
    cast = fedmia.open_run(inline).images
    halves = np.array_split(
        np.concatenate([cast.ids(f"{kind}_nonmembers") for kind in ("known", "scored")]), 2
    )
    grid = Nodes()
    sides = zip(cast.parts, halves, strict=True)
    grid.give_images(tmp_path, [[cast.data.images[ids][:, 0] for ids in each] for each in sides])
    monkeypatch.setattr("secrets.randbits", lambda bits: 0)
    HEARD.clear()
    assert grid.start(f"{flags} --observe {RECORDER}", out := tmp_path / "out", True) is None
    same(out, inline)
    kinds = [kind for kind, _, _ in HEARD if kind != "scalars"]
    assert kinds[0] == "begin" and kinds[-1] == "end" and HEARD[-1][:2] == ("end", False)
    assert {*kinds[1:-1]} == {f"client-{number:04d}/report" for number in range(2)}
    values = {name for kind, told, _ in HEARD if kind == "scalars" for name in told}
    assert {"main/seconds", "client-0000/auc/similarity", "client-0001/auc/similarity"} <= values
    for number in range(2):
        report = report_of(out, number)
        (attack,) = report["attacks"]
        assert (attack["n_members"], attack["n_nonmembers"]) == (8, 22)
        assert [(one["id"], one["size"]) for one in report["clients"]] == [(number, 16)]
        assert report["interrupted"] is None and len(report["rounds"]) == 2
        assert report["subject"] == f"a federated encoder, on the images of client {number}"
    assert not [*home.iterdir()]  # nothing of a finished run stays


def same(out: Path, other: Path) -> None:
    """The last models of two runs, bit by bit."""
    one, two = (Recording(run / "recording").models()[2] for run in (out, other))
    assert {*one} == {*two} and all((one[name] == two[name]).all() for name in one)


FAULTS: dict[str, tuple[str, str, int, int, list[int], str, int | None]] = {
    # Flags, what client 1 fails and how often, who is asked for scores, who is reported on, the
    # error, and after which round the run was interrupted.
    "none": ("stop", "query.score", 0, 1, [0, 1], "", None),
    "stop": ("stop", "query.score", 1, 1, [0], "score: client 1 failed: no more mem", None),
    "drop": ("drop", "query.score", 1, 1, [0], "", None),
    "retry": ("retry", "query.score", 1, 2, [0, 1], "", None),
    "tries": ("retry", "query.score", 9, 3, [0], "score: client 1 failed: no more mem", None),
    "train": ("stop", "train", 9, 1, [0, 1], "round 2: client 1 failed: no more memory", 1),
    "dropped": ("drop", "train", 9, 0, [0], "", None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_node__that_fails_costs_its_own_report_alone(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, kind, times, asked, reported, why, interrupted = FAULTS[name]
    grid, failures = Nodes(2, echo), list[str]()

    def fault(now: str, client: int, message: Message) -> Message | None:
        early = now == "train" and held(message)["config"]["server-round"] == 1
        if (now, client) != (kind, 1) or len(failures) == times or early:
            return None
        failures.append(now)
        return broken(message)

    grid.fault = fault
    HEARD.clear()
    error = grid.start(f"{TINY}--on-failure {policy} --observe {RECORDER}", tmp_path / "out", True)
    assert grid.asked("query.score").count(1) == asked
    assert [n for n in range(2) if (tmp_path / f"out/client-{n:04d}").exists()] == reported
    assert why in str(error) if why else error is None
    report, out = report_of(tmp_path / "out", 0), capsys.readouterr().out
    assert report["interrupted"] == interrupted and report["attacks"] == []
    assert report["not_run"] == {"similarity": "the node keeps the scores of its images"}
    assert ("the run ended after round 1" in report["verdict"]) is bool(interrupted)
    assert ("client 1 failed: no more memory" in out) is bool(times)
    assert grid.asked("query.end") == [0, 1] and "would void it" not in out
    assert re.search(r"^fedmia: main round 1 took \d+\.\d s, loss 0\.500$", out, re.MULTILINE)
    begin, of_round = HEARD[:2]
    assert begin == ("begin", "moco", tmp_path / "out") and HEARD[-1][:2] == ("end", bool(why))
    assert of_round[1]["main/loss"] == 0.5 and of_round[2] == 1
    for n in reported:
        rows = report_of(tmp_path / "out", n)["clients"]
        assert [(row["id"], row["size"], row["role"]) for row in rows] == [(n, 8, "honest")]
    told = {kind: verdict for kind, verdict, _ in HEARD if kind.endswith("report")}
    assert told == {
        f"client-{n:04d}/report": report_of(tmp_path / "out", n)["verdict"] for n in reported
    }


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"fedmia": "0"}, f"client 1: fedmia 0, not {__version__}"),
        ({"channels": 3}, "client 1: channels 3, not 1"),
        ({"size": 32}, "client 1: size 32, not 8"),
        ({"client": 0}, "nodes of clients [0, 0], expected 0..1"),
    ],
)
def test_nodes__that_do_not_agree_begin_nothing(
    found: dict[str, Any], line: str, tmp_path: Path
) -> None:
    grid = Nodes(2, echo)

    def fault(kind: str, client: int, message: Message) -> Message | None:
        if (kind, client) != ("query.begin", 1):
            return None
        usual: dict[str, Any] = {"client": client, "fedmia": __version__, "channels": 1, "size": 8}
        return replied(message, found=ConfigRecord(usual | found))

    grid.fault = fault
    HEARD.clear()
    error = grid.start(f"{TINY}--observe {RECORDER}", tmp_path / "out", private=True)
    assert str(error) == line and not HEARD and not grid.asked("train")
    assert not (tmp_path / "out").exists() and grid.asked("query.end") == [0, 1]


class Silent(Nodes):
    """Some nodes never answer a type of message."""

    def __init__(self, kind: str, *silent: int) -> None:
        super().__init__(3, echo)
        self.kind, self.silent = kind, silent
        self._nodes = tuple(10**18 + n for n in self._nodes)

    def pull_messages(self, message_ids: Any) -> Any:
        return [r for r in super().pull_messages(message_ids) if not self._is_late(r)]

    def _is_late(self, reply: Message) -> bool:
        client = self.client_of(reply.metadata.src_node_id)
        return self.kind in reply.metadata.message_type and client in self.silent


@pytest.mark.parametrize(
    ("kind", "silent", "who"),
    [
        ("query.begin", (0, 2), "clients [0, 2]"),
        ("query.begin", (2,), "client 2"),
        ("query.begin", (1,), "node of clients [0, 1]"),
        ("query.score", (0, 1), "clients [0, 1]"),
    ],
)
def test_log__names_the_clients_that_do_not_answer_and_no_numbers_of_nodes(
    kind: str, silent: tuple[int, ...], who: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """They are waited for, and in the end no more. Who failed has not said who it is."""
    grid = Silent(kind, *silent)
    if "node of" in who:
        grid.fault = lambda now, client, message: broken(message) if client == 0 else None
    arguments = TINY.replace("--clients 2", "--clients 3")
    error, out = str(grid.start(arguments, tmp_path / "out", True)), capsys.readouterr().out
    action = kind.removeprefix("query.")
    assert f"fedmia: {action}: waiting for {who}\n" in out
    each = "client 2" if silent == (2,) else "node of clients" if action == "begin" else "client 0"
    assert f"{action}: no answer from {each}" in error
    assert str(10**18)[:9] not in out + error
    reported = [*(tmp_path / "out").glob("client-*/report.json")]
    assert len(reported) == (action == "score")


@pytest.mark.parametrize(
    ("policy", "looks", "line"),
    [
        ("stop", 3, "score: client 1 failed: Error: Node Unavailable; all else is reported on"),
        ("retry", 3, ""),
        ("retry", 1e9, "score: no answer from client 1; all else is reported on"),
    ],
)
def test_node__that_left_is_waited_for_under_retry_and_not_for_ever(
    policy: str, looks: float, line: str, tmp_path: Path
) -> None:
    grid = SuperLink("query.score", looks, app=echo)
    error = grid.start(f"{TINY}--on-failure {policy}", tmp_path / "out", private=True)
    assert str(error or "") == line and (tmp_path / "out/client-0000/report.json").exists()
    assert (tmp_path / "out/client-0001/report.json").exists() is (not line)


def hostile() -> list[tuple[str, ArrayRecord]]:
    """Answers in place of scores."""
    large = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(large, shape)
    terabytes = ArrayRecord({"0": Array("float64", (1 << 40,), "numpy.ndarray", large.getvalue())})
    good = '{"size": 8, "defence": null}'
    texts = ["", "[]", "[" * 100_000, '{"size": 8}', '{"defence": null}']
    row = {"round": 1, "under_attack": False, "loss": 0.5}
    records: list[tuple[str, dict[str, Any]]] = [
        *((name, {}) for name in ("np", "dataclass", "replace", "Any", "__name__")),
        ("RoundRow", row | {"round": "1"}), ("RoundRow", row | {"loss": {"list": []}}),
    ]  # fmt: skip
    texts += [json.dumps({"size": 8, "defence": {"of": n, "is": v}}) for n, v in records]
    return [(good, terabytes), *((text, ArrayRecord({})) for text in texts)]


def test_answers__that_are_no_scores_are_refused_in_the_names_of_their_nodes(
    tmp_path: Path,
) -> None:
    answers = hostile()
    grid = Nodes(len(answers) + 1, echo)

    def fault(kind: str, client: int, message: Message) -> Message | None:
        if kind != "query.score" or client == len(answers):
            return None
        text, arrays = answers[client]
        return replied(message, told=ConfigRecord({"json": text}), scores=arrays)

    grid.fault = fault
    arguments = TINY.replace("--clients 2", f"--clients {len(answers) + 1}")
    error = str(grid.start(arguments, tmp_path / "out", private=True))
    refused = re.findall(r"client (\d+) sent no answer to report on: ", error)
    assert sorted(map(int, refused)) == [*range(len(answers))]
    assert "promises" in error and error.count("is no record") == 5
    assert error.count("RoundRow") >= 2 and error.endswith("; all else is reported on")
    assert [path.parent.name for path in (tmp_path / "out").glob("*/report.json")] == [
        f"client-{len(answers):04d}"
    ]


def test_account__that_lacks_rounds_is_no_statement(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk of client 0 is emptied after its first round."""
    grid = Nodes()
    grid.give_images(tmp_path, [drawn(8, 8, seed=seed) for seed in (0, 1)])

    def fault(kind: str, client: int, message: Message) -> None:
        if (kind, client) == ("train", 0) and held(message)["config"]["server-round"] == 2:
            for file in home.rglob("client-0000/**/main-*"):
                file.unlink()

    grid.fault = fault
    flags = f"{TINY}--split.known 2 --defense gaussian".replace("--split.known 8 ", "")
    error = str(grid.start(flags, tmp_path / "out", private=True))
    assert "scores of images would void it: nodes keep their scores" in capsys.readouterr().out
    assert "client 0 sent no answer to report on" in error and "client 1 sent" not in error
    assert "gaussian: its account has 1 rounds, but 2 were trained and sent" in error
    models = Recording(tmp_path / "out/recording").models()
    for name, round in (("final", 2), ("untrained", 0)):  # which the nodes are asked to score
        asked = held(grid.orders["query.score"][1])[name].to_torch_state_dict()
        assert all((asked[tensor] == values).all() for tensor, values in models[round].items())
    assert any((models[2][tensor] != models[0][tensor]).any() for tensor in models[0])
    (row,) = report_of(tmp_path / "out", 1)["clients"]
    epsilon = row["defence"]["epsilon"]
    assert (epsilon["rounds"], epsilon["noise_source"]) == (2, "entropy")


def test_server__draws_cohorts_and_noise_anew(tmp_path: Path) -> None:
    """And plans the noise of an epsilon with the cohorts that it will draw. What a report says of
    the server's epsilon is void beside scores."""
    flags = TINY.replace("--clients 2", "--clients 8") + (
        "--federation.participation .4 --strategy dp-fedavg --strategy.epsilon 4 "
    )
    noises, cohorts = [], []
    for name in "ab":
        grid = Nodes(8, echo)
        grid.fault = lambda kind, client, message: (
            broken(message) if kind == "query.score" and client else None
        )
        grid.start(flags, out := tmp_path / name, private=True)
        models = Recording(out / "recording").models()
        noises.append(flat_state(models[2]) - flat_state(models[0]))
        cohorts.append([number for kind, number, _ in grid.sent if kind == "train"])
        spent = report_of(out, 0)["aggregation"]["epsilon"]
        assert spent["value"] == pytest.approx(4.0) and spent["noise_source"] == "entropy"
        assert spent["standing"] == "guaranteed"
    lengths = [np.linalg.norm(noise) for noise in noises]  # z is planned by each one's own cohorts
    apart = np.linalg.norm(noises[0] - noises[1])
    assert apart == pytest.approx(np.hypot(lengths[0], lengths[1]), rel=0.25)
    assert min(lengths) > 0.01


def flat_state(state: Any) -> np.ndarray:
    return np.concatenate([state[name].double().flatten().numpy() for name in sorted(state)])


# Flags of a case, and whether scores leave the nodes.
ACCOUNTS = {
    "mae": (
        "--model vit-tiny --model.depth 4 --ssl mae --defense dpsgd --defense.epsilon 8", False,
    ),
    "moco": (
        "--model.width 4 --ssl.queue_source public --split.public 16 --defense dpsgd "
        "--defense.noise_multiplier 1", True,
    ),
    "gaussian": ("--model.width 4 --defense gaussian --defense.epsilon 4", True),
    "logit-dp": (
        "--model.width 4 --ssl simclr --defense logit-dp --defense.noise_multiplier 2", False,
    ),
    "dp-fedavg": ("--model.width 4 --strategy dp-fedavg --strategy.epsilon 4", True),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", ACCOUNTS)
def test_deployed_epsilon__is_the_simulated_one(case: str, tmp_path: Path) -> None:
    more, scores = ACCOUNTS[case]
    flags = TINY.replace("--model.width 4 ", "") + more
    simulated = commands.fedmia(f"simulate {flags}", tmp_path / "simulated").report
    grid = Nodes()
    sides = [drawn(row["size"], 30, 16, seed=row["id"]) for row in simulated["clients"]]
    grid.give_images(tmp_path, [own[: 3 if "public" in more else 2] for own in sides])
    for config in grid.config.values():
        config["scores"] = scores
    assert grid.start(flags, tmp_path / "out", private=True) is None
    for number in range(2):
        report = report_of(tmp_path / "out", number)
        wanted, stated = (statement(one, number) for one in (simulated, report))
        assert stated.pop("value") == pytest.approx(wanted.pop("value"), rel=0, abs=1e-9)
        assert stated["standing"] == ("of the weights alone" if scores else "guaranteed")
        assert stated["rounds"] == 2
        for name in ("delta", "rounds", "unit"):
            assert stated[name] == wanted[name]


def statement(report: dict[str, Any], client: int) -> dict[str, Any]:
    """The server's statement, else the client's."""
    (row,) = (row for row in report["clients"] if row["id"] == client)
    of = row["defence"] or report["aggregation"]
    return dict(of["epsilon"])


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--attacker active", "each node scores the final encoder by itself"),
        ("--pretrain pooled --pretrain.epochs 1", "the server of private images holds none"),
        ("--federation.placebo true", "nodes hold no images to run it on"),
        ("--query-budget 100", "a node scores without counting queries"),
        ("--sweep known=2,4", "a node scores without counting queries"),
        ("--ssl mae", "MAE needs a vision transformer"),
        ("--observe tensorbord", "did you mean 'tensorboard'"),
    ],
)
def test_private__refuses_what_cannot_be_before_a_node_is_asked(
    flags: str, line: str, tmp_path: Path
) -> None:
    grid = Nodes(2, echo)
    with pytest.raises(InputError, match=line):
        grid.start(ROUNDS + flags, tmp_path / "out", private=True)
    assert not grid.sent and not (tmp_path / "out").exists()
