"""An attacker in somebody's Flower app: what it sends, what it keeps, what an audit says of it."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.config import fuse_dicts, parse_config_args

import fedmia
import fedmia.flower
from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from fedmia.threat.owner_loss import read_owner_loss
from tests.commands import fedmia as command
from tests.flower import small_app
from tests.flower.small_app import CLIENTS, EACH, Net, attack, first, loss, run, targets
from tests.pages.reading import block, blocks, commands, text_of
from tests.recording.plain import PlainGrid

ROOT = Path(__file__).resolve().parents[2]
ENCODER = (
    "--encoder tests.flower.small_app:Net --mean 0 --std 1 --size 8 --known 4 --threads 1 "
    "--device cpu --quiet --attacks similarity,ascent --attack.similarity.views 3 "
)


def order(kind: str = "train", round: int | None = 2, bare: bool = False) -> Message:
    """A message with the first model."""
    arrays = first()
    if bare:
        arrays = ArrayRecord(arrays.to_numpy_ndarrays())
    config = ConfigRecord({} if round is None else {"server-round": round})
    return Message(RecordDict({"arrays": arrays, "config": config}), 7, kind)


def node(partition: int | None = 0, **more: Any) -> Context:
    where = {} if partition is None else {"partition-id": partition, "num-partitions": CLIENTS}
    return Context(1, 7, {**where, **more}, RecordDict(), {})


def switched(*values: Any) -> Context:
    """The attacker's node, in a run whose config has the key `ascend`, or has not."""
    config = dict(zip(["ascend"], values, strict=False))
    return Context(1, 7, node().node_config, RecordDict(), {"epochs": 2, **config})


def answer(mods: list[Any], message: Message, context: Context) -> Message:
    PlainGrid(make := small_app.make_app(*mods))  # tells Flower which task this is
    torch.manual_seed(3)
    return make(message, context)


def content(records: RecordDict) -> dict[str, Any]:
    """All that a reply or a state holds, to the bit."""
    return {
        name: {n: (a.dtype, a.shape, a.data) for n, a in one.items()}
        if isinstance(one, ArrayRecord)
        else dict(one)
        for name, one in records.items()
    }


def notes_of(folder: Path, branch: str = "main") -> Recording:
    """What the attacker on client 0 noted, or its twin without ascent, branch `zero`."""
    return Recording(folder / f"client-0000-{branch}")


def readings(notes: Recording) -> dict[str, Any]:
    """All losses, by `NAME.BRANCH.ROUND`."""
    return {
        f"{name}.{branch}.{round}": values.numpy()
        for branch in ("main", "zero", "untrained")
        for round, (table, _) in notes.notes(branch).items()
        for name, values in table.items()
    }


def acted(notes: Recording) -> list[int]:
    """Rounds of an upload that a received model followed."""
    known = readings(notes)
    return [r for r in range(20) if {f"sent.main.{r}", f"received.main.{r + 1}"} <= known.keys()]


def audit(line: str, out: Path | None = None) -> Any:
    return command(f"audit {ENCODER}{line}", out)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an attacker, and its twin without ascent, whose notes lie in one folder."""
    folder = tmp_path_factory.mktemp("attacked")
    run(folder / "REC", attack(folder / "NOTES"))
    run(folder / "TWIN", attack(folder / "NOTES", steps=0))
    return folder


def test_audit__says_what_the_climb_adds(attacked: Path, tmp_path: Path) -> None:
    """Three of four clients keep their images' prices: 1/4 of the members rise like the others."""
    flags = f"--federation {attacked / 'REC'} --notes {attacked / 'NOTES'} "
    report = audit(flags + small_app.write_sides(tmp_path), tmp_path / "A").report
    rows = {row["name"]: row for row in report["attacks"]}
    assert rows["ascent"]["rounds"] == [2, 3] and rows["ascent"]["under_attack"]
    assert rows["ascent"]["choices"] == {"steps": 2, "lr": 8.0, "batch": len(targets())}
    assert 0.8 < rows["ascent"]["auc"] < 0.95
    pairs = {(row["attack"], row["control"]): row for row in report["paired"]}
    for control in ("ascent-zero", "loss-before"):
        pair = pairs["ascent", control]
        assert pair["auc_control"] == pytest.approx(0.5, abs=0.15) and pair["low"] > 0.1
    assert "another run of the app without ascent" in pairs["ascent", "ascent-zero"]["over"]
    said = " ".join(report["notes"])
    assert "Client 0 attacked" in said and "rounds 2, 3" in said and "not paired" in said
    controls = {row["name"]: row["auc"] for row in report["controls"]["untrained"]}
    assert list(controls) == ["similarity", "ascent", "ascent-level"]
    assert controls["ascent"] == pytest.approx(0.5, abs=0.15)  # nobody put a price back
    assert "ascent: not tried untrained" not in said and "backwards" not in said
    assert all("ascent" not in row["leakage"] for row in report["rounds"])
    run_ = fedmia.audit_federation(
        attacked / "REC", Net, small_app.members(), small_app.others(), mean=0, std=1, size=8,
        known=4, notes=str(attacked / "NOTES"), attacks=["ascent"], threads=1, quiet=True,
    )  # fmt: skip
    assert run_.attacks.auc["ascent"] == rows["ascent"]["auc"]


def test_audit__takes_another_reading_and_no_other_option(attacked: Path, tmp_path: Path) -> None:
    """What was noted under other weights cannot be had of these."""
    flags = f"--federation {attacked / 'REC'} --notes {attacked / 'NOTES'} "
    flags += (
        f"{small_app.write_sides(tmp_path)} --attack.ascent.reading level --attack.ascent.steps"
    )
    refused = audit(f"{flags} 7", tmp_path / "7")
    assert refused.code == 2 and refused.err == (
        "fedmia: error: attack.ascent.steps 7: the rounds were attacked with 2, and what was noted "
        "in them cannot change\n"
    )
    report = audit(f"{flags} 2", tmp_path / "2").report
    assert [row["name"] for row in report["attacks"]] == ["similarity", "ascent", "ascent-rise"]
    pairs = {row["attack"]: row["control"] for row in report["paired"][:2]}
    assert pairs == {"ascent": "ascent-zero", "ascent-rise": "ascent-rise-zero"}


def test_notes__are_the_losses_under_the_recorded_models(attacked: Path) -> None:
    recording, notes = Recording(attacked / "REC"), notes_of(attacked / "NOTES")
    models, updates = recording.models(), recording.updates()
    known = {f"received.main.{r}": models[r - 1] for r in (2, 3, 4)}
    known |= {f"sent.main.{r}": updates[r][0] for r in (2, 3)}
    known["received.untrained.1"] = models[0]
    others = {"sent.untrained.1", "after.untrained.1"}
    assert {*readings(notes)} == {*known} | others
    for name, state in known.items():
        net = Net().eval()
        net.load_state_dict(state)
        expected = read_owner_loss(loss, net, targets(), torch.device("cpu"), 0)
        np.testing.assert_array_equal(readings(notes)[name], expected.double().numpy())
    about, rounds = (notes.attacker() or ([], {}))[1], notes.notes()
    assert (about["client"], max(rounds), about["run"]) == (0, 5, "1")
    assert (attacked / "NOTES").stat().st_mode & 0o777 == 0o700


def test_reply__of_honest_clients_and_their_state_are_the_same_to_the_bit(tmp_path: Path) -> None:
    cases = [(1, 2, "train"), (0, 1, "train"), (1, 2, "evaluate"), (0, 1, "evaluate")]
    for partition, round, kind in cases:
        both = []
        for mods in ([], [attack(tmp_path / "N")]):
            context, message = node(partition), order(kind, round)
            reply = answer(mods, message, context)
            drawn = torch.rand(()), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
            both.append((content(reply.content), content(context.state), drawn))
        assert both[0] == both[1], (partition, round, kind)


def test_reply__of_the_attacker_differs_in_its_weights_alone(tmp_path: Path) -> None:
    contexts = [node(), node()]
    own = content(answer([], order(), contexts[0]).content)
    sent = content(answer([attack(tmp_path / "N")], order(), contexts[1]).content)
    assert list(sent) == list(own) and content(contexts[0].state) == content(contexts[1].state)
    assert sent["metrics"] == own["metrics"] and list(sent["weights"]) == list(own["weights"])
    moved = {"price", "encode.1.weight", "encode.2.running_mean", "encode.2.running_var"}
    for name, (kind, shape, data) in own["weights"].items():
        assert sent["weights"][name][:2] == (kind, shape)
        assert (sent["weights"][name][2] == data) is (name not in moved)


@pytest.mark.parametrize(
    ("values", "like"),
    [([], 2), (["on"], 2), ([True], 2), (["zero"], 0), (["off"], None), ([False], None)],
)
def test_run_config__switches_the_attacker(
    values: list[Any], like: int | None, tmp_path: Path
) -> None:
    """As with so many steps, or without the mod: reply, state of the node and notes."""
    sides = []
    for name, context, mods in (
        ("A", switched(*values), [attack(tmp_path / "A")]),
        ("B", switched(), [] if like is None else [attack(tmp_path / "B", steps=like)]),
    ):
        replies = [content(answer(mods, order(round=r), context).content) for r in (1, 2)]
        notes = sorted((tmp_path / name).glob("*"))
        read = [readings(notes_of(path.parent, path.name[12:])) for path in notes]
        sides.append((replies, content(context.state), [path.name for path in notes], read))
    (*one, own), (*other, known) = sides
    assert one == other and len(own) == len(known) == (like is not None)
    for mine, theirs in zip(own, known, strict=True):
        assert list(mine) == list(theirs)
        assert all((values == theirs[name]).all() for name, values in mine.items())
    assert (tmp_path / "A").exists() is (like is not None)


def test_run_config__off_asks_nothing_of_a_node_and_changes_no_error(tmp_path: Path) -> None:
    """A node without a partition, and an app that fails."""

    def fails(message: Message, context: Context) -> Message:
        raise InputError("no images")

    context = Context(1, 7, {}, RecordDict(), {"ascend": "off"})
    with pytest.raises(InputError, match="^no images$"):
        attack(tmp_path / "N")(order(), context, fails)


@pytest.mark.parametrize(
    ("value", "said"),
    [("of", "'of'; did you mean 'off'?"), ("Zero", "'Zero'; did you mean 'zero'?"), (0, "'0'")],
)
def test_run_config__of_another_value_is_refused_on_every_node(
    value: Any, said: str, tmp_path: Path
) -> None:
    for partition, kind in itertools.product((0, 1), ("train", "evaluate")):
        context = Context(1, 7, node(partition).node_config, RecordDict(), {"ascend": value})
        reply = answer([attack(tmp_path / "N")], order(kind), context)
        assert reply.error.reason == (
            f"ascend: run config: unknown value {said} (known: off, on, zero)"
        )
    assert not (tmp_path / "N").exists()


@pytest.mark.parametrize("bare", [False, True])
def test_climb__equals_a_plain_loop_from_the_received_weights(bare: bool, tmp_path: Path) -> None:
    """Algorithm 1 starts from the global model. The prices' gradients are their factors' mean."""
    how = {"steps": 3, "lr": 0.5, "batch": 32, "rounds": None}
    reply = answer([attack(tmp_path / "N", **how)], order(bare=bare), node())
    sent = dict(zip(Net().state_dict(), reply.content["weights"].to_numpy_ndarrays(), strict=True))
    start = first().to_torch_state_dict()
    rise = sent["price"] - start["price"].numpy()
    passes = 3 * 0.5 * 32 * 3 / 32  # of a pass: three batches of 32, the last one filled
    assert rise.sum() == pytest.approx(passes * 1.005, rel=2e-3) and (rise > 0).all()
    for name in ("encode.1.weight", "encode.2.running_mean", "keys"):
        np.testing.assert_array_equal(sent[name], start[name].numpy())
    twin = answer([attack(tmp_path / "Z", **{**how, "steps": 0})], order(bare=bare), node())
    for name, values in zip(start, twin.content["weights"].to_numpy_ndarrays(), strict=True):
        if start[name].is_floating_point():
            np.testing.assert_array_equal(values, start[name].numpy())
    assert [*readings(notes_of(tmp_path / "Z", "zero"))] == ["received.zero.2", "sent.zero.2"]


def test_rounds__are_counted_where_messages_do_not(tmp_path: Path) -> None:
    mod = attack(tmp_path / "N", rounds=(2,))
    for _ in range(4):
        answer([mod], order(round=None, bare=True), node())
    notes = notes_of(tmp_path / "N")
    assert acted(notes) == [2] and sorted(readings(notes)) == [
        "after.untrained.1", "received.main.2", "received.main.3", "received.untrained.1",
        "sent.main.2", "sent.untrained.1",
    ]  # fmt: skip


def test_control__climbs_the_first_model_as_if_nobody_trained(tmp_path: Path) -> None:
    """A price rises by lr in a step of one batch; one attacker of four clients moves a quarter."""
    mod = attack(tmp_path / "N", steps=1, lr=8.0)
    answer([mod], order(round=1), node())
    notes = notes_of(tmp_path / "N")
    ((table, facts),) = notes.notes("untrained").values()
    start, sent, after = (table[name].mean() for name in ("received", "sent", "after"))
    assert sent > start + 0.05 and after - start == pytest.approx((sent - start) / CLIENTS)
    answer([mod], order(round=1), node())  # asked again
    assert notes_of(tmp_path / "N").notes("untrained")[1][1] == facts and facts["queries"][""] > 0
    steep = {"lr": 1e30, "loss": lambda net, x: loss(net, x).exp()}
    for name, how, round in (("L", {}, 3), ("Z", {"steps": 0}, 1), ("I", steep, 1)):
        reply = answer([attack(tmp_path / name, **how)], order(round=round), node())
        branch = "zero" if name == "Z" else "main"
        known = readings(notes_of(tmp_path / name, branch))
        assert reply.has_content() and "after.untrained.1" not in known


def test_notes__of_an_evaluated_model_need_no_further_round(tmp_path: Path) -> None:
    every: dict[str, Any] = {"fraction_evaluate": 1.0, "min_evaluate_nodes": CLIENTS}
    for name, strategy, rounds in (("E", every, [2, 3]), ("P", {}, [2])):
        run(tmp_path / name, attack(tmp_path / f"N{name}"), rounds=3, **strategy)
        assert acted(notes_of(tmp_path / f"N{name}")) == rounds


@pytest.mark.slow(seconds=2)
def test_page__its_block_and_its_command_find_the_attacker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's own arguments, of an app of other names and fewer rounds."""
    page, task = "docs/howto/attacker_in_my_app.md", ModuleType("my_app.task")
    vars(task).update(Net=Net, loss=loss, targets=targets())
    monkeypatch.setitem(sys.modules, "my_app", ModuleType("my_app"))
    monkeypatch.setitem(sys.modules, "my_app.task", task)
    code = block(page, "ascend(").replace("/data", str(tmp_path)).replace("lr=0.002", "lr=8.0")
    usual = tomllib.loads(blocks(text_of(page), "toml")[0])["tool"]["flwr"]["app"]["config"]
    every = commands(text_of(page))
    for line in (one for one in every if one.startswith("flwr run")):
        _, _, config = line.partition("--run-config ")
        settings = fuse_dicts(usual, parse_config_args(shlex.split(config) or None))
        exec(code, names := dict[str, Any]())
        folder = tmp_path / str(settings["recording"]).removeprefix("/data/")
        run(folder, names["attack"], rounds=13, config=settings)
    assert {path.name for path in tmp_path.iterdir()} == {"RECORDING", "TWIN", "HONEST", "NOTES"}
    (shown,) = [one for one in every if one.startswith("fedmia audit")]
    sides = small_app.write_sides(tmp_path)
    flags = shown.partition(" --members")[0].removeprefix("fedmia audit ")
    flags = flags.replace("/data", str(tmp_path)) + f" {sides} --size 8 --mean 0 --std 1 --quiet"
    more = " --attacks ascent --known 4 --threads 1 --device cpu"
    report = command(f"audit {flags}{more}", tmp_path / "A").report
    assert report["attacks"][0]["rounds"] == [*range(8, 13)]
    assert report["paired"][0]["control"] == "ascent-zero" and report["paired"][0]["low"] > 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"targets": targets()[:0]}, "targets must be uint8 (T, C, H, W), T > 0, got (0,"),
    "floats": ({"targets": targets() / 255}, "ascend: targets: images must be uint8"),
    "steps": ({"steps": -1}, "steps=-1, must be an integer >= 0"),
    "rate": ({"lr": float("nan")}, "lr=nan, must be finite and > 0"),
    "batch": ({"batch": 0}, "batch=0, must be an integer >= 1"),
    "folder": ({"notes": "NOTES"}, "notes='NOTES', must be an absolute path"),
    "nobody": ({"partitions": ()}, "partitions=[], must be one or more, from 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_ascend__refuses_what_it_cannot_use(name: str) -> None:
    how, message = WRONG[name]
    usual = {"net": Net, "targets": targets(), "loss": loss, "steps": 1, "lr": 1.0, "notes": "/N"}
    with pytest.raises(InputError) as refused:
        fedmia.flower.ascend(**{**usual, **how})
    assert message in str(refused.value) and len(str(refused.value).splitlines()) == 1


def two_records(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"num-examples": 1})
    content = {"a": message.content["arrays"], "b": message.content["arrays"], "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


def nothing(message: Message, context: Context) -> Message:
    return Message(RecordDict({"m": MetricRecord({"num-examples": 1})}), reply_to=message)


def changes(message: Message, context: Context) -> Message:
    (received,) = message.content.array_records.values()
    sent = ArrayRecord({n: Array(np.asarray(a.numpy() * 0 + 0.01)) for n, a in received.items()})
    return Message(RecordDict({"arrays": sent}), reply_to=message)


class Wider(Net):
    def __init__(self) -> None:
        super().__init__()
        self.encode[1] = torch.nn.Linear(192, 9)


ANSWERS: dict[str, tuple[dict[str, Any], Context, Any, str]] = {
    "partition": ({"partitions": [9]}, node(), None, "9 is unknown; the federation's are 0 to 3"),
    "nameless": ({}, node(None), None, "partitions: the node does not know which it holds"),
    "network": ({"net": Wider}, node(), None, "'encode.1.weight' is (8, 192) there, and (9, 192)"),
    "infinite": ({"loss": lambda net, x: loss(net, x) / 0}, node(), None, "80 of 80 targets is"),
    "steep": (
        {"loss": lambda net, x: loss(net, x).exp(), "lr": 1e4},
        node(),
        None,
        "weights sent in round 2; a lower lr helps",
    ),
    "mean": ({"loss": lambda net, x: loss(net, x).mean()}, node(), None, "must return a tensor ("),
    "two": ({}, node(), two_records, "the app's reply holds 2 ArrayRecords (a, b), must hold one"),
    "change": ({}, node(), changes, "the app's reply is a change of the weights"),
    "no weights": ({}, node(), nothing, "the app's reply holds 0 ArrayRecords, must hold one"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_node__answers_with_one_line_what_is_wrong(name: str, tmp_path: Path) -> None:
    how, context, app, message = ANSWERS[name]
    usual = {"net": Net, "targets": targets(), "loss": loss, "steps": 2, "lr": 1.0}
    mod = fedmia.flower.ascend(**{**usual, "notes": tmp_path / "N", **how})
    PlainGrid(small_app.make_app())
    reply = mod(order(), context, app or small_app.make_app())
    assert reply.has_error() and message in reply.error.reason
    assert reply.error.reason.startswith("ascend: ") and "\n" not in reply.error.reason


class Killed(BaseException):
    """Nothing that anybody catches."""


@contextmanager
def killed_at(call: int) -> Iterator[None]:
    """The process ends where it would replace or force a file for the `call`th time."""
    calls = itertools.count(1)

    def dying(plain: Any, *rest: Any, **more: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return plain(*rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "fsync"):
            patch.setattr(os, name, partial(dying, getattr(os, name)))
        yield


@pytest.mark.slow(seconds=2)
def test_node__that_is_killed_finds_its_notes_whole(tmp_path: Path) -> None:
    """Wherever it is: it lacks at most the round of the message, which it may be sent again."""
    messages = [order(round=1), order(round=2), order("evaluate", 2)]
    how = {"steps": 1, "rounds": None}
    for message in messages:
        answer([attack(tmp_path / "WHOLE", **how)], message, node())
    whole, kills = readings(notes_of(tmp_path / "WHOLE")), 0
    assert sorted(name for name in whole if "untrained" not in name) == [
        "received.main.1", "received.main.2", "received.main.3", "sent.main.1", "sent.main.2",
    ]  # fmt: skip
    for call in itertools.count(1, 3):
        folder, before, left = tmp_path / f"{call}", dict[str, Any](), [*messages]
        with suppress(Killed), killed_at(call):
            while left:
                answer([attack(folder, **how)], left[0], node())
                before = readings(notes_of(folder))
                del left[0]
        if not left:
            break
        kills += 1
        if before:
            assert {*before} <= {*readings(notes_of(folder))} <= {*whole}
        for message in left:
            answer([attack(folder, **how)], message, node())
        again = readings(notes_of(folder))
        assert {*again} == {*whole}
        assert all((values == whole[name]).all() for name, values in again.items())
    assert kills > 12


def test_node__refuses_notes_of_another_run(tmp_path: Path) -> None:
    answer([attack(tmp_path / "N")], order(), node())
    other = Context(2, 7, node().node_config, RecordDict(), {})
    reply = answer([attack(tmp_path / "N")], order(), other)
    assert "is of another run or other targets; name a new folder" in reply.error.reason
    reply = answer([attack(tmp_path / "N", net=None)], order(), node(1))
    assert reply.has_content()  # an honest client reads none


def test_notes__of_too_strong_a_climb_say_that_the_rise_ranks_backwards(tmp_path: Path) -> None:
    steep = attack(tmp_path / "N", lr=800.0, loss=lambda net, x: loss(net, x).clamp(max=3.0))
    run(tmp_path / "REC", steep)
    flags = f"--federation {tmp_path / 'REC'} --notes {tmp_path / 'N'} --attacks ascent "
    flags = f"audit {ENCODER.partition('--attacks')[0]}{flags}{small_app.write_sides(tmp_path)}"
    said = " ".join(command(flags, tmp_path / "A").report["notes"])
    assert "the loss before, backwards (correlation -1.00)" in said


def damage(folder: Path) -> None:
    path = folder / "client-0000-main" / "notes" / "main" / "0003.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def test_refusals__of_notes(attacked: Path, tmp_path: Path) -> None:
    run(tmp_path / "SHORT", rounds=1)
    some = targets()[: 2 * EACH]
    run(tmp_path / "REC", attack(tmp_path / "FEW", targets=some), rounds=4)
    run(tmp_path / "REC2", attack(tmp_path / "LAST"), rounds=2)
    run(tmp_path / "REC3", attack(tmp_path / "BAD"))
    damage(tmp_path / "BAD")
    (tmp_path / "EMPTY").mkdir()
    sides = small_app.write_sides(tmp_path)
    cases = [
        (tmp_path / "EMPTY", attacked / "REC", "no notes of an attacker"),
        (tmp_path / "FEW", attacked / "REC", "60 of the 80 images of the audit are none of the 20"),
        (tmp_path / "LAST", attacked / "REC", "client 0 received no model after its ascent"),
        (tmp_path / "BAD", attacked / "REC", "main/0003.safetensors' is not the file that"),
        (attacked / "NOTES", tmp_path / "SHORT", "of round 3, and recording"),
    ]
    for notes, recording, message in cases:
        refused = audit(f"--federation {recording} --notes {notes} {sides}")
        assert refused.code == 2 and len(lines := refused.err.splitlines()) == 1
        assert message in lines[0]
    refused = audit(f"--notes {attacked} {sides}")
    assert refused.code == 2
    assert "federation.notes (--notes) is given without federation" in refused.err


@pytest.mark.slow(seconds=40)
def test_ascend__on_simulated_nodes(attacked: Path, tmp_path: Path) -> None:
    """Ray's clients climb as those of a plain grid, and answer a watch, whose images they hold."""
    command = [sys.executable, "-m", "tests.flower.small_app", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    one, other = notes_of(attacked / "NOTES"), notes_of(tmp_path / "NOTES")
    assert acted(one) == acted(other) == [2, 3]
    for name, values in readings(one).items():
        np.testing.assert_allclose(readings(other)[name], values, rtol=1e-5)
    looks = dict(json.loads((tmp_path / "looks.json").read_text()))
    assert list(looks) == [0, 2, 4] and all(0 < auc < 1 for auc in looks.values())
