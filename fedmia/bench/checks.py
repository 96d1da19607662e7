"""What an entry has to keep before its scores stand on the board.

Python cannot be kept from reading anything, so the check looks at what an attack opens, and at
what it finds in an encoder that nobody has seen: one that is trained for the check, by the recipe
of a target and a seed of its own.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import fedmia
from fedmia.bench.board import TargetRow
from fedmia.bench.entries import SOURCE, BenchEntry, read_entry
from fedmia.bench.scoring import Entrant, TargetScores, describe_key, score_target
from fedmia.bench.targets import (
    CARD,
    COMMON,
    PLAN,
    RESULTS,
    ROLE_NAMES,
    ROLES,
    SHADOWS,
    Images,
    Target,
    assign_roles,
    find_images,
    have_images,
    keep_encoder,
    read_targets,
)
from fedmia.partitions.sizes import FEWEST
from fedmia.records.rows import BROKEN
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.settings.tree import to_tree
from fedmia.storage.runfolder import RunFolder

# Ways to the objects of the evaluation, which know the roles.
PEEKS = ("gc.get_objects", "gc.get_referrers", "sys._current_frames")
SECRET = (PLAN, CARD, ROLES, COMMON, RESULTS)  # parts of paths below a bench that no attack opens
STRICT = 50  # times as strict as 95 % are the intervals by which an entry is refused
RUN_AGAIN = 1000  # seed of the repetition


def check_entry(
    place: Path, folder: Path, data: Sequence[str], say: Callable[[str], None] = lambda line: None
) -> Iterator[str]:
    """Check an entry: its files, its traps, and what it gives when it is run again.

    Args:
        place: folder of the entry, `ATTACK/HASH`.
        folder: of the bench.
        data: sources of the targets' images; none: those of digits alone are run.
        say: takes a line after each step that takes long.

    Yields:
        What was found to be in order, and what was not looked at, one line each.

    Raises:
        InputError: what is not in order, a trap that it lacks, or that nothing can be run again.
    """
    targets = {target.name: target for target in read_targets(folder)}
    entry = read_entry(place, targets)
    yield f"structure and hashes: {entry.attack}, {sum(map(len, entry.by_key.values()))} results"
    for key in entry.by_key:
        refuse_trapped(entry, key, targets)
    yield "traps: nothing found in the stored scores"
    name = load_source(place, entry.attack) if ":" in entry.attack else entry.attack
    if name == entry.attack and Entrant(name, entry.options).hash() != entry.source:
        raise InputError(f"entry '{place}' is of another source of {name} than this one's")
    images = find_images(targets.values(), data)
    there = {target.name for target in have_images(targets.values(), images)}
    for key, rows in entry.by_key.items():
        knows, _, shadows = key.removesuffix(" shadows").partition(", ")
        attack = {"name": name, **entry.options}
        entrant = Entrant.of(attack, knows, int(shadows or 0))
        if entrant.key != key or not (stored := entry.scores(key)):
            raise InputError(f"entry '{place}' has no scores of an attack that {describe_key(key)}")
        traps = [name for name, target in targets.items() if target.refuses]
        every = [targets[one] for one in dict.fromkeys([*rows, *traps])]
        here = [target for target in every if target.name in there]
        if not any(target.name in stored and not target.trap for target in here):
            raise InputError(
                f"entry '{place}', {describe_key(key)}: no target with scores can be run again, "
                f"traps apart (has {', '.join(stored)}); --data names sources of their images"
            )
        apart = list[float]()
        for target in here:
            scores = run_guarded(entrant, target, folder, images, RUN_AGAIN)
            say(f"run again: {target.name}")
            if target.refuses and target.name not in stored:
                refuse_untrapped(place, target.name, scores)
            apart.append(refuse_other(target.name, stored.get(target.name), scores))
        again = [target.name for target in here if target.name in stored]
        traps = [one for one in traps if one in stored]
        yield (
            f"repeatable, {describe_key(key)}: {len(again)} targets, traps among them: "
            f"{', '.join(traps) or 'none, as it can run on none'}; with another seed AUCs "
            f"are at most {max(apart):.3f} apart, each within the {100 - 5 / STRICT:g} % interval "
            "of its row; no role and no class was opened by this process"
        )
        if left := [one for one in stored if targets[one] not in here]:
            yield f"NOT RUN AGAIN, as --data names no source of their images: {', '.join(left)}"
        yield check_unseen(entrant, stored, here, images, folder)


def refuse_trapped(entry: BenchEntry, key: str, targets: Mapping[str, Target]) -> None:
    """Refuse scores that tell members where nothing is to be told.

    Args:
        entry: with its scores.
        key: what its attacker knows.
        targets: by name.

    Raises:
        InputError: naming the trap.
    """
    for name, scores in entry.scores(key).items():
        auc = TargetRow(scores, STRICT).auc
        if targets[name].refuses and auc.excludes(0.5):
            raise InputError(
                f"{entry.attack} finds members in the trap {name}, where nothing should be: "
                f"AUC {auc}"
            )


def refuse_untrapped(place: Path, trap: str, again: TargetScores | str) -> None:
    """Refuse an entry without scores in a trap on which its attack runs, or breaks.

    Args:
        place: folder of the entry.
        trap: in which it has no scores.
        again: what the attack gives there.

    Raises:
        InputError: naming the trap.
    """
    if not isinstance(again, str) or again.startswith(BROKEN):
        why = again if isinstance(again, str) else "its attack can run there"
        raise InputError(f"entry '{place}' has no scores in the trap {trap}: {why}")


def load_source(place: Path, attack: str) -> str:
    """Import the source of an entry; the name by which settings find its class.

    Args:
        place: folder of the entry.
        attack: `package.module:Class`, whatever the package.

    Returns:
        `MODULE:Class`.

    Raises:
        InputError: it cannot be imported.
    """
    module = f"entry_{place.name}"
    spec = importlib.util.spec_from_file_location(module, place / SOURCE)
    assert spec is not None and spec.loader is not None
    sys.modules[module] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[module])
    except Exception as error:
        raise InputError(f"'{place / SOURCE}': {type(error).__name__}: {error}") from None
    return f"{module}:{attack.rpartition(':')[2]}"


def run_guarded(
    entrant: Entrant, target: Target, folder: Path, images: Images, seed: int
) -> TargetScores | str:
    """The scores of an attack that looks at nothing of a bench but what its view reads.

    Args:
        entrant: the attack.
        target: one of the bench, or one that was trained for the check.
        folder: of the bench.
        images: at least the target's.
        seed: of the attack's own choices.

    Returns:
        The scores, or a reason on one line.

    Raises:
        InputError: it opened a card, roles, or results, or looked at who calls it.
    """
    source = Path(inspect.getfile(registry.load("attack", entrant.name)))
    with note_opened([folder, target.folder], source) as opened:
        scores = score_target(entrant, target, images, seed)
    if opened:
        raise InputError(f"{entrant.name} reads '{opened[0]}', which tells who is a member")
    return scores


@contextmanager
def note_opened(folders: list[Path], source: Path) -> Iterator[list[str]]:
    """A list that gets the path of every secret file below these folders that this process opens
    inside, by whatever name, and every way to the evaluation's objects that it takes. No other
    process, no descriptor that is open already, and no frame of a traceback is seen.

    Args:
        folders: of the bench and of the target.
        source: file of the attack: what asks for a frame of it asks for its callers.

    Yields:
        The list.
    """
    opened = list[str]()
    roots = {path for one in folders for path in (one.absolute(), one.resolve())}
    ours = str(source), str(Path(fedmia.__file__).parent)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sys._getframe":
            code = arguments[0].f_code
            imports = code.co_name == "<module>"  # where the module of a new class is looked up
            opened.extend([event] * (code.co_filename.startswith(ours) and not imports))
        elif event in PEEKS:
            opened.append(event)
        elif event in ("open", "os.listdir", "os.scandir"):
            if not isinstance(arguments[0], str | bytes | os.PathLike):
                return
            path = Path(os.fsdecode(arguments[0]))
            for root, at in product(roots, {path.absolute(), path.resolve()}):
                if at.is_relative_to(root) and {*at.relative_to(root).parts} & {*SECRET}:
                    opened.append(str(at))

    _listeners().append(note)
    try:
        yield opened
    finally:
        _listeners().remove(note)


@cache
def _listeners() -> list[Callable[[str, tuple[Any, ...]], None]]:
    """Who hears of this process's events; Python's own hooks can never be taken away again."""
    listeners = list[Callable[[str, tuple[Any, ...]], None]]()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        for listener in listeners:
            listener(event, arguments)

    sys.addaudithook(hook)
    return listeners


def refuse_other(name: str, stored: TargetScores | str | None, again: TargetScores | str) -> float:
    """Refuse scores that a repetition with another seed does not give again.

    Args:
        name: of the target.
        stored: scores of the entry; None: it has none there.
        again: those of the repetition.

    Returns:
        How far the two AUCs are apart; 0 without scores.

    Raises:
        InputError: with both AUCs.
    """
    if isinstance(again, str) or isinstance(stored, str) or stored is None:
        if isinstance(again, str) != (isinstance(stored, str) or stored is None):
            why = again if isinstance(again, str) else "it has scores now"
            raise InputError(f"{name}: the entry cannot be repeated: {why}")
        return 0.0
    auc, now = (TargetRow(one, STRICT).auc for one in (stored, again))
    if not auc.low <= now.value <= auc.high:
        raise InputError(f"{name}: AUC {auc} in the entry, {now.value:.2f} with another seed")
    return abs(auc.value - now.value)


def check_unseen(
    entrant: Entrant,
    stored: Mapping[str, TargetScores],
    targets: Sequence[Target],
    images: Images,
    folder: Path,
) -> str:
    """Run the attack on an encoder that is trained now, by the recipe of the target in which it
    finds most. It is refused where even the upper limit there is below half of the gain, so a
    claimed AUC of .8 nearly always, one of .6 seldom.

    Args:
        entrant: the attack.
        stored: its scores, by target.
        targets: whose images are there.
        images: theirs.
        folder: of the bench.

    Returns:
        What was found, one line.

    Raises:
        InputError: it finds that little, as one does that knows the targets' roles.
    """
    plain = [one for one in targets if one.name in stored and not (one.trap or one.federated)]
    if not plain:
        return "NOT CHECKED: an unseen encoder, as no plain target has scores and images"
    aucs = {target.name: TargetRow(stored[target.name], 1).auc for target in plain}
    best = max(plain, key=lambda target: aucs[target.name].value)
    auc = aucs[best.name]
    if not auc.low > 0.5:
        return "NOT CHECKED: an unseen encoder, as nothing was found in a target"
    with tempfile.TemporaryDirectory() as temporary:
        # A seed of 30 bits could be tried out: what it draws shows in the known images.
        place, seed = Path(temporary) / "unseen", secrets.randbits(62)
        fresh = train_again(best, images, place, seed)
        scores = run_guarded(entrant, fresh, folder, images, RUN_AGAIN)
    if isinstance(scores, str):
        raise InputError(f"an unseen encoder by the recipe of {best.name}: {scores}")
    now = TargetRow(scores, STRICT).auc
    if now.high < 0.5 + (auc.value - 0.5) / 2:
        raise InputError(
            f"{entrant.name} finds AUC {auc} in {best.name}, and {now} in an encoder of the same "
            "recipe that it has not seen: it knows the targets"
        )
    return f"unseen encoder: AUC {now} by the recipe of {best.name}, where it is {auc}"


def train_again(target: Target, images: Images, out: Path, seed: int) -> Target:
    """Train an encoder by the recipe of a target, on other members among its images.

    Nothing on the disk tells them afterwards: neither the seed, nor the scores of the run, nor its
    roles, which the returned target has in memory.

    Args:
        target: whose recipe it is.
        images: at least the target's.
        out: folder of the encoder, which is made.
        seed: of its images and its training.

    Returns:
        The encoder, as a target.
    """
    from fedmia.api import run_simulation  # Flower, which no other check needs
    from fedmia.federation.plan import make_plan

    tree = RunFolder(target.folder).facts()
    own = sorted({name for role in ROLE_NAMES for name in target.roles[role]})
    out.mkdir()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "images.npz"
        pixels = np.stack([images[name] for name in own]).transpose(0, 2, 3, 1)
        np.savez(file, x=pixels, y=np.zeros(len(own), np.int64))
        sizes = {**tree["split"], "test": FEWEST, "public": len(target.roles[SHADOWS])}
        sizes["nonmembers"] = len(own) - sizes["members"] - sizes["public"] - FEWEST
        data = {**tree["data"], "name": f"npz:{file}"}
        recipe = {**tree, "seed": seed, "data": data, "split": sizes}
        run = run_simulation(recipe, out=Path(temporary) / "run", quiet=True)
        plan = make_plan(run.settings)  # type: ignore[arg-type]
        settings = to_tree(run.settings) | {"seed": 0, "data": tree["data"]}
        keep_encoder(Path(temporary) / "run", out, settings)
        roles = assign_roles(plan.cast, plan.cast.data.digests())
    card = {one: value for one, value in target.card.items() if one != "common"} | {"files": {}}
    return replace(target, folder=out, card=card, unwritten=roles)
