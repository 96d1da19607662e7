"""Whole settings of `simulate`, drawn from its JSON Schema, at the smallest size."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.options.errors import InputError
from fedmia.options.yamlfile import dump
from fedmia.records.rows import Report

# Everything once, in the least time; what is drawn is laid over it.
SMALLEST: dict[str, Any] = {
    "data": {"name": "synthetic", "images": 120, "pixels": 8},
    "model": {"name": "smallnet", "width": 2},
    "federation": {"clients": 2, "rounds": 2, "snapshots": 1},
    "split": {"members": 16, "nonmembers": 16, "known": 4, "test": 16},
    "train": {"local_epochs": 1, "batch_size": 8},
    "attacks": ["similarity"],
    "device": "cpu",
    "backend": "inline",
}
LEAST = 4  # whole numbers are drawn from the least that is allowed to so many more
LEFT = {"_run", "base", "ray_address", "device", "dir", "path", "backend", "sweep"}
# What takes long, or reads files that are not there.
SLOW = (
    "resnet",
    "vgg",
    "vit",
    "cifar",
    "stl10",
    "svhn",
    "tinyimagenet",
    "folder",
    "npz",
    "parquet",
)
MOST_OPTIONS = 4


@cache
def schema() -> dict[str, Any]:
    """What `--schema` prints."""
    content: dict[str, Any] = json.loads(parse(COMMANDS["simulate"], ["--schema"]).page or "")
    return content


@cache
def options() -> dict[str, dict[str, Any]]:
    """Schema of each scalar option by its path; of a plugin's, all that its kind has."""
    paths: dict[str, dict[str, Any]] = {}

    def collect(one: dict[str, Any], path: str) -> None:
        if "$ref" in one:
            collect(schema()["$defs"][one["$ref"].rpartition("/")[2]], path)
        for inner in one.get("anyOf", ()):
            collect(inner, path)
        for name, inner in one.get("properties", {}).items():
            if name not in LEFT and name != "name":
                collect(inner, f"{path}.{name}".lstrip("."))
        if "default" in one and "properties" not in one:
            paths[path] = one

    collect({"properties": schema()["properties"]}, "")
    return paths


def values(one: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of an option: what its schema allows, small, and now and then what it does not."""
    kinds = one.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    ways: list[st.SearchStrategy[Any]] = [st.just(one["default"])]
    if "enum" in one:
        ways.append(st.sampled_from(one["enum"]))
    if "integer" in kinds:
        least = one.get("minimum", one.get("exclusiveMinimum", 0))
        ways.append(st.integers(int(least), int(least) + LEAST))
    if "number" in kinds:
        low = one.get("minimum", one.get("exclusiveMinimum", 0.0))
        high = one.get("maximum", one.get("exclusiveMaximum", low + 2))
        ways.append(st.floats(low, high, allow_nan=False).map(lambda x: round(x, 3)))
    if "boolean" in kinds:
        ways.append(st.booleans())
    if "null" in kinds:
        ways.append(st.none())
    odd = st.sampled_from(["x", -1, 0, [], [1, "a"], {}, 1e308, 10**30, True, ".."])
    return st.one_of(*ways, *ways, *ways, odd)


def plugins(kind: str) -> list[str]:
    """Names of a kind's plugins that are quick."""
    names = [n.partition(".")[2] for n in schema()["$defs"] if n.startswith(f"{kind}.")]
    return [n for n in names if not n.startswith(SLOW)]


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """The smallest settings with some plugins and options changed."""
    tree = json.loads(json.dumps(SMALLEST))
    for kind in draw(st.sets(st.sampled_from(["ssl", "strategy", "partition"]), max_size=2)):
        name = draw(st.sampled_from(plugins(kind)))
        tree[kind] = {"name": name}
        own = schema()["$defs"][f"{kind}.{name}"].get("properties", {})
        for option in draw(st.sets(st.sampled_from(sorted(own)), max_size=2)) if own else ():
            tree[kind][option] = draw(values(own[option]))
    if draw(st.booleans()):
        name = draw(st.sampled_from(plugins("defense")))
        tree["defense"] = {"name": name}
        own = schema()["$defs"][f"defense.{name}"].get("properties", {})
        for option in draw(st.sets(st.sampled_from(sorted(own)), max_size=2)) if own else ():
            tree["defense"][option] = draw(values(own[option]))
    if draw(st.booleans()):
        tree["attacker"] = draw(st.sampled_from(["passive", "active", "server"]))
    if draw(st.integers(0, 3)) == 0:
        tree["attacks"] = [draw(st.sampled_from(plugins("attack")))]
    sections = (
        "federation.",
        "train.",
        "split.",
        "data.size",
        "data.mean",
        "data.std",
        "pretrain.",
    )
    general = [p for p in options() if "." not in p or p.startswith(sections)]
    for path in draw(
        st.lists(st.sampled_from(sorted(general)), max_size=MOST_OPTIONS, unique=True)
    ):
        holder, _, name = path.rpartition(".")
        place = tree.setdefault(holder, {}) if holder else tree
        if isinstance(place, dict):
            place[name] = draw(values(options()[path]))
    return tree


def run_settings(tree: dict[str, Any], folder: Path) -> str:
    """Run `simulate` on the settings in a new folder.

    Returns:
        `ran`; `diverged`, where training left what is finite.

    Raises:
        InputError: it was refused, as it should be.
        AssertionError: it was refused otherwise, or its report is none.
    """
    from fedmia import simulate
    from tests.report.test_report_rows import wrong

    folder.mkdir(parents=True, exist_ok=True)
    config, out = folder / "settings.yaml", folder / "out"
    config.write_text(dump(tree), encoding="utf-8")
    errors = io.StringIO()
    before = sorted(os.listdir(folder))
    arguments = ["--config", str(config), "--out", str(out), "--quiet"]
    with (
        contextlib.redirect_stderr(errors),
        contextlib.redirect_stdout(io.StringIO()),
        patch.object(sys, "argv", ["simulate", *arguments]),
    ):
        code = simulate.main(arguments)
    lines = errors.getvalue().splitlines()
    assert "Traceback" not in errors.getvalue(), errors.getvalue()
    if code == 2:
        assert len(lines) == 1 and lines[0].startswith("fedmia: error: "), lines
        assert sorted(os.listdir(folder)) == before, "something was written"
        raise InputError(lines[0])
    if code == 1:
        assert lines and "finite" in lines[-1], lines
        return "diverged"
    assert code == 0, (code, lines)
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    faults = list(wrong(report, Report, "report"))
    assert not faults, faults[:3]
    return "ran"
