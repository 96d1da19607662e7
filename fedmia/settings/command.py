"""The command line of a run: defaults, then the file of `--config`, then the flags."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmia.errors import InputError, nearest
from fedmia.runtime.environment import version
from fedmia.settings import help as catalogue
from fedmia.settings.experiment import Experiment, expand_attacks
from fedmia.settings.flags import Flags, read
from fedmia.settings.suits import check
from fedmia.settings.tree import Tree, from_dict, load, normal
from fedmia.settings.values import Text, convert

BESIDE = Path(__file__).resolve().parents[2] / "configs"
# A clone has the presets beside the source, an installed copy where its data files go.
PRESETS = (
    BESIDE
    if (BESIDE / "smoke.yaml").is_file()
    else Path(sysconfig.get_path("data")) / "share" / "fedmia" / "configs"
)
BAD_INPUT = 2  # exit code


@dataclass(frozen=True)
class Invocation:
    """What the user asked for.

    Attributes:
        experiment: the checked experiment; None where only a page was asked for.
        out: folder for the results, or None.
        seeds: number of runs, with seeds `experiment.seed`, `experiment.seed + 1`, ...
        quiet: no progress display.
        json: print the report as JSON.
        page: text to print in place of a run (`--help`, `--list`, `--version`), or None.
    """

    experiment: Experiment | None
    out: Path | None = None
    seeds: int = 1
    quiet: bool = False
    json: bool = False
    page: str | None = None


def parse(argv: Sequence[str]) -> Invocation:
    """The invocation that the arguments (without the program's name) ask for.

    Raises:
        InputError: anything wrong in the arguments or the file, or that the checks refuse.
    """
    flags = read(argv)
    page = _page(flags.command)
    if page is not None:
        return Invocation(None, page=page)
    seeds = convert("--seeds", Text(flags.command.get("seeds", "1")), int)
    if seeds < 1:
        raise InputError(f"--seeds must be >= 1, got {seeds}")
    out = flags.command.get("out")
    if out == "":
        raise InputError("--out needs a folder, got ''")
    experiment = _experiment(flags)
    check(experiment)
    return Invocation(
        experiment,
        Path(out) if out is not None else None,
        seeds,
        "quiet" in flags.command,
        "json" in flags.command,
    )


def bad_input(error: InputError) -> int:
    """Print the error on standard error, as one line; returns the exit code 2."""
    print("fedmia: error: " + " ".join(str(error).split()), file=sys.stderr)
    return BAD_INPUT


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Tree:
    """`upper` over `lower`, section by section; both as `configfile.normal` gives them.

    Options in `lower` of a plugin that `upper` replaces by another are dropped, and so are those
    of attacks that no longer run.
    """
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        if not isinstance(value, dict) or not isinstance(below, dict):
            merged[name] = value
        elif name == "attack":
            merged[name] = {k: {**below.get(k, {}), **value.get(k, {})} for k in {**below, **value}}
        else:
            merged[name] = {**_kept(name, below, value), **value}
    if "attack" in lower and ("attacks" in upper or "attacker" in upper):
        merged["attack"] = _still_run(merged, upper.get("attack", {}))
    return merged


def find_config(name: str) -> Path:
    """The file that `--config NAME` means: a path, or a preset beside the source.

    Raises:
        InputError: neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    known = [
        p.relative_to(PRESETS).with_suffix("").as_posix() for p in sorted(PRESETS.rglob("*.yaml"))
    ]
    if name in known:
        return PRESETS / f"{name}.yaml"
    if path.is_dir():
        raise InputError(f"--config '{name}' is a folder; give the YAML file in it")
    hint = nearest(name, known)
    raise InputError(f"no config file or preset '{name}'{hint} (presets: {', '.join(known)})")


def _experiment(flags: Flags) -> Experiment:
    upper = normal(flags.tree, lambda path: flags.typed.get(path, f"--{path}"))
    if "config" not in flags.command:
        return from_dict(upper, lambda path: flags.typed.get(path, path))
    file = find_config(flags.command["config"])
    lower = load(file)
    # On its own first, so that the file's mistakes are named as the file's.
    from_dict(lower, lambda path: f"{path} in {file}")
    merged = merge(lower, upper)
    return from_dict(merged, lambda path: flags.typed.get(path, f"{path} in {file}"))


def _kept(name: str, below: Tree, above: Tree) -> Tree:
    """The lower section's values that still mean something under the upper one's choice."""
    if name not in ("partition", "model", "ssl", "strategy", "defense", "data"):
        return below
    if "name" not in above:
        return below
    own = ("dir", "size", "mean", "std") if name == "data" else ()
    # Another file of the same source keeps the source's options: parquet:A, parquet:B.
    names = [str(tree.get("name")) for tree in (below, above)]
    before, after = [n.partition(":")[0] if name == "data" else n for n in names]
    return below if before == after else {k: v for k, v in below.items() if k in own}


def _still_run(merged: Tree, above: Tree) -> Tree:
    attacker = str(merged.get("attacker", Experiment.attacker))
    names = convert("--attacks", merged.get("attacks", Experiment.attacks), tuple[str, ...])
    run = expand_attacks(names, attacker)
    return {k: v for k, v in merged["attack"].items() if k in run or k in above}


def _page(command: Mapping[str, str]) -> str | None:
    if "help" in command:
        return catalogue.help_page()
    if "list" in command:
        return catalogue.list_page(command["list"])
    if "version" in command:
        return f"fedmia {version('fedmia') or '(not installed)'}"
    return None
