"""Observers hear of a run; whatever they do, it and its report stay the same."""

from __future__ import annotations

import io
import json
import shlex
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmia.observers._values import run_values
from fedmia.observers.base import RunObserver
from fedmia.observers.mlflow import MLflow
from fedmia.observers.run_observers import ObserverGroup
from fedmia.observers.tensorboard import TensorBoard
from fedmia.records.rows import Report
from fedmia.settings.errors import InputError
from fedmia.testing import check_observer
from tests.commands import fedmia
from tests.fake_runs import golden
from tests.made_up_runs import made_up
from tests.small_runs import SIMILARITY, SMALL

TINY = f"{SMALL} {SIMILARITY} --clients 2 --rounds 2 --attacker none"
HERE = __name__
HEARD: list[tuple[str, str, Any]] = []
RECORDER = f"{HERE}:Recorder"


def some_report() -> Report:
    """Of a run of no rounds, with one attack."""
    usual = golden()
    (attack,) = (row for row in usual["attacks"] if row["name"] == "similarity")
    return made_up(Report, verdict="None.", verdict_code="not-established", attacks=[attack],
                   family=usual["family"])  # fmt: skip


def some_figure() -> bytes:
    """A PNG of 4x4 pixels."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    return file.getvalue()


@dataclass
class Recorder(RunObserver):
    """Keeps all that it hears, prints, and spoils what it is given."""

    def begin(self, config, folder):
        print("I print")
        HEARD.append(("begin", config["ssl"]["name"], folder))
        config.clear()

    def scalars(self, values, step):
        HEARD.append(("scalars", dict(values), step))
        values.clear()

    def report(self, report, figures, prefix):
        HEARD.append(
            (f"{prefix}report", report.verdict, {n: png[:4] for n, png in figures.items()})
        )
        report.attacks.clear()
        report.config.clear()

    def end(self, failed):
        HEARD.append(("end", failed, None))


@dataclass
class Broken(Recorder):
    """Fails at the second round, in two lines."""

    def begin(self, config, folder): ...

    def scalars(self, values, step):
        if step == 2:
            raise RuntimeError("disk\nfull")


class Quitter(Broken):
    """Ends the process, as some trackers do, and needs no decorator."""

    def begin(self, config, folder):
        sys.exit(3)


def observed(*classes: type[RunObserver]) -> str:
    return ",".join(f"{HERE}:{cls.__name__}" for cls in classes)


@pytest.fixture(scope="module")
def observed_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run with observers: its folder, what it prints, and its stderr."""
    out = tmp_path_factory.mktemp("runs") / "seen"
    HEARD.clear()
    names = observed(Recorder, Broken, Quitter)
    return out, *printed("--out", str(out), "--observe", names)


def printed(*more: str) -> tuple[str, str]:
    """What a run prints to stdout and to stderr."""
    ran = fedmia(["simulate", *shlex.split(TINY), "--json", *more])
    assert ran.code == 0
    return ran.out, ran.err


@pytest.mark.slow
def test_report__is_the_same_with_observers_and_without(observed_run):
    out, seen, _ = observed_run
    assert seen == (out / "report.json").read_text()
    bare, seen = (text.partition('  "timing": {')[0] for text in (printed()[0], seen))
    assert bare == seen


@pytest.mark.slow
def test_observers__are_told_all_in_order(observed_run):
    seen = observed_run[0]
    report = json.loads((seen / "report.json").read_text())
    assert HEARD[0] == ("begin", "moco", seen)
    rounds = HEARD[1:3]
    for row, (kind, values, step) in zip(report["rounds"], rounds, strict=True):
        assert (kind, step) == ("scalars", row["round"])
        assert values["main/loss"] == pytest.approx(row["loss"], abs=1e-6)
        assert values["main/seconds"] > 0
    assert "main/knn" in rounds[1][1] and "main/knn" not in rounds[0][1]
    by_round, whole = HEARD[3:5]
    assert by_round == (
        "scalars",
        {"leakage/similarity": report["rounds"][1]["leakage"]["similarity"]},
        2,
    )
    (attack,) = report["attacks"]
    assert whole[2] == 2 and whole[1]["auc/similarity"] == attack["auc"]
    assert whole[1]["auc_low/similarity"] == attack["low"]
    assert whole[1]["auc_untrained/similarity"] == report["controls"]["untrained"][0]["auc"]
    assert whole[1]["utility/knn"] == report["utility"]["knn"]
    kind, verdict, figures = HEARD[5]
    assert kind == "report" and verdict == report["verdict"]
    assert "rounds" in figures and set(figures.values()) == {b"\x89PNG"}
    assert HEARD[6:] == [("end", False, None)]


def test_of_the_run__use_after_the_attack_and_what_an_attack_adds_to_its_controls():
    assert not any("after_attack" in name for name in run_values(some_report()))
    differences = {"ascent-zero": 0.1, "loss-before": -0.2, "other": None}
    pairs = [{"attack": "ascent", "control": n, "difference": v} for n, v in differences.items()]
    kind = type(some_report())
    report = made_up(kind, paired=pairs, utility={"knn": 0.9}, utility_after_attack={"knn": 0.8})
    values = {n: v for n, v in run_values(report).items() if n.startswith(("utility", "added"))}
    assert values == {
        "utility/knn": 0.9, "utility_after_attack/knn": 0.8,
        "added/ascent/ascent-zero": 0.1, "added/ascent/loss-before": -0.2,
    }  # fmt: skip


def test_broken_observers__cost_one_line_each(observed_run):
    errors = observed_run[2]
    lines = [line for line in errors.splitlines() if line.startswith("fedmia: observer")]
    gone = "the run goes on without it"
    assert lines == [
        f"fedmia: observer {HERE}:Quitter failed in begin (SystemExit: 3); {gone}",
        f"fedmia: observer {HERE}:Broken failed in scalars (RuntimeError: disk full); {gone}",
    ]
    assert "I print" in errors  # what observers print is no result


def test_observer_that_hangs__is_left_behind(monkeypatch, capsys):
    free = Event()

    @dataclass
    class Hanging(Broken):
        def scalars(self, values, step):
            free.wait(3)  # less than an observer is given by itself

    monkeypatch.setitem(globals(), "Hanging", Hanging)
    with ObserverGroup([f"{HERE}:Hanging"], None, patience=0.1) as observing:
        observing.begin({})
        observing.round("main", 1, 0.5, None, 1.0)
        observing.round("main", 2, 0.5, None, 1.0)
    free.set()
    (line,) = capsys.readouterr().err.splitlines()
    assert "failed in scalars (no return within 0.1 s)" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", "unknown observer 'tensorbord'; did you mean 'tensorboard'?"),
        (f"{HERE}:TINY", "is not a RunObserver"),
        (f"{HERE}:RunObserver", "abstract"),
        ("tensorboard", "observer tensorboard needs out FOLDER"),
    ],
)
def test_bad_names__are_one_line(name, message):
    with pytest.raises(InputError) as caught:
        ObserverGroup([name], None)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_tensorboard__says_what_to_install_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"pip install '\.\[tensorboard\]'"):
        TensorBoard().check(tmp_path)


def test_tensorboard__writes_what_it_is_told(tmp_path):
    pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    report = some_report()
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "roc.png").write_bytes(some_figure())
    with ObserverGroup(["tensorboard"], tmp_path) as observing:
        observing.begin({"seed": 7})
        observing.round("main", 1, 0.5, 0.25, 1.5)
        observing.round("main", 2, 0.25, None, 1.0)
        observing.report(report)
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    scalars = {n: [(e.step, e.value) for e in read.Scalars(n)] for n in read.Tags()["scalars"]}
    assert scalars["main/loss"] == [(1, 0.5), (2, 0.25)] and scalars["main/knn"] == [(1, 0.25)]
    for name, value in run_values(report).items():
        assert scalars[name] == [(0, pytest.approx(value))]
    assert read.Tags()["images"] == ["roc"]
    texts = [read.Tensors(f"{n}/text_summary")[0] for n in ("config", "verdict")]
    messages = [t.tensor_proto.string_val[0].decode() for t in texts]
    assert '"seed": 7' in messages[0] and messages[1] == report.verdict


@dataclass
class Careless(RunObserver):
    """Breaks one promise, by name."""

    broken: str = "none"
    _heard: list[Any] = field(default_factory=list, init=False)

    def begin(self, config, folder):
        if self.broken == "folder":
            (folder / "a").touch()

    def scalars(self, values, step):
        if self.broken == "changes":
            values["x"] = 1.0
        if self.broken == "draws":
            np.random.rand()

    def report(self, report, figures, prefix):
        self._heard.append(report)

    def end(self, failed):
        if self.broken == "fails" and not self._heard:
            raise ValueError("no report")


def test_check_observer__says_which_promise_is_broken():
    check_observer(Careless)
    check_observer(Careless())
    for broken, message in (
        ("folder", "begin raises TypeError"),
        ("changes", "scalars changes what it is given"),
        ("draws", "draws from the global random generators"),
        ("fails", "begin scalars end: end raises ValueError: no report"),
    ):
        with pytest.raises(AssertionError, match=f"Careless: .*{message}"):
            check_observer(Careless(broken))
    with pytest.raises(AssertionError, match="must be a subclass of RunObserver"):
        check_observer(int)


class FakeMLflow(types.ModuleType):
    """Notes every call of MLflow's client."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **more: self.calls.append((name, args, more))


def test_mlflow__records_settings_numbers_report_and_how_it_ended(monkeypatch, tmp_path):
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    config = {"seed": 0, "train": {"lr": 0.1, "rest": {}}, "attacks": ["a" * 600]}
    report = some_report()
    with ObserverGroup(["mlflow"], tmp_path) as observing:
        observing.begin(config)
        observing.round("main", 1, 1.5, None, 0.1)
        observing.report(report)
    calls = {name: args for name, args, _ in fake.calls}
    (params,) = calls["log_params"]
    assert {n: params[n] for n in ("seed", "train.lr", "train.rest")} == {
        "seed": "0", "train.lr": "0.1", "train.rest": "{}",
    }  # fmt: skip
    assert len(params["attacks"]) == 500
    metrics = [(args[0], more["step"]) for name, args, more in fake.calls if name == "log_metrics"]
    assert metrics[0] == ({"main/loss": 1.5, "main/seconds": 0.1}, 1)
    assert metrics[-1][0]["auc/similarity"] == report.attacks[0].auc
    assert calls["set_tags"][0]["verdict_code"] == report.verdict_code
    told, name = calls["log_dict"]
    assert name == "report.json" and told["verdict"] == report.verdict
    assert [row["auc"] for row in told["attacks"]] == [row.auc for row in report.attacks]
    assert fake.calls[0][0] == "start_run" and fake.calls[-1][:2] == ("end_run", ("FINISHED",))
    fake.calls.clear()
    png = tmp_path / "client-0003" / "figures" / "roc.png"
    png.parent.mkdir(parents=True)
    png.write_bytes(some_figure())
    with ObserverGroup(["mlflow"], tmp_path) as observing:
        observing.begin(config)
        observing.report(report, "client-0003")
    calls = {name: args for name, args, _ in fake.calls}
    assert [*calls["set_tags"][0]] == ["client-0003/verdict", "client-0003/verdict_code"]
    assert {name.partition("/")[0] for name in calls["log_metrics"][0]} == {"client-0003"}
    assert calls["log_dict"] == (told, "client-0003/report.json")
    assert calls["log_image"][1] == "client-0003/figures/roc.png"
    with pytest.raises(InputError), ObserverGroup(["mlflow"], None) as observing:
        observing.begin(config)
        raise InputError("no images")
    assert fake.calls[-1][:2] == ("end_run", ("FAILED",))


def test_mlflow__says_what_to_install_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"pip install '\.\[mlflow\]'"):
        ObserverGroup(["mlflow"], None)


def test_mlflow__is_a_good_observer():
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    check_observer(MLflow)
