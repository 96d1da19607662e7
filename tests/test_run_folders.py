"""Folders of runs opened again: what they hold, what they lack, and what they may not execute."""
# ruff: noqa: F811 (fixtures of audits are imported by their names)

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from fedmia import Run, open_run, open_study
from fedmia.data.cast import SCORED
from fedmia.encoders.base import load
from fedmia.recording import Recording
from fedmia.settings.commands.audit import Audit as AuditSettings
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from research.papers.__main__ import main as papers
from tests.auditing.conftest import Audit, Sides, archives, audit  # noqa: F401
from tests.commands import fedmia, printing

simulate, audit_command = printing("simulate"), printing("audit")
ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "stored" / "run"  # two clients, two rounds


@pytest.fixture(scope="module")
def stored() -> Run:
    """A run whose folder is committed."""
    return open_run(STORED)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The same folder, to be changed."""
    folder = tmp_path / "RUN"
    shutil.copytree(STORED, folder)
    return folder


def rewrite(folder: Path, **settings: object) -> None:
    """Change settings in a folder's config.yaml."""
    tree = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    (folder / "config.yaml").write_text(yaml.safe_dump(tree | settings), encoding="utf-8")


# the stored run


def test_stored__opens_with_its_settings_and_records(stored: Run) -> None:
    assert stored.finished and stored.folder == STORED
    assert isinstance(stored.settings, Experiment)
    assert stored.settings.federation.clients == 2
    assert stored.verdict_code == "not-established" and "similarity" in stored.verdict
    assert stored.records.family.level == 0.95
    assert "finished" in repr(stored)


def test_stored__attacks_are_a_row_each(stored: Run) -> None:
    table, row = stored.attacks, stored.records.attacks[0]
    assert list(table.index) == ["similarity", "lpla"] and table.index.name == "name"
    first = table.loc["similarity"]
    assert [first["ci_low"], first["ci_high"]] == row.auc_ci
    assert [first["low"], first["high"]] == [row.low, row.high]
    assert first["auc"] == row.auc and first["tpr_at_0.1"] == row.tpr_at_fpr["0.1"]
    assert pd.isna(first["tpr_at_0.01"]) and pd.isna(first["tpr_at_0.01_ci_low"])
    control = stored.records.controls["untrained"][1]
    assert control.name == "lpla" and table.loc["lpla", "auc_untrained"] == control.auc
    assert (first["n_members"], first["n_nonmembers"]) == (12, 12)


def test_stored__clients_and_rounds_are_a_row_each(stored: Run) -> None:
    clients, rounds = stored.clients, stored.rounds
    assert list(clients.index) == [0, 1] and clients["size"].sum() == 16
    assert clients["auc"].tolist() == [c.auc for c in stored.records.clients]
    assert list(rounds.index) == [1, 2] and rounds["loss"].notna().all()
    assert pd.isna(rounds.loc[1, "auc:similarity"])
    last = stored.records.rounds[-1]
    assert rounds.loc[2, "auc:lpla"] == last.leakage["lpla"]
    assert [rounds.loc[2, f"{end}:lpla"] for end in ("ci_low", "ci_high")] == last.leakage_ci[
        "lpla"
    ]


def test_stored__scores_are_typed_and_give_the_auc(stored: Run) -> None:
    scores = stored.scores
    assert {n: str(t) for n, t in scores.dtypes.items()} == {
        "image": "int64", "truth": "bool", "client": "Int64", "label": "int64",
        "similarity": "float64", "lpla": "float64",
    }  # fmt: skip
    inside, outside = (scores.loc[scores["truth"] == t, "similarity"].to_numpy() for t in (1, 0))
    wins = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
    assert wins == pytest.approx(stored.attacks.loc["similarity", "auc"], abs=1e-6)
    assert scores["client"].notna().tolist() == scores["truth"].tolist()


def test_stored__encoder_is_the_scored_model(stored: Run) -> None:
    store = Recording(STORED / "recording")
    pixels = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for round, kept in ((None, 2), (0, 0), (2, 2)):
        encoder = stored.encoder(round)
        assert not encoder.training and encoder(pixels).shape == (3, 8)
        own, state = encoder.state_dict(), store.load("main", kept)[0]
        assert len(own) and all(torch.equal(t, state[n]) for n, t in own.items() if n in state)
        assert len(own.keys() & state.keys()) >= 10
    with pytest.raises(InputError, match=r"kept no round 1; nearest is 0 \(kept: 0, 2\)"):
        stored.encoder(1)


def test_stored__images_are_those_of_scores_csv(stored: Run) -> None:
    images, scores = stored.images, stored.scores
    inside, outside = map(images.pixels, SCORED)
    assert inside.dtype == torch.uint8 and inside.shape == (12, 3, 8, 8)
    members = scores[scores["truth"]]
    assert images.ids("scored_members").tolist() == members["image"].tolist()
    assert images.owner("scored_members").tolist() == members["client"].tolist()
    assert images.classes("scored_members").tolist() == members["label"].tolist()
    others = scores[~scores["truth"]]
    assert images.ids("scored_nonmembers").tolist() == others["image"].tolist()
    assert images.classes("scored_nonmembers").tolist() == others["label"].tolist()
    both = torch.cat([inside, outside]).reshape(24, -1).numpy()
    assert len(np.unique(both, axis=0)) == 24


def test_stored__figures_are_drawn_again(stored: Run) -> None:
    assert {"attacks", "roc", "clients", "rounds", "holdings"} <= set(stored.figures)
    axes = stored.figure("roc").axes[0]
    assert {"similarity", "lpla"} <= {line.get_label().split(" ")[0] for line in axes.get_lines()}
    with pytest.raises(InputError, match="unknown figure 'rok'; did you mean 'roc'"):
        stored.figure("rok")
    with pytest.raises(InputError, match="'features' .* has no data: .* features are not kept"):
        stored.figure("features")
    with pytest.raises(InputError, match="figure 'sweep' of .* has no data$"):
        stored.figure("sweep")


def test_stored__table_has_the_numbers_of_the_report(stored: Run) -> None:
    table = stored.table
    assert {"attack", "metric", "value", "low", "high", "p"} <= {*table.columns}
    own = table[(table["subject"] == "attack") & (table["metric"] == "auc")]
    aucs = own[own["control"].isna()].set_index("attack")["value"]
    assert aucs.to_dict() == stored.attacks["auc"].to_dict()


@pytest.mark.slow
def test_stored__its_model_and_numbers_need_no_federation() -> None:
    program = (
        "import sys\n"
        "for name in ('flwr', 'ray', 'opacus'): sys.modules[name] = None\n"
        "from fedmia import open_run\n"
        f"run = open_run({str(STORED)!r})\n"
        "assert len(run.attacks) == len(run.clients) == 2 and len(run.scores) == 24\n"
        "assert run.encoder().layers and run.figure('roc')\n"
        "assert len(run.images.ids('scored_members')) == 12\n"
        "try: run.settings\n"
        "except Exception as error: assert 'without flwr' in str(error), error\n"
        "else: raise AssertionError\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


# other folders


def test_open_run__refuses_what_is_no_run(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no run: no config.yaml in it; runs inside it: RUN"):
        open_run(tmp_path)
    with pytest.raises(InputError, match="is no run: no config.yaml in it$"):
        open_run(tmp_path / "nothing")
    rewrite(copy, jobs=2)
    with pytest.raises(InputError, match="is no run, but of several: open one of its cells/"):
        open_run(copy)
    for other in ({"run": "RUN"}, {"encoder": "RUN", "mechanisms": ["laplace"]}):
        (copy / "config.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
        with pytest.raises(InputError, match="is no run, but of released heads or a run's tables"):
            open_run(copy)


@pytest.mark.parametrize("found", [2, 0, "x"])
def test_open_run__refuses_another_format_in_one_line(copy: Path, found: object) -> None:
    rewrite(copy, _run={"format": found})
    with pytest.raises(InputError, match=f"is of format {found}; this fedmia reads 1") as raised:
        open_run(copy)
    assert "\n" not in str(raised.value)


def test_open_run__misses_what_is_not_there_where_it_is_asked_for(copy: Path) -> None:
    for name in ("report.json", "scores.csv"):
        (copy / name).unlink()
    run = open_run(copy)
    assert not run.finished and run.settings.seed == 0
    assert run.encoder()(torch.zeros(1, 3, 8, 8)).shape == (1, 8)  # of the last round
    assert len(run.images.ids("scored_members")) == 12
    with pytest.raises(InputError, match="holds no finished run: no report.json in it"):
        _ = run.attacks
    with pytest.raises(InputError, match="holds no scores.csv: it was not finished"):
        _ = run.scores
    shutil.rmtree(copy / "recording")
    with pytest.raises(InputError, match="no config.yaml and recording/ in it"):
        open_run(copy).encoder()


def test_open_run__knows_a_run_that_ended_early(copy: Path) -> None:
    report = json.loads((copy / "report.json").read_text(encoding="utf-8"))
    for more in ({"interrupted": 1}, {"failure": "client 0 failed"}):
        (copy / "report.json").write_text(json.dumps(report | more), encoding="utf-8")
        run = open_run(copy)
        assert not run.finished and len(run.attacks) == 2
    (copy / "report.json").write_text(json.dumps(report), encoding="utf-8")
    assert open_run(copy).finished
    (copy / "checkpoint").mkdir()
    assert not open_run(copy).finished


# damaged folders


def change_report(folder: Path, **values: object) -> None:
    file = folder / "report.json"
    report = json.loads(file.read_text(encoding="utf-8")) | values
    file.write_text(json.dumps(report), encoding="utf-8")


def cut(file: Path, length: int) -> None:
    file.write_bytes(file.read_bytes()[:length])


DAMAGED = "report.json of run '{run}' is damaged, or not of fedmia: "
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {  # of a report: how, and the line
    "cut": (lambda run: cut(run / "report.json", 500), DAMAGED + "JSONDecodeError: "),
    "a list": (lambda run: (run / "report.json").write_text("[]"), DAMAGED),
    "empty": (lambda run: (run / "report.json").write_text('{"format": 2}'),
              DAMAGED + "ValueError: report.aggregation: missing"),
    "without a format": (lambda run: (run / "report.json").write_text("{}"),
                         "report of '{run}' is of format 1; this fedmia reads 2"),
    "another format": (lambda run: change_report(run, format=99),
                       "report of '{run}' is of format 99; this fedmia reads 2"),
    "an unknown field": (lambda run: change_report(run, threat={}),
                         DAMAGED + "ValueError: report.threat: unknown"),
    "no rows": (lambda run: change_report(run, attacks=5),
                DAMAGED + "ValueError: report.attacks: 5 is no list"),
    "a row": (lambda run: change_report(run, rounds=[5]), DAMAGED + "ValueError: report.rounds[0]"),
    "settings of another format": (lambda run: rewrite(run, _run={"format": 99}),
                                   "folder '{run}' is of format 99; this fedmia reads 1"),
    "settings that are a list": (lambda run: (run / "config.yaml").write_text("- 1"),
                                 "{run}/config.yaml: must hold a mapping of options, holds list"),
    "no settings": (lambda run: (run / "config.yaml").unlink(),
                    "folder '{run}' is no run: no config.yaml"),
    "a folder for settings": (lambda run: (run / "config.yaml").rename(run / "old") and
                              (run / "config.yaml").mkdir(),
                              "folder '{run}' is no run: no config.yaml"),
}  # fmt: skip


def study_main(line: list[str]) -> int:
    """The exit code of a study, whose error is printed."""
    ran = fedmia(["study", *line])
    print(ran.err, end="", file=sys.stderr)
    return ran.code


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("main", "line"),
    [
        (simulate, "--resume {run}"),
        (audit_command, "--encoder {run} --attacks similarity --device cpu"),
        (study_main, "--encoders {run} --attacks similarity --seeds 2 --out {out} --device cpu"),
        (papers, "head --encoder {run} --data synthetic --device cpu"),
        (papers, "run {run} --device cpu"),
    ],
)  # fmt: skip
def test_damage__is_one_line_at_every_command(
    main: Callable[[list[str]], int], line: str, damage: str, copy: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    how, said = DAMAGES[damage]
    how(copy)
    out = tmp_path / "OUT"
    assert main(line.format(run=copy, out=out).split()) == 2
    err = capsys.readouterr().err
    assert err.count("fedmia: error: ") == 1 and err.splitlines()[-1].startswith("fedmia: error: ")
    assert said.format(run=copy) in err and not out.exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage__is_one_line_in_python(damage: str, copy: Path) -> None:
    how, said = DAMAGES[damage]
    how(copy)
    parts = ("finished", "records", "verdict", "todo", "model_card", "attacks", "clients", "rounds",
             "figures", "encoder")  # fmt: skip
    for part in parts:
        with pytest.raises(InputError) as raised:
            value = getattr(open_run(copy), part)
            value()
        assert said.format(run=copy) in str(raised.value) and "\n" not in str(raised.value)
    if said.startswith(DAMAGED):
        assert "(damaged)" in repr(open_run(copy)) and "(damaged)" in open_run(copy)._repr_html_()


@pytest.mark.parametrize(
    ("file", "how", "part", "said"),
    [
        ("scores.csv", lambda file: cut(file, 60), "scores", "similarity scores"),
        ("scores.csv", lambda file: file.write_bytes(b"\xff\xfe"), "scores", "UnicodeDecodeError"),
        ("scores.csv", lambda file: file.write_text(file.read_text().replace("lpla", "other")),
         "scores", "KeyError: 'lpla'"),
        ("curves.npz", lambda file: file.write_bytes(b"PK"), "curves", "not an archive"),
        ("table.parquet", lambda file: file.write_bytes(b"PAR1"), "table", "cannot read"),
    ],
)  # fmt: skip
def test_damage__of_other_files_is_met_by_what_rests_on_them(
    file: str, how: Callable[[Path], object], part: str, said: str, copy: Path
) -> None:
    how(copy / file)
    run = open_run(copy)
    with pytest.raises(InputError, match=said) as raised:
        getattr(run, part)
    assert file in str(raised.value) and str(copy) in str(raised.value)
    assert run.finished and len(run.attacks) == 2


def test_study__of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"format": 99, "cells": []}', encoding="utf-8")
    with pytest.raises(InputError, match="is of format 99; this fedmia reads 1"):
        open_study(tmp_path)


def test_images__of_another_source_are_refused(copy: Path) -> None:
    lines = (copy / "scores.csv").read_text(encoding="utf-8").splitlines()
    lines[1] = "79" + lines[1][lines[1].index(",") :]
    (copy / "scores.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="no longer holds the images that"):
        _ = open_run(copy).images


def test_audit__opens_too(audit: Audit, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    done = audit("--attacks lpla", out)
    assert done.code == 0, done.err
    run = open_run(out)
    assert run.finished and isinstance(run.settings, AuditSettings)
    assert list(run.attacks.index) == done.names() and run.clients.empty and run.rounds.empty
    assert "auc_untrained" in run.attacks and run.scores["client"].dropna().eq(0).all()
    images, scores = run.images, run.scores
    assert images.ids("scored_members").tolist() == scores.loc[scores["truth"], "image"].tolist()
    others = len(scores) - len(images.ids("scored_members"))
    assert images.pixels("scored_nonmembers").shape == (others, 3, 8, 8)
    assert run.figure("roc").axes
    assert (out / "table.parquet").is_file() and set(run.table["attack"]) >= {"lpla"}
    with pytest.raises(InputError, match="is an audit: it holds no model, it names one"):
        run.encoder()


# plugins from outside

PLUGIN = '''
import pathlib
pathlib.Path(r"{mark}").write_text("imported")
from dataclasses import dataclass
from fedmia.attacks.similarity import Similarity
from fedmia.nets.smallnet import SmallNet
@dataclass
class Foreign(Similarity):
    """Similarity by another name."""
@dataclass(frozen=True)
class Net(SmallNet):
    """SmallNet by another name."""
'''


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that module `foreign-code` writes when it is imported."""
    mark = tmp_path / "imported"
    (tmp_path / "foreign-code.py").write_text(PLUGIN.format(mark=mark), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "foreign-code", raising=False)
    return mark


def test_plugins__of_a_folder_are_imported_by_trust_alone(copy: Path, foreign: Path) -> None:
    name = "foreign-code:Foreign"
    rewrite(copy, attacks=[name], attack={name: {"views": 2}})
    run = open_run(copy)
    assert len(run.attacks) == 2 and run.verdict_code  # data
    assert run.encoder() is not None  # made of other settings
    assert len(run.images.ids("scored_members")) == 12  # of the data source alone
    with pytest.raises(InputError) as raised:
        _ = run.settings
    line = str(raised.value)
    assert f"'{copy}'" in line and f"'{name}'" in line and "--trust-plugins" in line
    assert "trust_plugins=True" in line and "\n" not in line
    assert not foreign.exists()
    trusted = open_run(copy, trust_plugins=True)
    assert trusted.settings.attacks == (name,) and foreign.exists()
    assert len(trusted.images.ids("scored_members")) == 12


def test_plugins__an_encoder_is_refused_for_those_it_is_made_of(copy: Path, foreign: Path) -> None:
    rewrite(copy, model={"name": "foreign-code:Net", "width": 4})
    for ask in (lambda: open_run(copy).encoder(), lambda: load(str(copy))):
        with pytest.raises(InputError, match="plugin 'foreign-code:Net' from outside"):
            ask()
    assert not foreign.exists()
    assert open_run(copy, trust_plugins=True).encoder()(torch.zeros(1, 3, 8, 8)).shape == (1, 8)
    assert foreign.exists()


NAMED = "foreign-code:Foreign"


@pytest.fixture
def strange(copy: Path, foreign: Path) -> Path:
    """The folder of a run that names an attack from outside."""
    assert not foreign.exists()
    rewrite(copy, attacks=[NAMED], attack={NAMED: {"views": 2}})
    return copy


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (simulate, "--resume {run}"),
        (audit_command, "--encoder {run} --attacks similarity"),
        (study_main, "--encoders {run}@2 --attacks similarity --seeds 2 --out {out}"),
        (audit_command, "{sides} --encoder tests.auditing.brought:tiny --attacks similarity "
                             "--shadow-encoders {run}"),
        (papers, "head --encoder {run} --data synthetic"),
        (papers, "run {run}"),
    ],
)  # fmt: skip
def test_plugins__of_a_folder_are_refused_by_every_command(
    main: Callable[[list[str]], int], line: str, strange: Path, foreign: Path,
    archives: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if line.startswith("head") or "shadow" in line:  # of a run these take no attack
        rewrite(strange, model={"name": NAMED.replace("Foreign", "Net"), "width": 4})
    out = tmp_path / "OUT"
    told = line.format(run=strange, out=out, sides=archives.flags)
    assert main([*told.split(), "--device", "cpu"] if "resume" not in line else told.split()) == 2
    err = capsys.readouterr().err
    last = err.splitlines()[-1]  # an audit says before it what it had to guess
    assert err.count("fedmia: error: ") == 1 and last.startswith("fedmia: error: ")
    assert f"'{strange}' name the plugin 'foreign-code:" in last
    assert "--trust-plugins" in err and not foreign.exists() and not out.exists()


def test_resume__imports_what_is_trusted(
    strange: Path, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a finished run it prints the report."""
    assert simulate(["--resume", str(strange), "--trust-plugins", "--quiet"]) == 0
    assert "No leakage established" in capsys.readouterr().out and foreign.exists()


def test_audit__imports_what_it_names_itself(audit: Audit, strange: Path, foreign: Path) -> None:
    line = f"--encoder {strange} --known 2 --attacks {NAMED} --attack.{NAMED}.views 2"
    done = audit(line, own_images=True)
    assert done.code == 0 and foreign.exists(), done.err


@pytest.mark.slow
def test_audit__of_a_run_imports_none_of_its_attacks(
    audit: Audit, strange: Path, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trusted or not; of a study of audits, each in a process of its own, neither."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    line = f"--encoder {strange} --known 2 --attacks similarity --trust-plugins "
    assert audit(line, own_images=True).code == 0 and not foreign.exists()
    more = f"--device cpu --threads 1 --seeds 2 --out {tmp_path / 'OUT'}"
    assert fedmia(f"study {line.replace('--encoder ', '--encoders ')} {more}").code == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"data": {"name": "my.sets:Cats:/a/b"}}, "my.sets:Cats:/a/b"),
        ({"partition": "npz:Deal"}, "npz:Deal"), ({"ssl": {"name": "npz:Method"}}, "npz:Method"),
        ({"defense": [{"name": "d:E", "clients": [0]}]}, "d:E"), ({"attacker": "r:Role"}, "r:Role"),
        ({"attack": {"a-b c:D": {}}}, "a-b c:D"), ({"attacks": ["one:A"]}, "one:A"),
        ({"strategy": {"name": "s:S"}}, "s:S"), ({"model": {"name": "n:Net"}}, "n:Net"),
        ({"strategy": {"name": "fedavg", "of": {"inner": "t:T"}}}, "t:T"),
    ],
)  # fmt: skip
def test_outside_plugins__wherever_settings_may_name_one(
    settings: dict[str, Any], named: str, copy: Path
) -> None:
    """What looks like one and is none is refused for another reason, or not at all."""
    rewrite(copy, **settings)
    with pytest.raises(InputError, match=f"'{named}' from outside"):
        _ = open_run(copy).settings
    rewrite(
        copy, data={"name": "parquet:/a/b:c.parquet"}, partition={"name": "file:clients.csv"},
        machine={"device": "cuda:0", "ray_address": "ray://host:10001"}, ssl="moco", attack={},
        attacks=["similarity"], defense=[], attacker="none", strategy="fedavg", model="smallnet",
    )  # fmt: skip
    try:
        _ = open_run(copy).settings
    except InputError as error:
        assert "from outside" not in str(error)


def test_place__that_is_no_mapping_is_refused(copy: Path) -> None:
    config = copy / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.partition("_run:")[0] + "_run: 3\n", encoding="utf-8")
    ran = fedmia(["diff", str(copy), str(STORED)])
    assert ran.code == 2 and "is damaged" in ran.err and "_run holds 3" in ran.err
