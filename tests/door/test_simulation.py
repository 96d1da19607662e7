"""`fedmia.run_simulation`: numbers and errors of the command line, objects in place of names."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor, nn

import fedmia
from fedmia.attacks import Attack
from fedmia.cli.commands import SIMULATE, STUDY
from fedmia.defenses.gaussian import Gaussian
from fedmia.door.arguments import build_settings
from fedmia.door.plugins import name_plugin
from fedmia.runtime.progress import Display
from fedmia.settings import option
from fedmia.simulate import main
from fedmia.threat import BlackBox, Threat

TINY: dict[str, Any] = {
    "config": "smoke", "clients": 2, "rounds": 1, "attacker": "none", "quiet": True,
    "attacks": "similarity",
}  # fmt: skip
FLAGS = "--config smoke --clients 2 --rounds 1 --attacker none --attacks similarity --quiet"


def own_attack(factor: float = 1.0) -> type[Attack]:
    """A class that no other process can import, as one of a notebook."""

    @dataclass
    class Length(Attack):
        """Length of the embedding."""

        paper: ClassVar[str] = "none"
        needs: ClassVar[Threat] = Threat("black_box", "outsider")
        power: float = option(1.0, "of the length", gt=0)
        scale: ClassVar[float] = factor

        def score(self, view: BlackBox, images: Tensor) -> NDArray[np.float64]:
            return view.embed(images).norm(dim=1).double().numpy() ** self.power * self.scale

    return Length


# An attack whose author forgot @dataclass.
Bare = type("Bare", (Attack,), {"score": lambda self, view, images: None})


def network(channels: int) -> nn.Module:
    """A convolution and a linear layer."""
    conv = nn.Conv2d(channels, 6, 3, 2, 1)
    return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 8))


def pixels(count: int = 160) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Gray images in [0, 1] and labels of four classes."""
    rng = np.random.default_rng(0)
    return rng.random((count, 10, 10), dtype=np.float32), rng.integers(0, 4, count)


def test_the_numbers_are_those_of_the_command_line(tmp_path: Path) -> None:
    assert main([*FLAGS.split(), "--out", str(tmp_path / "flags")]) == 0
    run = fedmia.run_simulation(**TINY, out=tmp_path / "python")
    flags, python = (
        json.loads((tmp_path / name / "report.json").read_text()) for name in ("flags", "python")
    )
    for report in (flags, python):
        del report["timing"]
    assert flags == python
    assert run.verdict == python["verdict"] and run.folder == tmp_path / "python"
    configs = [(tmp_path / name / "config.yaml").read_text() for name in ("flags", "python")]
    assert configs[0] == configs[1]


def test_own_images_network_and_attack(tmp_path: Path) -> None:
    kind = own_attack()
    options = TINY | {"attacks": ["similarity", kind(power=2.0)]}
    options |= {"dataset": pixels(), "model": network, "split": {"members": 20, "nonmembers": 20}}
    run = fedmia.run_simulation(**options, out=tmp_path / "RUN")
    assert list(run.attacks.index) == ["similarity", "Length"]
    assert {"similarity", "Length"} < set(run.scores.columns)
    assert set(run.table["attack"].dropna()) == {"similarity", "Length"}
    config = (tmp_path / "RUN/config.yaml").read_text()
    assert "python:Length@" in config and "python:network@" in config and "power: 2.0" in config
    assert run.images.pixels("scored_members").shape[1:] == (1, 10, 10)
    again = fedmia.run_simulation(**options)
    assert again.scores.equals(run.scores)


def test_names_change_with_what_a_class_or_function_does() -> None:
    kind = own_attack()
    assert name_plugin("attack", kind) == name_plugin("attack", kind)  # now that it has a name
    assert name_plugin("attack", own_attack()) == name_plugin("attack", kind)
    assert name_plugin("attack", own_attack()) != name_plugin("attack", own_attack(2.0))
    assert name_plugin("attack", own_attack()(power=3.0))["power"] == 3.0

    def narrow(width: int) -> Callable[[int], nn.Module]:
        return lambda channels: nn.Conv2d(channels, width, 3)

    names = [name_plugin("model", narrow(width))["name"] for width in (4, 4, 8)]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    "form",
    [
        {"name": "gaussian", "clip": 2.0},
        Gaussian(clip=2.0),
        [Gaussian(clip=2.0)],
        [{"name": Gaussian, "clip": 2.0}],
    ],
    ids=["mapping", "instance", "list", "class and options"],
)
def test_defences_are_names_classes_or_instances(form: Any) -> None:
    settings = build_settings(SIMULATE, "smoke", {"defense": form})
    by_name = build_settings(SIMULATE, "smoke", {"defense": {"name": "gaussian", "clip": 2.0}})
    assert settings == by_name and settings.defense[0].options["clip"] == 2.0
    assert build_settings(STUDY, "smoke", {"over": {"defense": [Gaussian]}}).cells
    values = form if isinstance(form, list) else [form]
    (cell,) = build_settings(STUDY, "smoke", {"over": [{"defense": values}]}).points
    assert cell.first.defense == settings.defense  # with its options, as a value of a study


@pytest.mark.slow
def test_own_classes_of_a_folder_are_passed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "RUN"
    fedmia.run_simulation(**TINY | {"out": out, "attacks": [own_attack()]})
    same = fedmia.run_simulation(resume=out, attacks=[own_attack()])
    assert list(same.attacks.index) == ["Length"]

    class Other(own_attack()):  # type: ignore[misc]
        """Not the class that the run was started with."""

    with pytest.raises(fedmia.InputError, match="python:Length@.* not .*python:Other@"):
        fedmia.run_simulation(resume=out, attacks=[Other])
    monkeypatch.setattr("fedmia.settings.session._CLASSES", {})
    run = fedmia.open_run(out, trust_plugins=True)
    assert list(run.attacks.index) == ["Length"]  # a folder is data
    for use in (lambda: run.settings, lambda: fedmia.run_simulation(resume=out)):
        with pytest.raises(fedmia.InputError, match="pass Length again"):
            use()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"model": nn.Identity()}, "model must be a function that returns a new module"),
        ({"attacks": [Bare()]}, "Bare must be a dataclass: it lacks @dataclass"),
        ({"attacks": [3]}, "attack must be a name, a class or an instance of Attack, got 3"),
        ({"dataset": np.full((4, 1, 8, 8), 2.0)}, "dataset must be images, .* from 2 to 2"),
        ({"dataset": np.full((4, 1, 8, 8), np.nan)}, "dataset must be images, .* from nan to nan"),
        ({"dataset": np.zeros((4, 5, 8, 8))}, r"C 1 or 3; got float64 \(4, 5, 8, 8\)"),
        ({"resume": "RUN", "out": "OTHER"}, "resume goes on .*: out cannot be given too"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    options: dict[str, Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedmia.InputError, match=line) as error:
        fedmia.run_simulation(**{"out": "RUN"} | options if "resume" not in options else options)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_resume_refuses_a_link_that_leads_out_of_the_folder(tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    run.mkdir()
    (run / "config.yaml").write_text("seed: 0\n")
    (run / "report.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(fedmia.InputError, match="report.json' is a link to .* outside"):
        fedmia.run_simulation(resume=run)


def test_an_interrupt_reports_on_the_finished_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as round 3 ends, by the run's own word and by no clock.

    What handled it before does so again; a job in the background begins with it ignored.
    """
    plain, before = Display.round, signal.getsignal(signal.SIGINT)

    def interrupt(self: Display, branch: str, round: int, *rest: Any) -> None:
        plain(self, branch, round, *rest)
        if round == 3:
            signal.raise_signal(signal.SIGINT)  # to this thread, at once

    monkeypatch.setattr(Display, "round", interrupt)
    run = fedmia.run_simulation(**TINY | {"rounds": 8, "federation": {"snapshots": 1}})
    assert run.records.interrupted == 3
    assert signal.getsignal(signal.SIGINT) is before
