"""The frozen targets: files, sizes, roles."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmia.bench.targets import (
    CARD,
    MEMBERS,
    NONMEMBERS,
    ROLE_NAMES,
    TARGETS,
    Target,
    bench_folder,
    find_images,
    read_plan,
    read_targets,
)
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.settings.yamlfile import load

FOLDER = bench_folder("encoders-v1")
EVERY = read_targets(FOLDER)


@pytest.mark.parametrize("target", EVERY, ids=lambda target: target.name)
def test_target__its_files_are_those_of_the_card_and_small(target: Target) -> None:
    target.check_files()
    files = [path for path in target.folder.rglob("*") if path.is_file()]
    assert {str(f.relative_to(target.folder)) for f in files} == {CARD, *target.card["files"]}
    assert sum(f.stat().st_size for f in files) < 1.5e6
    assert (target.card["name"], target.card["seed"]) == (target.name, read_plan(FOLDER)["seed"])


@pytest.mark.parametrize("target", EVERY, ids=lambda target: target.name)
def test_target__no_image_has_two_roles(target: Target) -> None:
    names = [name for role in ROLE_NAMES for name in target.roles[role]]
    assert len(names) == len(set(names)) and {len(name) for name in names} == {64}
    assert target.card["images"] == {role: len(target.roles[role]) for role in ROLE_NAMES}
    assert min(len(target.roles[role]) for role in (MEMBERS, NONMEMBERS)) >= 100


def test_target__those_of_cifar10_share_no_image() -> None:
    names = [
        name
        for target in EVERY
        if target.card["data"] == "cifar10"
        for role in ROLE_NAMES
        for name in target.roles[role]
    ]
    assert len(names) == len(set(names))


def test_target__the_bench_stays_under_40_megabytes() -> None:
    assert sum(f.stat().st_size for f in FOLDER.rglob("*") if f.is_file()) < 40e6


def test_target__a_changed_file_is_refused(tmp_path: Path) -> None:
    shutil.copytree(EVERY[0].folder, copy := tmp_path / EVERY[0].name)
    target = Target(copy, json.loads((copy / CARD).read_text()))
    target.check_files()
    file = next((copy / "recording").rglob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(InputError, match=file.name):
        target.check_files()


def test_split__images_stand_where_the_roles_name_them() -> None:
    target = read_targets(FOLDER, ["moco-digits-weak"])[0]
    images = find_images([target], ())
    split = target.split(images, shadows=False)
    assert np.array_equal(
        split.pixels("scored_members")[3].numpy(), images[target.roles[MEMBERS][3]]
    )
    assert len(split.ids("spare")) == 0 < len(target.split(images, shadows=True).ids("spare"))


def test_read_targets__an_unknown_name_and_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nothing'"):
        read_targets(FOLDER, ["nothing"])
    with pytest.raises(InputError, match="'nowhere'"):
        bench_folder("nowhere")
    name = EVERY[0].name
    place = tmp_path / TARGETS / name
    place.mkdir(parents=True)
    shutil.copy(FOLDER / "plan.yaml", tmp_path)
    (place / CARD).write_text(json.dumps({**EVERY[0].card, "version": "encoders-v0"}))
    with pytest.raises(InputError, match="encoders-v0"):
        read_targets(tmp_path, [name])


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("name", ["moco-digits-weak", "trap-untrained", "federation-digits"])
def test_targets__made_again_they_are_equal_but_for_what_is_drawn_and_summed(
    name: str, tmp_path: Path
) -> None:
    shutil.copy(FOLDER / "plan.yaml", tmp_path)
    script = FOLDER.parents[2] / "tools" / "targets.py"
    line = [sys.executable, str(script), str(tmp_path), "--only", name]
    subprocess.run(line, check=True, capture_output=True)
    places = [at / TARGETS / name for at in (tmp_path, FOLDER)]
    made, kept = (json.loads((place / CARD).read_text()) for place in places)
    # Paths of options have moved since, and short names stand for them; checkpoints go by seconds.
    settings = [from_tree(Experiment, load(place / "config.yaml")) for place in places]
    settings = [
        replace(one, machine=replace(one.machine, checkpoint_every=None)) for one in settings
    ]
    assert settings[0] == settings[1]
    for card in (made, kept):
        del card["files"]["config.yaml"], card["command"]  # which names the folders as they were
    assert not (tmp_path / TARGETS / f"{name}.partial").exists()
    trained = {n for n in kept["files"] if n.endswith(".safetensors")}
    trained -= {"recording/models/main/0000.safetensors"}
    if trained and all(made["files"][name] != kept["files"][name] for name in trained):
        # Another processor's sums, or a queue of another stream, as that of these targets was: the
        # bits of all trained models differ, and their losses.
        assert abs(made.pop("knn") - kept.pop("knn")) < 0.1
        differ = {*trained, "recording/rounds.jsonl"}
        for card in (made, kept):
            card["files"] = {n: one for n, one in card["files"].items() if n not in differ}
    assert made == kept
