"""What an audit understood of its encoder stands in the report; what it did not, stops it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.auditing.brought import tiny
from tests.auditing.conftest import Audit, sides
from tests.encoders.forms import make


class Dropping(nn.Module):
    """`tiny` with a dropout that evaluation mode does not reach."""

    def __init__(self) -> None:
        super().__init__()
        self.tiny = tiny()

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.tiny(x), 0.5)


@pytest.mark.slow
def test_encoder__row(audit: Audit, tmp_path: Path) -> None:
    """A DINO checkpoint alone: attacks read the projection of the network that is asked for."""
    pytest.importorskip("timm")
    form_file, file = make("dino", tmp_path / "dino.pth"), tmp_path / "dino.pth"
    small = sides(tmp_path, pixels=32)
    flags = f"--encoder {file} --checkpoint-key teacher {small.flags} --limit 6 --attacks lpla"
    done = audit(f"{flags} --mean 0.5 --std 0.25", tmp_path / "A")
    assert done.code == 0
    row = done.report["encoder"]
    assert list(row) == [
        "form", "loaded", "dropped", "missing", "size", "mean", "std", "outputs", "crops",
        "round",
    ]  # fmt: skip
    assert row["round"] is None  # of a file, which is of no run
    assert (row["form"], row["missing"], row["size"]) == ("DINO", [], 32)
    assert row["mean"] == [0.5] * 3 and row["std"] == [0.25] * 3
    assert row["dropped"] == ["head.last_layer.weight_g", "head.last_layer.weight_v"]
    assert row["loaded"] == len(form_file.contents["teacher"]) - 2
    assert row["outputs"] == [
        {"name": "map", "kind": "map", "shape": [192, 4, 4]},
        {"name": "avgpool", "kind": "pooled", "shape": [192]},
        {"name": "encoder", "kind": "projection", "shape": [8]},
    ]
    page = (tmp_path / "A" / "report.html").read_text()
    assert "2, e.g. head.last_layer.weight_g" in page and "encoder (projection, 8)" in page


def test_encoder__row_of_an_encoder_without_a_file(audit: Audit, tmp_path: Path) -> None:
    done = audit("--attacks lpla", tmp_path / "A")
    row = done.report["encoder"]
    assert row["form"] == "torch module" and row["loaded"] == 0
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
    assert "tensor '2.bias' is missing (5 of 6 tensors fit); --allow-missing" in done.err
    done = audit(f"{flags} --allow-missing", tmp_path / "A")
    assert done.code == 0 and done.report["encoder"]["missing"] == ["2.bias"]
    assert any("1 of the encoder's weights are random" in n for n in done.report["notes"])


def test_encoder__one_that_draws_anew_stops_the_audit_unless_allowed(
    audit: Audit, tmp_path: Path
) -> None:
    flags = "--encoder tests.auditing.test_audit_encoders:Dropping --attacks lpla"
    done = audit(flags, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert "answers the same image differently" in done.err and "--allow-random" in done.err
    assert audit(f"{flags} --allow-random", tmp_path / "A").code == 0
