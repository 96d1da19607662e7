"""A form of encoder from outside the repository, in one file: `package.module:Class:SOURCE`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from fedmia.encoders.base import load
from tests.auditing.conftest import Audit
from tests.encoders.conftest import refused

OUTSIDE = '''
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from fedmia.encoders.base import EncoderForm, EncoderFacts, LoadedEncoder, LoadOptions
from fedmia.encoders.factory import wrap


@dataclass(frozen=True)
class Filters(EncoderForm):
    """A text file of the weights of one convolution, a filter a line."""

    written = "own_forms:Filters:FILE"

    def load(self, source: str, options: LoadOptions) -> LoadedEncoder:
        rows = [list(map(float, line.split())) for line in Path(source).read_text().splitlines()]
        module = nn.Conv2d(3, len(rows), 3, bias=False)
        module.load_state_dict({"weight": torch.tensor(rows).view(-1, 3, 3, 3)})
        return wrap(EncoderFacts(Path(source).name, options), module)
'''


@pytest.fixture
def own_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One file outside the repository, and what `--encoder` gives to name its form."""
    (tmp_path / "own_forms.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_forms", raising=False)
    filters = torch.randn(5, 27, generator=torch.Generator().manual_seed(0))
    (tmp_path / "filters.txt").write_text(
        "\n".join(" ".join(map(str, row)) for row in filters.tolist())
    )
    return f"own_forms:Filters:{tmp_path / 'filters.txt'}"


def test_outside__a_form_in_one_file_is_audited(
    own_forms: str, audit: Audit, tmp_path: Path
) -> None:
    done = audit(f"--encoder {own_forms} --attacks similarity,internal")
    assert done.code == 0 and done.names() == ["similarity", "internal"]
    assert done.report["subject"] == "the encoder filters.txt"
    assert done.report["config"]["encoder"]["name"] == own_forms
    rows = (tmp_path / "filters.txt").read_text().splitlines()
    weight = torch.tensor([list(map(float, row.split())) for row in rows]).view(5, 3, 3, 3)
    pixels, encoder = torch.rand(2, 3, 8, 8), load(own_forms).method.encoder
    want = torch.conv2d(encoder.normalise(pixels), weight).mean(dim=(2, 3))
    torch.testing.assert_close(encoder(pixels), want)


def test_outside__what_is_no_form_is_named(own_forms: str) -> None:
    refused("'tests.auditing.brought:Overflows' is not a", "tests.auditing.brought:Overflows:x")
    refused("cannot load encoder 'own_forms:Nothing'", "own_forms:Nothing:x")
    refused("give own_forms:Filters:SOURCE", "own_forms:Filters")
    refused("holds its own weights", own_forms, checkpoint=Path("w.pth"))
    assert load("tests.auditing.brought:tiny").name == "tests.auditing.brought:tiny"
