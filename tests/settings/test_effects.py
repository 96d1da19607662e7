"""Options that have no effect under the others are refused, whosever word they are."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

import fedmia
from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.encoders.base import load
from fedmia.settings import option
from fedmia.settings.effects import find_idle
from fedmia.settings.errors import InputError
from fedmia.settings.fields import Settings
from fedmia.settings.tree import from_tree
from fedmia.settings.user import UserSettings

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
    name, *words = shlex.split(line)
    flag, value = idle.split()
    with pytest.raises(InputError, match=" has no effect (without|with|beside|on) ") as caught:
        parse(COMMANDS[name], [*words, *idle.split()])
    path = value.partition("=")[0] if "=" in value and flag == "--over" else flag[2:]
    assert path.replace("-", "_").rpartition(".")[2] in str(caught.value).replace("-", "_")
    if effective:
        settings = dict(zip(effective.split()[::2], effective.split()[1::2], strict=True))
        own = dict(zip(words[::2], words[1::2], strict=True)) | settings
        flat = [word for pair in {**own, flag: value}.items() for word in pair]
        assert parse(COMMANDS[name], flat).settings is not None


def test_value_of_a_file__counts_as_a_flag_does_and_a_presets_does_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("federation: {attack_rounds: 2}\n")
    with pytest.raises(InputError, match=f"^{file}: federation.attack_rounds .* has no effect"):
        parse(COMMANDS["simulate"], ["--config", str(file)])
    assert parse(COMMANDS["simulate"], ["--config", str(file), "--attacker", "active"]).settings
    with pytest.raises(InputError, match="has no effect"):
        fedmia.run_simulation(attack_rounds=2)
    run = parse(COMMANDS["simulate"], ["--config", "overfit", "--attacker", "none"]).settings
    assert run.federation.attack_rounds is None and not run.attack_rounds
    file.write_text("base: overfit\nattacker: none\n")
    assert parse(COMMANDS["simulate"], ["--config", str(file)]).settings == run
    file.write_text("base: overfit\nattacker: none\nfederation: {attack_rounds: 1}\n")
    with pytest.raises(InputError, match="has no effect"):
        parse(COMMANDS["simulate"], ["--config", str(file)])


def test_study__an_option_needs_an_effect_on_one_run_only() -> None:
    flags = "--over attacker=none,active --attack-rounds 2"
    cells = parse(COMMANDS["study"], flags.split()).settings.points
    assert [cell.tree["federation"]["attack_rounds"] for cell in cells] == [None, 2]
    for cell in cells:  # the process of a run is told nothing that is refused
        UserSettings(COMMANDS["simulate"]).over(cell.tree).complete()


@pytest.mark.parametrize("limit", [{"rate": 2.0}, {"batch": 8}])
def test_limits_of_requests__need_an_api_or_a_function(limit: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(limit))} .* has no effect on run@2: only"):
        load("tests/stored/run", **limit)


@pytest.mark.parametrize("ssl", ["simclr", "mocov3", "vicreg", "lejepa", "dinov2"])
def test_batch_of_one__is_refused_where_the_method_compares_a_batchs_images(ssl: str) -> None:
    flags = f"--ssl {ssl} --train.batch_size".split()
    with pytest.raises(InputError, match="train.batch_size: 1, must be >= 2 with "):
        parse(COMMANDS["simulate"], [*flags, "1"])
    assert parse(COMMANDS["simulate"], [*flags, "2"]).settings.train.batch_size == 2
    assert parse(COMMANDS["simulate"], ["--train.batch_size", "1"]).settings


@dataclass(frozen=True)
class Rooted(Settings):
    """Options of no section, of which one needs another that is left out at its default."""

    limit: int | None = option(None, "most", omitted=True)
    least: int = option(2, "least", needs=("limit",))


def test_needs__hold_between_options_of_no_section() -> None:
    (path,) = find_idle(from_tree(Rooted, {"least": 3}), {"least": 3})
    assert path == "least"
    both = {"least": 3, "limit": 5}
    assert not find_idle(from_tree(Rooted, both), both)
