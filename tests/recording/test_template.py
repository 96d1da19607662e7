"""The template of a federated self-supervised app, and the how-to that has it run."""

from __future__ import annotations

import json
import logging
import re
import shutil
import tomllib
import zipfile
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from torch.nn import functional as F

from fedmia.recording import Recording
from fedmia.ssl.simclr import nt_xent
from tests.flower.deployed import Deployment
from tests.pages.reading import ROOT, blocks, text_of
from tests.recording.plain import PlainGrid

HOWTO = "docs/howto/flower_template.md"
TEMPLATE = ROOT / "docs" / "howto" / "federated-simclr"
SETTINGS = tomllib.loads((TEMPLATE / "pyproject.toml").read_text(encoding="utf-8"))
CONFIG: dict[str, Any] = SETTINGS["tool"]["flwr"]["app"]["config"]


@pytest.fixture(autouse=True)
def template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TEMPLATE)


def test_template__is_a_hundred_lines_that_flower_bundles_without_results(tmp_path: Path) -> None:
    modules = sorted(TEMPLATE.glob("federated_simclr/*.py"))
    code = [line for one in modules for line in one.read_text().splitlines() if line.strip()]
    assert 80 < len(code) < 140
    app = tmp_path / "federated-simclr"
    shutil.copytree(TEMPLATE, app, ignore=shutil.ignore_patterns("__pycache__"))
    (app / "OUT" / "recording").mkdir(parents=True)
    (app / "OUT" / "recording" / "recording.json").write_text("{}")
    assert load_and_validate(app / "pyproject.toml", check_module=False)[1] == []
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(app))) as bundle:
        names = {name for name in bundle.namelist() if not name.startswith(".info/")}
    files = {path.relative_to(TEMPLATE).as_posix() for path in modules}
    assert names == files | {"pyproject.toml", "LICENSE", "README.md"}
    assert (app / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_template__wants_the_flower_of_fedmia_and_lies_in_the_wheel() -> None:
    own = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    flower = [d for d in own["project"]["dependencies"] if d.startswith("flwr")]
    assert flower == [d for d in SETTINGS["project"]["dependencies"] if d.startswith("flwr")]
    shipped = own["tool"]["setuptools"]["data-files"].items()
    share = "share/fedmia/federated-simclr"
    files = {
        (place.removeprefix(share) + "/" + path.name).lstrip("/")
        for place, patterns in shipped if place.startswith(share)
        for pattern in patterns for path in ROOT.glob(pattern)
    }  # fmt: skip
    written = [path for path in TEMPLATE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert files == {path.relative_to(TEMPLATE).as_posix() for path in written}


def test_loss__is_that_of_simclr() -> None:
    z, loss = torch.randn(12, 64), import_module("federated_simclr.task").loss
    mine = loss(lambda views: z, torch.rand(6, 1, 8, 8))
    torch.testing.assert_close(mine, nt_xent(*F.normalize(z).split(6), 0.5))


def test_clients__share_the_members_out() -> None:
    task = import_module("federated_simclr.task")
    members, labels = task.read_digits()[0][: task.MEMBERS], task.read_digits()[1][: task.MEMBERS]
    for alpha, least, most in ((1000.0, 0.0, 0.6), (0.1, 0.8, 1.0)):
        parts = [(task.read_own(c, 4, alpha) * 255).round().byte().numpy() for c in range(4)]
        assert sorted(map(bytes, np.concatenate(parts))) == sorted(map(bytes, members))
        owners = {bytes(image): c for c, part in enumerate(parts) for image in part}
        own = np.array([owners[bytes(image)] for image in members])
        largest = [np.bincount(own[labels == d]).max() / sum(labels == d) for d in range(10)]
        assert least < np.mean(largest) < most, alpha


@pytest.mark.slow(seconds=2)
def test_app__records_and_looks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    client, app = (import_module(f"federated_simclr.{n}_app").app for n in ("client", "server"))
    config = {**CONFIG, "out": str(tmp_path), "num-server-rounds": 2, "local-epochs": 1}
    app(PlainGrid(client, 4, **config), Context(1, 1, {}, RecordDict(), config))
    recording = Recording(tmp_path / "recording")
    assert list(recording.models()) == [0, 1, 2] and recording.clients() == [0, 1, 2, 3]
    assert sum(recording.records["main"][2].examples.values()) == 128
    looks = re.findall(r"watch: round (\d+): similarity AUC", caplog.text)
    assert looks == ["0", "2"]
    members, others = (np.load(tmp_path / f"{name}.npz")["x"] for name in ("members", "others"))
    assert members.shape == (128, 1, 8, 8) and others.shape == (512, 1, 8, 8)


@pytest.mark.slow(seconds=120)
def test_howto__runs_stops_and_finds_the_leak(tmp_path: Path) -> None:
    """Its commands: those that copy, run with a watch that stops, and audit."""
    first, *_, stopping = blocks(text_of(HOWTO), "bash")
    copy, enter, _, _, audit = first.splitlines()
    (tmp_path / "share" / "fedmia").mkdir(parents=True)
    shutil.copytree(
        TEMPLATE, tmp_path / "share" / "fedmia" / "federated-simclr",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    with Deployment(tmp_path) as flower:
        flower.env["VIRTUAL_ENV"] = str(tmp_path)
        flower.do(copy)
        app = tmp_path / "federated-simclr"
        assert "Successfully built" in (built := flower.do("flwr build", cwd=app))
        assert "recommended" not in built and len(list(app.glob("*.fab"))) == 1
        flower.simulate()
        shown = flower.do(stopping.replace("STOPPED", "OUT"), cwd=app, timeout=900)
        listed = json.loads(flower.do("flwr list local --format json"))["runs"]
        assert listed[0]["status"] == "finished:completed", shown[-3000:]
        audit += " --attacks similarity,loss-slope,all-for-one"
        verdict = flower.do(audit, cwd=app, timeout=900)
    assert enter == "cd federated-simclr" and "configuration warnings" not in shown
    looks = re.findall(r"watch: round (\d+): similarity AUC ([\d.]+)", shown)
    last = int(re.findall(r"the federation stops after round (\d+)", shown)[0])
    assert [int(round) for round, _ in looks] == [*range(0, last + 1, 2)] and 0 < last < 10
    values = [float(auc) for _, auc in looks]
    assert values[0] < 0.55 < values[-1]
    recording = Recording(app / "OUT" / "recording")
    assert list(recording.models()) == [*range(last + 1)] and recording.clients() == [0, 1, 2, 3]
    report = json.loads((app / "AUDIT" / "report.json").read_text())
    rows = {row["name"]: row for row in report["attacks"]}
    assert set(rows) == {"similarity", "loss-slope", "all-for-one"}, verdict[-3000:]
    assert rows["similarity"]["auc_ci"][0] > 0.55
