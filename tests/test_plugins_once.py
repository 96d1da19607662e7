"""Every plugin of a run or an audit is built once, as an instance with its options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedmia.audit import main as audit
from fedmia.settings import registry
from fedmia.settings.choices import PluginChoice
from fedmia.simulate import main as simulate

RUN = (
    "--dataset synthetic --data.pixels 8 --data.images 120 --data.classes 2 --clients 3 --rounds 2 "
    "--split.members 36 --split.known 8 --train.local_epochs 1 --model.width 4 --ssl.dim 8 "
    "--federation.attack_rounds 1 --federation.snapshots 1 --quiet --attacker active "
    "--attacks similarity,internal,ascent --attack.similarity.views 3 --attack.ascent.lr 1 "
    "--defense gaussian --defense.scale 0.001 --defended-clients 0 --strategy fedprox "
)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each plugin is built, by kind and name."""
    counts, build = Counter[tuple[str, str]](), registry.build

    def count(kind: str, name: str, options: Mapping[str, Any], path: str = "") -> Any:
        counts[kind, name] += 1
        return build(kind, name, options, path)

    monkeypatch.setattr(registry, "build", count)
    return counts


def test_run_and_audit_of_it__build_each_plugin_once(
    built: Counter[tuple[str, str]], tmp_path: Path
) -> None:
    run = tmp_path / "RUN"
    assert simulate([*RUN.split(), "--out", str(run)]) == 0
    kinds = {kind for kind, _ in built}
    assert kinds == {
        "attack", "dataset", "defense", "model", "partition", "role", "ssl", "strategy",
    }  # fmt: skip
    names = {name for kind, name in built if kind == "attack"}
    assert names == {"similarity", "internal", "ascent"} and built["role", "honest"] == 1
    assert {*built.values()} == {1}
    built.clear()
    flags = f"--encoder {run} --federation {run}/recording --attacks similarity,internal --quiet "
    assert audit(f"{flags} --threads 1 --device cpu --attack.similarity.views 3".split()) == 0
    # The data source tells the encoder its constants, and the audit its images.
    assert built.pop(("dataset", "synthetic")) == 2
    assert {*built.values()} == {1} and ("attack", "internal") in built


def test_choice__copies_what_may_take_on_a_state() -> None:
    choice = PluginChoice("fedavgm", {"server_lr": 0.5})
    one, two = choice.build("strategy"), choice.build("strategy")
    assert one is not two and choice.plugin("strategy") is choice.plugin("strategy")
    one.server_lr = 9.0
    assert two.server_lr == choice.plugin("strategy").server_lr == 0.5
    other = choice.with_options("strategy", {**choice.complete("strategy").options, "server_lr": 2})
    assert (other.plugin("strategy").server_lr, choice.plugin("strategy").server_lr) == (2, 0.5)
