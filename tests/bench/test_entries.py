"""Entries: written, read, and refused where a byte of them is not what was run."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from safetensors.numpy import load_file, save_file

from fedmia import bench
from fedmia.attacks import Attack
from fedmia.bench.__main__ import main
from fedmia.bench.board import BoardRow
from fedmia.bench.checks import (
    check_entry,
    check_unseen,
    note_opened,
    refuse_trapped,
    refuse_untrapped,
)
from fedmia.bench.command import BenchResult, evaluate
from fedmia.bench.entries import BenchEntry, read_entries, read_entry, write_entry
from fedmia.bench.scoring import Entrant, TargetScores
from fedmia.bench.targets import bench_folder, read_targets
from fedmia.settings.errors import InputError
from tests.bench.entrants import (
    CLASSES,
    COIN,
    KNOWS_ROLES,
    READS_ROLES,
    READS_RUNS,
    VIEWS,
    write_attack,
)

FOLDER = bench_folder("encoders-v1")
TARGETS = {target.name: target for target in read_targets(FOLDER)}
LEAKY, TRAP = "moco-digits-overfitted", "trap-untrained"
TRAPS = [name for name, target in TARGETS.items() if target.trap]
Edit = Callable[[dict[str, Any]], Any]


def submit(attack: Any, folder: Path, *names: str) -> tuple[Path, dict[str, TargetScores]]:
    """The entry of an attack on some targets, and its scores."""
    result = evaluate(attack, targets=names)
    return write_entry(folder, result.entrant, result.results, TARGETS), result.scores


def test_write_entry__reads_back_as_it_was(tmp_path: Path) -> None:
    place, own = submit("similarity", tmp_path, LEAKY)
    entry = read_entry(place, TARGETS)
    assert entry.verified and entry.scores("nothing").keys() == {LEAKY}
    back = entry.scores("nothing")[LEAKY]
    for side in ("members", "nonmembers"):
        ranks = scipy.stats.rankdata(np.r_[own[LEAKY].members, own[LEAKY].nonmembers], "dense") - 1
        n = len(own[LEAKY].members)
        want = ranks[:n] if side == "members" else ranks[n:]
        assert np.array_equal(getattr(back, side), want)
    assert place == tmp_path / "similarity" / Entrant("similarity").hash()
    about = json.loads((place / "entry.json").read_text())
    (machine,) = about["machines"]
    assert about["commands"] == ["fedmia bench similarity --bench encoders-v1"]
    assert (about["seed"], machine["torch"]) == (0, str(torch.__version__).partition("+")[0])
    assert {"processor", "python", "numpy", "scikit-learn", "fedmia"} < machine.keys()
    write_entry(tmp_path, Entrant("similarity", {}, "nothing"), own, TARGETS, [{"torch": "0"}])
    write_entry(tmp_path, Entrant("similarity", {}, "nothing"), own, TARGETS)
    after = json.loads((place / "entry.json").read_text())["machines"]
    assert after == [machine, {"torch": "0"}]


def test_command__json_is_all_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--targets", LEAKY, "--json", "--submit", str(tmp_path)]
    assert main(["similarity", *flags]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["attack"] == "similarity" and about["targets"].keys() == {LEAKY}
    assert about["auc"]["low"] < about["auc"]["value"] < about["auc"]["high"]
    place = tmp_path / "similarity" / Entrant("similarity").hash()
    assert main(["--check", str(place), "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_table__an_auc_wholly_under_half_is_marked() -> None:
    rng = np.random.default_rng(0)
    scores = {
        name: TargetScores(
            rng.normal(shift, 1, 150), rng.normal(0, 1, 700), "black_box", "outsider", 1, 1
        )
        for name, shift in ((LEAKY, -2.0), ("moco-digits-weak", 1.0))
    }
    text = str(BenchResult("encoders-v1", Entrant("similarity"), scores, TARGETS, (), ()))
    marked = [line.split()[0] for line in text.splitlines() if "reversed" in line]
    assert marked == ["mean", LEAKY, "reversed:"]


def test_table__an_attack_without_an_answer_is_named() -> None:
    """On the target where all images have one score."""
    several = np.arange(700.0)
    scores = {
        name: TargetScores(members, others, "black_box", "outsider", 1, 1)
        for name, members, others in (
            (LEAKY, np.ones(150), np.ones(700)), ("moco-digits-weak", several[:150], several),
        )
    }  # fmt: skip
    text = str(BenchResult("encoders-v1", Entrant("similarity"), scores, TARGETS, (), ()))
    assert [line.split()[0] for line in text.splitlines() if "no answer" in line] == [LEAKY]


@pytest.fixture(scope="module")
def coin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, TargetScores]]:
    """The entry of a coin on the targets of digits."""
    folder, patch = tmp_path_factory.mktemp("coin"), pytest.MonkeyPatch()
    attack = write_attack(folder, "coin_entrant", COIN, patch)
    names = [name for name, one in TARGETS.items() if one.card["data"] == "digits"]
    yield submit(attack, folder / "results", *names)  # type: ignore[misc]
    patch.undo()


def test_coin__is_separable_from_guessing_nowhere(
    coin: tuple[Path, dict[str, TargetScores]],
) -> None:
    row = BoardRow(coin[1], TARGETS)
    assert row.auc is not None and not row.auc.excludes(0.5) and not row.trapped
    assert not any(one.auc.excludes(0.5) for one in row.targets.values())


def test_check__an_honest_entry_passes_and_is_unverified(
    coin: tuple[Path, dict[str, TargetScores]],
) -> None:
    lines = [*check_entry(coin[0], FOLDER, ())]
    assert len(lines) == 4 and "NOT CHECKED" in lines[-1]
    assert all(trap in lines[2] for trap in TRAPS) and lines[2].endswith("opened by this process")
    assert not read_entry(coin[0], TARGETS).verified


def copy_of(coin: tuple[Path, dict[str, TargetScores]], folder: Path) -> Path:
    """A copy of the coin's entry, to be changed."""
    return Path(shutil.copytree(coin[0], folder / coin[0].parent.name / coin[0].name))


@pytest.mark.parametrize("trap", TRAPS)
def test_check__an_entry_that_lacks_a_trap_is_refused(
    coin: tuple[Path, dict[str, TargetScores]], tmp_path: Path, trap: str
) -> None:
    edit_json((copy := copy_of(coin, tmp_path)) / "entry.json", lambda c: c["targets"].pop(trap))
    with pytest.raises(InputError, match=f"no scores in the trap {trap}"):
        list(check_entry(copy, FOLDER, ()))


def test_refuse_untrapped__an_attack_that_breaks_in_a_trap_has_no_excuse() -> None:
    refuse_untrapped(FOLDER, TRAP, "needs the vantage of a client")
    with pytest.raises(InputError, match="KeyError"):
        refuse_untrapped(FOLDER, TRAP, "failed: KeyError: 3")


def test_check__what_cannot_be_run_again_is_named_and_alone_is_refused(
    coin: tuple[Path, dict[str, TargetScores]], tmp_path: Path
) -> None:
    copy, target = copy_of(coin, tmp_path), TARGETS["moco-cifar10-weak"]
    ranks = load_file(copy / "ranks.safetensors")
    for side in ("members", "nonmembers"):
        count = len(target.roles[side])
        ranks[f"{target.name}/nothing/{side}"] = np.arange(count, dtype=np.uint16)
    save_file(ranks, copy / "ranks.safetensors")
    edit_json(copy / "entry.json", lambda c: c["targets"].update(
        {target.name: {**c["targets"][LEAKY], "card": target.digest}}))  # fmt: skip
    lines = list(check_entry(copy, FOLDER, ()))
    assert [target.name in line for line in lines if "NOT RUN AGAIN" in line] == [True]
    plain = [n for n, one in TARGETS.items() if one.card["data"] == "digits" and not one.trap]
    edit_json(copy / "entry.json", lambda c: [c["targets"].pop(name) for name in plain])
    with pytest.raises(InputError, match="no target with scores can be run again"):
        list(check_entry(copy, FOLDER, ()))


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
def test_read_entry__what_was_changed_is_refused(
    coin: tuple[Path, dict[str, TargetScores]], tmp_path: Path, change: Edit, says: str
) -> None:
    copy = copy_of(coin, tmp_path)
    read_entry(copy, TARGETS)
    edit_json(copy / "entry.json", change)
    with pytest.raises(InputError, match=says) as raised:
        read_entry(copy, TARGETS)
    assert "entry.json" in str(raised.value) or says.startswith("is of")
    assert len(str(raised.value)) < 600


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
def test_read_entry__ranks_that_are_missing_too_few_or_of_another_type_are_refused(
    coin: tuple[Path, dict[str, TargetScores]],
    tmp_path: Path,
    side: str,
    change: Callable[[np.ndarray], np.ndarray | None],
) -> None:
    ranks = load_file((copy := copy_of(coin, tmp_path)) / "ranks.safetensors")
    changed = change(ranks.pop(name := f"{LEAKY}/nothing/{side}"))
    save_file(ranks | ({} if changed is None else {name: changed}), copy / "ranks.safetensors")
    with pytest.raises(InputError, match=f"{LEAKY}: nothing: .* ranks of {side}"):
        read_entry(copy, TARGETS)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("ranks.safetensors", b"\0" * 100, "ranks.safetensors' cannot be read"),
        ("entry.json", b"[" * 100_000, "entry.json' cannot be read: nested deeper"),
    ],
)
def test_read_entry__a_damaged_file_and_lists_without_end_are_refused(
    coin: tuple[Path, dict[str, TargetScores]], tmp_path: Path, file: str, content: bytes, says: str
) -> None:
    copy = copy_of(coin, tmp_path)
    (copy / file).write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_entry(copy, TARGETS)


def test_read_entry__another_source_is_refused(
    coin: tuple[Path, dict[str, TargetScores]], tmp_path: Path
) -> None:
    copy = copy_of(coin, tmp_path)
    (copy / "attack.py").write_text((copy / "attack.py").read_text() + "\n")
    with pytest.raises(InputError, match=r"attack.py"):
        read_entry(copy, TARGETS)


def test_check__an_attack_on_rounds_runs_on_the_federation_and_on_no_trap(tmp_path: Path) -> None:
    place, _ = submit("loss-slope", tmp_path, "federation-digits", TRAP)
    assert "1 targets, traps among them: none" in list(check_entry(place, FOLDER, ()))[2]


def test_note_opened__sees_bytes_links_and_relative_paths_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tmp_path / "results" / "bench"  # a secret's name above the bench is none
    (bench / "targets").mkdir(parents=True)
    roles, model = bench / "targets" / "roles.json", bench / "targets" / "model"
    roles.write_text("{}")
    model.write_text("")
    (tmp_path / "link").symlink_to(roles)
    (tmp_path / "folder").symlink_to(bench)
    monkeypatch.chdir(bench / "targets")
    links = tmp_path / "link", tmp_path / "folder" / "targets" / "roles.json"
    for path in (str(roles), os.fsencode(roles), "roles.json", *links, os.fsencode(links[0])):
        with note_opened([bench], tmp_path / "attack.py") as opened:
            Path(model).read_text()
            assert not opened
            open(path).close()
        assert {Path(one).name for one in opened} == {"roles.json"}, path


def test_check__an_attack_that_reads_roles_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = READS_ROLES.format(folder=str(FOLDER / "targets"))
    attack = write_attack(tmp_path, "reads_roles", body, monkeypatch)
    place, own = submit(attack, tmp_path / "results", LEAKY)
    assert own[LEAKY].members.mean() == 1
    with pytest.raises(InputError, match=r"roles.json"):
        list(check_entry(place, FOLDER, ()))


@pytest.mark.slow(seconds=40)
def test_check__an_oracle_with_leaked_roles_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = KNOWS_ROLES.format(members=set(TARGETS[LEAKY].roles["members"]))
    attack = write_attack(tmp_path, "knows_roles", body, monkeypatch)
    place, _ = submit(attack, tmp_path / "results", LEAKY, *TRAPS)
    with pytest.raises(InputError, match="has not seen"):
        list(check_entry(place, FOLDER, ()))


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
    with pytest.raises(InputError, match="has not seen"):
        list(check_entry(place, FOLDER, ()))


@pytest.mark.slow(seconds=40)
def test_check__an_attack_that_looks_at_views_passes_on_an_unseen_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = write_attack(tmp_path, "looks_at_views", VIEWS, monkeypatch)
    place, _ = submit(attack, tmp_path / "results", LEAKY, *TRAPS)
    assert f"by the recipe of {LEAKY}" in list(check_entry(place, FOLDER, ()))[-1]


def test_unseen_encoder__finds_an_oracle_by_any_encoder_without_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = TARGETS[TRAP]  # stands for the encoder that the check would train
    monkeypatch.setattr("fedmia.bench.checks.train_again", lambda *of: trap)
    body = KNOWS_ROLES.format(members=set(TARGETS[LEAKY].roles["members"]))
    attack = write_attack(tmp_path, "knows_roles_of_one", body, monkeypatch)
    place, _ = submit(attack, tmp_path / "results", LEAKY, *TRAPS)
    with pytest.raises(InputError, match="has not seen"):
        list(check_entry(place, FOLDER, ()))


@pytest.mark.parametrize(("shift", "refused"), [(1.19, 1.0), (0.36, 0.0)])  # AUC .8, .6
def test_check_unseen__refuses_guessing_nearly_always_at_a_claim_of_80_and_seldom_at_60(
    monkeypatch: pytest.MonkeyPatch, shift: float, refused: float
) -> None:
    rng, hits = np.random.default_rng(1), 0

    def draw(shift: float) -> TargetScores:
        members, others = rng.normal(shift, 1, 150), rng.normal(0, 1, 700)
        return TargetScores(members, others, "black_box", "outsider", 1, 1)

    monkeypatch.setattr("fedmia.bench.checks.train_again", lambda *of: TARGETS[TRAP])
    monkeypatch.setattr("fedmia.bench.checks.run_guarded", lambda *of: draw(0))
    for _ in range(40):
        try:
            check_unseen(Entrant("similarity"), {LEAKY: draw(shift)}, [TARGETS[LEAKY]], {}, FOLDER)
        except InputError:
            hits += 1
    assert hits / 40 == pytest.approx(refused, abs=0.2)


def test_evaluate__an_attack_that_asks_for_classes_has_no_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = write_attack(tmp_path, "asks_classes", CLASSES, monkeypatch)
    result = evaluate(attack, targets=[LEAKY])
    assert not result.scores and "classes" in str(result.results[LEAKY])
    place = write_entry(tmp_path / "results", result.entrant, result.results, TARGETS)
    with pytest.raises(InputError, match="no scores"):
        list(check_entry(place, FOLDER, ()))


def test_refuse_trapped__what_is_found_in_a_trap_is_refused() -> None:
    rng = np.random.default_rng(0)
    found = TargetScores(
        rng.normal(1, 1, 150), rng.normal(0, 1, 700), "black_box", "outsider", 1, 1
    )
    entry = BenchEntry("similarity", {}, "", True, {"nothing": {LEAKY: found}})
    refuse_trapped(entry, "nothing", TARGETS)
    entry = BenchEntry("similarity", {}, "", True, {"nothing": {TRAP: found}})
    with pytest.raises(InputError, match=TRAP):
        refuse_trapped(entry, "nothing", TARGETS)


def test_entries__those_of_the_bench_are_whole() -> None:
    entries = list(read_entries(FOLDER, list(TARGETS.values())))
    for entry in entries:
        for key in entry.by_key:
            BoardRow(entry.scores(key), TARGETS)


def test_evaluate__stored_scores_are_read_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(FOLDER / "plan.yaml", tmp_path)
    shutil.copytree(FOLDER / "targets" / LEAKY, tmp_path / "targets" / LEAKY)
    first = evaluate("similarity", str(tmp_path))
    write_entry(tmp_path / "results", first.entrant, first.results, first.targets)
    monkeypatch.setattr("fedmia.bench.command.score_target", None)
    again = evaluate("similarity", str(tmp_path))
    assert again.row.auc is not None and first.row.auc is not None
    assert again.row.auc.value == pytest.approx(first.row.auc.value, abs=1e-4)
    assert "moco-digits-weak" in again.left_out and not again.differences


def test_evaluate__what_failed_is_run_again_and_what_was_refused_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = "moco-digits-weak"
    shutil.copy(FOLDER / "plan.yaml", tmp_path)
    for name in (LEAKY, weak):
        shutil.copytree(FOLDER / "targets" / name, tmp_path / "targets" / name)
    stored = {LEAKY: "failed: OSError: full", weak: "needs the vantage of a client"}
    write_entry(tmp_path / "results", Entrant("similarity", {}, "nothing"), stored, TARGETS)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    result = evaluate("similarity", str(tmp_path))
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)
    assert list(result.scores) == [LEAKY] and result.results[weak] == stored[weak]


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
        evaluate(attack, **how)


def test_source__holds_the_files_of_stacked_attacks_and_of_what_these_import() -> None:
    files = {one.name: one.read_bytes() for one in Path(inspect.getfile(Attack)).parent.glob("*")
             if one.suffix == ".py"}  # fmt: skip
    own = {name for name, text in files.items() if text in Entrant("stacking-white").source()}
    assert {"stacking.py", "similarity.py", "lpla.py", "combined.py", "_reference.py"} <= own
    assert {"grad_norm.py", "lira.py", "semi.py", "_cosine.py"} <= own and "base.py" not in own
    few = {name for name, text in files.items() if text in Entrant("similarity").source()}
    assert few == {"similarity.py", "_classifier.py", "classifier.py", "_cosine.py"}


def test_label__scores_of_an_earlier_source_are_marked_where_it_is_built_in() -> None:
    def label(attack: str, source: str) -> str:
        return BenchEntry(attack, {}, source, True, {}).label

    marked = "similarity (scores of an earlier version)"
    assert label("similarity", "0" * 12) == marked
    assert label("similarity", Entrant("similarity").hash()) == "similarity"
    assert "earlier" in label("taken-out", "0" * 12)
    assert label("package.module:Class", "0" * 12) == "package.module:Class"


@pytest.mark.parametrize(("attack", "knows", "turned"), [
    ("similarity", "both", 1), ("similarity", "nonmembers", 1), ("lpla", "both", 0),
])  # fmt: skip
def test_evaluate__says_that_an_attack_that_learns_nothing_knows_no_truth(
    attack: str, knows: str, turned: int
) -> None:
    lines = list[str]()
    result = evaluate(attack, knows=knows, targets=[LEAKY], say=lines.append)
    assert sum("learns from no truth" in line for line in lines) == turned
    title = str(result).partition("\n")[0]
    assert "nothing" not in title and ("knows no truth" in title) == (attack == "similarity")


def test_differences__are_to_every_other_attack_also_of_the_same_file() -> None:
    rng, options = np.random.default_rng(0), {"fit_on": "known"}
    one = TargetScores(rng.normal(1, 1, 150), rng.normal(0, 1, 700), "black_box", "outsider", 1, 1)
    entrant = Entrant("encodermi-v", options)
    entries = tuple(
        BenchEntry(name, options, entrant.hash(), True, {"both": {LEAKY: one}})
        for name in ("encodermi-s", "encodermi-v")
    ) + (
        BenchEntry("lira", {}, Entrant("lira").hash(), True, {"nothing, 4 shadows": {LEAKY: one}}),
    )
    result = BenchResult("encoders-v1", entrant, {LEAKY: one}, TARGETS, (), entries)
    others = ["encodermi-s (fit_on known), knows both", "lira, knows no truth, 4 shadows"]
    assert list(result.differences) == others
    assert "over  1 targets  encodermi-s" in str(result)


def test_package__gives_what_the_page_calls() -> None:
    assert bench.evaluate.__module__ == bench.BenchResult.__module__ == "fedmia.bench.command"
