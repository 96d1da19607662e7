"""Files of safetensors: what they hold, and what a damaged one is called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedmia.untrusted.tensors import read_safetensors


def test_safetensors__of_either_framework_all_or_some(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2), "b": torch.zeros(1)}, path := tmp_path / "a", {"about": "{}"})
    tensors, texts = read_safetensors(path)
    assert torch.equal(tensors["a"], torch.ones(2)) and texts == {"about": "{}"}
    arrays, _ = read_safetensors(path, "numpy", ["b"])
    assert [*arrays] == ["b"] and np.array_equal(arrays["b"], np.zeros(1, np.float32))


def test_safetensors__damaged_absent_or_without_a_name(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, path := tmp_path / "a")
    with pytest.raises(ValueError, match="does not contain tensor c"):
        read_safetensors(path, names=["c"])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="header"):
        read_safetensors(path)
    with pytest.raises(FileNotFoundError):
        read_safetensors(tmp_path / "absent")
