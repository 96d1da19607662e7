"""Makes the targets of a bench from its plan: `python tools/targets.py research/bench/encoders-v2`.

Each target is trained by `fedmia simulate`, of one client where nothing is federated, on images
that the run draws by its seed. What is kept is an encoder that `fedmia audit --encoder FOLDER`
opens, its card, and the role of each image by its SHA-256. A target that is there is not made
again; made again by the same commit on the same kind of machine, its files are equal to the byte.

    python tools/targets.py research/bench/encoders-v2 --data cifar10=parquet:FILE [..]
        [--only NAME ..] [--discarded SEED --out FOLDER]

Several files of one kind of data, in the order that they are given, are one pool.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedmia import run_simulation
from fedmia.bench.targets import (
    CARD,
    COMMON,
    PLAN,
    ROLES,
    TARGETS,
    Roles,
    assign_roles,
    keep_encoder,
    read_plan,
)
from fedmia.cli.command import print_bad_input
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet
from fedmia.federation.plan import make_plan
from fedmia.recording.files import digest_of
from fedmia.records.rows import UtilityRow
from fedmia.seeding import rng
from fedmia.settings.commands.data import Data
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import flatten, from_tree, merge, to_tree
from fedmia.storage import durable

DIGITS = {"digits": ["digits"]}  # data of the plan -> the sources; --data adds others
IMAGES, MANIFEST = "images.npz", "MANIFEST"
BLOCK = 2000  # rows of a matrix of correlations


def drop_alike(images: ImageSet, alike: float) -> ImageSet:
    """The images without those of whose pixels the correlation with one before is over `alike`."""
    rows = images.images.reshape(len(images), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)
    kept = [
        np.tril(rows[at : at + BLOCK] @ rows[: at + BLOCK].T, at - 1).max(axis=1) <= alike
        for at in range(0, len(rows), BLOCK)
    ]
    return images.take(np.flatnonzero(np.concatenate(kept)))


def open_source(source: str, seed: int) -> ImageSet | EncodedSet:
    """A source of images: those of a file undecoded."""
    data = Data(name=source)
    request = data.request(seed)
    encoded = data.source().encoded(request)
    return data.source().load(request) if encoded is None else encoded


def pick(images: ImageSet | EncodedSet, places: np.ndarray) -> ImageSet:
    """Some images of a source, decoded."""
    return images.take(places) if isinstance(images, ImageSet) else images.pick(places)[0]


def draw_images(
    plan: Mapping[str, Any], kind: str, sources: Sequence[str], seed: int
) -> tuple[dict[str, ImageSet], Roles]:
    """The images of each target of a kind of data, and the roles that all of them share.

    Args:
        plan: of the bench.
        kind: of data.
        sources: where they lie.
        seed: of the draw.

    Returns:
        Images by target, disjoint where there are enough; SHA-256 of the common images by role.
    """
    about = plan["data"][kind]
    files = [open_source(source, seed) for source in sources]
    ends = np.cumsum([len(file) for file in files])
    order = rng(seed, "bench", sources[0].partition(":")[0]).permutation(ends[-1])

    def take(part: np.ndarray) -> ImageSet:
        parts = np.split(part, np.searchsorted(part, ends[:-1]))
        begins = zip(files, parts, ends - [len(file) for file in files], strict=True)
        taken = [pick(file, places - begin) for file, places, begin in begins]
        pixels = np.concatenate([one.images for one in taken])
        labels = np.concatenate([one.labels for one in taken])
        return replace(taken[0], images=pixels, labels=labels, files=())

    names = [name for name, target in plan["targets"].items() if target["data"] == kind]
    if "common" not in about:  # of each target by itself
        pools, count = {}, about.get("images")
        for name in names:
            place = list(plan["targets"]).index(name)
            part = order if count is None else order[place * count : (place + 1) * count]
            pools[name] = drop_alike(take(np.sort(part)), about["alike"])
        return pools, {}
    sizes = [*about["common"].values()]
    sizes += [plan["targets"][name].get("images", about["images"]) for name in names]
    pool = drop_alike(take(np.sort(order[: int(sum(sizes) * 1.05)])), about["alike"])
    mixed = rng(seed, "bench", "roles", kind).permutation(len(pool))
    if len(pool) < sum(sizes):
        raise InputError(
            f"{', '.join(sources)}: {len(pool)} images without those alike, needs {sum(sizes)}"
        )
    parts = [pool.take(part) for part in np.split(mixed, np.cumsum(sizes))[: len(sizes)]]
    shared = {
        role: sorted(digest.hex() for digest in part.digests())
        for role, part in zip(about["common"], parts, strict=False)
    }
    return dict(zip(names, parts[len(shared) :], strict=True)), shared


def make(
    plan: Mapping[str, Any], name: str, pool: ImageSet, common: Roles, seed: int, place: Path
) -> None:
    """Make one target.

    Args:
        plan: of the bench.
        name: of the target.
        pool: its images.
        common: SHA-256 of the images that targets of its data share, by role; those of a role that
            the plan calls its `own` are its own.
        seed: of its training.
        place: folder of the target.

    Raises:
        InputError: the plan's settings are wrong.
    """
    target = plan["targets"][name]
    about, trap = plan["data"][target["data"]], target.get("trap", "")
    constants = {key: about[key] for key in ("mean", "std")}
    began = process_time()
    with tempfile.TemporaryDirectory() as temporary:
        file, run_folder = Path(temporary) / IMAGES, Path(temporary) / "run"
        pixels = np.ascontiguousarray(pool.images.transpose(0, 2, 3, 1))
        np.savez(file, x=pixels, y=pool.labels)
        # Of one seed all targets of digits would have the same members.
        own_seed = int(rng(seed, "bench", name).integers(1 << 31))
        own = {"seed": own_seed, "data": {"name": f"npz:{file}", **constants}}
        layers = {**plan["base"], "split": about["split"]}, target["run"], own
        settings = reduce(partial(merge, Experiment), (flatten(Experiment, one) for one in layers))
        run = run_simulation(settings, out=run_folder, quiet=True, threads_per_client=1)
        experiment = from_tree(Experiment, to_tree(run.settings))
        split = make_plan(experiment).cast
        fresh = place.with_name(f"{place.name}.partial")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        rounds = experiment.federation.rounds
        if len(run.records.rounds) < rounds:
            raise KeyboardInterrupt
        tree = to_tree(experiment)
        tree["data"] = {"name": target["data"], "size": pool.size, **constants}
        last = (
            rounds if plan.get("models") == "last" and experiment.federation.clients == 1 else None
        )
        keep_encoder(run_folder, fresh, tree, 0 if trap == "untrained" else last)
        utility = run.records.utility
    roles = assign_roles(split, pool.digests(), trap, seed)
    common = {role: names for role, names in common.items() if role not in target.get("own", ())}
    roles = {role: names for role, names in roles.items() if role not in common}
    durable.write({fresh / ROLES: json.dumps(roles, indent=0) + "\n"})
    files = sorted(path for path in fresh.rglob("*") if path.is_file())
    digests = {str(path.relative_to(fresh)): digest_of(path) for path in files}
    card = {
        "name": name, "version": plan["version"], "data": target["data"], "trap": trap,
        "level": target.get("level", ""), "method": experiment.ssl.name,
        "network": experiment.model.name, "clients": experiment.federation.clients,
        "epochs": 0 if trap == "untrained" else rounds * experiment.train.local_epochs,
        "seed": seed, "knn": None if trap == "untrained" else knn_of(utility),
        "images": {role: len(names) for role, names in (common | roles).items()},
        "command": f"python tools/targets.py research/bench/{plan['version']} --only {name}",
        **({"common": f"{target['data']}.json"} if common else {}), "files": digests,
    }  # fmt: skip
    durable.write({fresh / CARD: json.dumps(card, indent=1) + "\n"})
    fresh.rename(place)
    print(f"{name}: made in {process_time() - began:.0f} s of a core", flush=True)


def write_manifest(bench: Path, names: Iterable[str]) -> None:
    """Write SHA-256 of the plan and of all files of targets, as `sha256sum -c` reads them."""
    folders = bench / COMMON, *(bench / TARGETS / name for name in names)
    files = [bench / PLAN, *(path for one in folders for path in one.rglob("*") if path.is_file())]
    lines = [f"{digest_of(path)}  {path.relative_to(bench)}\n" for path in sorted(files)]
    durable.write({bench / MANIFEST: "".join(lines)})


def knn_of(utility: UtilityRow) -> float | None:
    """The accuracy of kNN on the vectors of the last model."""
    return utility.knn


def main() -> int:
    """Make the targets that the command line names; returns the exit code: 0, or 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the bench: it has plan.yaml")
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="KIND=SOURCE", help="cifar10=parquet:FILE .."
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of targets")
    parser.add_argument(
        "--discarded", type=int, metavar="SEED", help="of a trial, none of the bench"
    )
    parser.add_argument("--out", type=Path, help="folder of trials")
    arguments = parser.parse_args()
    try:
        plan = read_plan(arguments.folder)
        if (arguments.discarded is None) != (arguments.out is None):
            raise InputError("--discarded SEED and --out FOLDER go together")
        seed = plan["seed"] if arguments.discarded is None else arguments.discarded
        if arguments.discarded == plan["seed"]:
            raise InputError(f"--discarded {seed}: that is the seed of the bench")
        unknown = [name for name in arguments.only if name not in plan["targets"]]
        if unknown:
            raise InputError(f"--only {unknown[0]}: no such target ({', '.join(plan['targets'])})")
        sources = defaultdict[str, list[str]](list, DIGITS)
        for one in arguments.data:
            kind, _, source = one.partition("=")
            sources[kind].append(source)
        if wrong := [one for one in sources if one not in plan["data"] and one not in DIGITS]:
            raise InputError(f"--data {wrong[0]}: the plan has {', '.join(plan['data'])}")
        bench = arguments.folder if arguments.out is None else arguments.out
        if arguments.out is not None:
            durable.make_folder(bench)
            durable.write({bench / PLAN: (arguments.folder / PLAN).read_text(encoding="utf-8")})
        drawn = dict[str, tuple[dict[str, ImageSet], Roles]]()
        for name in arguments.only or plan["targets"]:
            kind, place = plan["targets"][name]["data"], bench / TARGETS / name
            if place.is_dir():
                print(f"{name}: is there")
            elif kind not in sources:
                print(f"{name}: left out, --data {kind}=SOURCE is not given")
            else:
                if kind not in drawn:
                    drawn[kind] = draw_images(plan, kind, sources[kind], seed)
                pools, common = drawn[kind]
                file = bench / COMMON / f"{kind}.json"
                if common and not file.is_file():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    durable.write({file: json.dumps(common, indent=0) + "\n"})
                make(plan, name, pools[name], common, seed, place)
                write_manifest(bench, plan["targets"])
    except (InputError, ValueError) as error:
        return print_bad_input(error if isinstance(error, InputError) else InputError(str(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
