"""What an audit understood of its encoder stands in the report; what it did not, stops it."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.auditing.brought import tiny
from tests.auditing.conftest import Audit


def test_encoder__row_of_an_encoder_without_a_file(audit: Audit, tmp_path: Path) -> None:
    done = audit("--attacks lpla", tmp_path / "A")
    row = done.report["encoder"]
    assert list(row) == [
        "form", "loaded", "dropped", "missing", "size", "mean", "std", "outputs", "crops", "round",
    ]  # fmt: skip
    assert row["form"] == "torch module" and row["loaded"] == 0 and row["round"] is None
    assert "encoder (pooled, 5)" in (tmp_path / "A" / "report.html").read_text()
    assert row["outputs"][-1] == {"name": "encoder", "kind": "pooled", "shape": [5]}


def test_encoder__missing_weights_stop_the_audit_unless_allowed(
    audit: Audit, tmp_path: Path
) -> None:
    state = tiny().state_dict()
    del state["2.bias"]
    torch.save(state, tmp_path / "w.pt")
    flags = f"--encoder tests.auditing.brought:tiny --checkpoint {tmp_path / 'w.pt'} --attacks lpla"
    done = audit(flags, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert "tensor '2.bias' is missing (5 of 6 tensors fit); encoder.allow_missing" in done.err
    done = audit(f"{flags} --allow-missing")
    assert done.code == 0 and done.report["encoder"]["missing"] == ["2.bias"]
    assert any("1 of the encoder's weights are random" in n for n in done.report["notes"])


def test_encoder__one_that_draws_anew_stops_the_audit_unless_allowed(
    audit: Audit, tmp_path: Path
) -> None:
    flags = "--encoder tests.encoders.test_modules:Dropping --attacks lpla"
    done = audit(flags, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert "answers the same image differently" in done.err and "allow_random" in done.err
    assert audit(f"{flags} --allow-random").code == 0
