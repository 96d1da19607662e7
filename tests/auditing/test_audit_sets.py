"""An audit asks for all of its members as one data set, and for no smaller sets."""

from __future__ import annotations

import pytest

from tests.auditing.conftest import Audit

STATIC = "--known 4 --attack.ascent-static.steps 1 --attack.ascent-static.lr 0.01 "


@pytest.mark.slow
def test_audit__the_whole_data_set(audit: Audit) -> None:
    names = "similarity,ascent-static,dataset-inference"
    flags = f"{STATIC}--attacks {names} --attack.dataset-inference.views 4"
    done = audit(flags)
    assert done.code == 0, done.err
    assert done.report["sets"] == []
    (inference,) = done.report["dataset_inference"]
    (row,) = inference["clients"]
    assert (row["client"], row["n"], row["n_nonmembers"]) == (0, 22, 36)
    assert 0 < row["p_value"] == row["p_value_holm"] <= 1 and 0 < row["p_value_untrained"] <= 1
    assert inference["posers"]["n"] == 100 and not inference["void"]
    alone = audit("--known 4 --attacks dataset-inference").report
    assert alone["attacks"] == [] and len(alone["dataset_inference"]) == 1
    names = ["similarity", "ascent-static", "ascent-static-level"]
    assert done.names() == names
    assert [a["name"] for a in done.report["controls"]["untrained"]] == names
    assert [a["reading"] for a in done.report["attacks"]] == [None, "rise", "level"]
    assert [(p["attack"], p["control"]) for p in done.report["paired"]] == [
        (name, control) for name in names[1:] for control in ("loss-before", "grad-norm")
    ]  # fmt: skip
