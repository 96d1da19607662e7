"""Plain Flower apps, on simulated nodes and on a deployment's, are recorded by three lines."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from fedmia.recording import Recording
from tests.commands import fedmia
from tests.flower.deployed import ROOT, Deployment
from tests.recording import legacy
from tests.recording.apps.my_app.task import Net, write_images
from tests.recording.plain import PlainGrid

APPS = Path(__file__).parent / "apps"
FLAGS = (  # the app's own views
    "--encoder my_app.task:Net --mean 0 --std 1 --known 8 --attacks similarity,rmia-rounds "
    "--augment.crop_min 0.75 --augment.ratio_min 1 --augment.ratio_max 1 --augment.brightness 0.4 "
    "--augment.contrast 0 --augment.saturation 0 --augment.hue 0 --augment.jitter_p 1 "
    "--augment.gray_p 0 --augment.blur_p 0 --threads 1 --device cpu --quiet"
)


@pytest.fixture(autouse=True)
def my_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(APPS)


def audited(app: Path, members: str, others: str) -> dict[str, Any]:
    """The report of an audit of the app's recording."""
    out = app / f"AUDIT-{members}"
    sides = f"--members npz:{app / members}.npz --nonmembers npz:{app / others}.npz"
    return fedmia(f"audit --federation {app / 'REC'} {sides} {FLAGS}", out).report


def judge_leakage(app: Path) -> None:
    """Clients trained for many epochs on few images: these leak, and images of nobody do not."""
    report = audited(app, "members", "others0")
    for attack in report["attacks"]:
        assert attack["auc"] > 0.75 and attack["auc_ci"][0] > 0.5, attack
    by_round = [row["leakage"]["similarity"] for row in report["rounds"]]
    assert len(by_round) == 2 and 0.6 < by_round[0] < by_round[1]
    for attack in (report := audited(app, "others0", "others1"))["attacks"]:
        assert attack["auc_ci"][0] < 0.5 < attack["auc_ci"][1], attack
    assert all(0.25 < row["leakage"]["similarity"] < 0.75 for row in report["rounds"])


def run(flower: Deployment, server: str, connection: str) -> None:
    """Run the app with one of its servers, and judge what is recorded."""
    app = flower.folder / server
    shutil.copytree(APPS, app, ignore=shutil.ignore_patterns("__pycache__"))
    settings = (app / "pyproject.toml").read_text().replace("my_app.fedavg", f"my_app.{server}")
    (app / "pyproject.toml").write_text(settings)
    write_images(app, 2)
    config = f"folder='{app}' recording='{app / 'REC'}' epochs=80"
    flower.run(f'flwr run {app} {connection} --stream -c "{config}"', connection)
    recording = Recording(app / "REC")
    models, updates = recording.models(), recording.updates()
    judge_leakage(app)
    assert list(models) == [0, 1, 2] and recording.clients() == [0, 1]
    assert recording.named_by == "roster" and recording.header.names is (server == "fedavg")
    names = {n: n if server == "fedavg" else str(i) for i, n in enumerate(Net().state_dict())}
    torch.manual_seed(0)
    first = {n: t.numpy() for n, t in Net().state_dict().items()}
    for round, state in ((0, first), (2, np.load(app / "final.npz"))):
        for name, key in names.items():
            np.testing.assert_array_equal(models[round][key].numpy(), state[name])
    for round in (1, 2):
        assert list(updates[round]) == [0, 1]
        mean = sum(sent[names["0.weight"]] for sent in updates[round].values()) / 2
        torch.testing.assert_close(mean, models[round][names["0.weight"]])
        assert set(recording.records["main"][round].examples.values()) == {16}


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("server", ["fedavg", "loop"])
def test_apps__leak_where_it_is_planted_and_nowhere_else(server: str, tmp_path: Path) -> None:
    client, app = (import_module(f"my_app.{name}").app for name in ("client", server))
    write_images(tmp_path, 2)
    folders = {"folder": str(tmp_path), "recording": str(tmp_path / "REC")}
    config: dict[str, Any] = folders | {"rounds": 2, "epochs": 80}
    app(PlainGrid(client, 2, **config), Context(1, 1, {}, RecordDict(), config))
    judge_leakage(tmp_path)


@pytest.mark.slow(seconds=40)
def test_apps__on_simulated_nodes(tmp_path: Path) -> None:
    with Deployment(tmp_path) as flower:
        flower.simulate()
        run(flower, "loop", "local")


@pytest.mark.slow(seconds=40)
def test_apps__on_a_superlink_with_supernodes(tmp_path: Path) -> None:
    with Deployment(tmp_path) as flower:
        flower.deploy()
        run(flower, "fedavg", "deploy")


@pytest.mark.slow(seconds=30)
def test_apps__of_the_old_api_on_simulated_nodes(tmp_path: Path) -> None:
    folder = tmp_path / "REC"
    command = [sys.executable, "-m", "tests.recording.legacy", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    legacy.check(folder, 2)
