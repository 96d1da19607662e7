"""The experiment: complete once built, exact round trips, strict files, checks across sections."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmia.attacks.base import ActiveAttack
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.partitions.split import SplitOptions
from fedmia.runtime import environment
from fedmia.settings import registry
from fedmia.settings.commands.compatibility import check_experiment
from fedmia.settings.commands.experiment import (
    Experiment,
    Federation,
    Layer,
    PluginChoice,
    Pretrain,
    expand_attacks,
)
from fedmia.settings.commands.roles import refusal
from fedmia.settings.errors import InputError
from fedmia.settings.options import option_fields
from fedmia.settings.tree import from_tree, to_tree
from fedmia.settings.yamlfile import dump, load
from fedmia.threat import Threat
from tests.snapshots import Snapshot


def experiment_of(tree: dict[str, Any]) -> Experiment:
    return from_tree(Experiment, tree)


def refused(tree: dict[str, Any]) -> str:
    """The one-line message with which a tree is refused."""
    with pytest.raises(InputError) as caught:
        check_experiment(experiment_of(tree))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_experiment__every_option_of_every_choice_is_written_out() -> None:
    experiment = Experiment.complete(partition=PluginChoice("dirichlet", {"alpha": 0.1}))
    partition = registry.load("partition", "dirichlet")
    assert experiment.partition.options["alpha"] == 0.1
    assert set(experiment.partition.options) == {f.name for f, _ in option_fields(partition)}
    assert set(experiment.attack) == set(experiment.attacks)
    for name in experiment.attacks:
        options = {f.name for f, _ in option_fields(registry.load("attack", name))}
        assert set(experiment.attack[name]) == options


def test_experiment__chosen_builds_what_it_names() -> None:
    built = Experiment.complete(ssl=PluginChoice("mocov2", {"temperature": 0.3})).ssl.build("ssl")
    assert type(built) is registry.load("ssl", "mocov2") and built.temperature == 0.3


@pytest.mark.parametrize(
    ("method", "data", "given", "want"),
    [
        ("moco", "digits", {}, (0.9, 0.0, 0.25)),
        ("mocov2", "cifar10", {}, (0.2, 0.5, 1.0)),
        ("moco", "synthetic", {}, (0.2, 0.5, 1.0)),
        ("mocov2", "digits", {"crop_min": 0.3}, (0.3, 0.0, 0.25)),
        ("moco", "digits", {"flip": 0.5, "jitter": 0.0}, (0.9, 0.5, 0.0)),
        ("moco", "cifar10", {"flip": 0.0}, (0.2, 0.0, 1.0)),
        ("moco", "digits", {"crop_min": None}, (0.9, 0.0, 0.25)),
    ],
)
def test_views__are_the_data_sources_where_not_given(
    method: str, data: str, given: dict[str, float | None], want: tuple[float, ...]
) -> None:
    experiment = experiment_of({"data": data, "ssl": {"name": method, **given}})
    names = ("crop_min", "flip", "jitter")
    assert tuple(experiment.ssl.options[name] for name in names) == want
    augment = experiment.ssl.build("ssl").augment
    assert (augment.crop_min, augment.flip) == want[:2]
    assert augment.brightness == pytest.approx(0.4 * want[2])
    assert experiment_of(to_tree(experiment)) == experiment  # written out, so a run can be repeated


def test_views__an_operation_that_the_data_forbids_is_refused() -> None:
    settings = parse(SIMULATE, ["--dataset", "digits", "--ssl.operations", "blur,crop"]).settings
    augment = settings.ssl.build("ssl").augment
    assert augment.operations == ("blur", "crop") and augment.blur_p == 0.5
    with pytest.raises(InputError, match="no flip"):
        parse(SIMULATE, ["--dataset", "digits", "--ssl.operations", "crop,flip"])


def test_views__of_every_source_are_a_shares_a_probability_and_a_factor() -> None:
    for name in registry.names("dataset"):
        views = registry.load("dataset", name).views
        assert 0 < views.crop_min <= 1 and 0 <= views.flip <= 1 and views.jitter >= 0


def test_experiment__pickles_and_replaces() -> None:
    experiment = Experiment.complete(attacker="active")
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    other = dataclasses.replace(experiment, seed=5)
    assert other.attacks == experiment.attacks and other.seed == 5


def test_roles__the_last_clients_attack_and_the_honest_defend() -> None:
    five, layers = Federation(clients=5), (Layer("gaussian"),)
    experiment = Experiment.complete(
        attacker="active", malicious=2, federation=five, defense=layers
    )
    assert experiment.malicious_clients == (3, 4)
    assert experiment.honest_clients == (0, 1, 2) == experiment.defended
    assert dataclasses.replace(experiment, defended_clients=(2, 0)).defended == (0, 2)
    for role in ("none", "server"):  # no client attacks
        experiment = Experiment.complete(attacker=role, malicious=99, defense=layers)
        check_experiment(experiment)
        assert experiment.malicious_clients == ()
        assert experiment.defended == tuple(range(10)) == experiment.honest_clients


def test_attacks__main_and_all_are_what_the_role_permits() -> None:
    kinds = {name: registry.load("attack", name) for name in registry.names("attack")}
    active = {name for name, cls in kinds.items() if issubclass(cls, ActiveAttack)}
    main = {name for name in active if kinds[name].main}
    assert main < active and len(main) == 1  # one fits into a federation
    for names in ("main", "all"):
        assert active & set(expand_attacks((names,), "active")) == main
    trained = {name for name, cls in kinds.items() if not cls.uses_shadows} - active
    clients = {name for name in trained if kinds[name].needs.vantage != "server"}
    alone = {name for name in trained if kinds[name].needs.vantage == "outsider"}
    assert set(expand_attacks(("all",), "active")) == clients | main
    assert set(expand_attacks(("all",), "none")) == alone
    assert not active & set(expand_attacks(("all",), "server"))
    assert set(Experiment.complete().attacks) == {name for name in alone if kinds[name].main}
    assert expand_attacks(("none",), "active") == ()
    more = expand_attacks(("lpla", "main", "similarity"), "none")
    assert more[0] == "lpla" and sorted(more) == sorted({"lpla", *Experiment.complete().attacks})


@pytest.mark.parametrize(
    ("vantage", "role", "words"),
    [
        ("client", "none", "passive, active or server"),
        ("client", "passive", None),
        ("outsider", "none", None),
        ("client", "server", None),
        ("server", "active", "needs attacker server"),
        ("server", "server", None),
    ],
)
def test_refusal__by_declared_needs(vantage: str, role: str, words: str | None) -> None:
    attack = type("Probe", (), {"needs": Threat("black_box", vantage), "uses_shadows": False})
    reason = refusal(attack, role)
    assert reason is None if words is None else reason is not None and words in reason


def test_round_trip__dict_and_yaml_are_exact(tmp_path: Path) -> None:
    tree = {
        "seed": 7,
        "attacker": "active",
        "data": {"name": "digits", "mean": [0.1], "std": [1 / 3], "dir": "\x85\u2028 folder: #1"},
        "partition": {"name": "dirichlet", "alpha": 1e-05},
        "defense": {"name": "dpsgd", "epsilon": 3},
        "defended_clients": "0-4,7",
        "train": {"lr": 0.1 + 0.2},
    }
    experiment = experiment_of(tree)
    assert experiment.defended_clients == (0, 1, 2, 3, 4, 7)
    assert experiment_of(to_tree(experiment)) == experiment
    file = tmp_path / "config.yaml"
    file.write_text(dump(to_tree(experiment), {"versions": {"torch": "2"}, "commit": None}))
    assert "_run" in yaml.safe_load(file.read_text())
    again = experiment_of(load(file))
    assert again == experiment and dump(to_tree(again)) == dump(to_tree(experiment))


def test_to_dict__holds_no_out_and_only_plain_values() -> None:
    def walk(value: Any) -> None:
        assert value is None or type(value) in (dict, list, str, int, float, bool)
        for inner in value.values() if isinstance(value, dict) else []:
            walk(inner)
        for inner in value if isinstance(value, list) else []:
            walk(inner)

    tree = to_tree(Experiment.complete(attacker="active"))
    walk(tree)
    assert not {"out", "seeds", "quiet", "json", "_run"} & set(tree)


def test_from_dict__short_and_long_forms_are_the_same() -> None:
    short = experiment_of({"partition": "shards", "data": "digits", "pretrain": "none"})
    long = experiment_of(
        {"partition": {"name": "shards"}, "pretrain": {"mode": "none", "epochs": 0}}
    )
    assert short == long
    assert (
        experiment_of({"defense": None})
        == experiment_of({"defense": "none"})
        == Experiment.complete()
    )
    assert experiment_of({"attacks": "similarity, internal"}).attacks == ("similarity", "internal")


# What no flag can say; those that one can are in tests/cli/test_bad_input.py.
REFUSED: list[dict[str, Any]] = [
    {"federation": 3},
    {"federation": {"clients": "3"}},
    {"seed": True},
    {"attacks": None},
    {"partition": None},
    {"partition": {"name": 3}},
    {"data": {"mean": 0.5}},
    {"defense": 3},
    {"defense": [{"epsilon": 3}]},
    {"defense": [{"name": "dpsgd", "clients": [12]}]},
    {"defense": [{"name": "dpsgd", "clients": []}]},
    {"defense": [{"name": "dpsgd", "clients": "abc"}]},
    {"defense": "dpsgd", "defended_clients": []},
    {"attacks": ["ascent"], "attacker": "server"},
    {"attacker": "active", "malicious": 7, "federation": {"clients": 3}},
]


def test_bad_input__one_line_names_the_value(snapshot: Snapshot) -> None:
    snapshot("\n".join(f"{tree}: {refused(tree).partition(' (known')[0]}" for tree in REFUSED))
    assert refused({"device": "cuda:99"}).startswith("machine.device (--device) cuda:99: ")


def test_check__what_suits_one_another_passes() -> None:
    check_experiment(Experiment.complete())
    check_experiment(Experiment.complete(attacker="active"))
    alone = {"malicious": 3, "federation": {"clients": 3}, "attacks": "none"}
    check_experiment(experiment_of(alone))
    check_experiment(experiment_of({"attacks": ["ascent"], "attacker": "active"}))
    public, forty = Pretrain("public", 2), SplitOptions(public=40)
    check_experiment(Experiment.complete(pretrain=public, split=forty, defense=(Layer("dpsgd"),)))
    check_experiment(Experiment.complete(pretrain=Pretrain("pooled", 2)))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds nothing"),
        (b"[1, 2]", "holds list"),
        (b"seed: [1", "not valid YAML"),
        (b"train:\n  lr: 1\n  lr: 2", "'lr' is written twice (line 3)"),
        (b"1: 2", "'1' is not a name (line 1)"),
        (b"seed: !!python/object:os.system x", "not valid YAML"),
        (b"seed: \xff", "not UTF-8"),
        (None, "cannot read"),
    ],
)
def test_load__bad_files_are_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "bad.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(file)
    assert why in str(caught.value) and str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load__exponents_without_a_dot_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "lr.yaml"
    file.write_text("train: {lr: 1e-3, weight_decay: 5E-4}")
    train = experiment_of(load(file)).train
    assert (train.lr, train.weight_decay) == (1e-3, 5e-4)


def test_environment__describes_without_what_varies() -> None:
    first = environment.describe()
    assert first == environment.describe()
    assert first["versions"]["torch"] and first["versions"]["python"]
    assert first["hardware"]["cores"] >= 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_commit__is_that_of_fedmias_own_checkout_only(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        name = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *name, *arguments],
            check=True, capture_output=True, text=True, env=clean,
        ).stdout.strip()  # fmt: skip

    file = tmp_path / "fedmia" / "runtime" / "environment.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert environment.commit(tmp_path) is None  # no repository
    git("init", "-q")
    (tmp_path / "other").write_text("")
    git("add", "other")
    git("commit", "-q", "-m", "somebody else's")
    assert environment.commit(tmp_path) is None  # fedmia lies there, untracked
    git("add", "fedmia")
    git("commit", "-q", "-m", "fedmia")
    assert environment.commit(tmp_path) == git("rev-parse", "HEAD")
    copy = tmp_path / "vendor" / "fedmia" / "runtime" / "environment.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("")
    git("add", "vendor")
    assert environment.commit(tmp_path / "vendor") is None  # tracked, but by another project


def test_commit__without_git_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.commit() is None
