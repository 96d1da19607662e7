"""Same seed, same report: run again, from its own config.yaml, beside others, and on Ray."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from fedmia.recording import Recording
from fedmia.report.figures import draw
from fedmia.runtime.cores import count_cores
from fedmia.simulate import main
from tests.bank import ATTACKED, EVERY_ATTACK, Bank

from .conftest import TINY, same

Capture = pytest.CaptureFixture[str]
CHEAP = "--federation.snapshots 1 --attack.similarity.views 4 "
# What clients do: they train and craft. How a server scores is no matter of where they run.
SHORT = TINY.replace("--rounds 4", "--rounds 3 --attack-rounds 1") + "--attacker active " + CHEAP
ON_CLIENTS = SHORT + "--attacks similarity,ascent --attack.ascent.pairs 1 "


def reported(flags: str, capsys: Capture) -> dict[str, Any]:
    """The report of a run that `--json` prints."""
    assert main([*shlex.split(flags), "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def without(report: dict[str, Any], *keys: str) -> str:
    """`report` as text, without `keys`."""
    return json.dumps({k: v for k, v in report.items() if k not in keys}, indent=1)


@pytest.fixture(scope="module")
def first(bank: Bank) -> dict[str, Any]:
    """A run with every attack."""
    report: dict[str, Any] = json.loads((bank.run(EVERY_ATTACK) / "report.json").read_text())
    return report


@pytest.mark.slow
def test_same_seed__same_report_but_for_timing(
    first: dict[str, Any], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one thread scores where four did, or the other way round."""
    other = 1 if count_cores() > 1 else 4
    monkeypatch.setattr("fedmia.evaluation.score.count_cores", lambda: other)
    assert without(first, "timing") == without(reported(EVERY_ATTACK, capsys), "timing")
    assert len(first["attacks"]) >= 5


@pytest.mark.slow
def test_another_seed__another_report(first: dict[str, Any], capsys: Capture) -> None:
    other = reported(ATTACKED + "--attacks similarity --seed 1", capsys)
    mine = next(a for a in first["attacks"] if a["name"] == "similarity")
    assert other["attacks"][0] != mine and other["rounds"] != first["rounds"]


@pytest.mark.slow
def test_config__a_runs_own_file_repeats_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where flags, a plugin's options and a list made the first run."""
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})  # slow, tested elsewhere
    flags = (
        TINY.replace("--train.lr 0.06", "--train.lr 6e-2")
        + "--attacker passive --attacks similarity,internal --attack.similarity.views 4 "
        "--attack.internal.layers layer1,encoder --partition dirichlet --partition.alpha 0.5 "
        "--ssl.symmetric true --strategy fedavgm --seed 3 --federation.snapshots 2"
    )
    assert main([*shlex.split(flags), "--quiet", "--out", str(tmp_path / "one")]) == 0
    config = tmp_path / "one" / "config.yaml"
    assert main(["--config", str(config), "--quiet", "--out", str(tmp_path / "two")]) == 0
    folders = [tmp_path / "one", tmp_path / "two"]
    one, two = (json.loads((f / "report.json").read_text()) for f in folders)
    assert without(one, "timing") == without(two, "timing")
    assert len({(f / "scores.csv").read_text() for f in folders}) == 1
    stores = [Recording(f / "recording") for f in folders]
    rounds = stores[0].rounds("main")
    assert rounds == stores[1].rounds("main") and rounds[-1] == 4
    assert len(rounds) == 3
    assert all(same(*(s.load("main", r)[0] for s in stores)) for r in rounds)
    assert str(tmp_path) not in config.read_text()  # `out` is not part of the config


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "--strategy fedema --federation.participation 0.5 --train.optimizer adamw "
        "--train.warmup_epochs 2 --ssl byol --ssl.momentum_schedule cosine",
        "--strategy scaffold --federation.batch_norm local --model.norm batch",
        # The others train plainly.
        "--defense dpsgd,gaussian --defended-clients 0 --ssl mae --model vit-tiny --model.heads 2 "
        "--model.depth 4",
    ],
)
def test_ray__same_report_as_inline_but_for_timing_and_config(
    more: str, one_ray: None, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
    inline = reported(ON_CLIENTS + more, capsys)
    ray = reported(ON_CLIENTS + more + " --backend ray", capsys)
    assert inline["config"]["machine"].pop("backend") == "inline"
    assert ray["config"]["machine"].pop("backend") == "ray"
    assert without(inline, "timing", "config") == without(ray, "timing", "config")
    configs = [r["config"] for r in (inline, ray)]
    assert configs[0] == configs[1]
