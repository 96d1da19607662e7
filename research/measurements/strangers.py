"""Files from strangers: what becomes of mutated and of hostile files of every kind.

    python research/measurements/strangers.py [--files 10000] [--seed 0] [--kinds images,settings]
        [--out FILE]

Every hostile file that is known by name is read, and so many more that are honest ones changed at
random. Each is read in a process of limited memory and time that is watched for what it starts and
writes. A read ends well where the file is read as data, or refused by one line that names it. The
result says by kind how many did, and lists every other one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import _stranger_data as data
import _stranger_encoders as encoders
import _stranger_folders as trees
import numpy as np
from _guarded import OVER, SECONDS, Case, Outcome, run_cases
from _mutations import change_bytes, change_json
from _stranger_encoders import Files

from fedmia.runtime.environment import describe

GOOD = ("read", "refused")
# Of each kind, files of a hundred: those that are quick to read get more.
SHARES = {
    "weights": 12,
    "programs": 8,
    "folders": 7,
    "images": 23,
    "tables": 18,
    "settings": 8,
    "runs": 5,
    "unfinished": 1,
    "shadows": 5,
    "studies": 3,
    "replies": 7,
    "answers": 3,
}
Reader = Callable[[Path], object]
Known = Callable[[Path], Iterator[tuple[str, Files]]]
Honest = Callable[[], Files]
# Kinds of one file, and of a folder: honest files, hostile ones by hand, how they are read.
SINGLE: dict[str, tuple[Honest, Callable[[Path], Iterator[tuple[str, bytes]]], Reader]] = {
    "weights": (encoders.weights, encoders.hostile_weights, encoders.read_encoder),
    "programs": (encoders.programs, encoders.hostile_programs, encoders.read_encoder),
    "tables": (data.tables, data.hostile_tables, data.read_table),
    "settings": (data.settings, data.hostile_settings, data.read_settings),
}
WHOLE: dict[str, tuple[Honest, Known, Reader]] = {
    "runs": (trees.run_files, trees.hostile_runs, trees.read_run),
    "unfinished": (trees.unfinished_files, trees.hostile_unfinished, trees.resume_run),
    "shadows": (trees.shadow_files, trees.hostile_shadows, trees.read_shadows),
    "studies": (trees.study_files, trees.hostile_studies, trees.read_study),
}
# Of a folder, files that are changed every second time.
OFTEN = {
    "runs": ("report.json", "config.yaml"),
    "unfinished": (trees.INDEX,),
    "shadows": ("about.json",),
    "studies": ("study.json", "table.parquet"),
}


def write_file(name: str, content: bytes, folder: Path) -> Path:
    """A file by itself."""
    path = folder / name
    path.write_bytes(content)
    return path


def known_cases(kind: str, marker: Path) -> Iterator[Case]:
    """The honest files of a kind as they are, and all hostile ones."""
    if kind in SINGLE:
        files, hostile, read = SINGLE[kind]
        for name, content in [*files().items(), *hostile(marker)]:
            yield Case(kind, name, partial(write_file, name, content), read, name in files())
    elif kind in WHOLE:
        files, hostile_folder, read = WHOLE[kind]
        yield Case(kind, "honest", partial(trees.unpack, files()), read, True)
        for name, changed in hostile_folder(marker):
            yield Case(kind, name, partial(trees.unpack, {**files(), **changed}), read)
    elif kind == "images":
        for name, content in [*data.images().items(), *data.hostile_images(marker)]:
            write = partial(trees.unpack, {name: content})
            for read in (data.read_images, data.read_images_as_they_are):
                yield Case(kind, f"{name}, {read.__name__}", write, read, name in data.images())
    elif kind == "folders":
        for form, whole in encoders.folders().items():
            read = partial(encoders.read_encoder, form=form)
            yield Case(kind, form, partial(trees.unpack, whole), read, True)
        for form, name, whole in encoders.hostile_folders(marker):
            read = partial(encoders.read_encoder, form=form)
            yield Case(kind, f"{form} {name}", partial(trees.unpack, whole), read)
    elif kind == "replies":
        for name, arrays, metrics in data.replies():
            read = partial(_reply, arrays, metrics)
            yield Case(kind, name, partial(write_file, "reply", b""), read, name == "honest")
    else:
        tree, arrays = data.answer()
        for name, text, others in [("honest", json.dumps(tree), arrays), *data.hostile_answers()]:
            read = partial(data.read_node, text, others)
            yield Case(kind, name, partial(write_file, "answer", b""), read, name == "honest")


def _reply(arrays: dict, metrics: dict, path: Path) -> object:  # type: ignore[type-arg]
    return data.read_reply(arrays, metrics)


def random_case(kind: str, number: int, seed: int) -> Case:
    """The `number`th changed file of a kind."""
    rng = np.random.default_rng([seed, list(SHARES).index(kind), number])
    if kind in SINGLE:
        files, _, read = SINGLE[kind]
        name, content = _pick(files(), rng)
        how, changed = _change(name, content, rng)
        return Case(kind, f"{name} {number} {how}", partial(write_file, name, changed), read)
    if kind in WHOLE:
        files, _, read = WHOLE[kind]
        name, content = _pick(files(), rng, OFTEN[kind])
        how, changed = _change(name, content, rng)
        whole = {**files(), name: changed}
        if kind == "shadows" and how == "json":  # with a seal that goes with it
            whole = trees.sealed(files(), json.loads(changed))
        return Case(kind, f"{name} {number} {how}", partial(trees.unpack, whole), read)
    if kind == "images":
        name, content = _pick(data.images(), rng)
        how, changed = _change(name, content, rng)
        more = {"honest.png": data.images()["a.png"], name: changed}
        return Case(kind, f"{name} {number} {how}", partial(trees.unpack, more), data.read_images)
    if kind == "folders":
        form, whole = list(encoders.folders().items())[int(rng.integers(len(encoders.folders())))]
        name, content = _pick(whole, rng)
        how, changed = _change(name, content, rng)
        write = partial(trees.unpack, {**whole, name: changed})
        read = partial(encoders.read_encoder, form=form)
        return Case(kind, f"{form} {name} {number} {how}", write, read)
    if kind == "answers":
        tree, arrays = data.answer()
        _, text = change_json(json.dumps(tree).encode(), rng)
        read = partial(data.read_node, text.decode(), arrays)
        return Case(kind, f"{number} json", partial(write_file, "answer", b""), read)
    _, arrays, metrics = next(data.replies())
    how, changed = change_bytes(arrays["a"].data, rng)
    read = partial(_reply, {**arrays, "a": data.array(changed)}, metrics)
    return Case(kind, f"{number} {how}", partial(write_file, "reply", b""), read)


def _pick(files: Files, rng: np.random.Generator, often: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """A file; every second time one of those that are picked often."""
    names = list(often if often and rng.integers(2) else files)
    name = names[int(rng.integers(len(names)))]
    return name, files[name]


def _change(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    if name.endswith(".json") and rng.integers(2):
        return change_json(content, rng)
    return change_bytes(content, rng)


def summary(outcomes: list[Outcome]) -> dict[str, object]:
    """Counts and the greatest costs of a kind."""
    return {
        "files": len(outcomes),
        "results": dict(Counter(o.result for o in outcomes)),
        "most_cpu_s": round(max(o.seconds for o in outcomes), 2),
        "most_mib": round(max(o.peak_mib for o in outcomes)),
        "lines_beside": sum(o.lines for o in outcomes),
    }


def measure(kinds: list[str], files: int, seed: int, sandbox: Path, each: int) -> list[Outcome]:
    """All known cases of the kinds (of each kind every `each`th), and so many random ones."""
    whole, outcomes = sum(SHARES[k] for k in kinds), []
    marker = sandbox / "outside" / "ran"
    for kind in kinds:
        cases = list(known_cases(kind, marker))[::each]
        cases += [random_case(kind, i, seed) for i in range(files * SHARES[kind] // whole)]
        for outcome in run_cases(cases, sandbox):
            outcomes.append(outcome)
            if outcome.result not in GOOD:
                print(*vars(outcome).values(), file=sys.stderr, flush=True)
        print(f"{kind}: {len(outcomes)} files", file=sys.stderr, flush=True)
    return outcomes


def main() -> int:
    """Read all and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000, help="changed at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(SHARES))
    parser.add_argument("--each", type=int, default=1, help="of the known ones, every so many")
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    flags = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="strangers-") as folder:
        outcomes = measure(
            flags.kinds.split(","), flags.files, flags.seed, Path(folder), flags.each
        )
    by_kind = {k: [o for o in outcomes if o.kind == k] for k in flags.kinds.split(",")}
    wrong = [vars(o) for o in outcomes if o.result not in GOOD]
    result = {
        "seed": flags.seed,
        "files": len(outcomes),
        "limit_cpu_s": SECONDS,
        "limit_mib": OVER >> 20,
        "seconds": round(time.perf_counter() - began),
        **describe(),
        "kinds": {kind: summary(own) for kind, own in by_kind.items()},
        "wrong": wrong,
    }
    for kind, own in by_kind.items():
        print(f"{kind:10}", summary(own))
    for row in wrong:
        print(f"{row['kind']} {row['name']}: {row['result']}: {row['message'][:300]}")
    if flags.out:
        flags.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
