"""Leakage of a recorded federation is found by round, layer and client where it is planted."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats

import fedmia
from fedmia.recording.format import HEADER, round_file, update_file
from fedmia.recording.format import ROUNDS as LINES
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit, Audited, Sides, textures
from tests.data.material import write_image
from tests.evaluation.memory import OWNERS, ROUNDS, Net, distance, loss, record, state_of

HERE = "tests.evaluation.memory"
MILD: dict[str, Any] = {
    "crop_min": 1, "ratio_min": 1, "ratio_max": 1, "flip": 0, "brightness": 0.1, "contrast": 0.1,
    "saturation": 0, "hue": 0, "jitter_p": 1, "gray_p": 0, "blur_p": 0,
}  # fmt: skip
FLAGS = " ".join(f"--augment.{name} {value}" for name, value in MILD.items())
BASE = f"--encoder {HERE}:Net --mean 0 --std 1 --size 8 {FLAGS} "
ROUNDWISE = "rmia-rounds,lira-rounds"
MODEL, UPDATE = "models/main/0002.safetensors", "updates/main/0003/0001.safetensors"
LINE = f"REC/rounds.jsonl', line {2 * ROUNDS + 2}"  # after the models and rounds that it has


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of rounds whose later models know the members of client 0."""
    return record(tmp_path_factory.mktemp("leak") / "REC", updates="all", clients=(0,))


def owners_file(folder: Path, rows: list[tuple[object, object]]) -> Path:
    path = folder / "owners.csv"
    path.write_text("image,client\n" + "".join(f"{image},{client}\n" for image, client in rows))
    return path


def aucs(audited: Audited, what: str, name: str) -> list[float]:
    return [row[what][name] for row in audited.report["rounds"]]


def test_rounds__leak_where_it_is_planted(audit: Audit, recording: Path, tmp_path: Path) -> None:
    owners = owners_file(tmp_path, list(enumerate(OWNERS)))
    attacks = f"similarity,internal,dataset-inference,loss-slope,all-for-one,{ROUNDWISE},ascent"
    more = f"--loss {HERE}:loss --owners {owners} --attacks {attacks} "
    audited = audit(f"--federation {recording} {BASE}{more}", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    report = audited.report
    rounds = {row["round"]: row for row in report["rounds"]}
    assert list(rounds) == [1, 2, 3, ROUNDS] and rounds[2]["cohort"] == [0, 1, 2]
    assert rounds[2]["loss"] == 0.5 and rounds[1]["knn"] is not None
    early, late = aucs(audited, "layers", "early"), aucs(audited, "layers", "late")
    assert early[0] == early[-1] and late[-1] > late[0] + 0.1
    by_round = aucs(audited, "leakage", "similarity")
    assert by_round[-1] > by_round[0] + 0.08
    assert by_round[-1] == next(r["auc"] for r in report["attacks"] if r["name"] == "similarity")
    clients = {row["id"]: row for row in report["clients"]}
    assert clients[0]["auc"] > 0.9 and max(clients[1]["auc"], clients[2]["auc"]) < 0.75
    assert set(audited.not_run) == {"ascent"}
    assert [r["client"] for r in report["dataset_inference"][0]["clients"]] == [0, 1, 2]
    assert [row["attack"] for row in report["named_clients"]] == ["all-for-one"]
    controls = [row["name"] for row in report["controls"]["untrained"]]
    assert "similarity" in controls and "loss-slope" not in controls
    assert report["utility"]["round"] == ROUNDS


def test_owners__of_a_list_are_those_of_a_file(audit: Audit, tmp_path: Path) -> None:
    folder = record(tmp_path / "REC", updates="all")
    lines = ["file,split,hospital"]
    for at, pixels in enumerate(textures(MEMBERS + NONMEMBERS).images):
        write_image(tmp_path / f"{at}.png", pixels.transpose(1, 2, 0))
        lines.append(f"{at}.png,{f'train,{OWNERS[at]}' if at < MEMBERS else 'test,'}")
    (tmp_path / "l.csv").write_text("\n".join(lines))
    flags = f"--federation {folder} {BASE}--members list:{tmp_path / 'l.csv'} "
    audited = audit(f"{flags}--attacks similarity ", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    assert {row["id"] for row in audited.report["clients"]} == {*OWNERS}
    assert "The numbers of 'hospital' are the clients" in audited.err
    refused = audit(f"{flags}--owners split --attacks similarity ", tmp_path / "OTHER")
    assert refused.code == 2 and "'train' is no number of a client" in refused.err


def test_attacks__of_rounds_and_of_updates_find_what_members_alone_gain(
    audit: Audit, tmp_path: Path
) -> None:
    """Every later round knows more of all members; each client's model knows its own alone."""
    owners = owners_file(tmp_path, list(enumerate(OWNERS)))
    flags = f"--federation {record(tmp_path / 'REC', updates='all')} {BASE}--owners {owners} "
    attacks = f"--attacks loss-slope,all-for-one,{ROUNDWISE} --loss {HERE}:loss "
    audited = audit(flags + attacks, tmp_path / "OUT")
    rows = {row["name"]: row for row in audited.report["attacks"]}
    assert set(rows) == {"loss-slope", "all-for-one", *ROUNDWISE.split(",")}
    for name, row in rows.items():  # LiRA divides by how an image's signal varies: more for members
        assert row["auc"] > (0.8 if name == "lira-rounds" else 0.9) and row["auc_ci"][0] > 0.5, row
    named = audited.report["named_clients"][0]
    assert named["attack"] == "all-for-one" and named["correct"] > 0.9


def test_all_for_one__equals_a_loop_over_the_recorded_updates(audit: Audit, tmp_path: Path) -> None:
    folder = record(tmp_path / "REC", updates="all")
    flags = f"--federation {folder} {BASE}--attacks all-for-one --loss {HERE}:distance "
    assert audit(flags, tmp_path / "OUT").code == 0
    images = torch.from_numpy(textures(MEMBERS + NONMEMBERS).images)
    with (tmp_path / "OUT" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 40
    for row in rows:
        image = images[int(row["image"]) + MEMBERS * (row["truth"] == "0")][None] / 255
        deviates = np.zeros(3)
        for round in range(1, ROUNDS + 1):
            measured = np.zeros(3)
            for client in range(3):
                net = Net()
                net.load_state_dict(load_file(update_file(folder, "main", round, client)))
                measured[client] = -distance(net, image).item()
            for client in range(3):
                a, b = np.delete(measured, client)
                t = (measured[client] - (a + b) / 2) / (abs(a - b) / 2**0.5) / 1.5**0.5
                deviates[client] += stats.norm.ppf(stats.t.cdf(t, 1)) / ROUNDS**0.5
        assert float(row["all-for-one"]) == pytest.approx(deviates.max(), rel=1e-3, abs=1e-3)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("kind", ["NaN", "all zero"])
def test_updates__that_are_none_are_named_and_left_out_of_attacks(
    audit: Audit, tmp_path: Path, kind: str
) -> None:
    """As if client 1 had sent nothing in round 2, but for a row among the suspects."""
    flags, aside = f"{BASE}--attacks all-for-one --loss {HERE}:distance --federation ", (2, 1)
    folder = record(tmp_path / "REC", updates="all", aside=(*aside, broken(kind)))
    audited = audit(f"{flags}{folder}", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    (fault,) = audited.report["faults"]
    assert (fault["round"], fault["client"], fault["action"]) == (*aside, "left out")
    (note,) = (n for n in audited.report["notes"] if n.startswith("Attacks on updates leave out"))
    assert "leave out 1 of the 12 updates: client 1 in round 2" in note
    assert note in " ".join(audited.out.split()) + " ".join(audited.err.split())
    rows = {row["client"]: row for row in audited.report["suspects"]}
    assert rows[1]["round"] == 2 and rows[1]["suspicion"] == max(
        row["suspicion"] for row in rows.values()
    )
    without = record(tmp_path / "WITHOUT", updates="all", aside=(*aside, None))
    expected = audit(f"{flags}{without}", tmp_path / "OTHER")
    assert expected.report["faults"] == []
    one, other = ((tmp_path / out / "scores.csv").read_text() for out in ("OUT", "OTHER"))
    assert one == other


def broken(kind: str) -> Callable[[State, State], State]:
    """The update of such a kind: of the model received and the weights that were sent."""
    if kind == "all zero":
        return lambda before, state: before
    return lambda before, state: {n: torch.full_like(t, math.nan) for n, t in state.items()}


def test_rounds__do_not_leak_where_nothing_is_planted(audit: Audit, tmp_path: Path) -> None:
    flags = f"--federation {record(tmp_path / 'REC', leak=False)} {BASE}"
    audited = audit(f"{flags}--attacks similarity,{ROUNDWISE}", tmp_path / "OUT")
    report = audited.report
    assert audited.code == 0 and all(
        row["auc_ci"][0] < 0.5 < row["auc_ci"][1] or row["auc"] == 0.5 for row in report["attacks"]
    )
    values = aucs(audited, "leakage", "similarity")
    assert len(set(values)) == 1


@pytest.mark.slow(seconds=4)
def test_python__equals_the_command_and_files_the_recording(
    audit: Audit, archives: Sides, recording: Path, tmp_path: Path
) -> None:
    attacks = f"similarity,{ROUNDWISE}"
    owners = owners_file(tmp_path, list(enumerate(OWNERS)))
    flags = f"{BASE}--attacks {attacks} --owners {owners} "
    assert audit(f"--federation {recording} {flags}", tmp_path / "A").code == 0
    expected = (tmp_path / "A" / "scores.csv").read_text()
    strengths = {r: max(0.0, (r - 1) / (ROUNDS - 1)) for r in range(ROUNDS + 1)}
    for suffix in ("npz", "pth", "safetensors"):
        folder = tmp_path / suffix
        folder.mkdir()
        for round, strength in strengths.items():
            state, file = state_of(strength, (0,)), folder / f"round-{round}.{suffix}"
            if suffix == "npz":
                np.savez(file, *(t.detach().numpy() for t in state.values()))
            elif suffix == "pth":
                torch.save({"state_dict": state}, file)
            else:
                save_file({n: t.detach().contiguous() for n, t in state.items()}, file)
        out = tmp_path / f"{suffix}-out"
        audited = audit(f"--checkpoint '{folder}/*.{suffix}' {flags}", out)
        assert audited.code == 0, audited.err
        assert (out / "scores.csv").read_text() == expected
        assert f"3 round-3.{suffix}" in audited.err + audited.out
    sides = [np.load(path) for path in (archives.members, archives.nonmembers)]
    run = fedmia.audit_federation(
        recording, Net, *((s["x"], s["y"]) for s in sides), attacks=attacks.split(","), mean=[0],
        std=[1], size=8, augment=Augment(**MILD), attack={"similarity": {"views": 3}},
        owners=OWNERS, loss=loss, out=tmp_path / "P", quiet=True, threads=1,
    )  # fmt: skip
    assert (tmp_path / "P" / "scores.csv").read_text() == expected
    assert [row.id for row in run.records.clients] == [0, 1, 2]


def test_recording__says_which_model_was_last_and_how_clients_are_named(
    audit: Audit, tmp_path: Path
) -> None:
    folder = record(tmp_path / "REC", final=False, named_by="nodes", names=False)
    audited = audit(f"--federation {folder} {BASE}", tmp_path / "OUT")
    notes = " ".join(audited.report["notes"])
    assert f"round {ROUNDS - 1}: the aggregate of round {ROUNDS} " in notes and "nodes" in notes
    assert audited.report["rounds"][-1]["leakage"] == {}


def edit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def add_line(folder: Path, **line: Any) -> None:
    with (folder / LINES).open("a") as file:
        file.write(json.dumps(line) + "\n")


def other_format(folder: Path) -> None:
    header = json.loads((folder / HEADER).read_text()) | {"format": 99}
    (folder / HEADER).write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("damage", "flags", "message"),
    [
        (shutil.rmtree, BASE, "is no recording"),
        (lambda f: (f / LINES).write_text(""), BASE, "holds no model after a round"),
        (other_format, BASE, "is of format 99"),
        (
            lambda f: edit(round_file(f, "model", "main", 2)),
            BASE,
            f"{MODEL}' is not the file that was",
        ),
        (
            lambda f: round_file(f, "model", "main", 2).unlink(),
            BASE,
            f"{MODEL}' cannot be read: No such",
        ),
        (lambda f: edit(update_file(f, "main", 3, 1)), BASE, f"{UPDATE}' is not the file that"),
        (lambda f: update_file(f, "main", 3, 1).unlink(), BASE, f"{UPDATE}' cannot be read: No"),
        (lambda f: add_line(f, branch="main", round="2"), BASE, f"{LINE}: not a round"),
        (lambda f: add_line(f, branch="main", round=2, cohort="all"), BASE, f"{LINE}: not a round"),
        (lambda f: add_line(f, branch="main", round=2, updates={"a": ""}), BASE, f"{LINE}: not a"),
        (lambda f: add_line(f, branch="main", round=2, metrics={"0": 1}), BASE, f"{LINE}: not a r"),
        (lambda f: add_line(f, branch="../main", round=2, model="0"), BASE, f"{LINE}: not a round"),
        (lambda f: add_line(f, branch="main"), BASE, f"{LINE}: not a round"),
        (None, BASE.replace(":Net", ":other"), "'late.stored' is (26, 192), "),
        (None, f"{BASE}--owners OWNERS ", "client 7 trained in no recorded round"),
        (None, f"{BASE}--owners MISSING ", "line 2: no image '99'"),
        (None, f"{BASE}--checkpoint x.pth ", "holds the weights"),
        (None, f"{BASE}--loss {HERE}:REACH ", "must be a function"),
    ],
)
def test_refusals__of_a_recording(
    audit: Audit, tmp_path: Path, damage: Any, flags: str, message: str
) -> None:
    folder, out = record(tmp_path / "REC", updates="all"), tmp_path / "OUT"
    if damage:
        damage(folder)
    rows: list[tuple[object, object]] = [(i, 7 if i == 3 else o) for i, o in enumerate(OWNERS)]
    if "MISSING" in flags:
        rows = [(99, 0)]
    owners = owners_file(tmp_path, rows)
    flags = flags.replace("OWNERS", str(owners)).replace("MISSING", str(owners))
    audited = audit(f"--federation {folder} {flags}", out)
    assert audited.code == 2 and message in audited.err and not out.exists()
    assert len(audited.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no such file"),
        (["model.pth"], "no number in 'model.pth'"),
        (["a1.pth", "b1.pth"], "are both of round 1"),
        (["0.pth"], "holds no model after a round"),
    ],
)
def test_refusals__of_files(audit: Audit, tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        torch.save(state_of(0), tmp_path / name)
    audited = audit(f"--checkpoint '{tmp_path}/*.pth' {BASE}")
    assert audited.code == 2 and message in audited.err and len(audited.err.splitlines()) == 1


@pytest.mark.parametrize(("round", "value"), [(0, 0.0), (1, math.nan), (1, 0.0), (2, -math.inf)])
def test_refusals__of_a_model_that_diverged_name_its_round(
    audit: Audit, tmp_path: Path, round: int, value: float
) -> None:
    for kept in range(3):
        torch.save(state_of(kept / 2), tmp_path / f"{kept}.pth")
    void = {name: torch.full_like(tensor, value) for name, tensor in state_of(0).items()}
    torch.save(void, tmp_path / f"{round}.pth")
    audited = audit(f"--checkpoint '{tmp_path}/*.pth' {BASE}", tmp_path / "OUT")
    assert audited.code == 2 and len(audited.err.splitlines()) == 1
    why = "every weight is zero" if value == 0 else "'early.weight' is not finite"
    assert f"the model of round {round}: {why}" in audited.err
    assert not (tmp_path / "OUT").exists()


def test_ranks__of_updates_to_a_model_that_diverged_are_refused(tmp_path: Path) -> None:
    """Without a network no audit has looked at the models."""
    folder = record(tmp_path / "REC", updates="all", diverged=1)
    with pytest.raises(InputError, match="REC.*: the model of round 1: '.*' is not finite"):
        fedmia.rank_suspects(folder)


def test_rounds__are_read_from_what_training_scripts_keep(audit: Audit, tmp_path: Path) -> None:
    """Beside an optimizer's state; of two networks `checkpoint_key` takes one."""
    for round in (0, 1, 2):
        optimizer = {"state": {0: {"step": torch.ones(1)}}, "param_groups": [{"lr": 0.1}]}
        kept = {"epoch": round, "model": state_of(round / 2), "optimizer": optimizer}
        torch.save(kept, tmp_path / f"{round}.pth")
        torch.save(kept | {"ema": state_of(0)}, tmp_path / f"two{round}.pth")
        torch.save(state_of(round / 2), tmp_path / f"plain{round}.pth")
    more = f"{BASE}--attacks similarity --attack.similarity.views 3 "

    def read(files: str, key: str = "") -> Audited:
        return audit(
            f"--checkpoint '{tmp_path}/{files}.pth' {more}{key}", tmp_path / f"O{files}{key}"
        )

    plain, beside = read("plain?"), read("[0-2]")
    assert beside.code == 0, beside.err
    assert beside.report["rounds"] == plain.report["rounds"]
    assert read("two?", "--checkpoint-key model").report["rounds"] == plain.report["rounds"]
    for key in ("", "--checkpoint-key none"):
        refused = read("two?", key)
        assert refused.code == 2 and "must name one of model, ema" in refused.err


def test_rounds__that_are_scored_are_said_where_they_are_not_all(
    audit: Audit, tmp_path: Path
) -> None:
    for round in range(26):
        torch.save(state_of(round / 25), tmp_path / f"{round}.pth")
    flags = (
        f"--checkpoint '{tmp_path}/*.pth' {BASE}--attacks similarity --attack.similarity.views 3"
    )
    audited = audit(flags, tmp_path / "OUT")
    note = next(n for n in audited.report["notes"] if n.startswith("Scored by round: "))
    assert note.startswith("Scored by round: 24 of the 25 models that were kept, 1, 2, 3, ")
    assert note in audited.err + audited.out and audited.code == 0
    scored = [row["round"] for row in audited.report["rounds"] if row["leakage"]]
    assert note.endswith(f", {', '.join(map(str, scored))}.") and len(scored) == 24
    assert [row["round"] for row in audited.report["rounds"]] == list(range(1, 26))
    assert scored[-1] == 25


def test_attacks__that_lack_what_they_need_say_so(audit: Audit, tmp_path: Path) -> None:
    flags = f"--federation {record(tmp_path / 'REC')} {BASE}"
    audited = audit(f"{flags}--attacks similarity,loss-slope,all-for-one", tmp_path / "OUT")
    assert audited.code == 0 and "(--loss) my_app.task:loss" in audited.not_run["loss-slope"]
    assert 'updates="all"' in audited.not_run["all-for-one"]


def test_refusals__name_a_prefix(audit: Audit, tmp_path: Path) -> None:
    for round in (0, 1):
        state = {f"net.module.{n}": t for n, t in state_of(0).items()}
        torch.save(state, tmp_path / f"{round}.pth")
    audited = audit(f"--checkpoint '{tmp_path}/*.pth' {BASE}")
    assert audited.code == 2 and "begin with 'net.module.'" in audited.err
