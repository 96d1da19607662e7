"""Every block of Python of a page runs, here or in the test that is named beside it; the gallery
names figures that a run draws."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from torch import nn

import fedmia
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.ssl.simclr import SimCLR
from fedmia.storage.snapshot import Update
from fedmia.testing import check_attack, check_observer, check_ssl
from fedmia.testing.attack_case import AttackCase
from fedmia.testing.material import textures
from fedmia.testing.ssl import SSLCase
from strategies.cohort import Phase
from tests.pages.materials import CLASSES, Materials, lightning
from tests.pages.reading import PAGES, ROOT, block, blocks, commands, text_of, words_of
from tests.recording.plain import PlainGrid, arrays, make_app

# A word of each block of a page that a test below runs; of others, who runs it, or why nobody does.
HERE = {
    "docs/howto/bench_an_attack.md": ("class Norm(",),
    "README.md": ("fedmia.run_simulation(", "class Norm(", "check_attack(Norm)"),
    "docs/howto/defences.md": ("DPFedAvg(",),
    "docs/howto/observers.md": ("class Wandb(",),
    "docs/howto/own_data.md": ("dataset=(images",),
    "docs/howto/own_model.md": ("model=make_network", "def embed(", "audit_embeddings("),
    "docs/howto/partitions.md": ("client_dict", "all_data_0_niid_0_keep_0.json"),
    "docs/howto/write_a_defence.md": ("class LargestChanges(", "noise = {"),
    "docs/howto/write_a_strategy.md": ("class GeometricMedian(", "class NoisyMean("),
    "docs/howto/write_a_view.md": ("class Worst(",),
    "docs/howto/write_an_attack.md": (
        "class Drift(", "def fit(", "attacks=[",
    ),
    "docs/howto/write_an_encoder_form.md": ("class Lightning(", "print(loaded"),
    "docs/howto/write_an_ssl_method.md": (
        "class SimSiam(", "class BarlowTwins(", "class ShortOutputs(",
    ),
}  # fmt: skip
BY_OTHERS = {
    ("docs/howto/own_flower_app.md", "mods=["): "tests/recording/test_grid.py",
    ("docs/howto/own_flower_app.md", "grid.final("): "tests/recording/test_grid.py",
    ("docs/howto/own_flower_app.md", "rank_suspects("): "tests/evaluation/test_suspects.py",
    ("docs/howto/attacker_in_my_app.md", "ascend("): "tests/flower/test_ascend.py",
    ("docs/howto/watch.md", "watch=watch"): "tests/flower/test_watch.py",
    ("docs/howto/watch.md", "rehearse="): "tests/flower/test_watch.py",
    ("docs/howto/watch.md", "grid.stopped"): "tests/flower/test_watch.py",
    ("docs/howto/watch.md", "serve("): "tests/flower/test_watch.py",
    ("docs/howto/customers_set.md", "groups=(patients"): "tests/auditing/test_groups.py",
    ("docs/howto/partitions.md", "DirichletPartitioner("): "flwr-datasets is not installed",
}
WHOLE = "docs/start/python.md"  # from top to bottom
GALLERY = text_of("docs/gallery/index.md")
NAMES = re.findall(r"^## (.+)$", GALLERY, re.MULTILINE)


def run(page: str, containing: str, **names: Any) -> dict[str, Any]:
    """What a block defines, given the names that its page speaks of; it imports none of them."""
    lines = block(page, containing).split("\n")
    code = "\n".join("" if line.removeprefix("import ") in names else line for line in lines)
    exec(compile(code, page, "exec"), names)
    return names


def test_blocks__are_all_run() -> None:
    known = [*BY_OTHERS, *((page, word) for page, words in HERE.items() for word in words)]
    listed = [(p, code) for p in PAGES if p != WHOLE for code in blocks(text_of(p), "python")]
    assert not [one for one in listed if sum(p == one[0] and w in one[1] for p, w in known) != 1]
    assert all(block(*key) for key in known)


def test_attack_of_the_bench__breaks_no_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = block("docs/howto/bench_an_attack.md", "class Norm(")
    (tmp_path / "attack_of_the_bench.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    check_attack(importlib.import_module("attack_of_the_bench").Norm)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What imports a module of a page, whose block is saved as the page says, with `more`."""

    def load(module: str, more: str = "") -> Any:
        page, text = CLASSES[module]
        assert f"`{module}.py`" in text_of(page)
        folder = tmp_path / (more and "changed")
        folder.mkdir(exist_ok=True)
        (folder / f"{module}.py").write_text(block(page, text) + more)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return importlib.import_module(module)

    return load


@pytest.mark.parametrize(
    "work",
    [
        "norm_attack.Norm.score",
        "drift_attack.Drift.score",
        "largest_changes.LargestChanges.release",
        "geometric_median.GeometricMedian.aggregate",
        "noisy_mean.NoisyMean.aggregate",
        "simsiam.SimSiamMethod.losses",
        "barlow_twins.BarlowTwinsMethod.losses",
    ],
)
def test_plugin_of_a_page__passes_its_own_check(work: str, saved: Callable[..., Any]) -> None:
    """By the first command of the page that names it; README shows it as Python."""
    module, name, method = work.split(".")
    text = text_of(CLASSES[module][0])
    saved(module)
    if name == "Norm":
        code = blocks(text, "python")[-1]
    else:
        code = words_of(next(line for line in commands(text) if module in line))[2]
    assert "check_" in code
    exec(code, {})  # raises AssertionError where it does not
    saved(module, f"\nimport torch\n{name}.{method} = lambda *_, **__: torch.zeros(3)\n")
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        exec(code, {})


@pytest.mark.parametrize(
    ("module", "name", "vantage"),
    [("norm_attack", "Norm", "outsider"), ("drift_attack", "Drift", "client")],
)
def test_attack_of_a_page__needs_what_the_page_says(
    module: str, name: str, vantage: str, saved: Callable[[str], Any]
) -> None:
    cls = getattr(saved(module), name)
    view = AttackCase(cls).view()
    assert view.threat.vantage == vantage and cls().name == f"{module}:{name}"
    assert vantage == "outsider" or len(view.received) > 0


def test_defence_of_the_page__sends_the_largest_changes(saved: Callable[[str], Any]) -> None:
    received = {"w": torch.zeros(4)}
    trained = {"w": torch.tensor([0.1, -3.0, 0.2, 1.0])}
    defense = saved("largest_changes").LargestChanges(share=0.5)
    sent, _ = defense.release(received, trained, {}, np.random.default_rng(0))
    assert sent["w"].tolist() == [0, -3, 0, 1]


def test_strategy_of_the_page__withstands_one_update(saved: Callable[[str], Any]) -> None:
    values = [0.0, 0.1, -0.1, 0.05, 100.0]
    updates = [Update(c, 1, {"w": torch.full((2,), v)}, 5, {}) for c, v in enumerate(values)]
    strategy = saved("geometric_median").GeometricMedian(steps=20)
    assert abs(float(strategy.aggregate({"w": torch.zeros(2)}, updates)["w"][0])) < 0.2


def test_noise_of_the_pages__is_drawn_by_seed_and_round(saved: Callable[[str], Any]) -> None:
    cls, weights = saved("noisy_mean").NoisyMean, {"w": torch.zeros(500)}

    def noise(round: int, seed: int) -> list[float]:
        strategy = cls(noise=0.5)
        strategy.phase = Phase("main", 0, 2, False, 1.0, seed)
        merged: State = strategy.aggregate(weights, [Update(0, round, weights, 5, {})])
        return merged["w"].tolist()

    assert noise(1, 0) == noise(1, 0)
    assert len({tuple(noise(*at)) for at in ((1, 0), (2, 0), (1, 1))}) == 3
    assert np.std(noise(1, 0)) == pytest.approx(0.5, rel=0.1)
    names = {"torch": torch, "trained": weights, "rng": np.random.default_rng(0)}
    sent = run("docs/howto/write_a_defence.md", "noise = {", **names)["noise"]["w"]
    assert sent.dtype == torch.float32 and float(sent.std()) == pytest.approx(0.01, rel=0.1)


def test_loss_of_a_batch_of_the_page__is_the_papers_and_one_number_an_image(
    saved: Callable[[str], Any],
) -> None:
    cls = saved("barlow_twins").BarlowTwins
    case = SSLCase(cls(dim=8))
    views, method = case.views(), case.build()
    z1, z2 = (method.encoder(v).detach().numpy().astype(float) for v in views)
    matrix = np.corrcoef(z1, z2, rowvar=False)[:8, 8:] * (len(z1) - 1) / len(z1)
    want = np.square(1 - np.diag(matrix)).sum()
    want += 0.005 * (np.square(matrix).sum() - np.square(np.diag(matrix)).sum())
    losses = method.losses(*views)
    assert losses.shape == (5,)
    np.testing.assert_allclose(losses.detach().numpy(), want, rtol=0.02)
    assert method.output_losses(method.encoder(views[0]), method.encoder(views[1])).shape == (5,)
    assert case.spec.lr == 0.03


def test_term_of_the_page__is_added_to_each_loss(saved: Callable[[str], Any]) -> None:
    cls = saved("short_outputs").ShortOutputs
    check_ssl(cls)
    case, plain = SSLCase(cls(weight=0.5, dim=8, bank=6)), SSLCase(SimCLR(dim=8, bank=6))
    views, method = case.views(), case.build()
    term = 0.5 * method.encoder(views[0]).square().sum(dim=1)
    assert (term > 0).all() and case.spec.chance_loss(8, 4) is None
    assert torch.allclose(method.step_losses(*views), plain.build().step_losses(*views) + term)


def test_form_of_the_page__opens_its_files(
    saved: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("lightning_form")
    monkeypatch.chdir(tmp_path)
    lightning(Path("FILE.ckpt"), width=6)
    loaded = run("docs/howto/write_an_encoder_form.md", "print(loaded")["loaded"]
    assert loaded.access == "white_box"
    assert loaded.method.encoder(torch.zeros(1, 3, 16, 16)).shape == (1, 24)
    Path("FILE.ckpt").write_bytes(b"no checkpoint")
    with pytest.raises(InputError, match="^cannot read 'FILE.ckpt' as a checkpoint of Lightning"):
        run("docs/howto/write_an_encoder_form.md", "print(loaded")


def test_strategy__runs_in_the_server_app_of_a_page() -> None:
    rounds = list[int]()

    class Counting(PlainGrid):
        def send_and_receive(self, messages: Iterable[Message], **more: Any) -> Iterable[Message]:
            rounds.append(len(sent := list(messages)))
            return super().send_and_receive(sent, **more)

    names: dict[str, Any] = {"app": ServerApp(), "first": arrays(1.0)}
    defined = run("docs/howto/defences.md", "DPFedAvg(", Grid=Grid, Context=Context, **names)
    defined["app"](Counting(make_app()), Context(1, 1, {}, RecordDict(), {}))
    assert [count for count in rounds if count] == [5, *[3] * 10]  # the roll call, the rounds


def test_observer__is_what_fedmia_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MagicMock(spec=ModuleType("wandb"), init=MagicMock())
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    observer = run("docs/howto/observers.md", "class Wandb(", __name__="trackers")["Wandb"]
    check_observer(observer)
    assert tracker.init.return_value.log.called


def test_function__of_the_page_answers_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    service = MagicMock(spec=ModuleType("requests"), post=MagicMock())
    service.post.return_value.json.return_value = {"vectors": [[1.0, 2.0]] * 2}
    monkeypatch.setitem(sys.modules, "requests", service)
    connect = run("docs/howto/own_model.md", "def embed(")["connect"]
    assert connect()(np.zeros((2, 3, 4, 4), np.float32)) == [[1.0, 2.0]] * 2
    assert len(service.post.call_args.kwargs["json"]["images"]) == 2


def test_vectors__of_the_page_are_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw, page = np.random.default_rng(0), "docs/howto/own_model.md"
    sides = {f"{side}_vectors": draw.normal(size=(30, 8)) for side in ("member", "other")}
    quick = partial(fedmia.audit_embeddings, attacks="lpla", quiet=True)
    audit = run(page, "audit_embeddings(", fedmia=SimpleNamespace(audit_embeddings=quick), **sides)
    assert list(audit["audit"].attacks.index) == ["lpla"] and (tmp_path / "AUDIT").is_dir()


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
    """What pages use of fedmia, in an empty folder, with audits of one attack."""
    monkeypatch.chdir(tmp_path)
    audit = partial(fedmia.audit_encoder, attacks="similarity")
    return SimpleNamespace(audit_encoder=audit, run_simulation=fedmia.run_simulation)


def network(channels: int = 1) -> nn.Module:
    """A network of the reader's own."""
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten())


@pytest.mark.pages
@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(
    ("page", "containing", "channels"),
    [
        ("docs/howto/own_data.md", "dataset=(images", 3),
        ("docs/howto/own_model.md", "model=make_network", 1),
    ],
)
def test_own__images_and_network_of_the_page(
    page: str, containing: str, channels: int, quick: SimpleNamespace
) -> None:
    sets = {name: textures(40, n)[:, :channels] for n, name in enumerate(("members", "others"))}
    sets |= {"images": textures(300, 3), "labels": torch.arange(300) % 4}
    names = run(
        page, containing,
        fedmia=quick, encoder=network(channels), make_network=network, **sets,
    )  # fmt: skip
    assert names["run"].verdict and list(names["audit"].attacks.index) == ["similarity"]


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_notebook__takes_the_class_of_the_page(
    quick: SimpleNamespace, saved: Callable[[str], Any]
) -> None:
    page, drift = "docs/howto/write_an_attack.md", saved("drift_attack").Drift
    names = run(page, "attacks=[", fedmia=quick, Drift=drift)
    assert any("Drift" in name for name in names["run"].attacks.index)


def in_a_process(code: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script, run in an empty folder with this clone."""
    done = subprocess.run(
        [sys.executable, code], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow(seconds=90)
def test_own_study__compares_an_own_attack(tmp_path: Path) -> None:
    script = ROOT / "docs" / "howto" / "own_study.py"
    assert len(script.read_text().split("\n")) < 35
    in_a_process(script, tmp_path)
    comparison = fedmia.open_study(tmp_path / "STUDY").compare("Norm", "similarity")
    assert list(comparison["models"]) == [3, 3]  # a point each
    assert (tmp_path / "comparison.png").stat().st_size > 1000


@pytest.mark.slow(seconds=60)
def test_python__the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(blocks(text_of(WHOLE), "python")))
    done = in_a_process("page.py", tmp_path)
    assert "did you mean 'clients'?" in done.stdout
    assert "python:Norm@" not in done.stderr and "Norm on the released encoder" in done.stderr
    assert all((tmp_path / name / "report.html").is_file() for name in ("RUN", "OWN", "AUDIT"))


@pytest.mark.slow(seconds=30)
def test_readme__python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, but for the preset and the attacks of the audit, which take minutes."""
    monkeypatch.chdir(tmp_path)
    code = block("README.md", "fedmia.run_simulation(")
    for whole, short in {
        "tion(cl": 'tion("smoke", cl',
        "others)": 'others, attacks="similarity")',
    }.items():
        assert code.count(whole) == 1
        code = code.replace(whole, short)
    pixels = textures(120, 5)[:, :1]
    names: dict[str, Any] = {"encoder": network(), "members": pixels[:60], "others": pixels[60:]}
    exec(compile(code, "README.md", "exec"), names)
    assert list(names["audit"].attacks.index) == ["similarity"]


def test_gallery__shows_every_picture() -> None:
    pictures = (ROOT / "docs" / "images" / "gallery").glob("*.png")
    assert sorted(NAMES) == sorted(path.stem for path in pictures)
    assert all(f"../images/gallery/{name}.png" in GALLERY for name in NAMES)


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_gallery__every_figure_is_drawn_again_or_said_to_be_a_file(materials: Materials) -> None:
    folder = materials.make("RUN")
    run = fedmia.open_run(folder)
    for name in NAMES:
        assert (folder / "figures" / f"{name}.png").is_file()
        if f"`{name}` is only a file" in GALLERY:
            with pytest.raises(InputError, match=f"'{name}' .* has no data: "):
                run.figure(name)
        else:
            assert run.figure(name).axes, name
