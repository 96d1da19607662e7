"""Settings of a study: the names and keys of its runs; tables of lines stand in test_resolved."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from fedmia import open_study
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree, to_tree
from fedmia.settings.yamlfile import dump
from tests.options import option_fields
from tests.settings.conftest import AUDIT, IMAGES, built, refused, written


def test_cells__are_the_runs_that_simulate_and_audit_would_do() -> None:
    flags = "--config smoke --rounds 3"
    cells = built(f"study {flags} --over strategy=fedavg,fedprox --seeds 2 --seed 4").cells
    assert cells[-1].tree == to_tree(built(f"simulate {flags} --seed 5 --strategy fedprox"))
    trade = "--rounds 3 --attacker passive --federation.snapshots 1"
    cells = built("study --defenses gaussian --strengths gaussian=.1 --seeds 2 --rounds 3").cells
    assert cells[-1].tree == to_tree(
        built(f"simulate {trade} --seed 1 --defense gaussian --defense.scale .1")
    )
    flags = f"{IMAGES} --known 8 --size 16 --data-dir D --shadows 0"
    study = built(f"study --encoders x@3,4,y.pth --seeds 2 --seed 7 {flags}")
    assert study.cells[1].tree == to_tree(built(f"audit --encoder x@4 --seed 7 {flags}"))
    assert [cell.key for cell in from_tree(type(study), study.tree()).cells] == [
        cell.key for cell in study.cells
    ]


def test_effect__is_needed_on_one_run_only(tmp_path: Path) -> None:
    """The process of a run is told nothing that is refused."""
    file = tmp_path / "config.yaml"
    for cell in built("study --over attacker=none,active --attack-rounds 2").points:
        file.write_text(written(cell.first))
        assert built(f"simulate --config {file}") == cell.first


def names(line: str, folder: Path) -> list[str]:
    """The folders of a study's runs, of which no run is finished."""
    (folder / "config.yaml").write_text(dump(built(f"study {line}").tree()))
    return [cell.name for cell in open_study(folder, trust_plugins=True).cells]


def test_names__are_readable_and_each_another(tmp_path: Path) -> None:
    long = f"npz:/a/{'b' * 200}"
    cell_names = names(f"--over dataset=npz:/a/b,npz:/a=b,{long} --seeds 2", tmp_path)
    assert len(set(cell_names)) == 6 and all("/" not in n for n in cell_names)
    assert all(len(n) < 150 for n in cell_names)
    assert names("--over strategy=fedprox", tmp_path) == ["strategy=fedprox_seed=0"]
    listed = names("--over 'ssl.operations=crop;crop,flip' --dataset synthetic", tmp_path)
    assert listed == [f"ssl.operations={v}_seed=0" for v in ("crop", "crop+flip")]


def test_accents__two_spellings_of_a_file_are_one_encoder_and_one_run(tmp_path: Path) -> None:
    typed, stored = (unicodedata.normalize(form, f"{tmp_path}/\xe9.npz") for form in ("NFC", "NFD"))
    Path(stored).touch()
    (_, cell) = built(f"study --encoders {tmp_path}/a.pth,{typed} {IMAGES}").cells
    assert cell.first.encoder.name == stored
    assert "named twice" in refused(f"study --encoders {typed},{stored} {IMAGES}")
    assert "are the same run" in refused(f"study smoke --over data.name=npz:{typed},npz:{stored}")


def test_encoders__with_a_comma_and_of_a_recording(tmp_path: Path) -> None:
    """A file is what its whole name says; a recording is audited with its federation."""
    (tmp_path / "a,1").touch()
    (cell,) = built(f"study --encoders {tmp_path}/a,1 {IMAGES}").cells
    assert cell.first.encoder.name == f"{tmp_path}/a,1"
    recording = tmp_path / "RUN" / "recording"
    recording.mkdir(parents=True)
    (recording / "recording.json").write_text("{}")
    said = refused(f"study --encoders {recording}")
    assert "a recording of no run of fedmia" in said and f"--federation {recording}" in said
    (tmp_path / "RUN" / "config.yaml").touch()
    first, last = (c.first for c in built(f"study --encoders {tmp_path}/RUN,{recording}").cells)
    assert type(first) is type(last) is type(built(AUDIT))
    assert first.encoder.name == last.encoder.name == f"{tmp_path}/RUN"
    assert (first.federation.recording, last.federation.recording) == (None, str(recording))


DEFENDING = [
    (kind, name)
    for kind in ("defense", "strategy")
    for name in registry.names(kind)
    if registry.load(kind, name).strength or registry.load(kind, name).strengths
]


@pytest.mark.parametrize(("kind", "name"), DEFENDING)
def test_strengths__are_values_of_the_option_that_they_are_of(kind: str, name: str) -> None:
    cls = registry.load(kind, name)
    assert cls.strength in {one.name for one, _ in option_fields(cls)}
    assert 3 <= len(set(cls.strengths)) == len(cls.strengths) <= 5
    for value in cls.strengths:
        registry.build(kind, name, {cls.strength: value})
    with pytest.raises(InputError):
        registry.build(kind, name, {cls.strength: -1})
