"""`fedmia.run_simulation`: numbers and errors of the command line, objects in place of names."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor, nn

import fedmia
from fedmia.attacks import Attack
from fedmia.defenses.gaussian import Gaussian
from fedmia.settings import option
from fedmia.threat import BlackBox, Threat
from strategies.fedavg import FedAvg
from tests.commands import fedmia as run_command

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
    """Of a defence that is an instance, too."""
    flags = f"simulate {FLAGS} --defense gaussian --defense.clip 2"
    assert run_command(flags, tmp_path / "flags").code == 0
    run = fedmia.run_simulation(**TINY, defense=Gaussian(clip=2.0), out=tmp_path / "python")
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
    defence = [{"name": Gaussian, "clip": 2.0}]
    run = fedmia.run_simulation(**options, defense=defence, out=tmp_path / "RUN")
    assert list(run.attacks.index) == ["similarity", "Length"]
    assert {"similarity", "Length"} < set(run.scores.columns)
    assert set(run.table["attack"].dropna()) == {"similarity", "Length"}
    config = (tmp_path / "RUN/config.yaml").read_text()
    assert "python:Length@" in config and "python:network@" in config and "power: 2.0" in config
    assert run.images.pixels("scored_members").shape[1:] == (1, 10, 10)
    assert "name: gaussian" in config and "clip: 2.0" in config
    again = fedmia.run_simulation(**options, defense={"name": "gaussian", "clip": 2.0})
    assert again.scores.equals(run.scores)


def test_names_change_with_what_a_class_does() -> None:
    def name(attack: Any) -> str:
        """As an error spells it that lists what is run."""
        with pytest.raises(fedmia.InputError, match=r"run: python:Length@\w{12}\)$") as error:
            fedmia.run_simulation(attacks=[attack], attack={"similarity": {"views": 3}})
        return str(error.value)

    kind = own_attack()
    assert name(kind) == name(kind) == name(own_attack())  # now that it has a name
    assert name(own_attack(2.0)) != name(kind) == name(kind(power=3.0))


@pytest.mark.slow
def test_own_classes_of_a_folder_are_passed_again(
    tmp_path: Path,
) -> None:
    out = tmp_path / "RUN"
    fedmia.run_simulation(**TINY | {"out": out, "attacks": [own_attack()]})
    same = fedmia.run_simulation(resume=out, attacks=[own_attack()])
    assert list(same.attacks.index) == ["Length"]

    class Other(own_attack()):  # type: ignore[misc]
        """Not the class that the run was started with."""

    with pytest.raises(fedmia.InputError, match="python:Length@.* not .*python:Other@"):
        fedmia.run_simulation(resume=out, attacks=[Other])
    config = (out / "config.yaml").read_text(encoding="utf-8")  # as of another session
    (out / "config.yaml").write_text(re.sub(r"Length@\w+", "Length@0123456789ab", config))
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


class Interrupting(FedAvg):
    """Ctrl-C as the server merges the third round."""

    merged: ClassVar[list[int]] = []

    def aggregate(self, received: Any, updates: Any) -> Any:
        self.merged.append(1)
        if len(self.merged) == 3:
            signal.raise_signal(signal.SIGINT)  # to this thread, at once
        return super().aggregate(received, updates)


def test_an_interrupt_reports_on_the_finished_rounds() -> None:
    """What handled it before does so again; a job in the background begins with it ignored."""
    before = signal.getsignal(signal.SIGINT)
    options = TINY | {"rounds": 8, "federation": {"snapshots": 1}, "strategy": Interrupting}
    assert fedmia.run_simulation(**options).records.interrupted == 2
    assert signal.getsignal(signal.SIGINT) is before
