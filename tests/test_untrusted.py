"""What a file or a message of others may not make fedmia do, one danger a test."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedmia import open_study
from fedmia.federation.checkpoint import FORMAT, Checkpoint, restore_server, versions
from fedmia.flower.gather import report_node
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.errors import InputError
from fedmia.settings.options import check_limits
from fedmia.shadows.provided import load_shadows, read_settings
from fedmia.storage.archive import pack, unpack
from fedmia.storage.arrays import numbers
from fedmia.storage.results import read
from fedmia.storage.runfolder import DAMAGE, UntrustedPluginError
from fedmia.untrusted import limits, parquet
from fedmia.untrusted.text import parse_json
from fedmia.untrusted.torchfile import read_weights
from strategies.fedavg import FedAvg
from strategies.replies import RejectedReply

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


def test_unpack__builds_records_alone_of_their_types() -> None:
    whole = {"of": "RoundRow", "is": {"round": 1, "under_attack": False, "loss": 0.5}}
    assert pack(unpack(whole, {}), {})["is"]["round"] == 1
    for name in ("np", "dataclass", "replace", "twins", "Any", "__name__"):
        with pytest.raises((ValueError, TypeError), match="is no record"):
            unpack({"of": name, "is": {}}, {})
    odd = (
        {"round": "1"},
        {"round": 1.5},
        {"leakage": {"dict": [["a", "x"]]}},
        {"loss": {"list": []}},
    )
    for values in odd:
        with pytest.raises(InputError, match="RoundRow"):
            unpack({"of": "RoundRow", "is": {**whole["is"], **values}}, {})


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
        with pytest.raises(UntrustedPluginError, match="'os:system' from outside"):
            load_shadows(tmp_path)
        assert read_settings(tmp_path) == []
    shadow(tmp_path, defense=[["os:system", {}]])
    with pytest.raises(UntrustedPluginError, match="'os:system' from outside"):
        load_shadows(tmp_path)


def test_shadows__of_odd_types_are_refused_by_name(tmp_path: Path) -> None:
    for odd in ({"size": "8"}, {"mean": "x"}, {"model": 3}, {"epochs": None}, {"train": []}):
        shadow(tmp_path, **odd)
        assert read_settings(tmp_path) == []
        with pytest.raises(InputError, match=tmp_path.name) as refusal:
            load_shadows(tmp_path)
        assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 600


def repeated(rows: int, value: bytes, groups: int = 1) -> Any:
    """Metadata of a file that holds a value once, and says it so often."""
    places, file = pa.array(np.zeros(rows, np.int32)), io.BytesIO()
    table = pa.table({"image": pa.DictionaryArray.from_arrays(places, pa.array([value]))})
    pq.write_table(table, file, store_schema=False, row_group_size=-(-rows // groups))
    return pq.ParquetFile(file).metadata


def test_parquet__as_many_rows_at_once_as_their_memory_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parquet.batch_rows("file", repeated(5000, b"x"), 1000) == parquet.ROWS
    monkeypatch.setattr(parquet, "BATCH", parquet.BATCH >> 7)
    for groups in (1, 2):
        rows = parquet.batch_rows("file", repeated(4000, bytes(1 << 13), groups), 1 << 20)
        assert 100 < rows <= parquet.BATCH >> 13  # each may be the largest
    monkeypatch.setattr(limits, "ROOM", 1 << 20)
    with pytest.raises(InputError, match="unfolds to"):
        parquet.batch_rows("file", repeated(1, bytes(2 << 20)), 1000)


def test_table__of_others_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    for content in (b"", b"PAR1", (STORED / "report.json").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"table\.parquet"):
            read(file)
    pq.write_table(pa.table({"run": ["a"]}), file)
    with pytest.raises(InputError, match="no column 'seed'"):
        read(tmp_path)


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
    with pytest.raises(UntrustedPluginError, match="'a.b:smallnet' from outside"):
        _ = study.runs["one"].settings
    for content in ("[]", "[" * 100_000, "", "{}"):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(InputError, match=r"study\.json of run"):
            _ = open_study(tmp_path).sentence


def answer(text: str, arrays: ArrayRecord) -> RecordDict:
    """What a node of private images sends."""
    return RecordDict({"told": ConfigRecord({"json": text}), "scores": arrays})


def test_answer__of_a_node_is_scores_or_refused_in_its_name() -> None:
    done: Any = SimpleNamespace(plan=SimpleNamespace(experiment=None), aggregation=None)
    terabytes = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        terabytes, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    )
    large = ArrayRecord({"0": Array("float64", (1 << 40,), "numpy.ndarray", terabytes.getvalue())})
    with pytest.raises(InputError, match="promises"):
        numbers(large)
    for text in ("", "[]", "[" * 100_000, '{"size": 8}', '{"size": {"of": "np", "is": {}}}'):
        for arrays in (large, ArrayRecord({})):
            with pytest.raises(RejectedReply, match="client 3 sent no answer to report on: "):
                report_node(3, answer(text, arrays), done, None, Stopwatch(0.0))


class Planted:
    """A pickle that ends the process of who trusts it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('it ran')",)


def test_weights__a_pickle_calls_nothing(tmp_path: Path) -> None:
    for zipped in (True, False):
        file = tmp_path / "weights.pth"
        content = {"w": torch.zeros(2), "x": Planted()}
        torch.save(content, file, _use_new_zipfile_serialization=zipped)
        with pytest.raises(InputError, match="'exec', which is no data and may run code"):
            read_weights(file)


def test_damage__is_what_readers_raise() -> None:
    for content in ("[" * 100_000, "{", "NaN]"):
        with pytest.raises(DAMAGE):
            parse_json(content)


def test_options__no_integer_is_larger_than_arrays_hold() -> None:
    for value in (1 << 63, 10**30, -(10**400)):
        with pytest.raises(InputError, match="rounds: .* bits, must be less than 2"):
            check_limits("rounds", value, {"ge": None})
    check_limits("rounds", (1 << 63) - 1, {"ge": 1})
