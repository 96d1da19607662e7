"""A bench whose targets share roles: made, opened, attacked, with shadows that serve several."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedmia import bench
from fedmia.bench.board import TargetRow
from fedmia.bench.targets import (
    COMMON,
    MISMATCH,
    NONMEMBERS,
    ROLE_NAMES,
    ROLES,
    SHADOWS,
    Target,
    find_images,
    have_images,
    read_targets,
)
from fedmia.settings.errors import InputError
from tests.bench.entrants import COIN, READS_EDGES, write_attack

pytestmark = pytest.mark.slow(seconds=40)
TOOLS = Path(__file__).parents[2] / "tools"
PLAN = """
version: small
seed: 5
models: last
data:
  digits: {alike: 0.98, mean: [0.305], std: [0.376], common: {nonmembers: 200, shadows: 80},
    images: 140, split: {members: 40, known: 10, nonmembers: 60, test: 40, public: 0}}
base: {attacker: none, attacks: [none], partition: iid,
  federation: {clients: 1, rounds: 1, snapshots: 1}}
targets:
  one: {data: digits, level: weak, run: {model: &net {name: smallnet, width: 4},
    ssl: &moco {name: moco, dim: 16}, train: &train {batch_size: 16, local_epochs: 1}}}
  again: {data: digits, level: weak, run: {model: *net, ssl: *moco, train: *train}}
  other: {data: digits, level: weak, run: {model: *net, ssl: {name: moco, dim: 8}, train: *train}}
  edges: {data: digits, trap: mismatch, run: {model: *net, ssl: *moco, train: *train}}
  inside: {data: digits, level: federated, own: [nonmembers], images: 170, run: {attacker: active,
    attacks: [ascent], model: *net, ssl: *moco, train: *train,
    federation: {clients: 3, rounds: 3, snapshots: 3, placebo: false, keep_updates: 2}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bench, made by the script."""
    place = tmp_path_factory.mktemp("bench")
    (place / "plan.yaml").write_text(PLAN, encoding="utf-8")
    line = [sys.executable, str(TOOLS / "targets.py"), str(place)]
    subprocess.run(line, check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def targets(folder: Path) -> dict[str, Target]:
    return {target.name: target for target in read_targets(folder)}


def test_roles__the_common_ones_are_in_one_file_and_all_others_apart(
    folder: Path, targets: dict[str, Target]
) -> None:
    common = json.loads((folder / COMMON / "digits.json").read_text())
    own = [
        {name for role in ROLE_NAMES if role not in common for name in target.roles[role]}
        for target in targets.values()
    ]
    assert len(set.union(*own)) == sum(map(len, own))
    assert not set.union(*own) & {name for names in common.values() for name in names}
    for target in targets.values():
        written = json.loads((target.folder / ROLES).read_text())
        shared = {SHADOWS} if target.name == "inside" else {NONMEMBERS, SHADOWS}
        assert shared.isdisjoint(written) and len(written) + len(shared) == len(ROLE_NAMES)
        assert all(target.roles[role] == common[role] for role in shared)
        counts = {role: len(names) for role, names in target.roles.items()}
        assert target.card["images"] == counts


def test_files__of_one_client_the_last_model_is_kept_and_of_a_federation_what_clients_sent(
    targets: dict[str, Target],
) -> None:
    def models(name: str) -> list[str]:
        return sorted(file for file in targets[name].card["files"] if "models" in file)

    assert models("one") == ["recording/models/main/0001.safetensors"]
    assert len(models("inside")) == 4
    files = targets["inside"].card["files"]
    assert sum("updates" in file for file in files) == 2 * 3
    assert "recording/attacker.safetensors" in files


def test_manifest__has_every_file(folder: Path) -> None:
    run = subprocess.run(
        ["sha256sum", "-c", "--strict", "MANIFEST"], cwd=folder, capture_output=True, text=True
    )
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert run.returncode == 0
    assert {line.partition(": ")[0] for line in run.stdout.splitlines()} == files - {
        "MANIFEST",
        "shadows.json",
    }


def test_find_images__a_target_without_any_is_left_out_and_one_with_some_is_refused(
    folder: Path, targets: dict[str, Target]
) -> None:
    one = targets["one"]
    strange = Target(one.folder, {**one.card, "data": "cifar10"}, unwritten=dict.fromkeys(
        ROLE_NAMES, ["0" * 64]))  # fmt: skip
    images = find_images([one, strange], ())
    assert have_images([one, strange], images) == [one]
    half = Target(one.folder, strange.card, unwritten={**one.roles, NONMEMBERS: ["0" * 64]})
    with pytest.raises(InputError, match=f"lacks 1 of .* target {one.name} .*000000000000"):
        find_images([half], ())


def test_mismatch__shows_who_reads_how_images_were_prepared_and_refuses_nobody(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling = {}
    for module, body in (("tosses_coin", COIN), ("reads_edges", READS_EDGES)):
        attack = write_attack(tmp_path, module, body, monkeypatch)
        result = bench.evaluate(attack, str(folder))
        rows = {name: TargetRow(one, 5).auc for name, one in result.scores.items()}
        telling[module] = [name for name, auc in rows.items() if auc.low > 0.5]
        assert not result.row.trapped and result.row.auc is not None
        assert not result.row.auc.excludes(0.5)
        assert [n for n, one in result.targets.items() if one.trap == MISMATCH] == ["edges"]
    assert telling == {"tosses_coin": [], "reads_edges": ["edges"]}


def test_ascent__is_scored_by_what_its_client_noted_and_nowhere_else(folder: Path) -> None:
    result = bench.evaluate("ascent", str(folder))
    assert list(result.scores) == ["inside"]
    assert len({*result.scores["inside"].nonmembers}) > 10
    reasons = {why for why in result.results.values() if isinstance(why, str)}
    assert all("takes part" in why for why in reasons)


def test_shadows__of_one_recipe_are_made_once(folder: Path, tmp_path: Path) -> None:
    line = [sys.executable, str(TOOLS / "shadows.py"), str(folder)]
    line += ["--count", "2", "--cache", str(tmp_path)]
    run = subprocess.run(line, check=True, capture_output=True, text=True)
    lines = dict(one.split(": ") for one in run.stdout.splitlines())
    assert lines["one"] == lines["other"] == "2 made, 0 were there"
    assert lines["again"] == lines["edges"] == "0 made, 2 were there" and "inside" not in lines
    names = json.loads((folder / "shadows.json").read_text())
    assert names["one"]["shadows"] == names["again"]["shadows"] == names["edges"]["shadows"]
    assert not {*names["one"]["shadows"]} & {*names["other"]["shadows"]}
    assert {path.name for path in tmp_path.iterdir()} == {
        *names["one"]["shadows"], *names["other"]["shadows"],
    }  # fmt: skip
    assert names["again"]["core_hours"] == 0
    result = bench.evaluate(
        "lira", str(folder), shadows=2, cache=tmp_path, targets=["one", "again"]
    )
    assert {*result.scores} == {"one", "again"}
    assert len([*tmp_path.iterdir()]) == 4


def test_curves__have_a_point_for_each_number_of_shadows_and_of_views(
    folder: Path, tmp_path: Path
) -> None:
    script = TOOLS.parent / "research" / "measurements" / "bench_curves.py"
    out = tmp_path / "curves.json"
    line = [sys.executable, str(script), str(folder), "one", "--data", "digits", "--most", "2"]
    line += ["--cache", str(tmp_path / "shadows"), "--out", str(out)]
    subprocess.run(line, check=True, capture_output=True)
    points = json.loads(out.read_text())["points"]
    settings = {(one["attack"], one["shadows"], one["views"]) for one in points}
    assert {("lira", 1, None), ("lira", 2, None), ("similarity", 0, 2)} <= settings
    assert all(one["auc"]["low"] <= one["auc"]["value"] <= one["auc"]["high"] for one in points)


def test_score_bench__stores_every_attack_on_every_target_and_the_seconds_of_those_alone(
    folder: Path,
) -> None:
    line = [sys.executable, str(TOOLS / "score_bench.py"), str(folder)]
    line += ["--attacks", "similarity", "loss-slope", "dov4mm", "internal", "--workers", "2"]
    run = subprocess.run(line, check=True, capture_output=True, text=True)
    assert len(run.stdout.splitlines()) == 4 * 5
    entries = bench.evaluate("similarity", str(folder), targets=["one"]).entries
    stored = {one.attack: one for one in entries}
    seconds = {
        name: [n for n, one in stored[name].scores(key).items() if one.seconds is not None]
        for name, key in (("similarity", "nothing"), ("dov4mm", "both"), ("loss-slope", "nothing"))
    }
    assert seconds["similarity"] == seconds["dov4mm"] == ["one", "inside"]
    assert seconds["loss-slope"] == ["inside"]
    again = subprocess.run(line, check=True, capture_output=True, text=True)
    assert again.stdout == ""
