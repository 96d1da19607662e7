"""Options that have no effect under the others are refused, whosever word they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedmia
from fedmia.encoders.base import load
from fedmia.settings.errors import InputError
from tests.settings.conftest import built, refused

AUDIT = "audit --encoder tests/stored/run"
VECTORS = "audit --member-embeddings a.npy --nonmember-embeddings b.npy"
RAY = "simulate --backend ray"
# The command, the option without effect, and settings beside which it has one.
IDLE = [
    ("simulate", "--attack-rounds 2", "--attacker active"),
    ("simulate --attacker passive", "--federation.attacked-rate constant", "--attacker active"),
    ("simulate", "--malicious 2", "--attacker passive"),
    ("simulate --attacker server", "--attacker-trains false", "--attacker active"),
    ("simulate --attacks none", "--federation.placebo true", "--attacks similarity"),
    ("simulate --attacks none", "--query-budget 900", "--attacks similarity"),
    ("simulate --attacker active --attacks ascent", "--sweep known=4", "--attacks ascent,lpla"),
    ("simulate", "--federation.batch-norm local", "--model.norm batch"),
    ("simulate", "--cpus-per-client 1", "--backend ray"),
    (RAY, "--clients-at-once 4", "--backend inline"),
    ("simulate", "--data-dir X", "--dataset cifar10"),
    ("simulate", "--pixel-range 0,9", "--dataset npz:a.npz"),
    ("simulate", "--skip-unreadable true", "--dataset folder:X"),
    ("simulate", "--defended-clients 1", "--defense gaussian"),
    ("simulate", "--pretrain-epochs 3", "--pretrain pooled"),
    ("simulate", "--train.beta2 0.9", "--train.optimizer adamw"),
    ("simulate --train.schedule constant", "--train.lr-end 0.1", "--train.schedule cosine"),
    ("simulate", "--ssl.adversarial-steps 2", "--ssl.adversarial 0.1"),
    ("simulate --defense gaussian", "--defense.samples 3", "--defense.sensitivity sampled"),
    ("simulate --strategy dp-fedavg", "--strategy.quantile 0.4", "--strategy.adaptive true"),
    ("simulate", "--attack.similarity.classifier lda", "--attack.similarity.pairs all"),
    (AUDIT, "--cache C", "--shadows 2"),
    (f"{AUDIT} --attacks similarity", "--shadows 2", "--attacks lira"),
    (AUDIT, "--data-dir X", "--members digits --nonmembers digits"),
    (AUDIT, "--channels rgb", "--members digits --nonmembers digits"),
    (VECTORS, "--precision bfloat16", ""),
    (VECTORS, "--augment.flip 0.1", ""),
    (VECTORS, "--batch 8", ""),
    ("bench similarity", "--cache C", ""),
    ("bench similarity", "--shadows 2", ""),
    ("bench --check E", "--targets a", ""),
    ("bench --check E", "--knows nonmembers", ""),
    ("study --over strategy=fedavg,fedprox", "--attack-rounds 2", "--attacker active"),
    ("study", "--over federation.attack_rounds=1,2", "--attacker active"),
    (f"study --encoders {AUDIT.split()[-1]}", "--keep-snapshots true", ""),
    (f"study --encoders {AUDIT.split()[-1]}", "--cache C", "--shadows 2"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "idle", "effective"), IDLE)
def test_option__without_effect_is_refused(line: str, idle: str, effective: str) -> None:
    name, *words = line.split()
    flag, value = idle.split()
    said = refused(f"{line} {idle}")
    assert re.search(" has no effect (without|with|beside|on) ", said)
    path = value.partition("=")[0] if "=" in value and flag == "--over" else flag[2:]
    assert path.replace("-", "_").rpartition(".")[2] in said.replace("-", "_")
    if effective:
        pairs = [*words, *effective.split(), flag, value]
        own = dict(zip(pairs[::2], pairs[1::2], strict=True))
        assert built(" ".join([name, *(word for pair in own.items() for word in pair)]))


def test_value_of_a_file__counts_as_a_flag_does_and_a_presets_does_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("federation: {attack_rounds: 2}\n")
    assert built(f"simulate --config {file} --attacker active").attack_rounds == 2
    with pytest.raises(InputError, match="has no effect"):
        fedmia.run_simulation(attack_rounds=2)
    run = built("simulate --config overfit --attacker none")
    assert run.federation.attack_rounds is None and not run.attack_rounds


@pytest.mark.parametrize("limit", [{"rate": 2.0}, {"batch": 8}])
def test_limits_of_requests__need_an_api_or_a_function(limit: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(limit))} .* has no effect on run@2: only"):
        load("tests/stored/run", **limit)


@pytest.mark.parametrize("ssl", ["simclr", "mocov3", "vicreg", "lejepa", "dinov2"])
def test_batch_of_one__is_refused_where_the_method_compares_a_batchs_images(ssl: str) -> None:
    flags = f"simulate --ssl {ssl} --train.batch_size"
    assert refused(f"{flags} 1").startswith("train.batch_size: 1, must be >= 2 with ")
    assert built(f"{flags} 2").train.batch_size == 2
    assert built("simulate --train.batch_size 1")
