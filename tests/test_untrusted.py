"""What a file or a message of others may not make fedmia do, one danger a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedmia import open_study
from fedmia.federation.checkpoint import FORMAT, Checkpoint, restore_server, versions
from fedmia.settings.errors import InputError
from fedmia.shadows.provided import load_shadows, read_settings
from strategies.fedavg import FedAvg
from tests.commands import fedmia

STORED = Path(__file__).parent / "stored" / "run"


def index(files: dict[str, Any], clients: list[Any]) -> dict[str, Any]:
    """An index of a checkpoint of this version."""
    states = {"serial": 1, "files": clients}
    own = {"format": FORMAT, "versions": versions(), "key": "", "generation": 1}
    return {**own, "files": files, "clients": states}


@pytest.mark.parametrize("name", ["../keep", "/etc/hostname", "..", "", "a/b", "a\0b", None, 3])
def test_checkpoint__its_index_names_no_file_elsewhere(name: Any, tmp_path: Path) -> None:
    """Files of an index are deleted when the next one is written."""
    checkpoint, file = Checkpoint(tmp_path), tmp_path / "index.json"
    file.write_text(json.dumps(index({"head": "head-1.safetensors"}, [["main", 0, "a.s"]])))
    assert checkpoint.read() is not None
    for odd in (index({"head": name}, []), index({}, [["main", 0, name]])):
        file.write_text(json.dumps(odd))
        with pytest.raises(InputError, match=r"index.json .* leads out of its folder"):
            checkpoint.read()


@pytest.mark.parametrize("name", ["aggregate", "__class__", "__dict__"])
def test_checkpoint__replaces_no_method_of_a_strategy(name: str) -> None:
    strategy = FedAvg()
    with pytest.raises(ValueError, match=f"keeps no '{name}'"):
        restore_server(strategy, {}, {name: ["plain", 1]})


def shadow(folder: Path, **changes: Any) -> Path:
    """What a stranger's shadow says of itself."""
    train = {"batch_size": 4}
    about = {
        "format": 1, "index": 0, "images": "", "device": "cpu", "model": ["smallnet", {}],
        "ssl": ["moco", {}], "train": train, "epochs": 1, "seed": 0, "channels": 3, "size": 8,
        "mean": [0.5] * 3, "std": [0.5] * 3, "known_algorithm": True, **changes,
    }  # fmt: skip
    (folder / "about.json").write_text(json.dumps(about))
    return folder


def test_shadows__import_no_plugin_that_is_not_trusted(tmp_path: Path) -> None:
    assert len(read_settings(shadow(tmp_path))) == 1
    for part in ("model", "ssl"):
        shadow(tmp_path, **{part: ["os:system", {"command": "true"}]})
        with pytest.raises(InputError, match="'os:system' from outside"):
            load_shadows(tmp_path)
        assert read_settings(tmp_path) == []
    shadow(tmp_path, defense=[["os:system", {}]])
    with pytest.raises(InputError, match="'os:system' from outside"):
        load_shadows(tmp_path)


def test_shadows__of_odd_types_are_refused_by_name(tmp_path: Path) -> None:
    for odd in ({"size": "8"}, {"mean": "x"}, {"model": 3}, {"epochs": None}, {"train": []}):
        shadow(tmp_path, **odd)
        assert read_settings(tmp_path) == []
        with pytest.raises(InputError, match=tmp_path.name) as refusal:
            load_shadows(tmp_path)
        assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 600


def test_table__of_others_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    (tmp_path / "study.json").write_text('{"sentence": "One.", "cells": []}')
    for content in (b"", b"PAR1", (STORED / "report.json").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"table\.parquet"):
            _ = open_study(tmp_path).table
    pq.write_table(pa.table({"run": ["a"]}), file)
    with pytest.raises(InputError, match="no column 'seed'"):
        _ = open_study(tmp_path).table


def test_study__imports_no_plugin_of_its_runs(tmp_path: Path) -> None:
    run = tmp_path / "cells" / "one"
    run.mkdir(parents=True)
    for name in ("report.json", "config.yaml"):
        (run / name).write_bytes((STORED / name).read_bytes())
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("model:\n  name: ", "model:\n  name: a.b:"))
    (tmp_path / "study.json").write_text('{"sentence": "One.", "cells": []}')
    study = open_study(tmp_path)
    assert study.sentence == "One."
    with pytest.raises(InputError, match="'a.b:smallnet' from outside"):
        _ = study.runs["one"].settings
    for content in ("[]", "[" * 100_000, "", "{}"):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(InputError, match=r"study\.json of run"):
            _ = open_study(tmp_path).sentence


def test_options__no_integer_is_larger_than_arrays_hold() -> None:
    for value in (1 << 63, 10**30, -(10**400)):
        refused = fedmia(f"simulate --rounds {value}")
        assert refused.code == 2 and "(--rounds): " in refused.err
        assert " bits, must be less than 2^63 in size" in refused.err
    ran = fedmia(f"simulate --seed {(1 << 63) - 1} --rounds 0")
    assert ran.code == 2 and "(--rounds): 0, must be >= 1" in ran.err
