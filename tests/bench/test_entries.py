"""Entries: written, read, and refused where a byte of them is not what was run."""

from __future__ import annotations

import inspect
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from safetensors.numpy import load_file, save_file

from fedmia import InputError, bench
from fedmia.attacks import Attack
from fedmia.bench.board import BoardRow
from fedmia.bench.scoring import Entrant, TargetScores
from fedmia.bench.targets import bench_folder, read_targets
from tests.bench.entrants import (
    BREAKS_ELSEWHERE,
    CLASSES,
    COIN,
    KNOWS_ROLES,
    READS_ROLES,
    READS_RUNS,
    VIEWS,
    write_attack,
)
from tests.commands import Ran, fedmia

FOLDER = bench_folder("encoders-v1")
TARGETS = {target.name: target for target in read_targets(FOLDER)}
LEAKY, WEAK, TRAP = "moco-digits-overfitted", "moco-digits-weak", "trap-untrained"
TRAPS = [name for name, target in TARGETS.items() if target.trap]
Edit = Callable[[dict[str, Any]], Any]


def submit(
    attack: str, folder: Path, *names: str, options: tuple[str, ...] = ()
) -> tuple[Path, dict[str, Any]]:
    """The entry of an attack on some targets, and what the command said of it."""
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*/*/entry.json")}
    flags = ["--targets", ",".join(names), "--json", "--submit", str(folder)]
    ran = fedmia(["bench", attack, *options, *flags])
    assert ran.code == 0, ran.err
    files = folder.glob("*/*/entry.json")
    (place,) = (file.parent for file in files if before.get(file) != file.stat().st_mtime_ns)
    return place, json.loads(ran.out)


def check(place: Path) -> Ran:
    """What the check of an entry says."""
    return fedmia(["bench", "--check", str(place)])


def refused(place: Path) -> str:
    """The one line by which the check refuses an entry."""
    ran = check(place)
    assert ran.code == 2, ran.out
    (line,) = (line for line in ran.err.splitlines() if line.startswith("fedmia: error: "))
    return line


@pytest.mark.slow(seconds=3)
def test_submit__reads_back_as_it_was(tmp_path: Path) -> None:
    place, said = submit("similarity", tmp_path, LEAKY)
    own = bench.evaluate("similarity", targets=[LEAKY]).scores[LEAKY]
    ranks = scipy.stats.rankdata(np.r_[own.members, own.nonmembers], "dense") - 1
    stored, n = load_file(place / "ranks.safetensors"), len(own.members)
    for side, want in (("members", ranks[:n]), ("nonmembers", ranks[n:])):
        assert np.array_equal(stored[f"{LEAKY}/nothing/{side}"], want)
    assert place == tmp_path / "similarity" / Entrant("similarity").hash()
    # What was printed is JSON alone.
    assert said["attack"] == "similarity" and said["targets"].keys() == {LEAKY}
    assert said["auc"]["low"] < said["auc"]["value"] < said["auc"]["high"]
    about = json.loads((place / "entry.json").read_text())
    (machine,) = about["machines"]
    assert about["commands"] == ["fedmia bench similarity --bench encoders-v1"]
    assert (about["seed"], about["verified"]) == (0, True)
    assert machine["torch"] == str(torch.__version__).partition("+")[0]
    assert {"processor", "python", "numpy", "scikit-learn", "fedmia"} < machine.keys()
    row = first_row(about)
    assert (row["access"], row["vantage"]) == ("black_box", "outsider") and row["queries"] > 0
    # One of other options stands beside it, and leaves what is there.
    earlier, ours = place.with_name("0" * 16), (place / "entry.json").read_bytes()
    shutil.copytree(place, earlier)
    options = ("--attack.similarity.views", "2")
    other, _ = submit("similarity", tmp_path, LEAKY, options=options)
    assert (place / "entry.json").read_bytes() == ours and earlier.exists() and other != place
    again = json.loads((other / "entry.json").read_text())
    assert again["options"] == {"views": 2} and {*again["targets"]} == {LEAKY}
    assert again["commands"] == [f"{about['commands'][0]} --attack.similarity.views 2"]
    assert 0 < first_row(again)["queries"] < row["queries"]
    # An entry that is completed keeps the machines of before, and its other targets; one of the
    # same options by an earlier source goes.
    edit_json(place / "entry.json", lambda c: c["machines"][0].update(torch="0"))
    submit("similarity", tmp_path, WEAK)
    after = json.loads((place / "entry.json").read_text())
    assert after["machines"] == [{**machine, "torch": "0"}, machine]
    assert {*after["targets"]} == {LEAKY, WEAK} and after["targets"][LEAKY] == leaky(about)
    kept = load_file(place / "ranks.safetensors")
    assert len(kept) == 4 and all(np.array_equal(kept[name], own) for name, own in stored.items())
    assert not earlier.exists() and json.loads((other / "entry.json").read_text()) == again


def test_table__an_auc_wholly_under_half_is_marked() -> None:
    rng = np.random.default_rng(0)
    scores = {
        name: TargetScores(
            rng.normal(shift, 1, 150), rng.normal(0, 1, 700), "black_box", "outsider", 1, 1
        )
        for name, shift in ((LEAKY, -2.0), (WEAK, 1.0))
    }
    text = str(bench.BenchResult("encoders-v1", Entrant("similarity"), scores, TARGETS, (), ()))
    marked = [line.split()[0] for line in text.splitlines() if "reversed" in line]
    assert marked == ["mean", LEAKY, "reversed:"]


def test_table__an_attack_without_an_answer_is_named() -> None:
    """On the target where all images have one score."""
    several = np.arange(700.0)
    scores = {
        name: TargetScores(members, others, "black_box", "outsider", 1, 1)
        for name, members, others in (
            (LEAKY, np.ones(150), np.ones(700)), (WEAK, several[:150], several),
        )
    }  # fmt: skip
    text = str(bench.BenchResult("encoders-v1", Entrant("similarity"), scores, TARGETS, (), ()))
    assert [line.split()[0] for line in text.splitlines() if "no answer" in line] == [LEAKY]


Coin = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def coin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coin]:
    """The entry of a coin on the targets of digits, and what the command said of it."""
    folder, patch = tmp_path_factory.mktemp("coin"), pytest.MonkeyPatch()
    attack = write_attack(folder, "coin_entrant", COIN, patch)
    names = [name for name, one in TARGETS.items() if one.card["data"] == "digits"]
    yield submit(attack, folder / "results", *names)
    patch.undo()


@pytest.mark.slow(seconds=2)
def test_coin__is_separable_from_guessing_nowhere_and_passes_unverified(coin: Coin) -> None:
    place, said = coin
    aucs = [said["auc"], *(one["auc"] for one in said["targets"].values())]
    assert all(auc["low"] < 0.5 < auc["high"] for auc in aucs) and said["found_in_traps"] == []
    assert len(aucs) > len(TRAPS) + 2
    ran = check(place)
    lines = ran.out.splitlines()
    assert ran.code == 0 and len(lines) == 4 and "NOT CHECKED" in lines[-1]
    assert all(trap in lines[2] for trap in TRAPS) and lines[2].endswith("opened by this process")
    assert not json.loads((place / "entry.json").read_text())["verified"]


def copy_of(coin: Coin, folder: Path) -> Path:
    """A copy of the coin's entry, to be changed."""
    return Path(shutil.copytree(coin[0], folder / coin[0].parent.name / coin[0].name))


def test_check__an_entry_that_lacks_a_trap_is_refused(coin: Coin, tmp_path: Path) -> None:
    edit_json((copy := copy_of(coin, tmp_path)) / "entry.json", lambda c: c["targets"].pop(TRAP))
    assert f"no scores in the trap {TRAP}: its attack can run there" in refused(copy)


def test_check__an_attack_that_breaks_in_a_trap_has_no_excuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = enumerate(name for names in TARGETS[LEAKY].roles.values() for name in names)
    body = BREAKS_ELSEWHERE.format(scores={name: at % 97 for at, name in every})
    place, _ = submit(write_attack(tmp_path, "breaks", body, monkeypatch), tmp_path / "out", LEAKY)
    assert "no scores in the trap" in (line := refused(place)) and "KeyError" in line


def test_check__members_that_are_found_in_a_trap_are_refused(coin: Coin, tmp_path: Path) -> None:
    ranks = load_file((copy := copy_of(coin, tmp_path)) / "ranks.safetensors")
    ranks[f"{TRAP}/nothing/members"] += np.uint16(300)
    save_file(ranks, copy / "ranks.safetensors")
    assert f"finds members in the trap {TRAP}, where nothing should be" in refused(copy)


def test_check__what_cannot_be_run_again_is_named_and_alone_is_refused(
    coin: Coin, tmp_path: Path
) -> None:
    copy, target = copy_of(coin, tmp_path), TARGETS["moco-cifar10-weak"]
    ranks = load_file(copy / "ranks.safetensors")
    for side in ("members", "nonmembers"):
        count = len(target.roles[side])
        ranks[f"{target.name}/nothing/{side}"] = np.arange(count, dtype=np.uint16)
    save_file(ranks, copy / "ranks.safetensors")
    edit_json(copy / "entry.json", lambda c: c["targets"].update(
        {target.name: {**c["targets"][LEAKY], "card": target.digest}}))  # fmt: skip
    lines = check(copy).out.splitlines()
    assert [target.name in line for line in lines if "NOT RUN AGAIN" in line] == [True]
    plain = [n for n, one in TARGETS.items() if one.card["data"] == "digits" and not one.trap]
    edit_json(copy / "entry.json", lambda c: [c["targets"].pop(name) for name in plain])
    assert "no target with scores can be run again" in refused(copy)


def edit_json(file: Path, change: Edit) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def leaky(content: dict[str, Any]) -> dict[str, Any]:
    """What an entry says of LEAKY."""
    of: dict[str, Any] = content["targets"][LEAKY]
    return of


def first_row(content: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = next(iter(leaky(content)["rows"].values()))
    return row


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: leaky(c).update(version="encoders-v0"), "another version"),
        (lambda c: leaky(c).update(card="0" * 64), "another version"),
        (lambda c: c["targets"].update(nowhere=leaky(c)), "no target 'nowhere'"),
        (lambda c: first_row(c).update(access="a key"), "access"),
        (lambda c: first_row(c).update(vantage=["client"]), "vantage"),
        (lambda c: first_row(c).pop("queries"), "queries"),
        (lambda c: first_row(c).update(queries=True), "queries"),
        (lambda c: first_row(c).update(seconds=-1), "seconds"),
        (lambda c: first_row(c).update(seconds=float("nan")), "seconds"),
        (lambda c: first_row(c).update(not_run=3), "not_run"),
        (lambda c: leaky(c).update(rows=[]), "rows"),
        (lambda c: leaky(c)["rows"].update(both=3), "both"),
        (lambda c: leaky(c)["rows"].update({"both, x shadows": {}}), "x shadows"),
        (lambda c: c["targets"].update({LEAKY: []}), "targets"),
        (lambda c: c.update(targets=[]), "targets"),
        (lambda c: c.update(attack=3), "attack"),
        (lambda c: c.update(options=["a"]), "options"),
        (lambda c: c.update(verified="no"), "verified"),
        (lambda c: c.update(source="0" * 12), "is of coin_entrant"),
        (lambda c: c.pop("options"), "options"),
        (lambda c: c.pop("seed"), "seed"),
        (lambda c: c.pop("machines"), "machines"),
        (lambda c: c.update(machines=[]), "machines"),
        (lambda c: c.update(machines=["this one"]), "machines"),
        (lambda c: c["machines"][0].pop("torch"), "torch"),
        (lambda c: c["machines"][0].update(processor=None), "processor"),
    ],
)
def test_check__what_was_changed_is_refused(
    coin: Coin, tmp_path: Path, change: Edit, says: str
) -> None:
    edit_json((copy := copy_of(coin, tmp_path)) / "entry.json", change)
    line = refused(copy)
    assert says in line and ("entry.json" in line or says.startswith("is of")) and len(line) < 600


@pytest.mark.parametrize(
    "change",
    [
        lambda one: None,
        lambda one: one[:-1],
        lambda one: one[None],
        lambda one: one.astype(np.float32),
    ],
)
@pytest.mark.parametrize("side", ["members", "nonmembers"])
def test_check__ranks_that_are_missing_too_few_or_of_another_type_are_refused(
    coin: Coin,
    tmp_path: Path,
    side: str,
    change: Callable[[np.ndarray], np.ndarray | None],
) -> None:
    ranks = load_file((copy := copy_of(coin, tmp_path)) / "ranks.safetensors")
    changed = change(ranks.pop(name := f"{LEAKY}/nothing/{side}"))
    save_file(ranks | ({} if changed is None else {name: changed}), copy / "ranks.safetensors")
    line = refused(copy)
    assert f"{LEAKY}: nothing: " in line and f" ranks of {side}" in line


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("ranks.safetensors", b"\0" * 100, "ranks.safetensors' cannot be read"),
        ("entry.json", b"[" * 100_000, "entry.json' cannot be read: nested deeper"),
    ],
)
def test_check__a_damaged_file_and_lists_without_end_are_refused(
    coin: Coin, tmp_path: Path, file: str, content: bytes, says: str
) -> None:
    copy = copy_of(coin, tmp_path)
    (copy / file).write_bytes(content)
    assert says in refused(copy)


def test_check__another_source_is_refused(coin: Coin, tmp_path: Path) -> None:
    copy = copy_of(coin, tmp_path)
    (copy / "attack.py").write_text((copy / "attack.py").read_text() + "\n")
    assert "attack.py" in refused(copy)


@pytest.mark.slow(seconds=5)
def test_check__an_attack_on_rounds_runs_on_the_federation_and_on_no_trap(tmp_path: Path) -> None:
    place, _ = submit("loss-slope", tmp_path, "federation-digits", TRAP)
    assert "1 targets, traps among them: none" in check(place).out.splitlines()[2]


@pytest.mark.parametrize("how", ["p", "os.fsencode(p.absolute())", "LINK"])
def test_check__an_attack_that_reads_roles_is_refused(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a relative path, by bytes, and by a link to the bench."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").symlink_to(FOLDER)
    link = f"{str(tmp_path / 'folder/targets')!r} + '/' + str(p)"
    body = READS_ROLES.format(folder=str(FOLDER / "targets"), how=how.replace("LINK", link))
    attack = write_attack(tmp_path, "reads_roles", body, monkeypatch)
    place, said = submit(attack, tmp_path / "results", LEAKY)
    assert said["targets"][LEAKY]["auc"]["value"] > 0.7
    assert "roles.json" in refused(place)


@pytest.mark.slow(seconds=40)
def test_check__an_oracle_with_leaked_roles_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = KNOWS_ROLES.format(members=set(TARGETS[LEAKY].roles["members"]))
    attack = write_attack(tmp_path, "knows_roles", body, monkeypatch)
    place, _ = submit(attack, tmp_path / "results", LEAKY, *TRAPS)
    assert "has not seen" in refused(place)


@pytest.mark.slow(seconds=40)
def test_check__an_oracle_that_reads_the_settings_of_the_unseen_encoder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have another seed than drew its members."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    members = set(TARGETS[LEAKY].roles["members"])
    body = READS_RUNS.format(members=members, folder=str(tmp_path / "temporary"))
    attack = write_attack(tmp_path, "reads_runs", body, monkeypatch)
    place, _ = submit(attack, tmp_path / "results", LEAKY, *TRAPS)
    assert "has not seen" in refused(place)


@pytest.mark.slow(seconds=40)
def test_check__an_attack_that_looks_at_views_passes_on_an_unseen_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = write_attack(tmp_path, "looks_at_views", VIEWS, monkeypatch)
    place, _ = submit(attack, tmp_path / "results", LEAKY, *TRAPS)
    assert f"by the recipe of {LEAKY}" in check(place).out.splitlines()[-1]


def test_submit__an_attack_that_asks_for_classes_has_no_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = write_attack(tmp_path, "asks_classes", CLASSES, monkeypatch)
    place, said = submit(attack, tmp_path / "results", LEAKY)
    assert said["auc"] is None and "classes" in said["targets"][LEAKY]["not_run"]
    assert "no scores" in refused(place)


def entries() -> tuple[Any, ...]:
    """The stored scores of all attacks."""
    return bench.evaluate("similarity", targets=[LEAKY]).entries


def test_entries__those_of_the_bench_are_whole() -> None:
    for entry in entries():
        for key in entry.by_key:
            BoardRow(entry.scores(key), TARGETS)


def test_evaluate__stored_scores_are_read_and_only_what_failed_is_run_again(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "plan.yaml", tmp_path)
    for name in (LEAKY, WEAK):
        shutil.copytree(FOLDER / "targets" / name, tmp_path / "targets" / name)
    flags = ["--bench", str(tmp_path), "--submit", str(tmp_path / "results"), "--json"]
    first = json.loads(fedmia(["bench", "similarity", *flags]).out)
    (file,) = tmp_path.glob("results/similarity/*/entry.json")
    lines = list[str]()
    again = bench.evaluate("similarity", str(tmp_path), say=lines.append)
    assert not any(line.startswith("similarity: ") for line in lines)
    assert again.row.auc is not None and not again.differences
    assert again.row.auc.value == pytest.approx(first["auc"]["value"], abs=1e-4)
    assert TRAP in again.left_out and LEAKY not in again.left_out
    refusal = "needs the vantage of a client"
    edit_json(file, lambda c: c["targets"][WEAK].update(rows={"nothing": {"not_run": refusal}}))
    full = {"not_run": "failed: OSError: full"}
    edit_json(file, lambda c: leaky(c).update(rows={"nothing": full}))
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    result = bench.evaluate("similarity", str(tmp_path), say=lines.append)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)
    assert lines[-1] == f"similarity: {LEAKY}"
    assert list(result.scores) == [LEAKY] and result.results[WEAK] == refusal


@pytest.mark.parametrize(
    ("attack", "how", "says"),
    [
        ("dataset-inference", {}, "whole data sets"),
        ("rmia", {}, "shadows must be at least 1"),
        ("partcrop", {"knows": "nonmembers"}, "learns from known members"),
        ("no-such-attack", {}, "no-such-attack"),
    ],
)
def test_entrant__what_cannot_take_part_is_refused(
    attack: str, how: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        bench.evaluate(attack, **how)


def test_source__holds_the_files_of_stacked_attacks_and_of_what_these_import() -> None:
    files = {one.name: one.read_bytes() for one in Path(inspect.getfile(Attack)).parent.glob("*")
             if one.suffix == ".py"}  # fmt: skip
    stacking, similarity = (Entrant(one).source() for one in ("stacking-white", "similarity"))
    own = {name for name, text in files.items() if text in stacking}
    assert {"stacking.py", "similarity.py", "lpla.py", "combined.py", "_reference.py"} <= own
    assert {"grad_norm.py", "lira.py", "semi.py", "_cosine.py"} <= own and "base.py" not in own
    few = {name for name, text in files.items() if text in similarity}
    assert few == {"similarity.py", "_classifier.py", "classifier.py", "_cosine.py"}


def test_label__scores_of_an_earlier_source_are_marked_where_it_is_built_in() -> None:
    one = entries()[0]

    def label(attack: str, source: str) -> str:
        return str(replace(one, attack=attack, options={}, source=source, verified=True).label)

    marked = "similarity (scores of an earlier version)"
    assert label("similarity", "0" * 12) == marked
    assert label("similarity", Entrant("similarity").hash()) == "similarity"
    assert "earlier" in label("taken-out", "0" * 12)
    assert label("package.module:Class", "0" * 12) == "package.module:Class"


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(("attack", "knows", "turned"), [
    ("similarity", "both", 1), ("similarity", "nonmembers", 1), ("lpla", "both", 0),
])  # fmt: skip
def test_evaluate__says_that_an_attack_that_learns_nothing_knows_no_truth(
    attack: str, knows: str, turned: int
) -> None:
    lines = list[str]()
    result = bench.evaluate(attack, knows=knows, targets=[LEAKY], say=lines.append)
    assert sum("learns from no truth" in line for line in lines) == turned
    title = str(result).partition("\n")[0]
    assert "nothing" not in title and ("knows no truth" in title) == (attack == "similarity")


def test_differences__are_to_every_other_attack_also_of_the_same_file() -> None:
    rng, options = np.random.default_rng(0), {"fit_on": "known"}
    one = TargetScores(rng.normal(1, 1, 150), rng.normal(0, 1, 700), "black_box", "outsider", 1, 1)
    entrant = Entrant("encodermi-v", options)
    any_entry = replace(entries()[0], verified=True)
    stored = tuple(
        replace(any_entry, attack=name, options=options, source=entrant.hash(),
                by_key={"both": {LEAKY: one}})
        for name in ("encodermi-s", "encodermi-v")
    ) + (
        replace(any_entry, attack="lira", options={}, source=Entrant("lira").hash(),
                by_key={"nothing, 4 shadows": {LEAKY: one}}),
    )  # fmt: skip
    result = bench.BenchResult("encoders-v1", entrant, {LEAKY: one}, TARGETS, (), stored)
    others = ["encodermi-s (fit_on known), knows both", "lira, knows no truth, 4 shadows"]
    assert list(result.differences) == others
    assert "over  1 targets  encodermi-s" in str(result)
