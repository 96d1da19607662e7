"""Whole settings of `simulate` and `audit`, drawn from their JSON Schemas, at the smallest size."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fedmia import open_run
from fedmia.settings.errors import InputError
from fedmia.settings.yamlfile import dump
from tests.commands import fedmia

STORED = Path(__file__).parents[1] / "stored" / "run"
# Of each command everything once, in the least time; what is drawn is laid over it.
SMALLEST: dict[str, dict[str, Any]] = {
    "simulate": {
        "data": {"name": "synthetic", "images": 120, "pixels": 8},
        "model": {"name": "smallnet", "width": 2},
        "federation": {"clients": 2, "rounds": 2, "snapshots": 1},
        "split": {"members": 16, "nonmembers": 16, "known": 4, "test": 16},
        "train": {"local_epochs": 1, "batch_size": 8},
        "attacks": ["similarity"],
        "device": "cpu",
        "backend": "inline",
    },
    "audit": {
        "encoder": str(STORED),
        "attacks": ["similarity"],
        "attack": {"similarity": {"views": 2}},
        "threads": 1,
        "device": "cpu",
    },
}
LEAST = 4  # whole numbers are drawn from the least that is allowed to so many more
LEFT = {
    "_run", "base", "ray_address", "device", "dir", "path", "backend", "sweep", "encoder", "jobs",
    "seeds", "cache", "checkpoint", "checkpoint_key",
}  # fmt: skip
# What takes long, or reads files that are not there.
SLOW = (
    "resnet", "vgg", "vit", "cifar", "stl10", "svhn", "tinyimagenet", "folder", "npz", "parquet",
)  # fmt: skip
MOST_OPTIONS = {"simulate": 4, "audit": 2}


@cache
def schema(command: str) -> dict[str, Any]:
    """What `--schema` prints."""
    content: dict[str, Any] = json.loads(fedmia(f"{command} --schema").out)
    return content


@cache
def options(command: str) -> dict[str, dict[str, Any]]:
    """Schema of each scalar option by its path; of a plugin's, all that its kind has."""
    paths: dict[str, dict[str, Any]] = {}

    def collect(one: dict[str, Any], path: str) -> None:
        if "$ref" in one:
            collect(schema(command)["$defs"][one["$ref"].rpartition("/")[2]], path)
        for inner in one.get("anyOf", ()):
            collect(inner, path)
        for name, inner in one.get("properties", {}).items():
            if name not in LEFT and name != "name":
                collect(inner, f"{path}.{name}".lstrip("."))
        if "default" in one and "properties" not in one:
            paths[path] = one

    collect({"properties": schema(command)["properties"]}, "")
    return paths


def values(one: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of an option: what its schema allows, small, and one in twenty that it does not.

    Of a dozen options of one tree many would else be refused, and few trees run.
    """
    kinds = one.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    ways: list[st.SearchStrategy[Any]] = [st.just(one["default"])]
    if "enum" in one:
        ways.append(st.sampled_from(one["enum"]))
    if "integer" in kinds:
        least = one.get("minimum", one.get("exclusiveMinimum", 0))
        ways.append(st.integers(int(least), int(least) + LEAST))
    if "number" in kinds:
        low = one.get("minimum", one.get("exclusiveMinimum", -1e-3) + 1e-3)
        high = one.get("maximum", one.get("exclusiveMaximum", low + 2))
        ways.append(st.floats(low, high, allow_nan=False).map(lambda x: round(x, 3)))
    if "boolean" in kinds:
        ways.append(st.booleans())
    if "null" in kinds:
        ways.append(st.none())
    odd = st.sampled_from(["x", -1, 0, [], [1, "a"], {}, 1e308, 10**30, True, ".."])
    return st.integers(1, 20).flatmap(lambda n: odd if n == 20 else st.one_of(ways))


def plugins(command: str, kind: str) -> list[str]:
    """Names of a kind's plugins that are quick."""
    names = [n.partition(".")[2] for n in schema(command)["$defs"] if n.startswith(f"{kind}.")]
    return [n for n in names if not n.startswith(SLOW)]


@st.composite
def trees(draw: st.DrawFn, command: str) -> dict[str, Any]:
    """The smallest settings of a command with some plugins and options changed."""
    tree: dict[str, Any] = json.loads(json.dumps(SMALLEST[command]))
    draw_plugins(draw, command, tree)
    sections = (
        "federation.", "train.", "split.", "data.size", "data.mean", "data.std", "pretrain.",
        "augment.", *(f"attack.{name}." for name in tree["attacks"]),
        *(["shadow.", "shadow_"] if "shadows" in tree else ()),
    )  # fmt: skip
    general = [
        path
        for path in options(command)
        if (path.startswith(sections) and not path.startswith(("shadow.model.", "shadow.ssl.")))
        or ("." not in path and not path.startswith("shadow"))
    ]
    paths = st.lists(st.sampled_from(sorted(general)), max_size=MOST_OPTIONS[command], unique=True)
    for path in draw(paths):
        *above, name = path.split(".")
        place: Any = tree
        for one in above:
            place = place.setdefault(one, {}) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[name] = draw(values(options(command)[path]))
    return tree


def draw_plugins(draw: st.DrawFn, command: str, tree: dict[str, Any]) -> None:
    """Put some plugins with some of their options into the settings."""

    def plugin(kind: str) -> dict[str, Any]:
        name = draw(st.sampled_from(plugins(command, kind)))
        own = schema(command)["$defs"][f"{kind}.{name}"].get("properties", {})
        names = sorted(draw(st.sets(st.sampled_from(sorted(own)), max_size=2))) if own else ()
        return {"name": name, **{option: draw(values(own[option])) for option in names}}

    if command == "audit":
        if draw(st.booleans()):
            tree["attacks"] = [draw(st.sampled_from(plugins(command, "attack")))]
            del tree["attack"]  # of one that is not run
        if draw(st.integers(0, 2)) == 0:
            tree["shadows"] = draw(st.integers(1, 2))
            tree["shadow"] = {"epochs": 1, "images": 8}
            if draw(st.booleans()):
                tree["shadow_data"] = draw(st.sampled_from(["synthetic", "digits", "x"]))
            if draw(st.booleans()):
                tree["shadow_defense"] = plugin("defense")
        if draw(st.integers(0, 7)) == 0:
            for side in ("members", "nonmembers"):
                tree[side] = draw(st.sampled_from(["synthetic", "digits", "none", "x"]))
        if draw(st.integers(0, 7)) == 0:
            kind = draw(st.sampled_from(["known", "query_budget", "x"]))
            tree["sweep"] = f"{kind}={draw(st.sampled_from(['2,4', '0', '100,50', 'x']))}"
        return
    # Sorted, as the order of a set differs from process to process.
    for kind in sorted(
        draw(st.sets(st.sampled_from(["ssl", "strategy", "partition"]), max_size=2))
    ):
        tree[kind] = plugin(kind)
    if draw(st.booleans()):
        tree["defense"] = plugin("defense")
    if draw(st.booleans()):
        tree["attacker"] = draw(st.sampled_from(["passive", "active", "server"]))
    if draw(st.integers(0, 3)) == 0:
        tree["attacks"] = [draw(st.sampled_from(plugins(command, "attack")))]


def run_settings(command: str, tree: dict[str, Any], folder: Path) -> str:
    """Run a command on the settings in a new folder.

    Returns:
        `ran`; `diverged`, where training left what is finite.

    Raises:
        InputError: it was refused, as it should be.
        AssertionError: it was refused otherwise, or its report is none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, out = folder / "settings.yaml", folder / "out"
    config.write_text(dump(tree), encoding="utf-8")
    before = sorted(os.listdir(folder))
    line = [command, "--config", str(config), "--quiet", "--json"]
    ran = fedmia(line)  # into no folder: figures take longer than such a run
    lines = ran.err.splitlines()
    assert "Traceback" not in ran.err, ran.err
    if ran.code == 2:
        assert fedmia(line, out).code == 2
        assert len(lines) == 1 and lines[0].startswith("fedmia: error: "), lines
        assert sorted(os.listdir(folder)) == before, f"something was written: {lines[0]}"
        raise InputError(lines[0])
    if ran.code == 1:
        assert lines and "finite" in lines[-1], lines
        return "diverged"
    assert ran.code == 0, lines
    out.mkdir()
    shutil.copy(STORED / "config.yaml", out)
    (out / "report.json").write_text(ran.out, encoding="utf-8")
    assert open_run(out).records, "no report"
    return "ran"
