"""`fedmia.run_study`: runs in processes of their own have the classes of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmia
from fedmia.defenses.gaussian import Gaussian
from tests.door.test_simulation import TINY, network, own_attack, pixels
from tests.fake_runs import Studies, golden

RED, AMBER = "#c9483f", "#b07d12"


@pytest.mark.slow(seconds=30)
def test_own_attack_data_and_network_in_a_study(tmp_path: Path) -> None:
    kind = own_attack()
    options = TINY | {"attacks": ["similarity", kind], "dataset": pixels(), "model": network}
    options |= {"split": {"members": 20, "nonmembers": 20}}
    over = {"partition": [{"name": "dirichlet", "alpha": 0.5}]}
    study = fedmia.run_study(**options, over=over, seeds=2, out=tmp_path / "STUDY")
    assert len(study.runs) == 2 and not study.failed
    table = study.compare(kind, "similarity")
    aucs = table[table["measure"] == "AUC"].set_index("point")["difference"]
    runs = [study.runs[cell.name] for cell in study.cells]
    means = [run.attacks["auc"]["Length"] - run.attacks["auc"]["similarity"] for run in runs]
    assert aucs["partition=dirichlet alpha=0.5"] == pytest.approx(np.mean(means), abs=1e-5)
    assert study.compare(["Length"], "similarity").equals(table)
    with pytest.raises(fedmia.InputError, match="unknown attack of this study 'Lenght'; did you"):
        study.compare("Lenght", "similarity")
    shown = study._repr_html_()
    assert study.sentence in shown and "<script" not in shown
    mean = np.mean([run.attacks["auc"]["Length"] for run in runs])
    assert ">Length</td>" in shown and f">{mean:.2f} [" in shown
    assert "partition=dirichlet alpha=0.5" not in shown  # there is one point
    again = fedmia.open_study(tmp_path / "STUDY")
    assert again.table.equals(study.table)


def test_study__is_shown_by_the_verdicts_of_its_runs(tmp_path: Path) -> None:
    studies = Studies(tmp_path / "studies")

    def shown_with(last: object) -> str:
        quiet = golden() | {"verdict_code": "not-established"}
        study = studies.plant(
            "--attacks similarity --seeds 3",
            lambda name: last if name == "seed=2" else quiet,
            tmp_path / "OUT",
        )
        return study._repr_html_()

    shown = shown_with("broken")
    assert "not established: 2" in shown and AMBER in shown
    shown = shown_with(golden() | {"verdict_code": "leaks"})
    assert "leaks: 1" in shown and RED in shown


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"clients": [3, 0]}, "over federation.clients=0: federation.clients .*: 0, must be >= 1"),
        ({"defense": [Gaussian(), Gaussian()]}, "are the same run"),
        ([{"defense": [{"name": Gaussian, "scal": 1}]}], "did you mean 'scale'"),
        ({"partition": "iid"}, "partition needs a list of values, got 'iid'"),
    ],
)
def test_over__takes_short_flags_and_plugins_as_run_simulation_does(
    over: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(fedmia.InputError, match=said):
        fedmia.run_study(**TINY, over=over, out=tmp_path / "STUDY")
