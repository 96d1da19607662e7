"""`fedmia.run_study`: runs in processes of their own have the classes of this one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedmia
from fedmia.cli.commands import STUDY
from fedmia.door.arguments import options_tree
from fedmia.report.notebook import DOUBT, LEAKS
from tests.door.test_simulation import TINY, network, own_attack, pixels
from tests.study.planted import golden, study_of


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


def test_study__is_shown_by_the_verdicts_of_its_runs() -> None:
    quiet = golden() | {"verdict_code": "not-established"}
    runs = [("", {}, seed, quiet) for seed in (0, 1)]
    shown = study_of([*runs, ("", {}, 2, "broken")])._repr_html_()
    assert "not established: 2" in shown and DOUBT in shown
    shown = study_of([*runs, ("", {}, 2, golden() | {"verdict_code": "leaks"})])._repr_html_()
    assert "leaks: 1" in shown and LEAKS in shown


def test_over__takes_short_flags_as_run_simulation_does() -> None:
    tree = options_tree(STUDY, {"over": {"clients": [3, 4], "partition.alpha": [1]}})
    assert tree == {"over": [{"federation.clients": [3, 4], "partition.alpha": [1]}]}
