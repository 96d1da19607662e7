"""Every block of Python of a page runs: here, or in the test that is named beside it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import nn

import fedmia
from fedmia.testing import check_observer
from fedmia.testing.material import textures
from tests.pages.reading import PAGES, blocks, text_of

# A word of a block of a page -> who runs it, or why nobody does.
BY_OTHERS = {
    ("README.md", "fedmia.run_simulation("): "tests/test_docs_howto.py",
    ("README.md", "class Norm("): "tests/test_docs.py",
    ("README.md", "check_attack(Norm)"): "tests/test_docs.py",
    ("docs/howto/ci_gate.md", "verdict_code"): "tests/test_docs_howto.py",
    ("docs/howto/compare_attacks.md", "class Worst("): "tests/study/test_views.py",
    ("docs/howto/partitions.md", "DirichletPartitioner("): "flwr-datasets is not installed",
    ("docs/howto/write_an_attack.md", "class Drift("): "tests/test_docs_howto.py",
    ("docs/howto/write_an_attack.md", "check_attack(Drift)"): "tests/test_docs_howto.py",
}
HERE = {
    ("docs/howto/observers.md", "class MLflow("),
    ("docs/howto/observers.md", "class WandB("),
    ("docs/howto/own_data.md", "dataset=(images"),
    ("docs/howto/own_model.md", "model=make_network"),
    ("docs/howto/partitions.md", "client_dict"),
    ("docs/howto/partitions.md", "all_data_0_niid_0_keep_0.json"),
    ("docs/howto/write_an_attack.md", "def fit("),
    ("docs/howto/write_an_attack.md", "attacks=["),
}
WHOLE = {"docs/start/python.md": "tests/test_docs_howto.py"}  # from top to bottom


def block(page: str, containing: str) -> str:
    """The one block of a page that holds a text."""
    (code,) = [one for one in blocks(text_of(page), "python") if containing in one]
    return code


def run(page: str, containing: str, **names: Any) -> dict[str, Any]:
    """What a block defines, given the names that its page speaks of."""
    exec(compile(block(page, containing), page, "exec"), names)
    return names


def test_blocks__are_all_run() -> None:
    known = {**BY_OTHERS, **dict.fromkeys(HERE, "here")}
    unknown = [
        (page, code)
        for page in PAGES
        if page not in WHOLE
        for code in blocks(text_of(page), "python")
        if sum(where == page and word in code for where, word in known) != 1
    ]
    assert not unknown
    assert all(block(*key) for key in known)


def test_observers__are_what_fedmia_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, class_name in (("mlflow", "MLflow"), ("wandb", "WandB")):
        tracker = MagicMock(spec=ModuleType(name))
        tracker.configure_mock(**{call: MagicMock() for call in (
            "start_run", "log_dict", "log_metrics", "set_tag", "end_run", "init")})  # fmt: skip
        monkeypatch.setitem(sys.modules, name, tracker)
        observer = run("docs/howto/observers.md", f"class {class_name}(", __name__="trackers")
        check_observer(observer[class_name])
        assert tracker.log_metrics.called or tracker.init.called


def test_partitions__of_other_tools_are_files_that_fedmia_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = "docs/howto/partitions.md"
    run(page, "client_dict", json=json, client_dict={0: np.array([0, 2]), 1: np.array([1])})
    assert json.loads(Path("parts.json").read_text()) == {"0": [0, 2], "1": [1]}
    users = {name: {"x": [[0.5] * 784] * n, "y": [n] * n} for name, n in (("a", 2), ("b", 1))}
    Path("all_data_0_niid_0_keep_0.json").write_text(json.dumps({"user_data": users}))
    run(page, "all_data_0_niid_0_keep_0.json", json=json, np=np)
    stored = np.load("femnist.npz")
    assert stored["writer"].tolist() == ["a", "a", "b"] and stored["y"].tolist() == [2, 2, 1]
    assert stored["x"].shape == (3, 28, 28) and stored["x"].max() == 128


def test_fit__of_the_page_learns_the_sign() -> None:
    fit = run("docs/howto/write_an_attack.md", "def fit(")["fit"]
    attack, view = SimpleNamespace(), SimpleNamespace(embed_plain=lambda images: images)
    known = SimpleNamespace(members=torch.ones(3, 2), nonmembers=2 * torch.ones(3, 2))
    fit(attack, view, known, None)
    assert attack.sign == -1.0


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """fedmia in an empty folder, with audits of one attack."""
    monkeypatch.chdir(tmp_path)
    audit = partial(fedmia.audit_encoder, attacks="similarity")
    monkeypatch.setattr(fedmia, "audit_encoder", audit)
    return SimpleNamespace(run_simulation=fedmia.run_simulation, audit_encoder=audit)


def network(channels: int = 1) -> nn.Module:
    """A network of the reader's own."""
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten())


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_own_data__of_the_page(quick: SimpleNamespace) -> None:
    sets = {"members": textures(40, 1), "others": textures(40, 2)}
    sets |= {"images": textures(300, 3), "labels": torch.arange(300) % 4}
    names = run("docs/howto/own_data.md", "dataset=(images", encoder=network(3), **sets)
    assert names["run"].verdict and list(names["audit"].attacks.index) == ["similarity"]


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_own_model__of_the_page(quick: SimpleNamespace) -> None:
    sets = {"members": textures(40, 1)[:, :1], "others": textures(40, 2)[:, :1]}
    names = run(
        "docs/howto/own_model.md", "model=make_network",
        fedmia=quick, encoder=network(), make_network=network, **sets,
    )  # fmt: skip
    assert names["run"].verdict and list(names["audit"].attacks.index) == ["similarity"]


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_notebook__takes_the_class_of_the_page(
    quick: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("drift_attack")
    monkeypatch.setitem(sys.modules, "drift_attack", module)
    page = "docs/howto/write_an_attack.md"
    exec(compile(block(page, "class Drift("), page, "exec"), vars(module))
    names = run(page, "attacks=[", fedmia=quick, Drift=vars(module)["Drift"])
    assert any("Drift" in name for name in names["run"].attacks.index)
