"""`fedmia.run_study`: runs in processes of their own have the classes of this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmia
from fedmia.door.studies import name_values
from fedmia.report.notebook import DOUBT, LEAKS
from fedmia.table import COLUMNS
from tests.door.test_simulation import TINY, network, own_attack, pixels


@pytest.mark.slow(seconds=30)
def test_own_attack_data_and_network_in_a_study(tmp_path: Path) -> None:
    kind = own_attack()
    options = TINY | {"attacks": ["similarity", kind], "dataset": pixels(), "model": network}
    options |= {"split": {"members": 20, "nonmembers": 20}}
    grid = {"partition.alpha": [0.5]}
    study = fedmia.run_study(**options, grid=grid, seeds=2, out=tmp_path / "STUDY")
    assert len(study.runs) == 2 and not study.failed
    table = study.compare(kind, "similarity")
    aucs = table[table["measure"] == "AUC"].set_index("point")["difference"]
    runs = [study.runs[f"partition.alpha=0.5_seed={seed}"] for seed in (0, 1)]
    means = [run.attacks["auc"]["Length"] - run.attacks["auc"]["similarity"] for run in runs]
    assert aucs["partition.alpha=0.5"] == pytest.approx(np.mean(means), abs=1e-5)
    assert study.compare("Length", "similarity").equals(table)
    with pytest.raises(fedmia.InputError, match="unknown attack of this study 'Lenght'; did you"):
        study.compare("Lenght", "similarity")
    shown = study._repr_html_()
    assert study.sentence in shown and "<script" not in shown
    mean = np.mean([run.attacks["auc"]["Length"] for run in runs])
    assert "partition.alpha=0.5" in shown and f">{mean:.2f}<" in shown
    again = fedmia.open_study(tmp_path / "STUDY")
    assert again.table.equals(study.table)


def test_study__is_shown_by_the_verdicts_of_its_runs(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"name": f"seed={i}", "path": "", "results": {"verdict_code": code}}
        for i, code in enumerate(("not-established", "not-established"))
    ]
    report = {
        "sentence": "Two runs.",
        "cells": [*cells, {"name": "x", "path": "", "results": None}],
    }
    (tmp_path / "sweep.json").write_text(json.dumps(report))
    study = fedmia.open_study(tmp_path)
    study.table = pd.DataFrame(columns=list(COLUMNS))  # no run of its own
    assert "not established: 2" in study._repr_html_() and DOUBT in study._repr_html_()
    cells[0]["results"] = {"verdict_code": "leaks"}
    study.report = report
    assert "leaks: 1" in study._repr_html_() and LEAKS in study._repr_html_()


def test_grid__takes_short_flags_as_run_simulation_does() -> None:
    plain = name_values({"clients": [3, 4], "partition.alpha": [1]})
    assert plain == {"federation.clients": [3, 4], "partition.alpha": [1]}
