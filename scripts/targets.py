"""Makes the targets of a bench from its plan: `python scripts/targets.py bench/encoders-v1`.

Each target is trained by `fedmia simulate`, of one client where nothing is federated, on images
that the run draws by its seed. What is kept is an encoder that `fedmia audit --encoder FOLDER`
opens, its card, and the role of each image by its SHA-256. A target that is there is not made
again; made again by the same commit on the same kind of machine, its files are equal to the byte.

    python scripts/targets.py bench/encoders-v1 --cifar10 parquet:FILE [--only NAME ..]
        [--discarded SEED --out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from fedmia import run_simulation
from fedmia.bench.targets import CARD, ROLES, TARGETS, assign_roles, keep_encoder, read_plan
from fedmia.cli.command import print_bad_input
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

SOURCES = {"digits": "digits"}  # data of the plan -> the source; --cifar10 adds one
IMAGES = "images.npz"


def drop_alike(images: ImageSet, alike: float) -> ImageSet:
    """The images without those of whose pixels the correlation with one before is over `alike`."""
    rows = images.images.reshape(len(images), -1).astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)
    before = np.tril(rows @ rows.T, -1)
    return images.take(np.flatnonzero(before.max(axis=1) <= alike))


def draw_pool(plan: Mapping[str, Any], name: str, source: str, seed: int) -> ImageSet:
    """The images of a target: disjoint from those of others where there are enough."""
    data = Data(name=source)
    about, request = plan["data"][plan["targets"][name]["data"]], data.request(seed)
    encoded = data.source().encoded(request)
    every = data.source().load(request) if encoded is None else encoded
    order = rng(seed, "bench", source.partition(":")[0]).permutation(len(every))
    if (count := about.get("images")) is not None:
        place = list(plan["targets"]).index(name)
        order = order[place * count : (place + 1) * count]
    part = np.sort(order)
    pool = every.take(part) if isinstance(every, ImageSet) else every.pick(part)[0]
    return drop_alike(pool, about["alike"])


def make(
    plan: Mapping[str, Any], name: str, sources: Mapping[str, str], seed: int, place: Path
) -> None:
    """Make one target.

    Args:
        plan: of the bench.
        name: of the target.
        sources: where each kind of data lies.
        seed: of its images and its training.
        place: folder of the target.

    Raises:
        InputError: the images cannot be read, or the plan's settings are wrong.
    """
    target = plan["targets"][name]
    about, trap = plan["data"][target["data"]], target.get("trap", "")
    pool = draw_pool(plan, name, sources[target["data"]], seed)
    constants = {key: about[key] for key in ("mean", "std")}
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
        if len(run.records.rounds) < run.settings.federation.rounds:
            raise KeyboardInterrupt
        tree = to_tree(experiment)
        tree["data"] = {"name": target["data"], "size": pool.size, **constants}
        keep_encoder(run_folder, fresh, tree, trap)
        utility = run.records.utility
    roles = assign_roles(split, pool.digests(), trap, seed)
    durable.write({fresh / ROLES: json.dumps(roles, indent=0) + "\n"})
    files = sorted(path for path in fresh.rglob("*") if path.is_file())
    rounds = experiment.federation.rounds
    card = {
        "name": name, "version": plan["version"], "data": target["data"], "trap": trap,
        "level": target.get("level", ""), "method": experiment.ssl.name,
        "network": experiment.model.name, "clients": experiment.federation.clients,
        "epochs": 0 if trap == "untrained" else rounds * experiment.train.local_epochs,
        "seed": seed, "knn": None if trap == "untrained" else knn_of(utility),
        "images": {role: len(names) for role, names in roles.items()},
        "command": f"python scripts/targets.py bench/{plan['version']} --only {name}",
        "files": {str(path.relative_to(fresh)): digest_of(path) for path in files},
    }  # fmt: skip
    durable.write({fresh / CARD: json.dumps(card, indent=1) + "\n"})
    fresh.rename(place)


def knn_of(utility: UtilityRow) -> float | None:
    """The accuracy of kNN on the vectors of the last model."""
    return utility.knn


def main() -> int:
    """Make the targets that the command line names; returns the exit code: 0, or 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the bench: it has plan.yaml")
    parser.add_argument("--cifar10", help="the source of CIFAR-10's training images: parquet:FILE")
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
        sources = SOURCES | ({"cifar10": arguments.cifar10} if arguments.cifar10 else {})
        out = arguments.out or arguments.folder / TARGETS
        for name in arguments.only or plan["targets"]:
            if (out / name).is_dir():
                print(f"{name}: is there")
            elif plan["targets"][name]["data"] not in sources:
                print(f"{name}: left out, --cifar10 parquet:FILE is not given")
            else:
                make(plan, name, sources, seed, out / name)
                print(f"{name}: made", flush=True)
    except InputError as error:
        return print_bad_input(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
