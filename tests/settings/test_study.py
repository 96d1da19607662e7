"""Settings of a study: its cells, its file, and what is refused before anything runs."""

from __future__ import annotations

import shlex
import unicodedata
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE, STUDY
from fedmia.defenses.gaussian import Gaussian
from fedmia.door.arguments import build_settings
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.study import Study, label, short_names, split_encoders, split_round
from fedmia.settings.errors import InputError
from fedmia.settings.presets import PRESETS
from fedmia.settings.tree import from_tree, to_tree
from fedmia.settings.yamlfile import dump
from fedmia.study.folder import LONGEST, names
from tests.settings.conftest import built
from tests.snapshots import Snapshot


def test_cells__are_the_runs_that_simulate_would_do() -> None:
    settings = built("smoke --over strategy=fedavg,fedprox --over train.lr=1e-2,0.1 --seeds 2 "
                  "--seed 4 --rounds 3")  # fmt: skip
    assert [(c.grid["strategy"], c.grid["train.lr"], c.seed) for c in settings.cells] == [
        (s, lr, i) for i in (4, 5) for s in ("fedavg", "fedprox") for lr in (0.01, 0.1)
    ]
    flags = "--config smoke --seed 5 --rounds 3 --strategy fedprox --train.lr 0.1"
    assert settings.cells[-1].tree == to_tree(parse(SIMULATE, shlex.split(flags)).settings)
    assert label(settings.cells[-1].grid) == "strategy=fedprox, train.lr=0.1"


def test_cells__take_the_defaults_of_what_the_grid_chooses() -> None:
    """Another method brings its own learning rate, as it does for `simulate`."""
    moco, byol = built("--over ssl=moco,byol").cells
    assert byol.first == parse(SIMULATE, ["--ssl", "byol"]).settings
    assert byol.first.train.lr != moco.first.train.lr


def test_over__values_of_every_kind() -> None:
    lists = built("--attacker passive --over 'attacks=similarity;similarity,internal'")
    assert [c.first.attacks for c in lists.cells] == [
        ("similarity",), ("similarity", "internal"),
    ]  # fmt: skip
    none = built("--over defense=none,gaussian")
    assert [c.grid["defense"] for c in none.cells] == [None, "gaussian"]
    views = built("--over attack.similarity.views=3,4 --attacks similarity")
    assert [c.first.attack["similarity"]["views"] for c in views.cells] == [3, 4]


def test_file__holds_a_whole_study_and_reads_back(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("federation: {rounds: 2, clients: 4}\n")
    file = tmp_path / "study.yaml"
    file.write_text(
        "base: base.yaml\nattacks: none\nfederation: {clients: 5}\nseeds: 2\nover:\n"
        "  - {strategy: [fedavg, fedprox]}\n  - {strategy: [fedprox], strategy.mu: [1, 2]}\n"
    )
    settings = built(str(file))
    assert len(settings.cells) == 8
    assert {(c.first.federation.clients, c.first.federation.rounds)
            for c in settings.cells} == {(5, 2)}  # fmt: skip
    more = built(f"{file} --over partition.alpha=0.1,1 --train.lr 1e-3")
    assert len(more.cells) == 16 and more.cells[0].first.train.lr == 0.001
    again = tmp_path / "again.yaml"
    again.write_text(dump(more.tree()))
    assert [c.key for c in built(str(again)).cells] == [c.key for c in more.cells]


FILES = (
    "over: {strateg: [fedavg]}", "over: {strategy: fedavg}", "over: 3",
    "over: {strategy.mu: [1]}", "seed: x", "sead: 3", "base: e.yaml", "base: nothing",
)  # fmt: skip


def test_file__mistakes_name_it(tmp_path: Path, snapshot: Snapshot) -> None:
    file, said = tmp_path / "e.yaml", list[str]()
    for text in FILES:
        file.write_text(text)
        with pytest.raises(InputError) as caught:
            built(str(file))
        said.append(f"{text}\n  {str(caught.value).partition(' (presets')[0]}")
    snapshot("\n".join(said))
    with pytest.raises(InputError, match="e.yaml: unknown option over;"):
        file.write_text("over: {strategy: [fedavg]}")
        parse(SIMULATE, ["--config", str(file)])


def test_names__are_readable_and_each_another() -> None:
    cell_names = names(built("--over dataset=npz:/a/b,npz:/a=b --seeds 2").cells)
    assert len(set(cell_names.values())) == 4 and all("/" not in n for n in cell_names.values())
    assert all(len(n) < LONGEST + 30 for n in cell_names.values())
    (plain,) = names(built("--over strategy=fedprox").cells).values()
    assert plain == "strategy=fedprox_seed=0"
    listed = names(built("--over ssl.operations=crop;crop,flip --dataset synthetic").cells)
    assert set(listed.values()) == {f"ssl.operations={v}_seed=0" for v in ("crop", "crop+flip")}


def test_over__plugins_with_options_of_their_own(tmp_path: Path) -> None:
    """From Python, and from a file; names of their folders and points tell them apart."""
    values = {
        "defense": ["none", Gaussian(scale=0.1), {"name": "gaussian", "scale": 0.2}],
        "partition": ["iid", {"name": "dirichlet", "alpha": 0.1}],
    }
    study = build_settings(STUDY, "smoke", {"over": values, "seeds": 2})
    assert [cell.point for cell in study.points[:4]] == [
        "defense=none, partition=iid", "defense=none, partition=dirichlet alpha=0.1",
        "defense=gaussian scale=0.1, partition=iid",
        "defense=gaussian scale=0.1, partition=dirichlet alpha=0.1",
    ]  # fmt: skip
    flags = "--config smoke --seed 1 --defense gaussian --defense.scale 0.2 --partition dirichlet "
    last = parse(SIMULATE, shlex.split(flags + "--partition.alpha 0.1")).settings
    assert study.cells[-1].tree == to_tree(last)
    assert len(set(names(study.cells).values())) == len(study.cells) == 12
    assert [c.key for c in from_tree(Study, study.tree()).cells] == [c.key for c in study.cells]
    (tmp_path / "s.yaml").write_text("over: {partition: [iid, {name: dirichlet, alpha: 2}]}\n")
    assert [c.point for c in built(str(tmp_path / "s.yaml")).points][1] == (
        "partition=dirichlet alpha=2"
    )


def test_encoders__rounds_files_and_names(tmp_path: Path) -> None:
    assert split_encoders("a/RUN@0,10,b.pth, C@3,4") == (
        "a/RUN@0", "a/RUN@10", "b.pth", "C@3", "C@4",
    )  # fmt: skip
    odd = tmp_path / "a,1"
    odd.touch()
    assert split_encoders(str(odd)) == (str(odd),) and split_encoders("timm:x") == ("timm:x",)
    assert short_names(["a/x.pth", "b/x.pth"]) == ["a/x.pth", "b/x.pth"]
    assert short_names(["a/x@1", "a/x@2"]) == ["x@1", "x@2"]
    assert split_round("a/RUN@10") == ("a/RUN", 10) and split_round("x.pth") == ("x.pth", None)
    for text, said in (("RUN,3", "3 follows no RUN"), ("R@1,1", "R@1 is named twice")):
        with pytest.raises(InputError, match=said):
            split_encoders(text)


def test_accents__two_spellings_of_a_file_are_one_encoder_and_one_run(tmp_path: Path) -> None:
    typed, stored = (unicodedata.normalize(form, f"{tmp_path}/\xe9.npz") for form in ("NFC", "NFD"))
    Path(stored).touch()
    assert split_encoders(f"{tmp_path}/a.pth,{typed}")[1] == stored
    with pytest.raises(InputError, match="named twice"):
        split_encoders(f"{typed},{stored}")
    with pytest.raises(InputError, match="are the same run"):
        built(f"smoke --over data.name=npz:{typed},npz:{stored}")


def test_encoders__are_the_audits_that_audit_would_do() -> None:
    """Options that audits share with experiments, and short flags of images, reach them."""
    flags = "--members digits --nonmembers digits --attacks similarity --known 8 --size 16 "
    flags += "--attack.similarity.views 3 --seed 7 --data-dir D --shadows 0"
    study = built(f"--encoders x@3,4,y.pth --seeds 2 {flags}")
    audits = [(c.point, c.tree["encoder"]["name"], c.tree["seed"]) for c in study.cells]
    assert audits == [
        ("x@3", "x@3", 7), ("x@4", "x@4", 7), ("y.pth", "y.pth", 7),
        ("x@3", "x@3", 8), ("x@4", "x@4", 8), ("y.pth", "y.pth", 8),
    ]  # fmt: skip
    one = parse(AUDIT, shlex.split(f"--encoder x@4 {flags}")).settings
    assert study.cells[1].tree == to_tree(one)
    again = from_tree(Study, study.tree())
    assert [c.key for c in again.cells] == [c.key for c in study.cells]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--encoders x --clients 3", "federation.clients (--clients) is no option of audits"),
        (
            "--encoders x --over rounds=1,2",
            "over (--over) varies a federation, and encoders (--encoders) audits",
        ),
        ("--encoders x --defenses gaussian", "defenses (--defenses) varies a federation"),
        ("--encoder x", "did you mean '--encoders'?"),
        (
            "--limit 3",
            "split.limit (--limit) is an option of audits: encoders (--encoders) names none",
        ),
        (
            "--defenses gaussian --over rounds=1,2",
            "over (--over) and defenses (--defenses) both say what is compared",
        ),
        (
            "--over rounds=0,1",
            "over federation.rounds=0: federation.rounds (--rounds): 0, must be >= 1",
        ),
        ("--over strategy=fedavg,fedavg", "strategy=fedavg and strategy=fedavg are the same run"),
        ("--over seed=1,2", "seeds N says how many seeds"),
        ("--view encoders", "view encoders is of encoders (--encoders), which is not given"),
    ],
)
def test_options__that_do_not_suit_one_another_are_refused(line: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        built(line)
    assert said in str(caught.value)


def test_encoders__a_recording_is_audited_with_its_federation(tmp_path: Path) -> None:
    recording = tmp_path / "RUN" / "recording"
    recording.mkdir(parents=True)
    (recording / "recording.json").write_text("{}")
    with pytest.raises(
        InputError, match=f"a recording of no run of fedmia.*--federation {recording}"
    ):
        built(f"--encoders {recording}")
    (tmp_path / "RUN" / "config.yaml").touch()
    first, last = (cell.first for cell in built(f"--encoders {tmp_path}/RUN,{recording}").cells)
    assert isinstance(first, Audit) and isinstance(last, Audit)
    assert first.encoder.name == last.encoder.name == f"{tmp_path}/RUN"
    assert (first.federation.recording, last.federation.recording) == (None, str(recording))


def test_audit__of_several_encoders_is_a_study() -> None:
    images = "--members digits --nonmembers digits"
    with pytest.raises(InputError, match="fedmia study --encoders a.pth,b.pth audits each"):
        parse(AUDIT, shlex.split(f"--encoder a.pth,b.pth {images}"))
    with pytest.raises(InputError, match="unknown option --seeds; did you mean '--seed'"):
        parse(AUDIT, shlex.split(f"--encoder a.pth --seeds 3 {images}"))


@pytest.mark.parametrize("name", sorted(p.stem for p in (PRESETS / "sweeps").glob("*.yaml")))
def test_presets__are_valid(name: str) -> None:
    cells = len(built(f"sweeps/{name}").cells)
    assert cells == 1 if name == "ascent-resnet18" else cells > 1  # that one is asked once
