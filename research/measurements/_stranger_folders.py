"""Folders of runs, checkpoints, shadow encoders and studies: honest ones, and hostile ones by
hand."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _mutations import VALUES
from _stranger_data import npz, parquet
from _stranger_encoders import CODE, Files, bomb, planted
from safetensors import safe_open
from safetensors.torch import load, save

from fedmia import open_study, table
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.checkpoint import Checkpoint
from fedmia.records.rows import Report
from fedmia.report.figures import draw
from fedmia.runs import open_run
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.shadows.cache import key_of, seal
from fedmia.shadows.draw import content_digest
from fedmia.shadows.plan import ShadowPlan, TargetTraining
from fedmia.shadows.provided import load_shadows, read_settings, seals_digest
from fedmia.shadows.train import train_shadows
from fedmia.simulate import run_experiment
from fedmia.ssl.train import Train
from fedmia.storage.json_rows import from_json
from fedmia.storage.results import contents

STORED = Path(__file__).parents[2] / "tests" / "stored" / "run"
UNFINISHED = (
    "--dataset synthetic --data.images 120 --data.pixels 8 --clients 2 --rounds 2 --model smallnet "
    "--model.width 2 --train.local_epochs 1 --train.batch_size 8 --split.members 16 "
    "--split.nonmembers 16 --split.known 4 --split.test 16 --federation.snapshots 1 --device cpu "
    "--attacker active --attack-rounds 1 --attacks similarity,ascent --attack.similarity.views 2 "
    "--attack.ascent.pairs 1 --strategy scaffold --quiet"
)
INDEX = "checkpoint/index.json"


def stored(root: Path) -> Files:
    """The files of a folder, by their paths in it."""
    return {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
    }


def unpack(files: Files, folder: Path) -> Path:
    """A folder of these files."""
    root = folder / "stranger"
    root.mkdir()
    for name, data in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


@cache
def run_files() -> Files:
    """The stored run's files."""
    return stored(STORED)


def read_run(path: Path) -> object:
    """All that a reader may ask of a run's folder."""
    run = open_run(path)
    for name in (
        "settings",
        "records",
        "verdict",
        "attacks",
        "clients",
        "rounds",
        "scores",
        "table",
        "curves",
        "figures",
    ):
        getattr(run, name)
    run._repr_html_()
    run.figure("roc")
    return run.encoder()(torch.zeros(1, 3, 8, 8))


def hostile_runs(marker: Path) -> Iterator[tuple[str, Files]]:
    """Changed files of the stored run, by name."""
    config = run_files()["config.yaml"]
    for name in ("model", "ssl", "data"):
        changed = config.replace(
            f"{name}:\n  name:".encode(), f"{name}:\n  name: os:system #".encode()
        )
        yield f"plugin-{name}", {"config.yaml": changed}
    for name, content in {
        "empty": b"",
        "list": b"[]",
        "null": b"null",
        "text": b"<html>",
        "deep": b"[" * 100_000,
        "zero": bytes(100),
        "number": b"9" * 10_000,
    }.items():
        for file in ("config.yaml", "report.json", "scores.csv"):
            yield f"{name}-{file}", {file: content}
    first = next(n for n in run_files() if n.endswith(".safetensors"))
    yield (
        "snapshot",
        {n: run_files()[first][:100] for n in run_files() if n.endswith(".safetensors")},
    )
    yield "curves", {"curves.npz": bomb("act.npy")}
    yield "curves-code", {"curves.npz": npz(act=np.array([planted(marker)[1]], dtype=object))}
    yield (
        "rounds",
        {
            "recording/models/main/x.safetensors": b"",
            "recording/models/main/99999999999999999999.safetensors": b"",
        },
    )


@cache
def unfinished_files() -> Files:
    """A run that was interrupted after its first round."""
    stop, write, written = Event(), Checkpoint.write, list[int]()

    def written_once(self: Checkpoint, *arguments: Any) -> None:
        write(self, *arguments)
        written.append(1)
        if len(written) == 2:
            stop.set()

    with tempfile.TemporaryDirectory() as folder, patch.object(Checkpoint, "write", written_once):
        out = Path(folder, "RUN")
        invocation = parse(SIMULATE, [*shlex.split(UNFINISHED), "--out", str(out)])
        with patch.object(draw, "draw_all", lambda scores, report: {}):
            run_experiment(invocation, Stopwatch(0.0), stop)
        files = stored(out)
    assert INDEX in files
    return files


def resume_run(path: Path) -> object:
    """As `simulate --resume` does, but for the figures."""
    invocation = parse(SIMULATE, ["--resume", str(path), "--quiet"])
    with patch.object(draw, "draw_all", lambda scores, report: {}):
        return run_experiment(invocation, Stopwatch(0.0), Event())[0]


def with_about(data: bytes, about: Any) -> bytes:
    """A safetensors file with another text about it."""
    return save(load(data), {"about": json.dumps(about)})


def about_of(data: bytes) -> Any:
    """What a safetensors file says about itself."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        Path(file.name).write_bytes(data)
        with safe_open(file.name, framework="pt") as opened:
            return json.loads((opened.metadata() or {}).get("about", "null"))


def hostile_unfinished(marker: Path) -> Iterator[tuple[str, Files]]:
    """Changed files of the interrupted run, by name."""
    files = unfinished_files()
    index = json.loads(files[INDEX])

    def indexed(**values: Any) -> Files:
        return {INDEX: json.dumps({**index, **values}).encode()}

    away = "../../../outside/keep.safetensors"
    for name in (away, "/etc/hostname", "..", "", ".", "a\0b", 3, None):
        yield f"head {name!r}", indexed(files={**index["files"], "head": name})
        # Another part's file is deleted with the next checkpoint.
        yield f"old {name!r}", indexed(files={**index["files"], "old": name})
        clients = {**index["clients"], "files": [["main", 0, name]]}
        yield (
            f"client {name!r}",
            {INDEX: json.dumps({**index, "clients": clients}).encode()},
        )
    for key in index:
        for value in VALUES[::3]:
            yield (
                f"{key} {value!r:.20}",
                {INDEX: json.dumps({**index, key: value}).encode()},
            )
    for data in (b"", b"[]", b"null", b"[" * 100_000, bytes(100), b"9" * 10_000):
        yield f"index {data[:5]!r}", {INDEX: data}
    record = {"of": "dataclass", "is": {}}
    for odd in (record, {"of": "np", "is": {}}, {"of": "RoundRow", "is": {"round": "x"}}):
        yield f"record {odd['of']}", indexed(rounds={"list": [odd]})
    head = next(name for name in files if "/head-" in name)
    about = about_of(files[head])
    for changed in (
        {**about, "branch": "x"},
        {**about, "round": 10**9},
        {**about, "round": -1},
        {**about, "server": {"aggregate": ["plain", 1]}},
        {**about, "server": {"__class__": ["plain", 1]}},
        {**about, "server": []},
        [],
    ):
        yield f"head about {changed!r:.60}", {head: with_about(files[head], changed)}
    other = {name: tensor[..., :1] for name, tensor in load(files[head]).items()}
    narrow = save({n: t.contiguous() for n, t in other.items()}, {"about": json.dumps(about)})
    yield "head narrow", {head: narrow}
    for name in files:
        if name.endswith(".safetensors") and "checkpoint" in name:
            for value in VALUES[::6]:
                yield f"{name} {value!r:.20}", {name: with_about(files[name], value)}


@cache
def shadow_files() -> Files:
    """One shadow encoder, as the cache keeps it."""
    plan = ShadowPlan(count=1, epochs=1, model="smallnet", ssl="mocov2")
    target = TargetTraining(
        channels=3,
        size=8,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        model=("smallnet", {"width": 2}),
        ssl=("moco", {"dim": 8, "queue": 8, "temperature": 0.2}),
        train=Train(batch_size=4, lr=0.05, momentum=0.8),
    )
    rng = np.random.default_rng(0)
    pool = torch.from_numpy(rng.integers(0, 256, (16, 3, 8, 8), dtype=np.uint8))
    with tempfile.TemporaryDirectory() as folder:
        cache_folder, device = Path(folder), torch.device("cpu")
        train_shadows(plan, target, pool, None, device=device, cache=cache_folder)
        (own,) = cache_folder.iterdir()
        return stored(own)


def sealed(files: Files, description: Any) -> Files:
    """The shadow under another description, with the seal that goes with it."""
    about = json.dumps(description).encode()
    tensors = load(files["encoder.safetensors"])
    del tensors["seal"]
    tensors["seal"] = seal(key_of(description), tensors)
    return {**files, "about.json": about, "encoder.safetensors": save(tensors)}


def read_shadows(path: Path) -> object:
    """All that an audit reads of the shadows that a user brings."""
    read_settings(path)
    seals_digest(path)
    (shadow,) = load_shadows(path)
    return shadow.method.encoder(torch.zeros(1, 3, 8, 8))


def hostile_shadows(marker: Path) -> Iterator[tuple[str, Files]]:
    """Changed files of the shadow, by name; their seals are sound."""
    files = shadow_files()
    about = json.loads(files["about.json"])
    code = CODE.format(str(marker))
    for part in ("model", "ssl"):
        for name in ("os:system", "builtins:exec", "subprocess:Popen"):
            yield f"{part} {name}", sealed(files, {**about, part: [name, {"command": code}]})
        for odd in ("width", "dim", "queue"):
            options = {**about[part][1], odd: 10**9}
            yield f"{part} {odd}", sealed(files, {**about, part: [about[part][0], options]})
    for key in about:
        for value in VALUES:
            yield f"{key} {value!r:.20}", sealed(files, {**about, key: value})
    for value in (10**5, 10**9, -1):
        yield f"side {value}", sealed(files, {**about, "size": value})
        yield f"channels {value}", sealed(files, {**about, "channels": value})
        yield f"format {value}", sealed(files, {**about, "format": value})
    yield "bomb", {**files, "images.npz": bomb("members.npy")}
    objects = np.array([planted(marker)[1]], dtype=object)
    yield "code", {**files, "images.npz": npz(members=objects, nonmembers=objects)}
    empty = np.zeros((0, 3, 8, 8), np.uint8)
    none = {**about, "images": content_digest(*[np.zeros((0, 3, 8, 8), np.uint8)] * 2)}
    yield "empty", {**sealed(files, none), "images.npz": npz(members=empty, nonmembers=empty)}
    for data in (b"", b"[]", b"null", b"[" * 100_000, bytes(100)):
        yield f"about {data[:5]!r}", {**files, "about.json": data}


@cache
def study_files() -> Files:
    """A study of one run, the stored one."""
    cell = "cells/seed=0"
    report = from_json(Report, json.loads(run_files()["report.json"]), "report")
    rows = [{**row, "run": "seed=0", "seed": 0, "point": ""} for row in table.flatten(report)]
    study = {
        "sentence": "One run.",
        "views": ["sweep"],
        "settings": {"seed": 0},
        "cells": [
            {
                "name": "seed=0",
                "point": "",
                "grid": {},
                "seed": 0,
                "state": "finished",
                "path": cell,
                "verdict_code": report.verdict_code,
            }
        ],
    }
    files = {f"{cell}/{name}": data for name, data in run_files().items()}
    return {
        **files,
        "study.json": json.dumps(study).encode(),
        "table.parquet": contents(rows)["table.parquet"],  # type: ignore[arg-type]
    }


def read_study(path: Path) -> object:
    """All that a reader may ask of a study's folder."""
    study = open_study(path)
    _ = study.sentence, study.failed, study.table
    study._repr_html_()
    study.compare("similarity", "lpla")
    study.figure("attacks")
    return [run.settings for run in study.runs.values()]


def hostile_studies(marker: Path) -> Iterator[tuple[str, Files]]:
    """Changed files of the study, by name."""
    files = study_files()
    for data in (
        b"",
        b"[]",
        b"null",
        b"[" * 100_000,
        bytes(100),
        b'{"cells": [1]}',
        b'{"cells": {}}',
    ):
        yield f"report {data[:12]!r}", {"study.json": data}
    for name, data in {
        "empty": b"",
        "images": parquet([b"x"]),
        "same": parquet([b"x"], flat=True, times=3_000_000),
        "repeated": parquet([bytes(1 << 20)], flat=True, times=4000),
    }.items():
        yield f"table {name}", {"table.parquet": data}
    config = "cells/seed=0/config.yaml"
    changed = files[config].replace(b"model:\n  name:", b"model:\n  name: os:system #")
    yield "plugin", {config: changed}
