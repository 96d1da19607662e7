"""The experiment: complete once built, its attacks, and what a run notes of its machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedmia.attacks.base import ActiveAttack
from fedmia.runtime import environment
from fedmia.settings import registry
from fedmia.settings.commands.experiment import (
    Experiment,
    expand_attacks,
)
from fedmia.settings.tree import from_tree, to_tree
from tests.options import option_fields
from tests.settings.conftest import built


def test_experiment__every_option_of_every_choice_is_written_out() -> None:
    experiment = built("simulate --partition dirichlet --partition.alpha 0.1")
    partition = registry.load("partition", "dirichlet")
    assert experiment.partition.options["alpha"] == 0.1
    assert set(experiment.partition.options) == {f.name for f, _ in option_fields(partition)}
    assert set(experiment.attack) == set(experiment.attacks)
    for name in experiment.attacks:
        options = {f.name for f, _ in option_fields(registry.load("attack", name))}
        assert set(experiment.attack[name]) == options


def test_views__of_every_source_are_a_shares_a_probability_and_a_factor() -> None:
    for name in registry.names("dataset"):
        views = registry.load("dataset", name).views
        assert 0 < views.crop_min <= 1 and 0 <= views.flip <= 1 and views.jitter >= 0


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
    assert "all-for-one" in expand_attacks(("all",), "server")
    assert expand_attacks(("none",), "active") == ()
    more = expand_attacks(("lpla", "main", "similarity"), "none")
    assert more[0] == "lpla" and sorted(more) == sorted({"lpla", *Experiment.complete().attacks})


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


def test_defense__its_own_clients_come_before_those_of_all() -> None:
    layers = [{"name": "gaussian", "clients": [1]}, {"name": "logistic"}]
    settings = from_tree(Experiment, {"defense": layers, "defended_clients": [0, 2]})
    assert [settings.layer_client_ids(one) for one in settings.defense] == [(1,), (0, 2)]
    assert settings.defended == (0, 1, 2)
