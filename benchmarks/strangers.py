"""Files from strangers: what becomes of mutated and of hostile files of every kind.

    python benchmarks/strangers.py [--files 10000] [--seed 0] [--kinds images,settings] [--out FILE]

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

import numpy as np
from _guarded import OVER, SECONDS, Case, Outcome, run_cases
from _mutations import change_bytes, change_json
from _stranger_data import (
    answer,
    array,
    hostile_answers,
    hostile_images,
    hostile_settings,
    hostile_tables,
    images,
    read_images,
    read_images_as_they_are,
    read_node,
    read_reply,
    read_settings,
    read_table,
    replies,
    settings,
    tables,
)
from _stranger_encoders import (
    Files,
    folders,
    hostile_folders,
    hostile_programs,
    hostile_weights,
    programs,
    read_encoder,
    weights,
)
from _stranger_folders import (
    INDEX,
    hostile_runs,
    hostile_shadows,
    hostile_studies,
    hostile_unfinished,
    read_run,
    read_shadows,
    read_study,
    resume_run,
    run_files,
    sealed,
    shadow_files,
    study_files,
    unfinished_files,
    unpack,
)

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
    "weights": (weights, hostile_weights, read_encoder),
    "programs": (programs, hostile_programs, read_encoder),
    "tables": (tables, hostile_tables, read_table),
    "settings": (settings, hostile_settings, read_settings),
}
WHOLE: dict[str, tuple[Honest, Known, Reader]] = {
    "runs": (run_files, hostile_runs, read_run),
    "unfinished": (unfinished_files, hostile_unfinished, resume_run),
    "shadows": (shadow_files, hostile_shadows, read_shadows),
    "studies": (study_files, hostile_studies, read_study),
}
# Of a folder, files that are changed every second time.
OFTEN = {
    "runs": ("report.json", "config.yaml"),
    "unfinished": (INDEX,),
    "shadows": ("about.json",),
    "studies": ("sweep.json", "table.parquet"),
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
        yield Case(kind, "honest", partial(unpack, files()), read, True)
        for name, changed in hostile_folder(marker):
            yield Case(kind, name, partial(unpack, {**files(), **changed}), read)
    elif kind == "images":
        for name, content in [*images().items(), *hostile_images(marker)]:
            write = partial(unpack, {name: content})
            for read in (read_images, read_images_as_they_are):
                yield Case(kind, f"{name}, {read.__name__}", write, read, name in images())
    elif kind == "folders":
        for form, whole in folders().items():
            read = partial(read_encoder, form=form)
            yield Case(kind, form, partial(unpack, whole), read, True)
        for form, name, whole in hostile_folders(marker):
            read = partial(read_encoder, form=form)
            yield Case(kind, f"{form} {name}", partial(unpack, whole), read)
    elif kind == "replies":
        for name, arrays, metrics in replies():
            read = partial(_reply, arrays, metrics)
            yield Case(kind, name, partial(write_file, "reply", b""), read, name == "honest")
    else:
        tree, arrays = answer()
        for name, text, others in [("honest", json.dumps(tree), arrays), *hostile_answers()]:
            read = partial(read_node, text, others)
            yield Case(kind, name, partial(write_file, "answer", b""), read, name == "honest")


def _reply(arrays: dict, metrics: dict, path: Path) -> object:  # type: ignore[type-arg]
    return read_reply(arrays, metrics)


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
            whole = sealed(files(), json.loads(changed))
        return Case(kind, f"{name} {number} {how}", partial(unpack, whole), read)
    if kind == "images":
        name, content = _pick(images(), rng)
        how, changed = _change(name, content, rng)
        more = {"honest.png": images()["a.png"], name: changed}
        return Case(kind, f"{name} {number} {how}", partial(unpack, more), read_images)
    if kind == "folders":
        form, whole = list(folders().items())[int(rng.integers(len(folders())))]
        name, content = _pick(whole, rng)
        how, changed = _change(name, content, rng)
        write = partial(unpack, {**whole, name: changed})
        return Case(kind, f"{form} {name} {number} {how}", write, partial(read_encoder, form=form))
    if kind == "answers":
        tree, arrays = answer()
        _, text = change_json(json.dumps(tree).encode(), rng)
        read = partial(read_node, text.decode(), arrays)
        return Case(kind, f"{number} json", partial(write_file, "answer", b""), read)
    _, arrays, metrics = next(replies())
    how, changed = change_bytes(arrays["a"].data, rng)
    read = partial(_reply, {**arrays, "a": array(changed)}, metrics)
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
