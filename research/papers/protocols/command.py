"""The command: train encoders, run every protocol on each, write the numbers and their summary."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import torch

from fedmia.cli.command import Invocation
from fedmia.recording import Recording
from fedmia.runtime.environment import describe
from fedmia.settings.errors import InputError, opt
from fedmia.settings.yamlfile import load
from fedmia.storage.durable import write
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.runfolder import RunFolder
from fedmia.study.scheduler import exit_code, going_on
from fedmia.threat import BlackBox
from fedmia.untrusted.text import read_json
from research.papers.central import BRANCH, LOSSES, build_method, draw_images, train_encoder
from research.papers.central_settings import Central
from research.papers.listing import read_sources
from research.papers.protocols.images import draw_sides, encoder_settings
from research.papers.protocols.pipeline import KINDS, Pipeline
from research.papers.protocols.settings import Protocols
from research.papers.protocols.summary import markdown, row_name, summarise

PLAN = Path(__file__).with_name("plan.yaml")
RESULTS, TABLE = "protocols.json", "protocols.md"


def measure_protocols(invocation: Invocation, stop: Event) -> int:
    """Run `python -m research.papers protocols`.

    Args:
        stop: set when the user interrupts.

    Returns:
        The exit code: 0, 130 interrupted or out of time.

    Raises:
        InputError: no folder, one of something else, or images that are missing.
    """
    config: Protocols = invocation.settings
    if invocation.out is None:
        raise InputError(f"{opt('out')} is missing: the encoders are kept there")
    whole = load(PLAN)
    plan = {**whole, **whole["scales"][config.scale]}
    sources, began = find_sources(config), time.perf_counter()
    own: dict[str, object] = {"scale": config.scale, "plan": plan}
    place = OutFolder(invocation.out, "other protocols", lambda folder: _settings(folder) == own)
    seeds = [plan["seed"] + i for i in range(config.encoders or plan["encoders"])]
    with going_on(stop), place:
        environment = describe()  # of the code that runs, whatever is committed meanwhile
        place.begin(None if RunFolder(invocation.out).has_settings() else own)
        for seed in seeds:
            for method in plan["methods"]:
                late = config.minutes and time.perf_counter() - began > 60 * config.minutes
                if stop.is_set() or late:
                    stop.set()
                    break
                _measure(plan, method, seed, sources, invocation.out, stop, environment)
                if not (invocation.quiet or invocation.json):
                    print(f"{method} {seed}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
        results = gather(plan, invocation.out, seeds)
        if results is not None:
            table = markdown(results)
            write({
                invocation.out / TABLE: table,
                invocation.out / RESULTS: json.dumps(results, indent=1) + "\n",
            })  # fmt: skip
        if invocation.json:
            print(json.dumps(results))
        elif results is not None and not invocation.quiet:
            print(table)
    return exit_code(stop, {})


def _settings(folder: Path) -> Mapping[str, Any]:
    tree = load(RunFolder(folder).config)
    return {name: tree.get(name) for name in ("scale", "plan")}


def find_sources(config: Protocols) -> dict[str, Mapping[str, Any]]:
    """Section `data` of the images that are trained on, of the official test file and of another
    source.

    Args:
        config: the settings of the command.

    Returns:
        Each by `train`, `test` and `other`.

    Raises:
        InputError: a file is missing.
    """
    if config.scale == "smoke":
        made_up = {"name": "synthetic", "pixels": 16, "images": 400}
        return {"train": made_up, "test": {**made_up, "classes": 9},
                "other": {**made_up, "classes": 5}}  # fmt: skip
    folder = Path(config.data_dir or "").resolve()
    if not folder.is_dir():
        raise InputError(f"{opt('data_dir', config.data_dir)}: no such folder")
    files = {"train": "cifar10-train.parquet", "test": "cifar10-test.parquet",
             "other": read_sources()["cifar100"]["file"]}  # fmt: skip
    for file in files.values():
        if not (folder / file).is_file():
            raise InputError(f"{opt('data_dir', config.data_dir)} has no {file}")
    return {name: {"name": f"parquet:{folder / file}"} for name, file in files.items()}


def _measure(
    plan: Mapping[str, Any], method: str, seed: int, sources: Mapping[str, Any], out: Path,
    stop: Event, environment: Mapping[str, Any],
) -> None:  # fmt: skip
    """Train one encoder and run its protocols, unless that is done."""
    folder = out / "encoders" / f"{method}-{seed}"
    numbers = folder.with_suffix(".json")
    if numbers.exists():
        return
    began, config = time.perf_counter(), encoder_settings(plan, method, seed, sources)
    if not (folder / LOSSES).exists():
        train_encoder(config, folder, stop.is_set)
    if stop.is_set():
        return
    pipeline = Pipeline(read_views(config, folder), draw_sides(config, plan, sources), plan, seed)
    result = {
        "method": method,
        "seed": seed,
        "numbers": {
            kind: {
                row_name(attack, switches): pipeline.run(attack, kind, switches)
                for attack, switches in _protocols(plan["rows"], kind)
            }
            for kind in KINDS
        },
        "last_loss": read_json(folder / LOSSES)["losses"][-1],
        "seconds": round(time.perf_counter() - began, 1),
        "environment": environment,
    }
    write({numbers: json.dumps(result, indent=1) + "\n"})


def _protocols(
    rows: Sequence[Mapping[str, Any]], kind: str
) -> dict[tuple[str, tuple[str, ...]], None]:
    """Attack and switches of every protocol of a kind, each once, the fair ones first."""
    fair = [(one["attack"], ()) for one in rows]
    switched = [
        (one["attack"], tuple(one["switches"])) for one in rows if kind in one.get("kinds", KINDS)
    ]
    return dict.fromkeys([*fair, *switched])


def read_views(config: Central, folder: Path) -> dict[str, BlackBox]:
    """The encoder as `trained` and as it was before its first step, as an attacker sees it.

    Args:
        config: of the encoder.
        folder: of its models.

    Returns:
        Both views, with the views of the training.
    """
    recording, members = Recording(RunFolder(folder).recording), draw_images(config)[0]
    views = {}
    for name, epoch in (("trained", config.epochs), ("untrained", 0)):
        method = build_method(config, members)
        method.load_shared(recording.load(BRANCH, epoch)[0])
        augment = config.ssl.build("ssl").augment
        views[name] = BlackBox(method, augment, seed=config.seed, device=torch.device("cpu"))
    return views


def gather(plan: Mapping[str, Any], out: Path, seeds: list[int]) -> dict[str, Any] | None:
    """All that is known of the encoders that are measured.

    Args:
        plan: of the scale.
        out: folder of the command.
        seeds: of the encoders that were asked for.

    Returns:
        The numbers of each encoder and their summary; None below two encoders.
    """
    paths = [out / "encoders" / f"{m}-{s}.json" for s in seeds for m in plan["methods"]]
    encoders = [read_json(path) for path in paths if path.exists()]
    if len(encoders) < 2:
        return None
    machines = [one.pop("environment") for one in encoders]
    return {
        "plan": plan,
        **summarise(plan, encoders),
        "seconds": round(sum(one["seconds"] for one in encoders), 1),
        "environments": [m for nth, m in enumerate(machines) if m not in machines[:nth]],
        "encoders": encoders,
    }
